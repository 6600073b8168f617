//! Text files of limited size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ocelli_error::{Error, ErrorKind, Result};

/// The largest JSON file that is read: an index of a million tensors has less.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Reads a text file of at most 64 MiB; `what` is its content in messages.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be read, [`ErrorKind::InvalidData`] if it is larger.
pub fn read_text(path: &Path, what: &str) -> Result<String> {
    let failed = |e| Error::io(&format!("cannot read {what}"), path, e);
    let mut text = String::new();
    // One byte above the limit reveals a file that is too large, even an endless one such as /dev/zero.
    File::open(path).map_err(failed)?.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        let message =
            format!("cannot read {what}, {}: it is larger than {} MiB", path.display(), MAX_TEXT_BYTES >> 20);
        return Err(Error::new(ErrorKind::InvalidData, message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn an_endless_file_is_refused() {
        let error = read_text(Path::new("/dev/zero"), "the configuration").expect_err("it has no end");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("/dev/zero: it is larger than 64 MiB"), "{error}");
    }
}
