//! Copies of COCO's files as they were written: what differs from them is the person's.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use ocelli::{Error, Result};

use super::Part;
use crate::label::disk;
use crate::label::hash::hash_of_bytes;
use crate::label::store::STATE_FOLDER;
use crate::label::store::state::State;

impl State {
    pub(super) fn copy_path(&self, file: &str, hash: &str) -> PathBuf {
        self.root.join(STATE_FOLDER).join(format!("{hash}-{file}"))
    }

    /// Keeps a copy of what is to be written.
    pub fn keep_copy(&self, file: &str, part: &Part) -> Result<()> {
        let copy = self.copy_path(file, &part.hash);
        if copy.exists() {
            return Ok(());
        }
        let mut from = File::open(&part.path).map_err(|e| Error::io("cannot read", &part.path, e))?;
        disk::replace(&copy, |out| std::io::copy(&mut from, out).map(drop))
    }

    /// Keeps a file of the person that is followed: as what is there from now on, and as the last one of its name.
    pub fn keep_followed(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let copies = [self.copy_path(file, &hash_of_bytes(bytes)), self.root.join(STATE_FOLDER).join(file)];
        copies.iter().try_for_each(|copy| disk::replace(copy, |out| out.write_all(bytes)))
    }

    /// A file as it was written last, if a copy of it is there.
    pub fn read_copy(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let Some(hash) = self.files.get(file).and_then(|entry| entry.hash.as_deref()) else {
            return Ok(None);
        };
        let path = self.copy_path(file, hash);
        let copy = disk::if_there(std::fs::read(&path)).map_err(|e| Error::io("cannot read", &path, e))?;
        Ok(copy.filter(|bytes| hash_of_bytes(bytes) == hash))
    }

    /// Removes the copies of what was written before the last time; all of them if the file was removed.
    pub fn remove_old_copies(&self, file: &str) {
        let Some(entry) = self.files.get(file) else { return };
        let kept = entry.hash.as_ref().map(|hash| self.copy_path(file, hash));
        let end = format!("-{file}");
        for there in std::fs::read_dir(self.root.join(STATE_FOLDER)).into_iter().flatten().flatten() {
            let is_copy = there.file_name().to_string_lossy().ends_with(&end);
            if is_copy && kept != Some(there.path()) {
                drop(disk::remove(&there.path()));
            }
        }
    }
}
