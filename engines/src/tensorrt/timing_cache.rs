//! The file of measured times: read if it fits, written whole or not at all.

use crate::error::{Error, ErrorKind, Result};
use std::fs;
use std::io::{ErrorKind as IoErrorKind, Write};
use std::path::Path;

/// What is in the file; nothing if there is none yet.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed("read", path, error)),
    }
}

/// Replaces the file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    // Beside it, under a name of this process: a rename within a folder is whole or not at all.
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = fs::File::create(&part)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // What cannot be removed was most likely never there.
        let _ = fs::remove_file(&part);
        failed("write", path, error)
    })
}

fn failed(verb: &str, path: &Path, error: std::io::Error) -> Error {
    let message = format!("cannot {verb} the timing cache, {}: {error}", path.display());
    Error::new(ErrorKind::InvalidArgument, message).with_source(error)
}
