//! The arguments of this program, also where another one runs it in its own process, as Python's console scripts do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the arguments, the program's name first, for the rest of the process; the first ones stay.
pub(crate) fn set(arguments: Vec<OsString>) {
    drop(ARGUMENTS.set(arguments));
}

/// The arguments of the program, its name first.
pub(crate) fn arguments() -> Vec<OsString> {
    ARGUMENTS.get().map_or_else(|| std::env::args_os().collect(), Clone::clone)
}

/// The program to start for another process of this one.
///
/// # Errors
/// If the system does not know where it is.
pub(crate) fn executable() -> std::io::Result<PathBuf> {
    match ARGUMENTS.get().and_then(|arguments| arguments.first()) {
        Some(script) => Ok(script.into()),
        None => std::env::current_exe(),
    }
}
