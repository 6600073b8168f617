//! Masks as PNGs whose pixels are the ids of objects, the layout of DAVIS and YouTube-VOS.

use std::io::Write;
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType};

use super::Sink;
use super::image_files::check_folder;
use super::objects::objects;
use crate::atomic_file::{create_folder, write_atomically};
use crate::draw::track_color;
use crate::outcome::FrameOutcome;
use ocelli_error::{Result, refuse};

/// Writes `00000.png` for each frame: each pixel is the id of its track, 0 where there is none. Ids up to 255 have a palette
/// with the tracks' colours; a frame with higher ids is 16-bit grey.
#[derive(Debug)]
pub struct MaskPngs {
    folder: PathBuf,
}

impl MaskPngs {
    /// Writes into a folder, which is created with the first frame.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if `folder` is a file.
    pub fn create(folder: &Path) -> Result<Self> {
        Ok(Self { folder: check_folder(folder)? })
    }
}

impl Sink for MaskPngs {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let owners = objects(outcome)?.owners;
        let most = owners.iter().copied().max().unwrap_or(0);
        if most > u64::from(u16::MAX) {
            refuse!("frame {}: a PNG of masks has no room for track {most}", outcome.index);
        }
        let is_small = most <= u64::from(u8::MAX);
        let pixels: Vec<u8> = if is_small {
            owners.iter().map(|&owner| owner as u8).collect()
        } else {
            owners.iter().flat_map(|&owner| (owner as u16).to_be_bytes()).collect()
        };
        create_folder(&self.folder)?;
        let path = self.folder.join(format!("{:05}.png", outcome.index));
        write_atomically(&path, |file| {
            let mut encoder = png::Encoder::new(&mut *file, outcome.size.0, outcome.size.1);
            if is_small {
                encoder.set_color(ColorType::Indexed);
                encoder.set_depth(BitDepth::Eight);
                encoder.set_palette(palette());
            } else {
                encoder.set_color(ColorType::Grayscale);
                encoder.set_depth(BitDepth::Sixteen);
            }
            let mut writer = encoder.write_header().map_err(std::io::Error::other)?;
            writer.write_image_data(&pixels).map_err(std::io::Error::other)?;
            writer.finish().map_err(std::io::Error::other)?;
            file.flush()
        })
    }
}

fn palette() -> Vec<u8> {
    let colors = (1..=255).map(track_color);
    std::iter::once([0; 3]).chain(colors).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::read_mask_png;
    use crate::sink::objects::tests::frame;

    #[test]
    fn pixels_are_ids_that_can_be_read_back() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("masks");
        let mut sink = MaskPngs::create(&target).expect("it is no file");
        let frames = [
            (frame(0, &[]), vec![]),
            (frame(3, &[(255, 0, [0, 0, 2, 2]), (1, 1, [1, 0, 6, 4])]), vec![(1, 20), (255, 2)]),
            (frame(12, &[(256, 0, [0, 0, 2, 2]), (1, 1, [3, 0, 6, 4])]), vec![(1, 12), (256, 4)]),
        ];
        for (outcome, expected) in frames {
            sink.write(&outcome).expect("it can be written to");
            let read =
                read_mask_png(&target.join(format!("{:05}.png", outcome.index))).expect("it was written");
            let areas: Vec<_> = read.iter().map(|(id, mask)| (*id, mask.area())).collect();
            assert_eq!(areas, expected, "frame {}", outcome.index);
            let image = image::open(target.join(format!("{:05}.png", outcome.index))).expect("an image");
            assert_eq!((image.width(), image.height()), (6, 4));
            if outcome.index == 3 {
                assert_eq!(image.to_rgb8().get_pixel(5, 3).0, track_color(1), "the colour of the track");
            }
        }
    }
}
