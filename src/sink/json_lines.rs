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

    /// Creates, or empties, the file now, for a file that may stay without lines.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn begin(&mut self) -> Result<()> {
        self.0.write(|_| Ok(()))
    }

    /// Writes a line of another kind, such as an event.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn write_record(&mut self, record: &impl serde::Serialize) -> Result<()> {
        self.0.write(|line| {
            serde_json::to_writer(&mut *line, record)?;
            line.push(b'\n');
            Ok(())
        })
    }
}

impl Sink for JsonLines {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        self.write_record(&FrameReport::from(outcome))
    }
}
