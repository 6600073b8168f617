//! Objects cut out along their masks.

use std::path::{Path, PathBuf};

use image::{ExtendedColorType, ImageFormat};

use super::crops::folder_name;
use super::objects::objects;
use super::picture::check_folder;
use super::{Pictures, Sink};
use crate::atomic_file::{create_folder, write_atomically};
use crate::outcome::FrameOutcome;
use ocelli_error::Result;

/// Writes `dog/track-0007/000123.png` for each object of a frame: the pixels of its mask's box, opaque in the mask and
/// transparent outside, where the picture's colours stay. What makes 3D models of objects, such as SAM 3D, takes this form.
#[derive(Debug)]
pub struct Cutouts {
    folder: PathBuf,
}

impl Cutouts {
    /// Writes into a folder, which is created with the first frame.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if `folder` is a file.
    pub fn create(folder: &Path) -> Result<Self> {
        Ok(Self { folder: check_folder(folder)? })
    }
}

impl Sink for Cutouts {
    fn pictures(&self) -> Pictures {
        Pictures::CLEAN
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(picture) = &outcome.clean else { return Ok(()) };
        create_folder(&self.folder)?;
        let found = objects(outcome)?;
        for (track, mask) in &found.tracks {
            let Some(bbox) = mask.bounding_box() else { continue };
            let [left, top, right, bottom] = bbox.to_xyxy().map(|edge| edge as usize);
            let mut pixels = Vec::with_capacity(4 * (right - left) * (bottom - top));
            let rows = picture.view().rows().enumerate().skip(top).take(bottom - top);
            for (y, row) in rows {
                for x in left..right {
                    let is_own = found.owners[y * outcome.size.0 as usize + x] == track.id;
                    pixels.extend_from_slice(&row[3 * x..3 * x + 3]);
                    pixels.push(if is_own { u8::MAX } else { 0 });
                }
            }
            let label = outcome.labels.get(track.class_id).map_or("unknown", |label| label);
            let folder = self.folder.join(folder_name(label)).join(format!("track-{:04}", track.id));
            create_folder(&folder)?;
            write_atomically(&folder.join(format!("{:06}.png", outcome.index)), |file| {
                let (width, height) = ((right - left) as u32, (bottom - top) as u32);
                let (color, format) = (ExtendedColorType::Rgba8, ImageFormat::Png);
                image::write_buffer_with_format(file, &pixels, width, height, color, format)
                    .map_err(std::io::Error::other)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::objects::tests::frame;

    #[test]
    fn alpha_is_the_mask() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut sink = Cutouts::create(folder.path()).expect("it is a folder");
        sink.write(&frame(5, &[(1, 0, [0, 0, 2, 4]), (7, 1, [1, 1, 4, 3])])).expect("it can be written to");
        let path = folder.path().join("red car/track-0007/000005.png");
        let read = image::open(path).expect("it was written").to_rgba8();
        // Column 1 is the dog's, so the box of what is left begins at column 2.
        assert_eq!((read.width(), read.height()), (2, 2));
        let first = 3 * (6 + 2);
        assert_eq!(read.get_pixel(0, 0).0, [first, first + 1, first + 2, 255]);
        let dog = image::open(folder.path().join("dog/track-0001/000005.png")).expect("it was written");
        assert_eq!(
            (dog.width(), dog.height(), dog.to_rgba8().pixels().all(|pixel| pixel.0[3] == 255)),
            (2, 4, true)
        );
    }
}
