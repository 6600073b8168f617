//! Boxes in MOTChallenge's text format.

use std::io::Write;
use std::path::Path;

use super::lines::Lines;
use super::{FrameOutcome, Sink};
use crate::error::Result;

/// Writes tracks as `frame,id,left,top,width,height,score,-1,-1,-1`, frames from 1; detections with the id -1 in
/// place of tracks where there is no tracker, which is what a tracker reads.
pub struct MotFile {
    lines: Lines,
    of_tracks: bool,
}

impl MotFile {
    /// Writes tracks, or else detections, to a file, which is emptied first; `-` is stdout.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) where it cannot be made.
    pub fn create(path: &Path, of_tracks: bool) -> Result<Self> {
        Ok(Self { lines: Lines::create(path)?, of_tracks })
    }

    /// Writes to anything; `name` is what messages call it.
    pub fn new(name: impl Into<String>, writer: impl Write + Send + 'static, of_tracks: bool) -> Self {
        Self { lines: Lines::new(name, writer), of_tracks }
    }
}

impl Sink for MotFile {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let frame = outcome.index + 1;
        let tracks = outcome.tracks.iter().map(|t| (i128::from(t.id), t.bbox, t.score));
        let detections = outcome.detections.iter().map(|d| (-1, d.bbox, d.score));
        let of_tracks = self.of_tracks;
        let boxes = tracks.filter(|_| of_tracks).chain(detections.filter(|_| !of_tracks));
        self.lines.write(|lines| {
            for (id, bbox, score) in boxes {
                let [left, top, width, height] = bbox.to_ltwh();
                writeln!(
                    lines,
                    "{frame},{id},{left:.2},{top:.2},{width:.2},{height:.2},{score:.5},-1,-1,-1"
                )?;
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
