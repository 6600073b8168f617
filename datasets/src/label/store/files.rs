//! The record of what was written: the hash of every label file, so that files which a person changed are recognised.
//!
//! A file is ours while its content has the recorded hash. It is the person's from the first change on, and a removed file
//! counts as changed. Nothing here replaces or removes a file of the person.
//!
//! A file is written in three steps, each of them synced: its content under a temporary name beside it, its hash in the
//! record, and the rename. After a stop, a temporary file whose hash is recorded shows that the rename is missing. Without
//! one the rename is done, so that a file which is missing was removed by the person. A file that is to be removed gets a
//! temporary name before the record says so, and its own again after a stop in between.

mod copies;
mod recover;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::label::hash::{hash_of_bytes, hash_on_disk};
use crate::label::store::layout::{HANDLED, PROPOSALS};
use crate::label::store::state::{Event, FileEntry, Staged, State};
use crate::label::store::{ClassHashes, Meaning};
use crate::label::{Format, disk};
use ocelli::{Error, Result};

/// Files that wait for their rename, to sync the record once for all of them.
const FILES_PER_COMMIT: usize = 32;
const TIME_PER_COMMIT: Duration = Duration::from_secs(2);
/// In place of the hash of a file that a person changed or saved: no file has it.
const SAVED: &str = "saved by a person";
/// The start of the same for a file that was corrected in a shard, or is the person's with others of its image.
const MERGED: &str = "merged: ";
/// Temporary files are named `.ocelli-*.part`.
const PART: (&str, &str) = (".ocelli-", ".part");

/// The owner of a file: Ocelli or the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It does not exist and was never written.
    Nobody,
    /// It is what was written last.
    Ours,
    /// It was changed or removed since, or was never ours.
    Person,
}

/// The content of a file under its temporary name.
pub(crate) struct Part {
    path: PathBuf,
    pub hash: String,
    /// The hash of the file that is there.
    on_disk: Option<String>,
}

impl State {
    /// The owner of a file: Ocelli or the person.
    pub fn owner(&self, file: &str) -> Result<Owner> {
        Ok(self.owner_of(file, self.on_disk(file)?.as_deref()))
    }

    /// The hash of a file that is there.
    pub fn on_disk(&self, file: &str) -> Result<Option<String>> {
        hash_on_disk(&self.root.join(file))
    }

    /// `true` if one of these files is the person's.
    pub fn has_persons(&self, files: impl IntoIterator<Item = String>) -> Result<bool> {
        for file in files {
            if self.owner(&file)? == Owner::Person {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn owner_of(&self, file: &str, on_disk: Option<&str>) -> Owner {
        match self.files.get(file) {
            None if on_disk.is_none() => Owner::Nobody,
            None => Owner::Person,
            Some(entry) => match (entry.hash.as_deref(), on_disk) {
                (None, None) => Owner::Nobody,
                // It was to be removed, and a stop prevented it.
                (None, there) if there == entry.before.as_deref() => Owner::Ours,
                (Some(ours), Some(there)) if ours == there => Owner::Ours,
                _ => Owner::Person,
            },
        }
    }

    /// The number of classes that a recorded file was written with, if classes were added since.
    pub fn earlier_classes(&self, file: &str, classes: &ClassHashes) -> Option<usize> {
        self.files.get(file).and_then(|entry| classes.earlier(entry.meaning.classes))
    }

    /// The recorded meaning of a file.
    pub fn recorded_meaning(&self, file: &str) -> Option<Meaning> {
        self.files.get(file).map(|entry| entry.meaning)
    }

    /// `true` if this file is on record as written.
    pub fn is_recorded(&self, file: &str) -> bool {
        self.files.get(file).is_some_and(|entry| entry.hash.is_some())
    }

    /// Removes the label files that are ours.
    pub fn remove_labels(&mut self) -> Result<()> {
        let of_images = self.files.values().filter(|entry| entry.meaning.is_of_image());
        let files: Vec<String> = of_images.map(|entry| entry.file.clone()).collect();
        for file in files {
            self.remove(&file)?;
        }
        self.commit()
    }

    /// The files of the person whose format or classes are not those that are wanted. `wanted` is `None` for files that do
    /// not matter. The labels of an image whose classes are the first ones of the wanted classes stay valid.
    pub fn conflicts(
        &self,
        classes: &ClassHashes,
        wanted: impl Fn(&str) -> Option<Meaning>,
    ) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (file, entry) in self.files.iter().filter(|(_, entry)| entry.hash.is_some()) {
            let is_earlier = |wanted: Meaning| {
                let is_valid = entry.meaning.is_of_image() && wanted.format == entry.meaning.format;
                is_valid && classes.earlier(entry.meaning.classes).is_some()
            };
            let is_other = wanted(file).is_some_and(|wanted| wanted != entry.meaning && !is_earlier(wanted));
            if is_other && self.owner(file)? == Owner::Person {
                found.push(file.clone());
            }
        }
        Ok(found)
    }

    /// The files of the person become ours: `files`, and those on record.
    pub fn discard_corrections(&mut self, files: impl Iterator<Item = (String, Meaning)>) -> Result<()> {
        let known = self.files.values().filter(|entry| entry.hash.is_some());
        let known = known.map(|entry| (entry.file.clone(), entry.meaning));
        let all: HashMap<String, Meaning> = files.chain(known).collect();
        for (file, meaning) in all {
            let on_disk = self.on_disk(&file)?;
            if self.owner_of(&file, on_disk.as_deref()) == Owner::Person {
                self.note(&file, on_disk, meaning);
            }
        }
        self.commit()
    }

    /// Records a file without writing it: what is on disk is ours if `hash` is its hash, and the person's otherwise.
    pub fn note(&mut self, file: &str, hash: Option<String>, meaning: Meaning) {
        let entry = FileEntry { file: file.into(), before: hash.clone(), hash, meaning };
        self.files.insert(file.into(), entry.clone());
        if self.log.file.is_some() {
            self.staged.push(Staged { entry, part: None });
        }
    }

    /// The owner of a file. The label file of an image is on record as the person's from now on if it was changed, and stays so
    /// if it becomes what it was again.
    pub fn see(&mut self, file: &str) -> Result<Owner> {
        let owner = self.owner(file)?;
        if owner == Owner::Person
            && let Some(FileEntry { hash: Some(hash), meaning, .. }) = self.files.get(file)
            && meaning.is_of_image()
            && !is_noted(hash)
        {
            self.note(file, Some(SAVED.into()), *meaning);
        }
        Ok(owner)
    }

    /// Notes that a file is as it was in the other split, if it was moved from there or copied.
    pub fn note_moved(&mut self, file: &str, former: &str, is_moved: bool) -> Result<()> {
        let Some(entry) = self.files.get(former).filter(|entry| entry.hash.is_some()).cloned() else {
            return Ok(());
        };
        let is_noted = is_moved && entry.hash.as_deref().is_some_and(is_noted);
        if is_noted || !self.is_recorded(file) && (is_moved || self.on_disk(file)? == entry.hash) {
            self.note(file, entry.hash, entry.meaning);
            if is_moved {
                self.note(former, None, entry.meaning);
                // What is proposed for it has another name, too.
                self.remove(&format!("{PROPOSALS}{former}"))?;
                if let Some(meaning) = self.recorded_meaning(&format!("{HANDLED}{former}")) {
                    self.note(&format!("{HANDLED}{file}"), None, meaning);
                }
            }
        }
        Ok(())
    }

    /// The same for files that are the person's together: from the first one on that a person changed or added. The others are
    /// as they were written, which is no correction of them. Returns whether they are the person's.
    pub fn see_together(&mut self, files: &BTreeSet<String>, meaning: Meaning) -> Result<bool> {
        let mut owners = Vec::with_capacity(files.len());
        for file in files {
            let owner = self.see(file)?;
            // One that a run removed was put back.
            let is_back = owner == Owner::Ours && !self.is_recorded(file);
            owners.push(if is_back { Owner::Person } else { owner });
        }
        let are_persons = owners.contains(&Owner::Person);
        for (file, owner) in files.iter().zip(owners).filter(|_| are_persons) {
            let known = self.recorded_meaning(file).unwrap_or(meaning);
            if owner == Owner::Ours {
                self.note(file, Some(merged(self.on_disk(file)?.as_deref())), known);
            } else if !self.is_recorded(file) {
                self.note(file, Some(SAVED.into()), meaning);
            }
        }
        Ok(are_persons)
    }

    /// The recorded files of these that are there and have this owner.
    pub fn existing_of(&self, owner: Owner, is_meant: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for file in self.files.keys().filter(|file| self.is_recorded(file) && is_meant(file)) {
            let on_disk = self.on_disk(file)?;
            // A mask that was removed is a correction in its folder.
            let is_mask = self.files[file].meaning.format == Some(Format::Masks);
            let is_there =
                on_disk.is_some() || is_mask && self.root.join(file).parent().is_some_and(Path::is_dir);
            if is_there && self.owner_of(file, on_disk.as_deref()) == owner {
                found.push(file.clone());
            }
        }
        Ok(found)
    }

    /// Writes files of the person, whatever is there: all of them, or none if one cannot be written. The record comes before
    /// the renames: a stop in between leaves the files as they were, and nothing overwrites them.
    pub fn write_for_person(&mut self, files: Vec<(String, Meaning, String)>) -> Result<()> {
        self.commit()?;
        let mut parts = Vec::with_capacity(files.len());
        let prepared = files.iter().try_for_each(|(file, _, text)| {
            parts.push(self.write_part(file, |out| out.write_all(text.as_bytes()))?.path);
            Ok(())
        });
        let recorded = prepared.and_then(|()| {
            files.iter().for_each(|(file, meaning, _)| self.note(file, Some(SAVED.into()), *meaning));
            self.commit()
        });
        if recorded.is_err() {
            parts.iter().for_each(|part| drop(disk::remove(part)));
        }
        recorded?;
        files.iter().zip(parts).try_for_each(|((file, ..), part)| disk::put(&part, &self.root.join(file)))
    }

    /// Gives a file the content that a person made of it in a shard; `None` if it was removed there.
    pub fn merge(&mut self, file: &str, meaning: Meaning, content: Option<&[u8]>) -> Result<()> {
        let path = self.root.join(file);
        match content {
            Some(bytes) => disk::put(&self.write_part(file, |out| out.write_all(bytes))?.path, &path)?,
            None => disk::remove(&path)?,
        }
        self.note(file, Some(merged(self.on_disk(file)?.as_deref())), meaning);
        self.commit()
    }

    /// `true` if a file of the person is as it was merged from a shard, or written.
    pub fn is_merged(&self, file: &str) -> Result<bool> {
        Ok(self.is_recorded_as(file, &merged(self.on_disk(file)?.as_deref())))
    }

    /// Records that what is there is ours.
    pub fn take_back(&mut self, file: &str, meaning: Meaning) -> Result<()> {
        self.note(file, self.on_disk(file)?, meaning);
        self.commit()
    }

    /// Writes the content of a file under its temporary name.
    pub fn write_part(
        &self,
        file: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Part> {
        let path = self.root.join(file);
        let part = part_path(&path);
        let cannot = |e: io::Error| match e.downcast::<Error>() {
            Ok(own) => own,
            Err(e) => Error::io("cannot write", &path, e),
        };
        let mut out = BufWriter::new(disk::create(&part).map_err(cannot)?);
        write(&mut out)
            .and_then(|()| out.flush())
            .and_then(|()| out.get_ref().sync_all())
            .inspect_err(|_| drop(disk::remove(&part)))
            .map_err(cannot)?;
        let hash = hash_on_disk(&part)?.unwrap_or_default();
        // It may have been changed meanwhile.
        Ok(Part { path: part, hash, on_disk: hash_on_disk(&path)? })
    }

    /// Writes bytes to a file at the next commit unless it is the person's. Those that are there already need no temporary file.
    pub fn place_bytes(&mut self, file: &str, meaning: Meaning, bytes: &[u8]) -> Result<Owner> {
        let on_disk = self.on_disk(file)?;
        let hash = hash_of_bytes(bytes);
        let (is_known, is_there) = (self.files.contains_key(file), on_disk.as_ref() == Some(&hash));
        match self.owner_of(file, on_disk.as_deref()) {
            // Without a record, a stop prevented it, or another version wrote the file.
            owner if is_there && (owner == Owner::Ours || !is_known) => {
                if self.files.get(file).is_none_or(|entry| entry.meaning != meaning) {
                    self.note(file, Some(hash), meaning);
                }
                Ok(Owner::Ours)
            }
            Owner::Person if is_known && (on_disk.is_some() || meaning.is_of_image()) => {
                if meaning.is_of_image() && !self.is_recorded(file) {
                    self.note(file, Some(SAVED.into()), meaning);
                }
                self.see(file)
            }
            _ => {
                let part = self.write_part(file, |out| out.write_all(bytes))?;
                self.place_part(file, meaning, part)
            }
        }
    }

    /// Gives a temporary file its name at the next commit, or removes it if the file is the person's.
    pub fn place_part(&mut self, file: &str, meaning: Meaning, part: Part) -> Result<Owner> {
        let Part { path: part, hash, on_disk } = part;
        let known = self.files.get(file);
        let owner = match self.owner_of(file, on_disk.as_deref()) {
            // What would be written is there, without a record: a stop prevented the record, or another version wrote it.
            Owner::Person if known.is_none() && on_disk.as_ref() == Some(&hash) => Owner::Ours,
            Owner::Person if on_disk.is_none() && !meaning.is_of_image() => Owner::Nobody,
            owner => owner,
        };
        if owner == Owner::Person {
            if known.is_none() && meaning.is_of_image() {
                self.note(file, Some(hash), meaning);
            }
            disk::remove(&part)?;
            return Ok(Owner::Person);
        }
        let entry = FileEntry { file: file.into(), hash: Some(hash), before: on_disk, meaning };
        self.staged.push(Staged { entry, part: Some(part) });
        Ok(Owner::Ours)
    }

    /// `true` if this content is on record for a file, even if the person changed the file since.
    pub fn is_recorded_as(&self, file: &str, hash: &str) -> bool {
        self.files.get(file).is_some_and(|entry| entry.hash.as_deref() == Some(hash))
    }

    /// Removes a file at the next commit if it is ours.
    pub fn remove(&mut self, file: &str) -> Result<Owner> {
        let on_disk = self.on_disk(file)?;
        let owner = self.owner_of(file, on_disk.as_deref());
        if owner == Owner::Ours
            && self.log.file.is_some()
            && let Some(known) = self.files.get(file)
        {
            let entry = FileEntry { hash: None, before: on_disk, ..known.clone() };
            self.staged.push(Staged { entry, part: None });
        }
        Ok(owner)
    }

    /// Commits if many files wait, or some of them for long: those of one image together.
    pub fn commit_if_due(&mut self) -> Result<()> {
        let is_due = self.staged.len() >= FILES_PER_COMMIT || self.committed.elapsed() >= TIME_PER_COMMIT;
        if is_due { self.commit() } else { Ok(()) }
    }

    /// Syncs the record and renames the files that wait for it.
    pub fn commit(&mut self) -> Result<()> {
        self.committed = Instant::now();
        if self.staged.is_empty() {
            return Ok(());
        }
        let staged = std::mem::take(&mut self.staged);
        let paths = staged.iter().map(|staged| self.root.join(&staged.entry.file));
        let folders: BTreeSet<PathBuf> =
            paths.filter_map(|path| path.parent().map(Path::to_owned)).filter(|path| path.is_dir()).collect();
        let sync = || folders.iter().try_for_each(|folder| disk::sync(folder));
        for Staged { entry, part } in &staged {
            let target = self.root.join(&entry.file);
            // One that was changed since stays.
            if part.is_none() && entry.is_removal() && hash_on_disk(&target)? == entry.before {
                disk::rename(&target, &aside_path(&target))?;
            }
        }
        // The record must not name a file that a power failure can remove.
        sync()?;
        self.append(Event::Files(staged.iter().map(|staged| staged.entry.clone()).collect()))?;
        for Staged { entry, part } in staged {
            let target = self.root.join(&entry.file);
            match &part {
                Some(part) if hash_on_disk(&target)? == entry.before => disk::rename(part, &target)?,
                Some(part) => {
                    if hash_on_disk(&target)? != entry.hash {
                        self.append(Event::Files(vec![entry.undone()]))?;
                    }
                    disk::remove(part)?;
                }
                None if entry.is_removal() => disk::remove(&aside_path(&target))?,
                None => {}
            }
        }
        sync()
    }
}

/// In place of the hash of a file that was corrected in a shard: no file has it, so that the file is the person's.
fn merged(content: Option<&str>) -> String {
    format!("{MERGED}{}", content.unwrap_or("removed"))
}

/// `true` for what is on record in place of the hash of a person's file.
fn is_noted(hash: &str) -> bool {
    hash == SAVED || hash.starts_with(MERGED)
}

/// The temporary name of a file, in its folder.
pub(crate) fn part_path(path: &Path) -> PathBuf {
    temporary(path, "")
}

/// The temporary name of a file that is to be removed.
pub(crate) fn aside_path(path: &Path) -> PathBuf {
    temporary(path, "-removed")
}

fn temporary(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hash = hash_of_bytes(&*name);
    path.with_file_name(format!("{}{}{what}{}", PART.0, &hash[..16], PART.1))
}
