//! One line of JSON per frame.

use std::path::Path;

use super::Sink;
use super::lines::Lines;
use crate::outcome::FrameOutcome;
use crate::report::FrameReport;
use ocelli_error::Result;

/// Writes a [`FrameReport`] per line. Each line reaches the file before the next frame is written.
pub struct JsonLines(Lines);

impl JsonLines {
    /// A file, or stdout for `-`. The file is created, or emptied, with the first frame.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        Lines::create(path).map(Self)
    }
}

impl Sink for JsonLines {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let report = FrameReport::from(outcome);
        self.0.write(|line| {
            serde_json::to_writer(&mut *line, &report)?;
            line.push(b'\n');
            Ok(())
        })
    }
}
