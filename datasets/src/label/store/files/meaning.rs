//! The meaning of the lines of a label file: its format and its classes.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::label::Format;
use crate::label::images::hash_of;

/// Hashes of the names of the classes.
#[derive(Clone, Debug)]
pub(crate) struct ClassHashes {
    /// That of all names.
    pub all: u64,
    /// The number of names by the hash of the first ones, without that of all.
    earlier: HashMap<u64, usize>,
}

impl ClassHashes {
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.collect();
        let hash = |count: usize| hash_of(&names[..count].join("\n"), 0);
        let earlier = (1..names.len()).map(|count| (hash(count), count)).collect();
        Self { all: hash(names.len()), earlier }
    }

    /// The number of classes if this is the hash of the first ones.
    pub fn earlier(&self, hash: u64) -> Option<usize> {
        self.earlier.get(&hash).copied().filter(|_| hash != self.all)
    }
}

/// The meaning of the lines of a file: its format and its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meaning {
    /// `None` for a file without labels, such as `data.yaml`.
    pub format: Option<Format>,
    /// A hash of the names of the classes.
    pub classes: u64,
}

impl Meaning {
    /// `true` if it is the label file of an image. If the person removes one, its image has no labels; other files are
    /// written again.
    pub(crate) fn is_of_image(self) -> bool {
        matches!(self.format, Some(Format::Yolo | Format::YoloSeg | Format::Voc | Format::Masks))
    }
}
