//! Reports of `ocelli detect`: JSON, and a table for the terminal.

mod table;

use std::path::Path;

use ocelli::Detections;
use ocelli::report::{DetectionRecord, timings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use table::{MOST_ROWS, write_table};

/// The detections of several images: `{"images": […]}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One entry for each image, in input order.
    pub images: Vec<ImageReport>,
}

/// The detections of one image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageReport {
    /// The file name as given.
    pub file: String,
    /// Width in pixels after EXIF rotation.
    pub width: u32,
    /// Height in pixels after EXIF rotation.
    pub height: u32,
    /// The highest score first.
    pub detections: Vec<DetectionRecord>,
    /// The times of the stages, in order, from [`timings`].
    pub timing_ms: Map<String, Value>,
}

impl ImageReport {
    /// What was found in the image of a file.
    pub(crate) fn new(file: &Path, (width, height): (u32, u32), found: &Detections) -> Self {
        Self {
            file: file.to_string_lossy().into_owned(),
            width,
            height,
            detections: found.items.iter().map(Into::into).collect(),
            timing_ms: timings(&found.times),
        }
    }
}

#[cfg(test)]
mod tests;
