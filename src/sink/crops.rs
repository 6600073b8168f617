//! An image of each instance, cut out of the frame.

use std::path::{Path, PathBuf};

use ocelli_tracking::BoundingBox;

use super::image_files::{check_folder, write_image};
use super::{Images, Sink};
use crate::atomic_file::create_folder;
use crate::detection::Detection;
use crate::image::Image;
use crate::outcome::FrameOutcome;
use crate::tiles::{Region, part_of};
use ocelli_error::Result;

/// Longer names are truncated; file systems allow 255 bytes.
const MAX_NAME_BYTES: usize = 80;

/// Writes an image of each instance: `dog/track-0007/000123.jpg` for tracks, one folder per track, or
/// `dog/000123-0.jpg` for detections. File names contain the frame's index.
#[derive(Debug)]
pub struct Crops {
    folder: PathBuf,
    of_tracks: bool,
}

impl Crops {
    /// Crops tracks, or detections if `of_tracks` is false, into a folder, which is created with the first image.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if `folder` is a file.
    pub fn create(folder: &Path, of_tracks: bool) -> Result<Self> {
        Ok(Self { folder: check_folder(folder)?, of_tracks })
    }

    /// Writes `dog/NAME-0.jpg`, `dog/NAME-1.jpg` and so on for the detections in an image.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if one cannot be written.
    pub fn write_detections(&mut self, image: &Image, name: &str, detections: &[Detection]) -> Result<()> {
        for (number, detection) in detections.iter().enumerate() {
            let folder = self.folder.join(folder_name(&detection.label));
            self.write_crop(image, detection.bbox, &folder, &format!("{name}-{number}.jpg"))?;
        }
        Ok(())
    }

    /// Writes the pixels that a box touches.
    fn write_crop(&mut self, image: &Image, bbox: BoundingBox, folder: &Path, name: &str) -> Result<()> {
        let (width, height) = (image.width(), image.height());
        let visible = bbox.clip_to(width as f32, height as f32);
        if !visible.has_area() {
            return Ok(());
        }
        let [x1, y1, x2, y2] = visible.to_xyxy();
        let (left, top) = (x1.floor() as u32, y1.floor() as u32);
        let (right, bottom) = ((x2.ceil() as u32).min(width), (y2.ceil() as u32).min(height));
        let region = Region { x: left, y: top, width: right - left, height: bottom - top };
        let cut = part_of(image.view(), region)?;
        create_folder(folder)?;
        write_image(&folder.join(name), cut)
    }
}

impl Sink for Crops {
    fn images(&self) -> Images {
        Images::CLEAN
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(image) = &outcome.clean else { return Ok(()) };
        let label = |class: usize| outcome.labels.get(class).map_or("unknown", |label| label);
        let frame = outcome.index;
        if self.of_tracks {
            for track in &outcome.tracks {
                let folder = self
                    .folder
                    .join(folder_name(label(track.class_id)))
                    .join(format!("track-{:04}", track.id));
                self.write_crop(image, track.bbox, &folder, &format!("{frame:06}.jpg"))?;
            }
        } else {
            self.write_detections(image, &format!("{frame:06}"), &outcome.detections)?;
        }
        Ok(())
    }
}

/// A label as a folder name that is valid on any file system.
pub fn folder_name(label: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_ ()'".contains(c) { c } else { '_' };
    let mut name: String = label.trim().chars().map(plain).collect();
    while name.len() > MAX_NAME_BYTES {
        name.pop();
    }
    if name.is_empty() { "_".into() } else { name }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::detection::Detection;

    #[test]
    fn labels_become_valid_folder_names() {
        for (label, expected) in [
            ("red apple", "red apple"),
            ("../../etc/passwd", "______etc_passwd"),
            ("a:b*c?", "a_b_c_"),
            (" übergroß ", "übergroß"),
            ("..", "__"),
            (" ", "_"),
            (&"ä".repeat(200), &"ä".repeat(40)),
        ] {
            assert_eq!(folder_name(label), expected, "{label}");
        }
    }

    #[test]
    fn a_crop_has_the_pixels_that_the_box_touches() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let detection = |bbox| Detection { class_id: 0, label: "dog".into(), score: 0.5, bbox, mask: None };
        let clean = Image::from_rgb8(10, 8, vec![7; 240]).expect("80 pixels");
        let outcome = FrameOutcome {
            index: 5,
            detections: vec![
                detection(BoundingBox::new(1.5, 2.0, 4.2, 3.0)),
                detection(BoundingBox::new(-5.0, -5.0, 100.0, 100.0)),
                detection(BoundingBox::new(20.0, 2.0, 30.0, 3.0)),
            ],
            labels: Arc::from([Arc::from("dog")]),
            clean: Some(clean),
            ..FrameOutcome::default()
        };
        let mut crops = Crops::create(folder.path(), false).expect("it is a folder");
        crops.write(&outcome).expect("it can be written to");
        let size = |name: &str| Image::open(folder.path().join(name)).map(|i| (i.width(), i.height())).ok();
        assert_eq!(size("dog/000005-0.jpg"), Some((4, 1)));
        assert_eq!(size("dog/000005-1.jpg"), Some((10, 8)));
        assert_eq!(size("dog/000005-2.jpg"), None, "the box is outside the image");
    }
}
