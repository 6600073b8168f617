//! NVIDIA's driver, asked before anything that needs it: without one, TensorRT answers null at best.

use crate::error::{Error, ErrorKind, Result};
use crate::onnxruntime::probe::one_line;
use libloading::Library;
use std::ffi::c_int;

/// What the driver's library is called.
const NAME: &str = "libcuda.so.1";

/// Makes sure that there is a driver with a GPU; what CUDA version the driver serves, as `(13, 0)`.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no driver, it does not start, or it has no GPU.
pub(super) fn driver() -> Result<(u32, u32)> {
    let unavailable = |why: String| {
        let message = format!("no NVIDIA GPU can be used: {why}");
        Error::new(ErrorKind::Unavailable, message)
    };
    // SAFETY: loading runs the driver's initialisers, which ask nothing of their caller.
    let library = unsafe { Library::new(NAME) }
        .map_err(|error| unavailable(format!("{}; install NVIDIA's driver", one_line(&error))))?;
    // Stays for the life of the process, as everything that uses it does.
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the symbols have these types in cuda.h.
    let (init, version, count) = unsafe {
        let init = library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit\0");
        let version = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0");
        let count = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDeviceGetCount\0");
        match (init, version, count) {
            (Ok(init), Ok(version), Ok(count)) => (init, version, count),
            _ => return Err(unavailable(format!("{NAME} is not NVIDIA's driver"))),
        }
    };
    let call = |what: &str, result: c_int| match result {
        0 => Ok(()),
        code => Err(unavailable(format!("{what} answers {code}"))),
    };
    let (mut number, mut gpus) = (0, 0);
    // SAFETY: no flags exist; the pointers are to integers of this function.
    unsafe {
        call("cuInit", init(0))?;
        call("cuDriverGetVersion", version(&mut number))?;
        call("cuDeviceGetCount", count(&mut gpus))?;
    }
    if gpus < 1 {
        return Err(unavailable("the driver has none".to_owned()));
    }
    let number = u32::try_from(number).unwrap_or(0);
    Ok((number / 1000, number % 1000 / 10))
}
