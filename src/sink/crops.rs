//! What was found, cut out.

use std::path::{Path, PathBuf};

use super::picture::{make_folder, write_picture};
use super::{FrameOutcome, Pictures, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::image::{Image, ImageView};
use ocelli_tracking::BoundingBox;

/// Longer names are cut: file systems take 255 bytes.
const MAX_NAME_BYTES: usize = 80;

/// Writes a picture of everything that was found: `dog/track-0007/000123.jpg` of tracks, which makes a folder of
/// each thing, and `dog/000123-0.jpg` of detections. Names have the frame's number.
#[derive(Debug)]
pub struct Crops {
    folder: PathBuf,
    of_tracks: bool,
    cut: Vec<u8>,
}

impl Crops {
    /// Writes into a folder, which is made with the first picture; of tracks, or else of detections.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where a file is in its place.
    pub fn create(flag: &str, folder: &Path, of_tracks: bool) -> Result<Self> {
        if folder.exists() && !folder.is_dir() {
            let message = format!("{flag}, {}: it is a file; name a folder", folder.display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        Ok(Self { folder: folder.to_owned(), of_tracks, cut: Vec::new() })
    }

    /// Cuts the pixels that a box touches.
    fn write_crop(&mut self, picture: &Image, bbox: BoundingBox, folder: &Path, name: &str) -> Result<()> {
        let (width, height) = (picture.width(), picture.height());
        let visible = bbox.clip_to(width as f32, height as f32);
        if !visible.has_area() {
            return Ok(());
        }
        let [x1, y1, x2, y2] = visible.to_xyxy();
        let (left, top) = (x1.floor() as u32, y1.floor() as u32);
        let (right, bottom) = ((x2.ceil() as u32).min(width), (y2.ceil() as u32).min(height));
        let (width, height) = (right - left, bottom - top);
        self.cut.clear();
        for row in picture.view().rows().skip(top as usize).take(height as usize) {
            self.cut.extend_from_slice(&row[3 * left as usize..3 * right as usize]);
        }
        make_folder(folder)?;
        write_picture(&folder.join(name), ImageView::new(width, height, &self.cut)?)
    }
}

impl Sink for Crops {
    fn pictures(&self) -> Pictures {
        Pictures { clean: true, ..Pictures::default() }
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(picture) = &outcome.clean else { return Ok(()) };
        let label = |class: usize| outcome.labels.get(class).map_or("thing", |label| label);
        let frame = outcome.index;
        if self.of_tracks {
            for track in &outcome.tracks {
                let folder =
                    self.folder.join(file_name(label(track.class_id))).join(format!("track-{:04}", track.id));
                self.write_crop(picture, track.bbox, &folder, &format!("{frame:06}.jpg"))?;
            }
        } else {
            for (number, detection) in outcome.detections.iter().enumerate() {
                let folder = self.folder.join(file_name(&detection.label));
                self.write_crop(picture, detection.bbox, &folder, &format!("{frame:06}-{number}.jpg"))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Words as the name of a folder, on any file system.
fn file_name(words: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_ ()'".contains(c) { c } else { '_' };
    let mut name: String = words.trim().chars().map(plain).collect();
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
    fn names_of_folders() {
        for (words, expected) in [
            ("red apple", "red apple"),
            ("../../etc/passwd", "______etc_passwd"),
            ("a:b*c?", "a_b_c_"),
            (" übergroß ", "übergroß"),
            ("..", "__"),
            (" ", "_"),
            (&"ä".repeat(200), &"ä".repeat(40)),
        ] {
            assert_eq!(file_name(words), expected, "{words}");
        }
    }

    #[test]
    fn a_box_is_cut_to_the_pixels_it_touches() {
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
        let mut crops = Crops::create("--crops", folder.path(), false).expect("it is a folder");
        crops.write(&outcome).expect("it can be written to");
        let size = |name: &str| Image::open(folder.path().join(name)).map(|i| (i.width(), i.height())).ok();
        assert_eq!(size("dog/000005-0.jpg"), Some((4, 1)));
        assert_eq!(size("dog/000005-1.jpg"), Some((10, 8)));
        assert_eq!(size("dog/000005-2.jpg"), None, "it lies outside");
    }
}
