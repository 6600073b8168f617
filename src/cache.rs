//! Where the programs keep what they can make again: exported models, text embeddings.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::atomic_file::write_atomically;
use crate::error::{Error, ErrorKind, Result};

/// The cache folder: what `OCELLI_CACHE` names, else `ocelli` in the user's cache folder
/// (`$XDG_CACHE_HOME` or `~/.cache`; `~/Library/Caches` on macOS; `%LOCALAPPDATA%` on Windows).
///
/// # Errors
/// [`ErrorKind::Unavailable`] where the environment names none of these.
pub fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("OCELLI_CACHE") {
        return Ok(folder);
    }
    let user = if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Caches"))
    } else if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else {
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))
    };
    user.map(|folder| folder.join("ocelli")).ok_or_else(|| {
        let message = "no cache folder: the environment names no home; set OCELLI_CACHE to a folder";
        Error::new(ErrorKind::Unavailable, message)
    })
}

/// What to do where the cache folder cannot be used.
const REMEDY: &str = "set OCELLI_CACHE to a folder that can be written";

/// Makes a folder of the cache, and those above it.
pub fn create_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| cannot("create the cache folder", folder, e))
}

/// Removes a folder of the cache with all that is in it; one that is not there is no error.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(cannot("clear the cache folder", folder, e))
        }
        _ => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> Error {
    let message = format!("cannot {what}, {}: {error}; {REMEDY}", path.display());
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// A lock between processes, held while it lives: whoever makes an entry of the cache holds it.
pub struct Lock {
    /// Closing the file gives the lock back.
    _file: File,
}

impl Lock {
    /// Waits until no other process holds the lock `path`.
    pub fn acquire(path: &Path) -> Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(|e| cannot("write the cache's lock", path, e))?;
        file.lock().map_err(|e| cannot("lock the cache", path, e))?;
        Ok(Self { _file: file })
    }
}

/// The hash of large files without reading them each time: what `compute` said once is kept under the files' paths,
/// sizes and times of change.
pub(crate) fn remembered_hash(files: &[PathBuf], compute: impl FnOnce() -> String) -> Result<String> {
    let mut identity = Sha256::new();
    for file in files {
        let read = || -> std::io::Result<(PathBuf, u64, u128)> {
            let meta = file.metadata()?;
            let changed = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
            Ok((file.canonicalize()?, meta.len(), changed))
        };
        let (path, bytes, changed) = read().map_err(|e| Error::io("cannot read the weights", file, e))?;
        identity.update(format!("{}\0{bytes}\0{changed}\0", path.display()).as_bytes());
    }
    let folder = cache_folder()?.join("hashes");
    let entry = folder.join(short_hex(&identity.finalize()));
    if let Ok(known) = std::fs::read_to_string(&entry)
        && known.len() == 64
        && known.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return Ok(known);
    }
    let hash = compute();
    let kept = create_folder(&folder)
        .and_then(|()| write_atomically(&entry, |writer| std::io::Write::write_all(writer, hash.as_bytes())));
    if let Err(e) = kept {
        tracing::warn!("the checkpoint's hash will have to be computed again next time: {e}");
    }
    Ok(hash)
}

/// Lower-case hex of the first 12 bytes: enough to tell entries of a cache apart.
pub(crate) fn short_hex(bytes: &[u8]) -> String {
    bytes.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

/// [`short_hex`] of a text's SHA-256.
pub fn short_hash(text: &str) -> String {
    short_hex(&Sha256::digest(text.as_bytes()))
}
