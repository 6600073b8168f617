//! The cache folder: exported models and text features, which can be made again at any time.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use crate::atomic_file::write_atomically;
use ocelli_error::{Error, ErrorKind, Result};

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
        let message = "no cache folder: the environment has no home folder; set OCELLI_CACHE to a folder";
        Error::new(ErrorKind::Unavailable, message)
    })
}

/// Creates a folder of the cache and its parents.
pub fn create_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| cannot("create the cache folder", folder, e))
}

/// Removes a folder of the cache with its content; a missing folder is fine.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(cannot("clear the cache folder", folder, e))
        }
        _ => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> Error {
    let path = path.display();
    let message = format!("cannot {what}, {path}: {error}; set OCELLI_CACHE to a writable folder");
    Error::new(ErrorKind::Io, message).with_source(error)
}

/// The SHA-256 of a file, lower-case hex.
pub fn sha256_of_file(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Ok(hex(&hash.finalize()))
}

/// A lock between processes, released on drop: the process that makes an entry of the cache holds it.
pub struct Lock {
    /// Closing the file releases the lock.
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

/// The hash of large files without reading them each time: the result of `compute` is cached under the paths, sizes and
/// modification times of the files.
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
        tracing::warn!("the hash of the weights is not cached and will be computed again: {e}");
    }
    Ok(hash)
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower-case hex of the first 12 bytes of a hash: enough to name an entry of the cache.
pub fn short_hex(hash: &[u8]) -> String {
    hex(&hash[..12])
}
