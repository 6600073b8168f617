//! The journal has what was found; all else that is known about a data set is here: a log of what happened to its files and
//! images, and the state that follows from it. One line is one change: after a stop, it is there as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::label::disk;
use crate::label::record::check_name;
use crate::label::store::{
    ClassHashes, Contents, Kind, Log, Meaning, OutputFolder, STATE_FOLDER, journal_path,
};
use crate::label::{Instance, Record};
use ocelli::{Error, ErrorKind, Result};

/// The version of the log's format.
const FORMAT: u32 = 1;
pub(super) const KIND: Kind = Kind {
    name: "record of a data set",
    remedy: "restore it, label into another output folder, or restart with discard_corrections",
    parameter: "discard_corrections",
};

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    ocelli_label_state: u32,
}

const HEADER: Header = Header { ocelli_label_state: FORMAT };

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// Files that were written or removed, or that became the person's.
    Files(Vec<FileEntry>),
    /// Known images, by name.
    Images(BTreeMap<String, KnownImage>),
    /// Labels that a person saved for images in COCO's file, in place of those of the same names.
    Saved(Vec<SavedLabels>),
    /// COCO's files that a person changed, which are ours again, with the labels that were saved from them.
    Followed { files: Vec<FileEntry>, saved: Vec<SavedLabels> },
    /// The saved labels of these images were undone.
    Forgotten(Vec<String>),
    /// All of the saved labels were discarded.
    Discarded,
    /// The contents of the data set; `None` while a restart has not started to label.
    Contents(Option<Contents>),
}

/// A recorded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// The path below the output folder, with `/` as separator.
    pub file: String,
    /// The hash of what was written; `None` if the file was removed, or never written because the person's is there.
    pub(super) hash: Option<String>,
    /// The hash of the file that it replaced; `None` if there was none.
    pub(super) before: Option<String>,
    #[serde(flatten)]
    pub(super) meaning: Meaning,
}

impl FileEntry {
    /// The record if the file was changed before what was to be written got its name.
    pub(super) fn undone(&self) -> Self {
        Self { hash: self.before.clone(), ..self.clone() }
    }

    /// `true` if a file that was there is to be removed.
    pub(super) fn is_removal(&self) -> bool {
        self.hash.is_none() && self.before.is_some()
    }
}

/// An image of the data set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KnownImage {
    /// The path of its file when it was last named.
    pub source: String,
    /// Size and time of the image that its label files and its copy describe, as the last finished run left them.
    pub identity: (u64, u64),
    /// Size and time of earlier images: a copy of one of them was not edited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<(u64, u64)>,
    /// Its labels that were corrected for an earlier image, as the placer names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outdated_labels: Vec<String>,
    /// A hash of the content of that image; `None` until it was seen at its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Its name in a data set without a history, if the last run named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Its labels were removed because its file is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// A restart with other classes leaves it out, and no run has said so yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_left_out: bool,
}

impl KnownImage {
    /// Notes that the image has this size and time now.
    pub fn describe(&mut self, image: (u64, u64)) {
        if self.identity != image {
            if !self.earlier.contains(&self.identity) {
                self.earlier.push(self.identity);
            }
            (self.identity, self.content) = (image, None);
        }
    }
}

/// The labels that a person gave an image in `annotations.json`: saved where they are in it alone, or changed in the file itself.
///
/// That file has all images, so it cannot become the person's as the label file of one image does. It stays ours, and what
/// the person made is in a record of its own, from which every run and every merge writes the annotations of these images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedLabels {
    /// The name of the image in the data set.
    pub name: String,
    /// The size of the image that the person saw, in pixels.
    pub width: u32,
    pub height: u32,
    /// A hash of the names of the classes.
    pub classes: u64,
    pub instances: Vec<Instance>,
    /// They came from a shard, and were not saved here since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_merged: bool,
    /// The label files that a person had corrected before, as the placer names them. Any other correction is later, and counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub older: Vec<String>,
}

/// A file whose content is under its temporary name, or that is to be removed.
pub(crate) struct Staged {
    pub(super) entry: FileEntry,
    pub(super) part: Option<PathBuf>,
}

/// The state, and the files that wait to be renamed.
pub(crate) struct State {
    pub(super) root: PathBuf,
    pub(super) log: Log,
    pub(super) files: BTreeMap<String, FileEntry>,
    pub(super) staged: Vec<Staged>,
    pub(super) committed: Instant,
    pub(super) images: BTreeMap<String, KnownImage>,
    /// The names of the images whose change is not in the log yet.
    pub(super) changed: BTreeSet<String>,
    /// Labels that a person saved for images in COCO's file, by the name of the image.
    pub(in crate::label) saved: BTreeMap<String, SavedLabels>,
    /// `None` if the data set was never written, or a restart has not started to label.
    pub(in crate::label) contents: Option<Contents>,
    /// Entries of files, images and saved labels in the log, those that later ones replaced included.
    logged: u64,
}

impl State {
    /// That of a data set that has none yet; without a file, it is in memory only.
    pub fn new(root: &Path, file: Option<File>) -> Self {
        Self {
            root: root.to_owned(),
            log: Log::new(&root.join(STATE_FOLDER).join("state.jsonl"), &KIND, file),
            files: BTreeMap::new(),
            staged: Vec::new(),
            committed: Instant::now(),
            images: BTreeMap::new(),
            changed: BTreeSet::new(),
            saved: BTreeMap::new(),
            contents: None,
            logged: 0,
        }
    }

    /// Reads the state of a data set to which nothing is written: it may be on a file system that is only read.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is corrupt, or missing although images were labelled; [`ErrorKind::Mismatch`] if a version
    /// before 0.1.0 wrote it.
    pub fn load(root: &Path) -> Result<Self> {
        let mut state = Self::load_with(root, false)?;
        // What changes is in memory alone.
        state.log.file = None;
        Ok(state)
    }

    /// Opens the state of a data set to write to it, or starts it if nothing is labelled yet. A log of which most is superseded
    /// is written again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is corrupt, or missing although images were labelled; [`ErrorKind::Mismatch`] if a
    /// version before 0.1.0 wrote it; [`ErrorKind::Io`] if it cannot be written.
    pub fn open(folder: &OutputFolder) -> Result<Self> {
        let mut state = Self::load_with(&folder.root, true)?;
        let live = (state.files.len() + state.images.len() + state.saved.len()) as u64;
        // Entries are about equally long.
        let live_bytes = state.log.length / state.logged.max(1) * live;
        if state.log.file.is_none() {
            state.start()?;
        } else if state.log.is_mostly_superseded(live_bytes) {
            Log::may_stay_long(Log::replace(&state.log.path, &HEADER, state.events().map(Ok)))?;
            return Self::load_with(&folder.root, true);
        }
        Ok(state)
    }

    fn load_with(root: &Path, writes: bool) -> Result<Self> {
        if root.join(STATE_FOLDER).join("written.jsonl").exists() {
            let why = "a version before 0.1.0 wrote it: label into another output folder";
            return Err(Error::mismatch(format!("data set, {}: {why}", root.display())));
        }
        let mut state = Self::new(root, None);
        let path = &state.log.path;
        let file = disk::if_there(File::options().read(true).write(writes).open(path))
            .map_err(|e| Error::io("cannot open the record of a data set", path, e))?;
        if file.is_some() {
            state.read(Log::new(&path.clone(), &KIND, file))?;
        } else if journal_path(root).exists() {
            return Err(state.log.corrupt("it is missing"));
        }
        Ok(state)
    }

    pub(super) fn read(&mut self, mut log: Log) -> Result<()> {
        let header = log.header::<Header>()?;
        if header.is_none_or(|header| header.ocelli_label_state != FORMAT) {
            return Err(log.corrupt("its first line is not that of a record of this version"));
        }
        log.read(|event, _| self.apply(event))?;
        self.log = log;
        Ok(())
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Files(files) => {
                self.logged += files.len() as u64;
                for file in files {
                    check_name(&file.file)?;
                    self.files.insert(file.file.clone(), file);
                }
            }
            Event::Images(images) => {
                images.keys().try_for_each(|name| check_name(name))?;
                self.logged += images.len() as u64;
                self.images.extend(images);
            }
            Event::Saved(images) => {
                self.logged += images.len() as u64;
                for image in images {
                    check_name(&image.name)?;
                    self.saved.insert(image.name.clone(), image);
                }
            }
            Event::Followed { files, saved } => {
                self.apply(Event::Files(files))?;
                self.apply(Event::Saved(saved))?;
            }
            Event::Forgotten(names) => names.iter().for_each(|name| drop(self.saved.remove(name))),
            Event::Discarded => self.saved.clear(),
            Event::Contents(contents) => self.contents = contents,
        }
        Ok(())
    }

    /// Writes the whole log with what still counts.
    pub fn start(&mut self) -> Result<()> {
        Log::replace(&self.log.path, &HEADER, self.events().map(Ok))?;
        *self = Self::load_with(&self.root, true)?;
        Ok(())
    }

    /// All that still counts.
    fn events(&self) -> impl Iterator<Item = Event> {
        [
            Event::Files(self.files.values().cloned().collect()),
            Event::Images(self.images.clone()),
            Event::Saved(self.saved.values().cloned().collect()),
            Event::Contents(self.contents.clone()),
        ]
        .into_iter()
    }

    /// Appends an event, after which it counts.
    pub(super) fn append(&mut self, event: Event) -> Result<()> {
        self.log.append(&event).map_err(|e| Error::io("cannot write", &self.log.path, e))?;
        self.apply(event).map_err(|why| Error::new(ErrorKind::Internal, why))
    }

    /// `true` if no file is on record.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The record of an image with what the person saved in place of what was found. Instances of classes that were added
    /// since are those that were found: the person has not looked for them.
    pub fn with_saved(&self, record: Record, classes: &ClassHashes) -> Record {
        let Some(saved) = self.saved.get(&record.name) else { return record };
        let known = if saved.classes == classes.all { None } else { classes.earlier(saved.classes) };
        let is_same_size = (saved.width, saved.height) == (record.width, record.height);
        let since = known.filter(|_| is_same_size).unwrap_or(usize::MAX);
        let mut instances = saved.instances.clone();
        // A class that a run was to add may not be there yet.
        instances.retain(|one| one.class < classes.count);
        instances.extend(record.instances.into_iter().filter(|found| found.class >= since));
        Record { width: saved.width, height: saved.height, instances, ..record }
    }

    /// Removes what a person saved for those of these images that have it.
    pub fn forget_saved(&mut self, mut images: Vec<String>) -> Result<()> {
        images.retain(|name| self.saved.contains_key(name));
        if images.is_empty() { Ok(()) } else { self.append(Event::Forgotten(images)) }
    }

    pub fn set_contents(&mut self, contents: Option<Contents>) -> Result<()> {
        if self.contents == contents { Ok(()) } else { self.append(Event::Contents(contents)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::folders::stopping;
    use crate::label::images::ImageFile;
    use crate::label::settings::Format;
    use crate::label::store::Meaning;

    const MEANING: Meaning = Meaning { format: Some(Format::Yolo), classes: 1 };

    #[test]
    fn a_log_of_which_most_is_superseded_is_written_again_after_any_stop() {
        for writes in 0.. {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let root = folder.path();
            let folder = OutputFolder::open(root).expect("it is empty");
            let mut state = State::open(&folder).expect("it is new");
            for changed in 0..40 {
                let file = ImageFile { path: root.join("a.png"), name: "a.png".into(), frame: None };
                state.add_image(&file, (1, 2));
                state.change_image("a.png", |image| image.describe((3, changed)));
                state.note("labels/train/a.txt", Some(changed.to_string()), MEANING);
                state.commit().and_then(|()| state.save_images()).expect("there is room");
            }
            let saved = SavedLabels {
                name: "a.png".into(),
                width: 2,
                height: 1,
                classes: 1,
                instances: Vec::new(),
                is_merged: false,
                older: Vec::new(),
            };
            state.append(Event::Saved(vec![saved])).expect("there is room");
            let known = (state.files.clone(), state.images.clone(), state.saved.clone());
            let long = state.log.length;
            assert!(long > 2000, "{long} bytes");
            let ended = stopping(writes, || State::open(&folder)).map(|state| state.log.length);
            let after = State::load(root).expect("it is as it was, or written again");
            assert!((after.files, after.images, after.saved) == known, "{writes} writes");
            assert_eq!(after.log.length < long / 2, ended.is_ok(), "{writes} writes");
            let Ok(length) = ended else { continue };
            assert!(length == after.log.length && writes > 1, "{writes} writes");
            // What is left is not written again.
            let bytes = std::fs::read(&after.log.path).expect("it is there");
            drop(State::open(&folder).expect("it is there"));
            assert_eq!(std::fs::read(&after.log.path).expect("it is there"), bytes);
            break;
        }
    }

    #[test]
    fn a_log_that_is_cut_at_any_byte_has_the_events_before() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        std::fs::create_dir(root.join(STATE_FOLDER)).expect("a temporary folder");
        let mut state = State::new(root, None);
        state.start().expect("there is room");
        let mut ends = vec![state.log.length];
        for name in ["a.png", "b/c.png", "d.png"] {
            let file = ImageFile { path: root.join(name), name: name.into(), frame: None };
            state.add_image(&file, (1, 2));
            state.save_images().expect("there is room");
            ends.push(state.log.length);
        }
        let path = state.log.path.clone();
        let whole = std::fs::read(&path).expect("it was written");
        let header = whole.iter().position(|byte| *byte == b'\n').expect("it has lines");
        assert_eq!(ends.last(), Some(&(whole.len() as u64)));
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("it can be written");
            let images = State::load(root).map(|state| state.images.len());
            let done = ends[1..].iter().filter(|end| **end <= cut as u64).count();
            match images {
                Ok(images) => assert!(cut > header && images == done, "{cut} bytes: {images} images"),
                Err(error) => {
                    assert!(cut <= header && error.kind() == ErrorKind::InvalidData, "{cut}: {error}");
                }
            }
        }
    }
}
