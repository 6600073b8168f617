//! Boxes in MOTChallenge's text format.

use std::io::Write;
use std::path::Path;

use super::Sink;
use super::lines::Lines;
use crate::outcome::FrameOutcome;
use ocelli_error::Result;

/// Writes tracks as `frame,id,left,top,width,height,score,class,-1,-1`, frames and classes from 1. Detections are written
/// with the id -1, the form that trackers read.
pub struct MotFile {
    lines: Lines,
    of_tracks: bool,
}

impl MotFile {
    /// A file for tracks, or for detections if `of_tracks` is false; `-` is stdout. The file is created, or emptied, with the
    /// first frame.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn create(path: &Path, of_tracks: bool) -> Result<Self> {
        Ok(Self { lines: Lines::create(path)?, of_tracks })
    }
}

impl Sink for MotFile {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let (frame, of_tracks) = (outcome.index + 1, self.of_tracks);
        let tracks = outcome.tracks.iter().map(|t| (i128::from(t.id), t.bbox, t.score, t.class_id));
        let detections = outcome.detections.iter().map(|d| (-1, d.bbox, d.score, d.class_id));
        let boxes = tracks.filter(|_| of_tracks).chain(detections.filter(|_| !of_tracks));
        self.lines.write(|lines| {
            for (id, bbox, score, class_id) in boxes {
                let [left, top, width, height] = bbox.to_ltwh();
                writeln!(
                    lines,
                    "{frame},{id},{left:.2},{top:.2},{width:.2},{height:.2},{score:.5},{},-1,-1",
                    class_id + 1
                )?;
            }
            Ok(())
        })
    }
}
