//! Files that TensorRT fills and later reads, which are replaced atomically: measured times of kernels, compiled kernels.

use ocelli_error::{Error, Result};
use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::path::Path;

/// The content of a file; empty if it does not exist. `what` names the file in errors: "timing cache".
pub(super) fn read(what: &str, path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| failed("read", what, path, error)),
    }
}

/// Replaces a file.
pub(super) fn write(what: &str, path: &Path, bytes: &[u8]) -> Result<()> {
    // A rename within a folder is atomic; the temporary name is unique to this process.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).map_err(|error| {
        // If this fails, the file was most likely never created.
        let _ = fs::remove_file(&part);
        failed("write", what, path, error)
    })
}

fn failed(verb: &str, what: &str, path: &Path, error: std::io::Error) -> Error {
    let message = format!("cannot {verb} the {what} {}: {error}", path.display());
    Error::invalid_argument(message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_replaced_and_a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("times");
        assert_eq!(read("timing cache", &path).expect("it does not exist yet"), b"");
        for bytes in [&b"old"[..], b"new"] {
            write("timing cache", &path, bytes).expect("it can be written");
            assert_eq!(read("timing cache", &path).expect("it was written"), bytes);
        }
        let nowhere = folder.path().join("nowhere/times");
        let error = write("timing cache", &nowhere, b"x").expect_err("the folder does not exist").to_string();
        assert!(
            error.starts_with(&format!("cannot write the timing cache {}: ", nowhere.display())),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
