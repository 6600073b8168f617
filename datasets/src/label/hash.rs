//! Hashes of contents, as the record has them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use ocelli::{Error, Result};

/// The hash of a file; `None` if it does not exist. What cannot be hashed, such as a folder, has a hash of its own.
pub(crate) fn hash_on_disk(path: &Path) -> Result<Option<String>> {
    hash_of_file(path).map_err(|e| Error::io("cannot read", path, e))
}

fn hash_of_file(path: &Path) -> io::Result<Option<String>> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Ok(Some("not a file".into())),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let is_link = std::fs::symlink_metadata(path).is_ok();
            return Ok(is_link.then(|| "a link to nothing".into()));
        }
        Err(e) => return Err(e),
    }
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = [0; 1 << 14];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(hex(&hash.finalize()))),
            bytes => hash.update(&buffer[..bytes]),
        }
    }
}

/// The hash of a content, as that of a file which has it.
pub(crate) fn hash_of_bytes(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

/// The first 16 bytes of a hash in hexadecimal.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
