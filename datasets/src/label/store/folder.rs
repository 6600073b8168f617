//! The output folder: its lock, and the description of its contents.

use std::fs::{File, TryLockError};
use std::io::ErrorKind::ReadOnlyFilesystem;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::label::{DataSetOptions, Shard, disk};
use ocelli::{Error, ErrorKind, Result};

/// The folder of the journal. A folder without it is not a labelled data set.
pub(crate) const STATE_FOLDER: &str = ".ocelli-label";

/// The data set that a path is in, if any: the closest folder with the record of `ocelli label`. Whoever writes there may
/// overwrite labels that a person corrected.
pub fn data_set_around(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find(|folder| folder.join(STATE_FOLDER).is_dir()).map(Path::to_path_buf)
}

/// The journal of the data set in a folder.
pub(crate) fn journal_path(root: &Path) -> PathBuf {
    root.join(STATE_FOLDER).join("journal.jsonl")
}

/// An output folder, locked so that no other process writes to it.
pub(crate) struct OutputFolder {
    pub root: PathBuf,
    /// Closing the file releases the lock; `None` for a folder that is only read.
    _lock: Option<File>,
}

/// The error for a folder that is no place for the data set.
pub(crate) fn unusable(root: &Path, why: &str) -> Error {
    Error::invalid_argument(format!("output folder, {}: {why}", root.display()))
}

/// The contents of an output folder, as its state has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// The shard of the job that is here; `None` for the whole job.
    pub shard: Option<Shard>,
    /// Number of images of the whole job.
    #[serde(rename = "pictures")]
    pub images: u64,
    /// SHA-256 of their names.
    pub names_sha256: String,
    /// The options of the files.
    pub options: DataSetOptions,
    /// Length of the journal when all files were last written from it, in bytes; 0 if they never were.
    pub written: u64,
}

impl OutputFolder {
    /// The folders that are written to, below the folder itself.
    pub const FOLDERS: [&str; 9] =
        ["", STATE_FOLDER, "review", "labels", "images", "segments", "voc", "masks", "added"];

    /// Checks whether a data set can be written to this folder. Nothing is changed.
    pub fn check(root: &Path) -> Result<()> {
        let is_empty = || std::fs::read_dir(root).map_or(true, |mut entries| entries.next().is_none());
        let why = if root.is_file() {
            "it is a file; name a folder"
        } else if root.file_name().is_none() {
            "name a folder of its own for the data set"
        } else if !root.join(STATE_FOLDER).is_dir() && !is_empty() {
            "it is not empty and contains no labelled data set; name another folder"
        } else {
            return Ok(());
        };
        Err(unusable(root, why))
    }

    /// Creates the folder if it does not exist, and locks it.
    pub fn open(root: &Path) -> Result<Self> {
        Self::check(root)?;
        let state = root.join(STATE_FOLDER);
        // A power failure must not leave what is written next without the folder that says whose it is.
        disk::create_folders(&state)?;
        disk::sync(root)?;
        Self::lock(root)
    }

    /// Locks a folder that exists. One on a file system that is only read needs no lock: nothing can write to it.
    pub fn open_existing(root: &Path) -> Result<Self> {
        if !root.join(STATE_FOLDER).is_dir() {
            let why = if root.exists() { "it contains no labelled data set" } else { "no such folder" };
            return Err(Error::invalid_argument(format!("no data set, {}: {why}", root.display())));
        }
        Self::lock(root)
    }

    fn lock(root: &Path) -> Result<Self> {
        let path = root.join(STATE_FOLDER).join("lock");
        let file = match File::options().create(true).truncate(false).write(true).open(&path) {
            Err(e) if e.kind() == ReadOnlyFilesystem => {
                return Ok(Self { root: root.to_owned(), _lock: None });
            }
            file => file.map_err(|e| Error::io("cannot write", &path, e))?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Self { root: root.to_owned(), _lock: Some(file) }),
            Err(TryLockError::WouldBlock) => {
                let message = format!(
                    "cannot write the data set, {}: another process is writing to this folder; wait for it, or choose \
                     another output folder",
                    root.display()
                );
                Err(Error::new(ErrorKind::Io, message))
            }
            Err(TryLockError::Error(e)) => Err(Error::io("cannot lock", &path, e)),
        }
    }

    /// Checks that the journal is there if the data set was finished before.
    pub fn check_journal(&self, contents: Option<&Contents>) -> Result<()> {
        let path = journal_path(&self.root);
        let is_empty = std::fs::metadata(&path).map_or(true, |there| there.len() == 0);
        if is_empty && contents.is_some_and(|contents| contents.written > 0) {
            let message =
                format!("corrupt journal, {}: it is empty or missing; restart the data set", path.display());
            return Err(Error::invalid_data(message).about("restart"));
        }
        Ok(())
    }

    /// Checks that the data set that is there is this shard of the job.
    pub fn check_shard(&self, contents: Option<&Contents>, shard: Option<Shard>) -> Result<()> {
        let Some(there) = contents.filter(|contents| contents.shard != shard) else { return Ok(()) };
        let name = |shard: Option<Shard>| {
            shard.map_or("the whole job".into(), |s| format!("shard {}/{}", s.index(), s.count()))
        };
        let (root, there, this) = (self.root.display(), name(there.shard), name(shard));
        let why = format!("it holds {there}, this is {this}; choose another folder or restart");
        Err(Error::mismatch(format!("output folder, {root}: {why}")).about("restart"))
    }

    /// The file for features that wait for the decoder.
    pub fn spill_path(&self) -> PathBuf {
        self.root.join(STATE_FOLDER).join("features.part")
    }
}
