//! NVIDIA's driver, loaded at run time by `cudarc`.
//!
//! `cudarc` panics where the library or one of its functions is missing, so nothing may call it before [`start`] has
//! succeeded.

use cudarc::driver::{DriverError, result, sys};
use ocelli_error::{Error, Result};
use std::ffi::CStr;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The oldest supported CUDA version, which has every function that this crate calls.
const OLDEST: i32 = 12_000;

/// Loads and initialises the driver, once per process. A failure is not remembered: the driver may be installed while
/// the program runs.
pub(super) fn start() -> Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    // SAFETY: loading a library runs its initialisers; this is the driver that the operating system has installed.
    if !unsafe { sys::is_culib_present() } {
        let library = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
        return Err(unavailable(format!(
            "NVIDIA's driver is not installed ({library} was not found); install driver 580 or newer for CUDA 13"
        )));
    }
    let version = version().map_err(|error| unavailable(reason(error)))?;
    if version < OLDEST {
        return Err(unavailable(format!(
            "NVIDIA's driver supports CUDA {}, expected {} or newer; install a newer driver",
            display_version(version),
            display_version(OLDEST)
        )));
    }
    result::init().map_err(|error| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            unavailable(format!("there is none on this machine ({})", reason(error)))
        }
        _ => unavailable(format!("NVIDIA's driver does not start: {}", reason(error))),
    })?;
    tracing::debug!(version, "loaded NVIDIA's driver");
    *started = true;
    Ok(())
}

/// The newest CUDA version that the driver supports, as `1000 · major + 10 · minor`.
pub(super) fn version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the function writes one `int`.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok(version)
}

/// `12080` as `12.8`.
pub(super) fn display_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

pub(super) fn unavailable(why: impl fmt::Display) -> Error {
    Error::unavailable(format!("cannot use an NVIDIA GPU: {why}"))
}

/// An error of the driver; `what` says what failed, and on which device.
pub(super) fn failed(what: impl fmt::Display, error: DriverError) -> Error {
    Error::execution(format!("{what}: {}", reason(error))).with_source(error)
}

/// `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`
pub(super) fn reason(error: DriverError) -> String {
    let text = |text: Result<&CStr, DriverError>| text.ok().map(|text| text.to_string_lossy().into_owned());
    let name = text(error.error_name()).unwrap_or_else(|| format!("{:?}", error.0));
    text(error.error_string()).map_or(name.clone(), |description| format!("{description} ({name})"))
}
