//! Files of models, and what every engine says about one that it cannot load.

use ocelli_error::{Error, Result};
use std::path::Path;

/// The name of a model in errors, if it is a file.
pub(crate) fn name_of(model: &Path) -> Result<String> {
    let name = model.display().to_string();
    if model.is_file() {
        return Ok(name);
    }
    Err(unusable(&name, if model.exists() { "not a file" } else { "no such file" }))
}

pub(crate) fn unusable(model: &str, reason: &str) -> Error {
    Error::invalid_data(format!("cannot load the model, {model}: {reason}"))
}

pub(crate) fn unreadable(model: &str, error: std::io::Error) -> Error {
    Error::invalid_data(format!("cannot read the model, {model}: {error}")).with_source(error)
}

/// The path of a folder for compiled models, which is created if it is missing.
pub(crate) fn cache_folder(folder: &Path) -> Result<&str> {
    let no_text = || std::io::Error::other("the path is not Unicode");
    let path = std::fs::create_dir_all(folder).and_then(|()| folder.to_str().ok_or_else(no_text));
    path.map_err(|error| Error::io(CANNOT_CACHE, folder, error))
}

/// Keeps other processes from compiling models into a folder until the result is dropped.
pub(crate) fn lock_cache(folder: &Path) -> Result<std::fs::File> {
    let path = Path::new(cache_folder(folder)?).join("lock");
    let lock = std::fs::File::create(path).and_then(|file| file.lock().map(|()| file));
    lock.map_err(|error| Error::io(CANNOT_CACHE, folder, error))
}

const CANNOT_CACHE: &str = "cannot cache compiled models";
