//! Boxes in YOLO's text format.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::Sink;
use super::image_files::check_folder;
use crate::atomic_file::{create_folder, write_atomically};
use crate::detection::Detection;
use crate::outcome::FrameOutcome;
use ocelli_error::Result;

/// Writes a text file for each frame, `000123.txt`, with a line `class cx cy w h` for each detection: the class id and the
/// box as shares of the image's sides. A frame in which nothing was found has an empty file; one in which the detector did
/// not run has none.
///
/// For data sets, which also need `data.yaml` and a record of what was written, use `ocelli label`.
#[derive(Debug)]
pub struct YoloLabels {
    folder: PathBuf,
}

impl YoloLabels {
    /// Writes into a folder, which is created with the first file.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if `folder` is a file.
    pub fn create(folder: &Path) -> Result<Self> {
        Ok(Self { folder: check_folder(folder)? })
    }

    /// Writes `NAME.txt` for an image of `width` × `height` pixels and returns its path.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn write_labels(
        &self,
        name: &str,
        (width, height): (u32, u32),
        detections: &[Detection],
    ) -> Result<PathBuf> {
        let (width, height) = (f64::from(width), f64::from(height));
        let mut text = String::new();
        for detection in detections {
            let [x1, y1, x2, y2] = detection.bbox.to_xyxy().map(f64::from);
            let numbers =
                [(x1 + x2) / 2.0 / width, (y1 + y2) / 2.0 / height, (x2 - x1) / width, (y2 - y1) / height];
            let [cx, cy, w, h] = numbers.map(|number| number.clamp(0.0, 1.0));
            writeln!(text, "{} {cx:.6} {cy:.6} {w:.6} {h:.6}", detection.class_id)
                .expect("writing to a string does not fail");
        }
        create_folder(&self.folder)?;
        let path = self.folder.join(format!("{name}.txt"));
        write_atomically(&path, |file| std::io::Write::write_all(file, text.as_bytes()))?;
        Ok(path)
    }
}

impl Sink for YoloLabels {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        // Objects that memory follows, or that a frame without motion repeats, have labels as well.
        if !outcome.detected && outcome.detections.is_empty() {
            return Ok(());
        }
        let name = format!("{:06}", outcome.index);
        self.write_labels(&name, outcome.size, &outcome.detections).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use ocelli_tracking::BoundingBox;

    use super::*;

    #[test]
    fn boxes_are_shares_of_the_image() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut labels = YoloLabels::create(&folder.path().join("labels")).expect("no such file yet");
        let mut outcome = FrameOutcome { index: 6, size: (200, 100), ..FrameOutcome::default() };
        labels.write(&outcome).expect("nothing is written");
        assert!(!folder.path().join("labels").exists(), "the detector did not run");
        (outcome.index, outcome.detected) = (7, true);
        let detection =
            |class_id, bbox| Detection { class_id, label: "thing".into(), score: 0.9, bbox, mask: None };
        outcome.detections = vec![
            detection(1, BoundingBox::new(0.0, 0.0, 100.0, 50.0)),
            detection(0, BoundingBox::new(150.0, 25.0, 200.0, 100.0)),
        ];
        labels.write(&outcome).expect("the folder is writable");
        let text = std::fs::read_to_string(folder.path().join("labels/000007.txt")).expect("written");
        assert_eq!(text, "1 0.250000 0.250000 0.500000 0.500000\n0 0.875000 0.625000 0.250000 0.750000\n");
    }
}
