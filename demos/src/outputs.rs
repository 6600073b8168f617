//! Where annotated pictures go.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use image::{ImageFormat, RgbImage};
use ocelli::atomic_file::write_atomically;
use ocelli::{Error, ErrorKind, Result};

/// Where annotated pictures go: one file for one picture, else a folder.
#[derive(Debug)]
pub struct Outputs {
    target: PathBuf,
    as_file: bool,
    taken: HashSet<PathBuf>,
}

impl Outputs {
    /// Decides by the number of pictures and the target's name: one picture and a name with the ending of a picture
    /// mean a file, everything else a folder, which is made.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where several pictures would go to one file,
    /// [`ErrorKind::Io`] where the folder cannot be made.
    pub fn new(target: &Path, pictures: usize) -> Result<Self> {
        let names_file = ImageFormat::from_path(target).is_ok() && !target.is_dir();
        if names_file && pictures > 1 {
            let message = format!("-o {}: {pictures} pictures do not fit in one file; name a folder", target.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if names_file && !writable(ImageFormat::from_path(target).ok()) {
            let message = format!("-o {}: this format cannot be written; use .png, .jpg or .webp", target.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if !names_file {
            if pictures == 1 && target.extension().is_some() && !target.is_dir() {
                let message = format!("-o {}: no format of that name; use .png, .jpg or .webp", target.display());
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            std::fs::create_dir_all(target).map_err(|e| Error::io("cannot create the folder", target, e))?;
        }
        Ok(Self { target: target.to_owned(), as_file: names_file, taken: HashSet::new() })
    }

    /// Writes the annotated picture of `source` and says where. Pictures of one name from several folders get numbers.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where it cannot be written; no half-written file is left.
    pub fn write(&mut self, source: &Path, picture: &RgbImage) -> Result<PathBuf> {
        let path = if self.as_file { self.target.clone() } else { self.free_name(source) };
        let format = ImageFormat::from_path(&path).unwrap_or(ImageFormat::Png);
        write_atomically(&path, |file| {
            let mut encoded = std::io::Cursor::new(Vec::new());
            if format == ImageFormat::Jpeg {
                let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut encoded, 92);
                picture.write_with_encoder(encoder).map_err(std::io::Error::other)?;
            } else {
                picture.write_to(&mut encoded, format).map_err(std::io::Error::other)?;
            }
            std::io::Write::write_all(file, encoded.get_ref())
        })?;
        Ok(path)
    }

    fn free_name(&mut self, source: &Path) -> PathBuf {
        let stem = source.file_stem().map_or_else(|| "picture".into(), |s| s.to_string_lossy().into_owned());
        let ending = match source.extension().map(|e| e.to_string_lossy().to_lowercase()) {
            Some(e) if ["jpg", "jpeg", "webp"].contains(&e.as_str()) => e,
            _ => "png".into(),
        };
        let mut number = 1;
        loop {
            let name = if number == 1 { format!("{stem}.{ending}") } else { format!("{stem}-{number}.{ending}") };
            let path = self.target.join(name);
            if self.taken.insert(path.clone()) {
                return path;
            }
            number += 1;
        }
    }
}

fn writable(format: Option<ImageFormat>) -> bool {
    format.is_some_and(|format| format.can_write() && format != ImageFormat::Gif)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_one_name_do_not_collide() -> Result<()> {
        let folder = tempfile::tempdir().map_err(|e| Error::io("cannot write", Path::new("/tmp"), e))?;
        let mut outputs = Outputs::new(&folder.path().join("out"), 3)?;
        let picture = RgbImage::new(2, 2);
        let mut names = Vec::new();
        for source in ["a/x.png", "b/x.png", "c/x.gif"] {
            let path = outputs.write(Path::new(source), &picture)?;
            assert!(path.is_file(), "{}", path.display());
            names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        assert_eq!(names, ["x.png", "x-2.png", "x-3.png"]);
        Ok(())
    }
}
