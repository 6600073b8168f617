//! TensorRT's C++ interface with results: [`part`] has the functions, [`build`] builds plans, [`run`] runs them.
//!
//! When a call fails, TensorRT returns null or `false` and passes the reason to its logger. So every call here checks the
//! result and takes the reason from the [log](super::log).

pub(super) mod build;
pub(super) mod part;
pub(super) mod run;

use crate::tensor::ElementType;
use std::ffi::c_void;
use std::path::Path;

/// The address of a function of a library.
fn function(library: &Path, name: &str) -> Result<*const c_void, String> {
    let opened = crate::library::open(library)?;
    // SAFETY: only the address is taken; the caller gives it its type.
    let address = unsafe { opened.get::<*const c_void>(name.as_bytes()) }.map(|symbol| *symbol);
    address.map_err(|_| format!("{} does not export `{name}`", library.display()))
}

/// Converts an element type of TensorRT (`nvinfer1::DataType`), or returns why it is not supported.
fn element_type(number: i32) -> Result<ElementType, String> {
    const NAMES: [&str; 12] = [
        "kFLOAT", "kHALF", "kINT8", "kINT32", "kBOOL", "kUINT8", "kFP8", "kBF16", "kINT64", "kINT4", "kFP4",
        "kE8M0",
    ];
    let name = usize::try_from(number).ok().and_then(|number| NAMES.get(number).copied());
    Ok(match name {
        Some("kFLOAT") => ElementType::F32,
        Some("kHALF") => ElementType::F16,
        Some("kINT32") => ElementType::I32,
        Some("kINT64") => ElementType::I64,
        Some("kUINT8") => ElementType::U8,
        Some("kBOOL") => ElementType::Bool,
        Some(other) => return Err(format!("TensorRT's element type {other} is not supported")),
        None => return Err(format!("TensorRT's element type {number} is not supported")),
    })
}
