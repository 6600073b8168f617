//! Hashes of contents, as the record has them.

use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

use ocelli::cache::sha256_of_file;
use ocelli::{Error, Result};

/// The hexadecimal digits of a hash that are on record.
const DIGITS: usize = 32;

/// The hash of a file; `None` if it does not exist. What cannot be hashed, such as a folder, has a hash of its own.
pub(crate) fn hash_of_file(path: &Path) -> io::Result<Option<String>> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Ok(Some("not a file".into())),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let is_link = std::fs::symlink_metadata(path).is_ok();
            return Ok(is_link.then(|| "a link to nothing".into()));
        }
        Err(e) => return Err(e),
    }
    sha256_of_file(path).map(|hash| Some(hash[..DIGITS].to_owned()))
}

/// The same, with an error that names the file.
pub(crate) fn hash_on_disk(path: &Path) -> Result<Option<String>> {
    hash_of_file(path).map_err(|e| Error::io("cannot read", path, e))
}

/// The hash of a content, as that of a file which has it.
pub(crate) fn hash_of_bytes(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes)[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()
}
