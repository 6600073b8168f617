//! Every change of an output folder: tests stop a run at any of them, as `kill -9` or a full disk would.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

#[cfg(unix)]
pub(crate) use std::os::unix::fs::symlink as link;
#[cfg(windows)]
pub(crate) use std::os::windows::fs::symlink_file as link;

use ocelli::atomic_file::{sync_folder, write_atomically};
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

/// Replaces a file at once, as [`write_atomically`]. A stop before or after `write` leaves the former one.
pub(crate) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> Result<T> {
    may_write().map_err(|e| Error::io("cannot write", path, e))?;
    write_atomically(path, |out| {
        let written = write(out)?;
        may_write()?;
        Ok(written)
    })
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

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    may_write().and_then(|()| fs::rename(from, to)).map_err(|e| Error::io("cannot write", to, e))
}

/// Gives a temporary file in the same folder a name, of which a power failure leaves the former file or this one. A link is
/// replaced, and not its target.
pub(crate) fn put(part: &Path, path: &Path) -> Result<()> {
    rename(part, path)?;
    sync(path.parent().unwrap_or(Path::new("")))
}

/// Syncs what was created, renamed or removed in a folder.
pub(crate) fn sync(folder: &Path) -> Result<()> {
    sync_folder(folder).map_err(|e| Error::io("cannot write", folder, e))
}

/// The value that was found; `None` for what is not there.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Removes a file or a link, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = if_there(may_write().and_then(|()| fs::remove_file(path)));
    removed.map(drop).map_err(|e| Error::io("cannot remove", path, e))
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

pub(crate) fn create_folders(path: &Path) -> Result<()> {
    let created = may_write().and_then(|()| fs::create_dir_all(path));
    created.map_err(|e| Error::io("cannot create the folder", path, e))
}

pub(crate) fn link_hard(source: &Path, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    if REFUSES_HARD_LINKS.get() {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    fs::hard_link(source, path)
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
pub(crate) use stops::{REFUSES_HARD_LINKS, WRITES_LEFT};

#[cfg(test)]
mod stops {
    use std::cell::Cell;

    thread_local! {
        /// Set to refuse hard links, as between two file systems.
        pub(crate) static REFUSES_HARD_LINKS: Cell<bool> = const { Cell::new(false) };
        /// Writes until the run stops. Once stopped, nothing more is written until this is set again, as in a process that ended.
        pub(crate) static WRITES_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }
}
