//! Annotated frames as picture files.

use std::path::{Path, PathBuf};

use image::{ExtendedColorType, ImageFormat};

use super::{FrameOutcome, Pictures, Sink};
use crate::atomic_file::write_atomically;
use crate::error::{Error, ErrorKind, Result};
use crate::image::ImageView;

/// What JPEG files keep of a picture, of 100.
const JPEG_QUALITY: u8 = 92;

const UNKNOWN_FORMAT: &str = "no format of that name can be written; end it with .png, .jpg or .webp";

/// Finds out before the work begins whether a picture can be written in the format of that name. `flag` is the
/// argument that names the file.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a format that cannot be written.
pub fn check_picture_file(flag: &str, path: &Path) -> Result<()> {
    let format = ImageFormat::from_path(path).ok();
    if format.is_some_and(|format| format.can_write() && format != ImageFormat::Gif) {
        return Ok(());
    }
    let message = format!("{flag}, {}: {UNKNOWN_FORMAT}", path.display());
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// Writes a picture in the format that its name says; PNG where it says none.
///
/// # Errors
/// [`ErrorKind::Io`] where it cannot be written; no half-written file is left.
pub fn write_picture<'i>(path: &Path, picture: impl Into<ImageView<'i>>) -> Result<()> {
    let picture = picture.into();
    let format = ImageFormat::from_path(path).unwrap_or(ImageFormat::Png);
    let whole;
    let pixels = match picture.as_contiguous() {
        Some(pixels) => pixels,
        None => {
            whole = picture.to_image().into_rgb8();
            whole.as_slice()
        }
    };
    write_atomically(path, |file| {
        let (width, height) = (picture.width(), picture.height());
        let mut encoded = std::io::Cursor::new(Vec::new());
        if format == ImageFormat::Jpeg {
            image::codecs::jpeg::JpegEncoder::new_with_quality(&mut encoded, JPEG_QUALITY)
                .encode(pixels, width, height, ExtendedColorType::Rgb8)
                .map_err(std::io::Error::other)?;
        } else {
            let color = ExtendedColorType::Rgb8;
            image::write_buffer_with_format(&mut encoded, pixels, width, height, color, format)
                .map_err(std::io::Error::other)?;
        }
        std::io::Write::write_all(file, encoded.get_ref())
    })
}

/// Writes each annotated frame as a picture of its own.
#[derive(Debug)]
pub struct PictureSequence {
    folder: PathBuf,
    /// What stands around the frame's number in the names.
    before: String,
    digits: usize,
    after: String,
}

impl PictureSequence {
    /// Writes to names with the frame's number in them: `out/%06d.png`, or `out/` for the same. The folder is made with
    /// the first frame.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a pattern without one number, or a format that cannot be written;
    /// [`ErrorKind::Io`] where a file is in the folder's place.
    pub fn create(flag: &str, target: &Path) -> Result<Self> {
        let refuse = |kind, why: &str| Err(Error::new(kind, format!("{flag}, {}: {why}", target.display())));
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (folder, name) = match name.contains('%') {
            true => (target.parent().map(Path::to_owned).unwrap_or_default(), name),
            false => (target.to_owned(), "%06d.png".to_owned()),
        };
        if folder.exists() && !folder.is_dir() {
            return refuse(ErrorKind::Io, "it is a file; name a folder");
        }
        let Some((before, digits, after)) = number_in(&name) else {
            return refuse(ErrorKind::InvalidArgument, "expected one number in the name, as in %06d.png");
        };
        check_picture_file(flag, Path::new(&name))?;
        Ok(Self { folder, before, digits, after })
    }

    /// Where the frame of this number goes.
    pub fn path(&self, frame: u64) -> PathBuf {
        self.folder.join(format!("{}{frame:0digits$}{}", self.before, self.after, digits = self.digits))
    }
}

impl Sink for PictureSequence {
    fn pictures(&self) -> Pictures {
        Pictures { annotated: true, ..Pictures::default() }
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(picture) = &outcome.annotated else { return Ok(()) };
        if !self.folder.as_os_str().is_empty() {
            make_folder(&self.folder)?;
        }
        write_picture(&self.path(outcome.index), picture)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub(super) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("cannot create the folder", folder, e))
}

/// The one `%d` or `%06d` of a name: what is before it, its digits, what is after.
fn number_in(name: &str) -> Option<(String, usize, String)> {
    let (before, rest) = name.split_once('%')?;
    let (digits, after) = rest.split_once('d')?;
    let digits = if digits.is_empty() { 1 } else { digits.parse().ok().filter(|digits| *digits <= 20)? };
    (!after.contains('%')).then(|| (before.to_owned(), digits, after.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;

    #[test]
    fn names_of_frames() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| format!("{}/{name}", folder.path().display());
        std::fs::write(at("notes"), b"x").expect("it can be written to");
        let cases: [(&str, Result<&str, &str>); 9] = [
            ("out", Ok("out/000042.png")),
            ("out/", Ok("out/000042.png")),
            ("a/%d.jpg", Ok("a/42.jpg")),
            ("a/f-%03d.webp", Ok("a/f-042.webp")),
            ("a/%d%d.png", Err("one number")),
            ("a/%s.png", Err("one number")),
            ("a/%06d.xyz", Err("no format")),
            ("a/%06d.gif", Err("no format")),
            ("notes", Err("it is a file")),
        ];
        for (target, expected) in cases {
            match (PictureSequence::create("--output", Path::new(&at(target))), expected) {
                (Ok(sequence), Ok(expected)) => {
                    assert_eq!(sequence.path(42), Path::new(&at(expected)), "{target}");
                }
                (Err(e), Err(word)) => assert!(e.to_string().contains(word), "{target}: {e}"),
                (found, expected) => panic!("{target}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn every_format_reads_back() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let picture = Image::from_rgb8(5, 3, [200, 10, 60].repeat(15)).expect("15 pixels");
        for name in ["a.png", "a.jpg", "a.webp", "a.bmp", "a.tif", "a"] {
            let path = folder.path().join(name);
            write_picture(&path, &picture).expect("the folder can be written to");
            let read = Image::open(&path).expect("it was written");
            assert_eq!((read.width(), read.height()), (5, 3), "{name}");
            assert!(read.as_rgb8()[0] > 150 && read.as_rgb8()[1] < 60, "{name}: {:?}", read.as_rgb8());
        }
    }
}
