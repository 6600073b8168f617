//! `--semantic`: the pixels of each class as black and white images.

use std::path::{Path, PathBuf};

use image::{GrayImage, ImageFormat, Luma};
use ocelli::atomic_file::write_atomically;
use ocelli::{Error, Result, mask::SemanticMap};

use super::outputs::stems;

/// A folder of maps: `street-red_apple.png` is white where red apples are in `street.jpg`.
#[derive(Debug)]
pub struct SemanticFolder {
    folder: PathBuf,
    /// One per image.
    stems: Vec<String>,
}

impl SemanticFolder {
    /// Plans the file names without writing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if `folder` is a file.
    pub fn plan(folder: &Path, sources: &[PathBuf]) -> Result<Self> {
        if folder.exists() && !folder.is_dir() {
            refuse!("--semantic, {}: it is a file; name a folder", folder.display());
        }
        Ok(Self { folder: folder.to_owned(), stems: stems(sources) })
    }

    /// Creates the folder.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if it cannot be created.
    pub fn create(&self) -> Result<()> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|e| Error::io("cannot create the folder", &self.folder, e))
    }

    /// Writes the maps of image `number`, each atomically, and returns their paths.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if one cannot be written.
    pub fn write(&self, number: usize, maps: &[SemanticMap]) -> Result<Vec<PathBuf>> {
        let write = |map: &SemanticMap| {
            let path = self.folder.join(self.name(number, map, maps));
            let mask = &map.mask;
            let mut image = GrayImage::new(mask.width(), mask.height());
            for span in mask.spans() {
                (span.top..span.bottom).for_each(|y| image.put_pixel(span.x, y, Luma([255])));
            }
            let mut png = std::io::Cursor::new(Vec::new());
            write_atomically(&path, |file| {
                image.write_to(&mut png, ImageFormat::Png).map_err(std::io::Error::other)?;
                std::io::Write::write_all(file, png.get_ref())
            })?;
            Ok(path)
        };
        maps.iter().map(write).collect()
    }

    /// The label reduced to letters and digits; labels that become equal get the number of their class.
    fn name(&self, number: usize, map: &SemanticMap, maps: &[SemanticMap]) -> String {
        let (stem, label) = (&self.stems[number], safe(&map.label));
        let same = maps.iter().filter(|other| safe(&other.label) == label).count();
        if same == 1 { format!("{stem}-{label}.png") } else { format!("{stem}-{label}-{}.png", map.class_id) }
    }
}

/// A label as part of a file name, within the length that file systems allow.
fn safe(label: &str) -> String {
    let letters = label.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '_' });
    letters.flat_map(char::to_lowercase).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli::Mask;

    #[test]
    fn names_are_safe_and_distinct() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let sources = ["a/x.png", "b/x.jpg", "x-2.png"].map(PathBuf::from);
        let folder = SemanticFolder::plan(parent.path(), &sources).map_err(std::io::Error::other)?;
        let map = |class_id: usize, label: &str| SemanticMap {
            class_id,
            label: label.into(),
            mask: Mask::from_bitmap(&[0, 1, 1, 0, 0, 1], 3, 2).expect("3 × 2 is six"),
        };
        let maps = [map(0, "Red Apple"), map(1, "../../etc"), map(2, "red/apple"), map(3, &"dog".repeat(99))];
        let mut names = Vec::new();
        for number in 0..3 {
            let written = folder.write(number, &maps).map_err(std::io::Error::other)?;
            names.extend(written.iter().map(|path| {
                assert_eq!(path.parent(), Some(parent.path()));
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }));
        }
        assert_eq!(&names[..3], ["x-red_apple-0.png", "x-______etc.png", "x-red_apple-2.png"]);
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), 12, "{names:?}");
        let image = image::open(parent.path().join(&names[0])).map_err(std::io::Error::other)?;
        assert_eq!(image.into_luma8().into_raw(), [0, 255, 255, 0, 0, 255]);
        Ok(())
    }
}
