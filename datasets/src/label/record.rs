//! The record of a labelled image: one line of the journal.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use ocelli::{BoundingBox, Mask};

use crate::label::VideoFrame;

/// An instance of a class in an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The class, from 0 in the order of the class map.
    pub class: usize,
    /// The score, 0 to 1.
    pub score: f32,
    /// `[x1, y1, x2, y2]` in pixels of the upright image.
    #[serde(rename = "box")]
    pub bbox: [f32; 4],
    /// The mask as COCO's compressed run lengths, if a format needs masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    /// In a frame of a video, the number of the object in all frames of this video, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<u64>,
}

/// One instance in a label file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelledInstance {
    /// The line that it comes from, or in a data set of COCO alone its place among the image's instances, from 0; `None`
    /// for a new one.
    pub line: Option<usize>,
    /// The class, from 0.
    #[serde(rename = "class_id")]
    pub class: usize,
    /// In pixels of the upright image.
    #[serde(rename = "box")]
    pub bbox: BoundingBox,
    /// The points of its polygon or of its mask's outline, `[x, y]` in pixels, if it has one. Ignored when it is saved: what
    /// the line has moves with the box, and a new instance in a data set with masks is a rectangle.
    #[serde(skip)]
    pub polygon: Option<Vec<[f32; 2]>>,
    /// Pixels that a person gives it, as large as the upright image: they replace what the line has, and the box is theirs. `None`
    /// in labels that are read.
    pub mask: Option<Mask>,
}

/// One image, with its instances or the reason why it could not be labelled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The name of the image in the data set.
    pub name: String,
    /// The image file.
    pub source: PathBuf,
    /// Size of the file in bytes and time of its last change in nanoseconds since 1970. If they change, it is labelled again.
    pub identity: (u64, u64),
    /// A hash of the content of the file of this size and time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Width of the upright image in pixels; 0 if it could not be read.
    pub width: u32,
    /// Height of the upright image in pixels.
    pub height: u32,
    /// The instances, the highest score first.
    #[serde(rename = "things")]
    pub instances: Vec<Instance>,
    /// The reason why it could not be labelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `true` if it is for validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<bool>,
    /// The number of classes that were looked for, the first ones, if classes were added since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
    /// The frame of a video that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<VideoFrame>,
}

impl Record {
    /// The image with the instances of the classes from this one on.
    pub(super) fn since_class(&self, first: usize) -> Self {
        let instances = self.instances.iter().filter(|instance| instance.class >= first).cloned().collect();
        Self { instances, ..self.clone() }
    }

    /// The mask of an instance.
    pub(super) fn mask(&self, instance: &Instance) -> Option<Mask> {
        // Lines of the journal are checked when they are read. Invalid run lengths count as no mask.
        Mask::from_counts(instance.mask.as_deref()?, self.width, self.height).ok()
    }
}

/// Checks that a name is a relative path below the data set's folders, with `/` as separator.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_part = |part: &str| {
        let mut components = Path::new(part).components();
        matches!((components.next(), components.next()), (Some(Component::Normal(whole)), None) if whole == part)
    };
    if !name.contains('\0') && name.split('/').all(is_part) {
        return Ok(());
    }
    Err(format!("name \"{name}\": expected a relative path without `..`"))
}
