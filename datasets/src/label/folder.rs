//! The output folder: whose it is, who works in it, and what was done there.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::pictures::Shard;
use super::settings::DataSetOptions;
use ocelli::atomic_file::write_atomically;
use ocelli::{Error, ErrorKind, Result};

/// Holds the journal; that it is there tells a data set of ours from a folder of somebody's.
pub(super) const STATE_FOLDER: &str = ".ocelli-label";

/// A folder that no other process writes a data set into.
pub(super) struct OutputFolder {
    root: PathBuf,
    /// Closing it gives the lock back.
    _lock: File,
}

/// What the folder holds, in a file of the state folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Contents {
    /// The part of the job that is here; all of it with none.
    pub shard: Option<Shard>,
    /// How many pictures the whole job has.
    pub pictures: u64,
    /// Hash of their names.
    pub names_sha256: String,
    /// How the files are written.
    pub options: DataSetOptions,
    /// Bytes of the journal when all files were last written from it, 0 where they never were.
    pub written: u64,
}

impl OutputFolder {
    /// Finds out, without touching anything, whether a data set can go there.
    pub fn check(root: &Path) -> Result<()> {
        let refuse = |why: &str| {
            Err(Error::new(ErrorKind::InvalidArgument, format!("--output, {}: {why}", root.display())))
        };
        if root.is_file() {
            return refuse("it is a file; name a folder");
        }
        if root.file_name().is_none() {
            return refuse("name a folder for the data set alone");
        }
        let is_empty = std::fs::read_dir(root).map_or(true, |mut entries| entries.next().is_none());
        if !is_empty && !root.join(STATE_FOLDER).is_dir() {
            return refuse("it is not empty and holds no data set of `ocelli label`; name another folder");
        }
        Ok(())
    }

    /// Makes the folder where it is not there, and keeps other processes out while this lives.
    pub fn open(root: &Path) -> Result<Self> {
        Self::check(root)?;
        let state = root.join(STATE_FOLDER);
        std::fs::create_dir_all(&state).map_err(|e| Error::io("cannot create the folder", root, e))?;
        Self::lock(root)
    }

    /// Opens a folder that is there.
    pub fn open_existing(root: &Path) -> Result<Self> {
        if !root.join(STATE_FOLDER).is_dir() {
            let why = if root.exists() { "it holds no data set of `ocelli label`" } else { "no such folder" };
            let message = format!("no data set, {}: {why}", root.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Self::lock(root)
    }

    fn lock(root: &Path) -> Result<Self> {
        let path = root.join(STATE_FOLDER).join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| Error::io("cannot write", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { root: root.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => {
                let message = format!(
                    "cannot write the data set, {}: another process is at work in this folder; wait for it, or name \
                     another --output",
                    root.display()
                );
                Err(Error::new(ErrorKind::Io, message))
            }
            Err(TryLockError::Error(e)) => Err(Error::io("cannot lock", &path, e)),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn journal_path(&self) -> PathBuf {
        self.root.join(STATE_FOLDER).join("journal.jsonl")
    }

    /// A file for features that wait for the decoder.
    pub fn spill_path(&self) -> PathBuf {
        self.root.join(STATE_FOLDER).join("features.part")
    }

    fn contents_path(&self) -> PathBuf {
        self.root.join(STATE_FOLDER).join("contents.json")
    }

    /// What was written down of the folder; none where nothing was.
    pub fn contents(&self) -> Result<Option<Contents>> {
        let path = self.contents_path();
        match std::fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("cannot read", &path, e)),
            // Written whole or not at all; what a power failure left is like nothing.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        }
    }

    pub fn set_contents(&self, contents: &Contents) -> Result<()> {
        write_atomically(&self.contents_path(), |file| Ok(serde_json::to_writer_pretty(file, contents)?))
    }

    /// Forgets what was done here; the files of the data set stay until they are written again.
    pub fn restart(&self) -> Result<()> {
        for path in [self.contents_path(), self.journal_path()] {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("cannot remove", &path, e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
