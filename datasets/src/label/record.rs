//! What is known of a labelled picture: one line of the journal.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use ocelli::Mask;

/// A thing that was found, as data sets have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thing {
    /// Its class, from 0 in the order of the class map.
    pub class: usize,
    /// How sure the detector was, 0 to 1.
    pub score: f32,
    /// `[x1, y1, x2, y2]` in pixels of the upright picture.
    #[serde(rename = "box")]
    pub bbox: [f32; 4],
    /// COCO's compressed run lengths, where a format needs masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
}

/// One picture, and what was found in it or why it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What the picture is called in the data set.
    pub name: String,
    /// The file it came from.
    pub source: PathBuf,
    /// The file's bytes and time of change in nanoseconds since 1970: another file of that name is labelled again.
    pub identity: (u64, u64),
    /// The upright picture's width in pixels; 0 where it could not be read.
    pub width: u32,
    /// The upright picture's height in pixels.
    pub height: u32,
    /// The surest first.
    pub things: Vec<Thing>,
    /// Why it could not be labelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Record {
    /// The mask of one of its things.
    pub(super) fn mask(&self, thing: &Thing) -> Option<Mask> {
        // The journal is checked when it is read, line by line; a code that is none counts as no mask.
        Mask::from_counts(thing.mask.as_deref()?, self.width, self.height).ok()
    }
}

/// Bytes and time of change of a file; zeros where it cannot be asked.
pub(super) fn identity(path: &Path) -> (u64, u64) {
    let Ok(meta) = path.metadata() else { return (0, 0) };
    let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    (meta.len(), since.map_or(0, |since| since.as_nanos() as u64))
}
