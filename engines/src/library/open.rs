//! Loads a shared library; errors are one line.

use crate::elf;
use libloading::Library;
use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Every library that was loaded.
static LOADED: Mutex<Vec<&Library>> = Mutex::new(Vec::new());

/// Loads a library for the life of the process, or returns one line that says why it cannot be loaded.
///
/// It is never unloaded: that is not safe once the library has started threads, and the inference libraries do.
///
/// # Errors
/// The loader's message, or that the file is truncated.
pub fn open(path: &Path) -> Result<&'static Library, String> {
    if let Some((needed, present)) = elf::shortfall(path) {
        return Err(format!("the file is truncated: it has {present} bytes of at least {needed}"));
    }
    // SAFETY: loading runs the library's initialisers. The path comes from the user or from a documented place, and the
    // initialisers of the libraries that this crate loads expect nothing of their caller.
    let library = unsafe { Library::new(path) }.map_err(|error| one_line(&error))?;
    let library = Box::leak(Box::new(library));
    // A check for leaks sees what is not unloaded as in use.
    LOADED.lock().unwrap_or_else(PoisonError::into_inner).push(library);
    Ok(library)
}

/// The loader's own message, which libloading keeps in the source.
fn one_line(error: &libloading::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
