//! One line of JSON for each frame.

use std::io::Write;
use std::path::Path;

use super::lines::Lines;
use super::{FrameOutcome, Sink};
use crate::error::Result;
use crate::report::FrameReport;

/// Writes [`FrameReport`]s, one a line; each line reaches the file before the next frame is taken.
pub struct JsonLines(Lines);

impl JsonLines {
    /// Writes to a file, which is emptied first; `-` is stdout.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) where it cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        Lines::create(path).map(Self)
    }

    /// Writes to anything; `name` is what messages call it.
    pub fn new(name: impl Into<String>, writer: impl Write + Send + 'static) -> Self {
        Self(Lines::new(name, writer))
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

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
