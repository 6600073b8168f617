//! Reports of `ocelli detect`: JSON, and a table for the terminal.

mod table;

use std::io::{self, Write};

use ocelli::StageTimes;
use ocelli::report::DetectionRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use table::{TableOptions, write_table};

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

impl Report {
    /// Writes the report as one line of JSON.
    ///
    /// # Errors
    /// If `writer` fails.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut writer, self)?;
        writer.write_all(b"\n")
    }
}

/// The times of the stages in milliseconds, with two decimals.
pub fn timings(times: &StageTimes) -> Map<String, Value> {
    let StageTimes { text, preprocess, backbone, decode, masks, total, .. } = *times;
    let stages = [
        ("text", text),
        ("preprocess", preprocess),
        ("backbone", backbone),
        ("decode", decode),
        ("masks", masks),
        ("total", total),
    ];
    stages.map(|(stage, ms)| (stage.to_owned(), ((ms * 100.0).round() / 100.0).into())).into_iter().collect()
}

#[cfg(test)]
mod tests;
