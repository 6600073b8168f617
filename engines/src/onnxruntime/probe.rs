//! Asks a shared library whether it is an ONNX Runtime this crate can use, before `ort` binds itself to it.
//!
//! `ort` panics where a library states a version but does not hand out the API, and keeps what it loaded for the life
//! of the process; so the question is put here first.

use crate::elf;
use libloading::Library;
use ort::sys::{ORT_API_VERSION, OrtApiBase};
use std::ffi::CStr;
use std::path::Path;

/// Loads the library and returns the version it states, or one line that says why it cannot be used.
///
/// The library stays loaded: unloading ONNX Runtime is not safe once its threads or statics exist, and the next thing
/// to happen is that `ort` loads the same file.
pub(super) fn probe(path: &Path) -> Result<String, String> {
    if let Some((needed, present)) = elf::shortfall(path) {
        return Err(format!("the file is cut off: it has {present} bytes of at least {needed}"));
    }
    // SAFETY: loading runs the library's initialisers. The path comes from the user or from a documented place, and
    // ONNX Runtime's initialisers ask nothing of their caller.
    let library = unsafe { Library::new(path) }.map_err(|error| one_line(&error))?;
    let library = Box::leak(Box::new(library));

    // SAFETY: the type is the declaration of this symbol in onnxruntime_c_api.h, unchanged since version 1.0; a
    // library that exports the name with another meaning is not guarded against.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const OrtApiBase>(b"OrtGetApiBase\0") }
        .map_err(|_| "it is a library, but not ONNX Runtime: `OrtGetApiBase` is missing".to_owned())?;
    // SAFETY: as above; the function takes nothing and returns a pointer to a static or null.
    let base = unsafe { base().as_ref() }.ok_or("`OrtGetApiBase` returned nothing")?;

    // SAFETY: `base` was filled in by the library, which leaks above and so outlives every use of the string.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err("it states no version".to_owned());
    }
    // SAFETY: not null, and documented to be terminated by a null byte and never freed.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();

    // SAFETY: any number may be asked for; null is the documented answer to one that is not supported.
    let api = unsafe { (base.GetApi)(ORT_API_VERSION) };
    if api.is_null() || minor(&version).is_none_or(|minor| minor < ORT_API_VERSION) {
        return Err(format!("it is version {version}, 1.{ORT_API_VERSION} or newer is needed"));
    }
    Ok(version)
}

/// The middle number of `1.31.1`.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// The loader's own words, which libloading keeps in the source.
pub(crate) fn one_line(error: &libloading::Error) -> String {
    use std::error::Error;
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
