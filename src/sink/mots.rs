//! Masks in MOTS' text format.

use std::io::Write;
use std::path::Path;

use super::Sink;
use super::lines::Lines;
use super::objects::objects;
use crate::outcome::FrameOutcome;
use ocelli_error::Result;

/// Writes the masks of tracks as `frame id class height width rle`, as the evaluations of MOTS read them: frames and classes from
/// 1, COCO's compressed run lengths, no pixel in two masks of a frame.
pub struct MotsFile(Lines);

impl MotsFile {
    /// A file, or stdout for `-`. The file is created, or emptied, with the first frame.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        Lines::create(path).map(Self)
    }
}

impl Sink for MotsFile {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let (frame, (width, height)) = (outcome.index + 1, outcome.size);
        let objects = objects(outcome)?;
        self.0.write(|lines| {
            for (track, mask) in &objects.tracks {
                let class = track.class_id + 1;
                writeln!(lines, "{frame} {} {class} {height} {width} {}", track.id, mask.counts())?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::Mask;
    use crate::sink::objects::tests::frame;

    #[test]
    fn lines_can_be_read_back() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("mots.txt");
        let mut sink = MotsFile::create(&path).expect("it can be written to");
        let frames =
            [frame(0, &[(7, 1, [1, 1, 5, 3]), (2, 0, [0, 0, 2, 2])]), frame(4, &[(7, 1, [2, 1, 6, 3])])];
        frames.iter().for_each(|frame| sink.write(frame).expect("it can be written to"));
        let text = std::fs::read_to_string(&path).expect("it was written");
        let read: Vec<(u64, u64, u64, u64)> = text
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!((words.len(), words[3], words[4]), (6, "4", "6"), "{line}");
                let number = |at: usize| words[at].parse().expect("a number");
                let mask = Mask::from_counts(words[5], 6, 4).expect("run lengths of 24 pixels");
                (number(0), number(1), number(2), mask.area())
            })
            .collect();
        assert_eq!(read, [(1, 2, 1, 4), (1, 7, 2, 7), (5, 7, 2, 8)]);
    }
}
