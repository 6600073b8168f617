//! What a person saved for images whose labels are in `annotations.json` alone.
//!
//! That file has all images, so it cannot become the person's as the label file of one image does. It stays ours, and what
//! the person saved is in a record of its own, from which every run and every merge writes the annotations of these images.

use std::collections::BTreeMap;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::label::record::{Instance, Record, check_name};
use crate::label::settings::{DataSetOptions, Format};
use crate::label::store::disk;
use crate::label::store::folder::STATE_FOLDER;
use crate::label::store::written::ClassHashes;
use ocelli::{Error, ErrorKind, Result};

/// The version of the record's format.
const FORMAT: u32 = 1;
/// Images that a message names.
const NAMED: usize = 10;

/// The labels of an image as a person saved them.
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
    /// Whether they came from a shard, and were not saved here since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_merged: bool,
}

/// The content of the record.
#[derive(Serialize, Deserialize)]
struct Content {
    ocelli_label_saved: u32,
    images: Vec<SavedLabels>,
}

/// The record. It is written as a whole: people save few images.
#[derive(Default)]
pub(crate) struct Saved {
    path: PathBuf,
    images: BTreeMap<String, SavedLabels>,
}

impl Saved {
    fn path_in(root: &Path) -> PathBuf {
        root.join(STATE_FOLDER).join("saved.json")
    }

    /// Reads the record of a data set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is corrupt.
    pub fn load(root: &Path) -> Result<Self> {
        let path = Self::path_in(root);
        let corrupt = |why: &str| {
            let message = format!(
                "corrupt record of saved labels, {}: {why}; restore it, label into another output folder, or \
                 discard_corrections",
                path.display()
            );
            Error::new(ErrorKind::InvalidData, message).about("discard_corrections")
        };
        let bytes = match std::fs::read(&path) {
            Err(e) if e.kind() == NotFound => return Ok(Self { path, images: BTreeMap::new() }),
            bytes => bytes.map_err(|e| Error::io("cannot read the record of saved labels", &path, e))?,
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|e| corrupt(&e.to_string()))?;
        if content.ocelli_label_saved != FORMAT {
            return Err(corrupt("it is of another version"));
        }
        let mut images = BTreeMap::new();
        for image in content.images {
            check_name(&image.name).map_err(|why| corrupt(&why))?;
            images.insert(image.name.clone(), image);
        }
        Ok(Self { path, images })
    }

    /// Removes the record of a data set.
    pub fn discard(root: &Path) -> Result<Self> {
        let path = Self::path_in(root);
        disk::remove(&path).map_err(|e| Error::io("cannot remove", &path, e))?;
        Ok(Self { path, images: BTreeMap::new() })
    }

    /// Adds images, in place of those with the same names, and writes the record.
    pub fn add(&mut self, images: impl IntoIterator<Item = SavedLabels>) -> Result<()> {
        let mut all = self.images.clone();
        all.extend(images.into_iter().map(|image| (image.name.clone(), image)));
        let content = Content { ocelli_label_saved: FORMAT, images: all.values().cloned().collect() };
        disk::replace(&self.path, |file| Ok(serde_json::to_writer(file, &content)?))?;
        self.images = all;
        Ok(())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.images.contains_key(name)
    }

    pub fn get(&self, name: &str) -> Option<&SavedLabels> {
        self.images.get(name)
    }

    pub fn images(&self) -> impl Iterator<Item = &SavedLabels> {
        self.images.values()
    }

    /// The record of an image with what the person saved in place of what was found. Instances of classes that were added
    /// since are those that were found: the person has not looked for them.
    pub fn over(&self, record: Record, classes: &ClassHashes) -> Record {
        let Some(saved) = self.images.get(&record.name) else { return record };
        let known = if saved.classes == classes.all { None } else { classes.earlier(saved.classes) };
        let is_same_size = (saved.width, saved.height) == (record.width, record.height);
        let since = known.filter(|_| is_same_size).unwrap_or(usize::MAX);
        let mut instances = saved.instances.clone();
        instances.extend(record.instances.into_iter().filter(|found| found.class >= since));
        Record { width: saved.width, height: saved.height, instances, ..record }
    }

    /// Refuses options and classes with which the data set would lose what the person saved.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] with the images and the way out.
    pub fn check(
        &self,
        root: &Path,
        options: &DataSetOptions,
        classes: &ClassHashes,
        way_out: &str,
    ) -> Result<()> {
        let has_all = options.has(Format::Coco) && options.yolo_folders().is_empty();
        let is_valid = |image: &&SavedLabels| {
            has_all && (image.classes == classes.all || classes.earlier(image.classes).is_some())
        };
        let lost: Vec<&str> =
            self.images().filter(|image| !is_valid(image)).map(|image| image.name.as_str()).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let more =
            if lost.len() > NAMED { format!(" and {} more", lost.len() - NAMED) } else { String::new() };
        let message = format!(
            "cannot write the data set, {}: labels in annotations.json that a person saved have another format or other \
             classes, for {}{more}; {way_out}",
            root.display(),
            lost[..lost.len().min(NAMED)].join(", ")
        );
        Err(Error::new(ErrorKind::Mismatch, message))
    }
}
