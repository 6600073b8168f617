//! Text files that people edit, of limited size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::errors::invalid;
use ocelli_error::{Error, Result};

/// The largest JSON file that is read: an index of a million tensors has less.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Reads a text file of at most 64 MiB, without the byte order mark that editors put before it; `what` is its content in
/// messages.
///
/// # Errors
/// [`ErrorKind::Io`](ocelli_error::ErrorKind::Io) if it cannot be read, [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is larger or not UTF-8.
pub fn read_text(path: &Path, what: &str) -> Result<String> {
    let failed = |e| Error::io(&format!("cannot read {what}"), path, e);
    let invalid = |why: &str| invalid(format!("cannot read {what}, {}: {why}", path.display()));
    let mut bytes = Vec::new();
    // One byte above the limit reveals a file that is too large, even an endless one such as /dev/zero.
    File::open(path).map_err(failed)?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(invalid(&format!("it is larger than {} MiB", MAX_TEXT_BYTES >> 20)));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text; save it as UTF-8"))?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_text() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.txt");
        for (bytes, expected) in [
            (&b"\xEF\xBB\xBFdog\r\n"[..], Ok("dog\r\n")),
            (b"dog", Ok("dog")),
            (b"\xFF\xFEd\0", Err("a.txt: it is not UTF-8 text")),
        ] {
            std::fs::write(&path, bytes).expect("it can be written");
            match (read_text(&path, "the classes").map_err(|e| e.to_string()), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (found, expected) => panic!("{found:?}, expected {expected:?}"),
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_endless_file_is_refused() {
        let error = read_text(Path::new("/dev/zero"), "the configuration").expect_err("it has no end");
        assert_eq!(error.kind(), ocelli_error::ErrorKind::InvalidData);
        assert!(error.to_string().contains("/dev/zero: it is larger than 64 MiB"), "{error}");
    }
}
