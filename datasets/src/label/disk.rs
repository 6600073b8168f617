//! Every change of an output folder: tests stop a run at any of them, as `kill -9` or a full disk would.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use ocelli::atomic_file::write_atomically;
use ocelli::{Error, ErrorKind, Result};

/// Starts a file, or empties it.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    may_write()?;
    File::create(path)
}

/// Opens a file to read and append to it, and creates it if it is not there.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    may_write()?;
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

/// Writes a file and syncs it. Half of it may be there after a stop.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut out = create(path)?;
    out.write_all(bytes)?;
    out.sync_all()
}

/// Replaces a file at once, as [`write_atomically`].
pub(crate) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> Result<T> {
    may_write().map_err(|e| Error::io("cannot write", path, e))?;
    write_atomically(path, write)
}

/// Writes bytes after the first `end` bytes of a file, in place of what an earlier stop left there, and syncs them. A stop can
/// leave half of them.
pub(crate) fn append(mut file: &File, end: u64, bytes: &[u8]) -> io::Result<()> {
    let stop = may_write();
    let written = if stop.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(written)?;
    stop.and_then(|()| file.sync_data())
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    may_write()?;
    fs::rename(from, to)
}

/// Removes a file or a link, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    may_write()?;
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes the folders without files in a folder, and itself if it has none.
pub(crate) fn remove_empty_folders(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&entry.path());
        }
    }
    // One that is not empty is not removed.
    drop(may_write().and_then(|()| fs::remove_dir(folder)));
}

pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    may_write()?;
    fs::create_dir_all(path)
}

pub(crate) fn link_hard(source: &Path, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    if REFUSES_HARD_LINKS.get() {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    fs::hard_link(source, path)
}

#[cfg(unix)]
pub(crate) fn link(source: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(source, path)
}

#[cfg(windows)]
pub(crate) fn link(source: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(source, path)
}

/// Adds to an I/O error that no work is lost.
pub(crate) fn resumable(error: Error) -> Error {
    if error.kind() != ErrorKind::Io {
        return error;
    }
    let message = format!("{error}; finished images are kept, and running it again continues from there");
    Error::new(ErrorKind::Io, message).with_source(error)
}

fn may_write() -> io::Result<()> {
    #[cfg(test)]
    match WRITES_LEFT.get() {
        0 => return Err(io::Error::other("stopped by the test")),
        u64::MAX => {}
        some => WRITES_LEFT.set(some - 1),
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// Whether hard links are refused, as between two file systems.
    pub(crate) static REFUSES_HARD_LINKS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Writes until the run stops. Once stopped, nothing more is written until this is set again.
    pub(crate) static WRITES_LEFT: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) };
}
