//! Reports of `ocelli detect`: JSON, and a table for the terminal.

mod table;

use ocelli::report::DetectionRecord;
pub use ocelli::report::timings;
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

#[cfg(test)]
mod tests;
