//! Labels that a person saved for images that have them in `annotations.json` alone.
//!
//! That file has all images, so it cannot become the person's as the label file of one image does. It stays ours, and what
//! the person saved is in a record of its own, from which every run and every merge writes the annotations of these images.

use serde::{Deserialize, Serialize};

use crate::label::store::{ClassHashes, Event, State};
use crate::label::{DataSetOptions, Format, Instance, Record};
use ocelli::Result;

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
    /// They came from a shard, and were not saved here since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_merged: bool,
}

impl State {
    /// Adds images, in place of those with the same names.
    pub fn save_labels(&mut self, images: Vec<SavedLabels>) -> Result<()> {
        self.append(Event::Saved(images))
    }

    /// The record of an image with what the person saved in place of what was found. Instances of classes that were added
    /// since are those that were found: the person has not looked for them.
    pub fn with_saved(&self, record: Record, classes: &ClassHashes) -> Record {
        let Some(saved) = self.saved.get(&record.name) else { return record };
        let known = if saved.classes == classes.all { None } else { classes.earlier(saved.classes) };
        let is_same_size = (saved.width, saved.height) == (record.width, record.height);
        let since = known.filter(|_| is_same_size).unwrap_or(usize::MAX);
        let mut instances = saved.instances.clone();
        instances.extend(record.instances.into_iter().filter(|found| found.class >= since));
        Record { width: saved.width, height: saved.height, instances, ..record }
    }

    /// The images with labels that a person saved, and that would be lost with these options and classes.
    pub fn lost_saved(&self, options: &DataSetOptions, classes: &ClassHashes) -> Vec<&str> {
        let has_all = options.has(Format::Coco) && options.yolo_folders().is_empty();
        let is_lost = |image: &&SavedLabels| {
            !has_all || (image.classes != classes.all && classes.earlier(image.classes).is_none())
        };
        self.saved.values().filter(is_lost).map(|image| image.name.as_str()).collect()
    }
}
