//! Hashes of contents, as the record has them.

use std::path::Path;

use ocelli::{Error, Result, cache::sha256_of_file};
use sha2::{Digest, Sha256};

use crate::label::disk::if_there;

/// The hexadecimal digits of a hash that are kept.
const LENGTH: usize = 32;

/// The hash of a file; `None` if it does not exist. What cannot be hashed, such as a folder, has a hash of its own.
pub(crate) fn hash_on_disk(path: &Path) -> Result<Option<String>> {
    let hash = || match if_there(std::fs::metadata(path))? {
        Some(there) if there.is_file() => Ok(Some(sha256_of_file(path)?[..LENGTH].to_owned())),
        Some(_) => Ok(Some("not a file".into())),
        None => Ok(path.is_symlink().then(|| "a link to nothing".into())),
    };
    hash().map_err(|e| Error::io("cannot read", path, e))
}

/// The hash of a content, as that of a file which has it.
pub(crate) fn hash_of_bytes(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes)[..LENGTH / 2].iter().map(|byte| format!("{byte:02x}")).collect()
}
