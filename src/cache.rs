//! The cache folder: exported models and text features, which can be made again at any time.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ocelli_export::contract::{file, hex};
use serde::{Serialize, de::DeserializeOwned};
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
    let message = "no cache folder: the environment has no home folder; set OCELLI_CACHE to a folder";
    user.map(|folder| folder.join("ocelli")).ok_or_else(|| Error::unavailable(message))
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

/// The most that the exports in the cache may take, in GB; `OCELLI_CACHE_LIMIT` is another number, 0 for no limit.
const LIMIT_GB: f64 = 50.0;

/// The bytes that exported models in the cache may take; `None` for no limit.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if `OCELLI_CACHE_LIMIT` is not a number.
pub fn export_limit() -> Result<Option<u64>> {
    let text = std::env::var("OCELLI_CACHE_LIMIT").unwrap_or_default();
    let gigabytes = if text.is_empty() { LIMIT_GB } else { text.parse().unwrap_or(f64::NAN) };
    if gigabytes.is_nan() || gigabytes < 0.0 {
        return Err(Error::argument("OCELLI_CACHE_LIMIT", text, "a number of GB, or 0 for no limit"));
    }
    Ok((gigabytes > 0.0).then_some((gigabytes * 1e9) as u64))
}

/// A checkpoint that was exported into the cache, with its options.
pub struct CachedExport {
    /// The folder.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The time of the last opening.
    pub opened: SystemTime,
}

impl CachedExport {
    /// The exports in the cache, those that were not opened for the longest time first.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where the environment names no folder for the cache.
    pub fn all() -> Result<Vec<Self>> {
        let folders = std::fs::read_dir(cache_folder()?.join("models")).into_iter().flatten().flatten();
        let export = |entry: std::fs::DirEntry| {
            let path = entry.path();
            let opened = path.join(file::MANIFEST).metadata().and_then(|meta| meta.modified()).ok()?;
            let mut bytes = 0;
            visit_files(&path, &mut |meta| bytes += meta.len());
            Some(Self { path, bytes, opened })
        };
        let mut all: Vec<_> = folders.filter_map(export).collect();
        all.sort_by_key(|export| export.opened);
        Ok(all)
    }

    /// `true` if it is of the model with this name, spelled as when it was exported.
    pub fn is_of(&self, name: &str) -> bool {
        let entry = self.path.file_name().unwrap_or_default().to_string_lossy();
        // Behind the name are the hashes of the weights and of the options.
        entry.rsplitn(3, '-').nth(2) == Some(&safe_name(name))
    }
}

/// Removes a folder of the cache's `models`, unless a process makes it or has it open.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if one does; [`ErrorKind::Io`].
pub fn remove_export(export: &Path) -> Result<()> {
    // Who makes it holds the first, and who has it open a share of the second. Nobody is waited for: two that make exports, and
    // room for them, would wait for each other.
    let locks = ["lock", IN_USE].map(|end| lock_file(&export.with_extension(end)));
    let is_held = |lock: &File| matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
    if locks.iter().flatten().any(is_held) {
        let message = format!("cannot remove {}: a running program has it open", export.display());
        return Err(Error::unavailable(message));
    }
    remove_folder(export)
}

// A share of a lock on a network file system needs a file that can be read.
fn lock_file(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

/// Removes the exports that were not opened for the longest time, until the others fit the limit. What a process has open stays.
pub(crate) fn remove_beyond(limit: u64) -> Result<()> {
    let all = CachedExport::all()?;
    let mut bytes: u64 = all.iter().map(|export| export.bytes).sum();
    for export in all {
        if bytes <= limit {
            break;
        }
        if remove_export(&export.path).is_ok() {
            tracing::warn!("removed for OCELLI_CACHE_LIMIT: {}", export.path.display());
            bytes -= export.bytes;
        }
    }
    Ok(())
}

/// Calls `with` for each file in a folder and its subfolders.
pub fn visit_files(folder: &Path, with: &mut dyn FnMut(&std::fs::Metadata)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => visit_files(&entry.path(), with),
            Ok(kind) if kind.is_file() => drop(entry.metadata().map(|meta| with(&meta))),
            _ => {}
        }
    }
}

/// The name of a model as the name of a file.
pub(crate) fn safe_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(40).collect()
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

/// The end of the name of the lock that those share that have an export open.
const IN_USE: &str = "used";

/// A lock between processes, released on drop: the process that makes an entry of the cache holds it.
#[derive(Debug)]
pub struct Lock {
    /// Closing the file releases the lock.
    _file: File,
}

impl Lock {
    /// Waits until no other process holds the lock `path`.
    pub fn acquire(path: &Path) -> Result<Self> {
        let file = lock_file(path).map_err(|e| cannot("write the cache's lock", path, e))?;
        file.lock().map_err(|e| cannot("lock the cache", path, e))?;
        Ok(Self { _file: file })
    }

    /// Keeps an export from being removed while it is open, where the cache can be written.
    pub(crate) fn keep(export: &Path) -> Option<Self> {
        let path = export.with_extension(IN_USE);
        let file = lock_file(&path).or_else(|_| File::open(&path)).ok()?;
        file.lock_shared().ok()?;
        Some(Self { _file: file })
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

/// The content of a file of the cache, or what `find` returns, which is written there. One process finds it, others wait.
pub(crate) fn remembered<T: Serialize + DeserializeOwned>(
    entry: &Path,
    find: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let known = || serde_json::from_slice(&std::fs::read(entry).ok()?).ok();
    if let Some(known) = known() {
        return Ok(known);
    }
    entry.parent().map_or(Ok(()), create_folder)?;
    let _lock = Lock::acquire(&entry.with_extension("lock"))?;
    if let Some(known) = known() {
        return Ok(known);
    }
    let found = find()?;
    write_atomically(entry, |writer| Ok(serde_json::to_writer(writer, &found)?))?;
    Ok(found)
}

/// Lower-case hex of the first 12 bytes of a hash: enough to name an entry of the cache.
pub fn short_hex(hash: &[u8]) -> String {
    hex(&hash[..12])
}
