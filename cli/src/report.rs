//! Reports of `ocelli detect`: JSON, and a table for the terminal.

use std::io::{self, Write};
use std::path::Path;

use ocelli::report::timings;
use ocelli::{Detection, Detections};
use ocelli_datasets::table::{columns, printable, row};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::output::count;

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
    pub detections: Vec<Detection>,
    /// The times of the stages, in order, from [`timings`].
    pub timing_ms: Map<String, Value>,
}

impl ImageReport {
    /// The report on the image of a file.
    pub(crate) fn new(file: &Path, (width, height): (u32, u32), found: &Detections) -> Self {
        Self {
            file: file.to_string_lossy().into_owned(),
            width,
            height,
            detections: found.items.clone(),
            timing_ms: timings(&found.times),
        }
    }
}

/// The maximum width of a label in terminal columns.
const WIDEST: usize = 48;

/// The maximum number of rows for an image.
pub const MOST_ROWS: usize = 20;

/// Writes the detections of one image: a heading, then a row for each detection, at most `most`; a last line counts the
/// others.
///
/// ```text
/// street.jpg   1280 × 720   2 detections   412 ms
///   label      score     x1     y1      x2     y2
///   person     0.931   12.4   40.0   200.1  310.9
///   red apple  0.412  301.0  222.7   318.2  240.0
/// ```
/// Columns are aligned for wide characters, too; control characters are replaced.
///
/// # Errors
/// If `writer` fails.
pub fn write_table(mut writer: impl Write, image: &ImageReport, most: usize) -> io::Result<()> {
    let count = match image.detections.len() {
        0 => "nothing found".into(),
        found => count(found, "detection"),
    };
    let total = image.timing_ms.get("total").and_then(Value::as_f64);
    let time = total.map(|total| format!("   {total:.0} ms")).unwrap_or_default();
    writeln!(writer, "{}   {} × {}   {count}{time}", printable(&image.file), image.width, image.height)?;

    let shown = image.detections.len().min(most);
    if shown == 0 {
        return more(&mut writer, image.detections.len());
    }
    let mut rows = vec![row("label", ["score", "x1", "y1", "x2", "y2"])];
    rows.extend(image.detections[..shown].iter().map(|detection| {
        let edges = detection.bbox.to_xyxy().map(|edge| format!("{edge:.1}"));
        let numbers = std::iter::once(format!("{:.3}", detection.score)).chain(edges);
        row(&cut(&printable(&detection.label)), numbers)
    }));
    columns(&rows, 1).lines().try_for_each(|line| writeln!(writer, "  {line}"))?;
    more(&mut writer, image.detections.len() - shown)
}

fn more(writer: &mut impl Write, count: usize) -> io::Result<()> {
    if count == 0 { Ok(()) } else { writeln!(writer, "  … and {count} more") }
}

/// The text, truncated with `…` to the maximum width.
fn cut(text: &str) -> String {
    if text.width() <= WIDEST {
        return text.into();
    }
    let mut width = 0;
    let fits = |letter: &char| {
        width += letter.width().unwrap_or(0);
        width < WIDEST
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
