//! Image files, and annotated frames as sequences of them.

use std::path::{Path, PathBuf};

use image::ImageFormat;

use super::{Images, Sink};
use crate::atomic_file::{create_folder, write_atomically};
use crate::frame_view::FrameView;
use crate::image::{Image, has_image_extension};
use crate::outcome::FrameOutcome;
use ocelli_error::{Error, ErrorKind, Result, refuse};

/// JPEG quality, 1 to 100.
const JPEG_QUALITY: u8 = 92;

/// Checks that images can be written in the format that the name's extension means.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for unsupported formats.
pub fn check_image_format(path: &Path) -> Result<()> {
    let format = ImageFormat::from_path(path).ok();
    if format.is_some_and(|format| format.can_write() && format != ImageFormat::Gif) {
        return Ok(());
    }
    refuse!("{}: unsupported image format; use .png, .jpg or .webp", path.display())
}

/// Scales an image to fit into a black page of another size, centred.
pub(super) fn letterboxed(image: &Image, (width, height): (u32, u32)) -> Result<Image> {
    let mut page = Image::filled(width, height, [0; 3])?;
    page.place(&image.fitted((width, height))?, [0, 0, width, height]);
    Ok(page)
}

/// Writes an image in the format that the name's extension means, or as PNG if it has none.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be written; no partial file is left.
pub fn write_image<'i>(path: &Path, image: impl Into<FrameView<'i>>) -> Result<()> {
    let (image, format) = (image.into(), ImageFormat::from_path(path).unwrap_or(ImageFormat::Png));
    write_atomically(path, |file| {
        let encoded =
            image.encoded(format, JPEG_QUALITY).map_err(|e| std::io::Error::other(e.to_string()))?;
        std::io::Write::write_all(file, &encoded)
    })
}

/// Writes each annotated frame to an image file of its own.
#[derive(Debug)]
pub struct ImageSequence {
    folder: PathBuf,
    /// The file name around the frame's index.
    before: String,
    digits: usize,
    after: String,
}

impl ImageSequence {
    /// Writes to file names that contain the frame's index: `out/%06d.png`, or `out/` for the same. The folder is
    /// created with the first frame.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the pattern does not have exactly one number, or for unsupported formats;
    /// [`ErrorKind::Io`] if the folder is a file.
    pub fn create(target: &Path) -> Result<Self> {
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (folder, name) = if is_image_pattern(target) {
            (target.parent().map(Path::to_owned).unwrap_or_default(), name)
        } else {
            (target.to_owned(), "%06d.png".to_owned())
        };
        check_folder(&folder)?;
        let Some((before, digits, after)) = number_in(&name) else {
            refuse!("{}: expected one number in the name, such as %06d.png", target.display());
        };
        check_image_format(Path::new(&name))?;
        Ok(Self { folder, before, digits, after })
    }

    /// The path of the frame with this index.
    pub fn path(&self, frame: u64) -> PathBuf {
        self.folder.join(format!("{}{frame:0digits$}{}", self.before, self.after, digits = self.digits))
    }
}

impl Sink for ImageSequence {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(image) = &outcome.annotated else { return Ok(()) };
        if !self.folder.as_os_str().is_empty() {
            create_folder(&self.folder)?;
        }
        write_image(&self.path(outcome.index), image)
    }
}

pub(super) fn check_folder(folder: &Path) -> Result<PathBuf> {
    if folder.exists() && !folder.is_dir() {
        let message = format!("{}: it is a file; expected a folder", folder.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    Ok(folder.to_owned())
}

/// `true` if a path is meant as a pattern for images, such as `out/%06d.png`. Elsewhere `%` is a character as any other:
/// `100%.mp4` is a video, and `100%` a folder.
pub fn is_image_pattern(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let has_number = name
        .split('%')
        .skip(1)
        .any(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('d'));
    let is_video = path.extension().is_some_and(|extension| {
        ["mp4", "mov", "mkv", "avi", "webm"].iter().any(|video| extension.eq_ignore_ascii_case(video))
    });
    !is_video && !path.is_dir() && (has_number || (name.contains('%') && has_image_extension(path)))
}

/// Splits a name at its only `%d` or `%06d`: what precedes it, its digits, what follows.
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
    fn an_image_that_a_format_cannot_hold_is_an_error_of_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("wide.webp");
        let wide = Image::filled(16_385, 1, [9; 3]).expect("it has pixels");
        let error = write_image(&path, &wide).expect_err("WebP has at most 16384 columns");
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("wide.webp"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn patterns_become_file_names() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| format!("{}/{name}", folder.path().display());
        std::fs::write(at("notes"), b"x").expect("it can be written to");
        let cases: [(&str, Result<&str, &str>); 11] = [
            ("100%", Ok("100%/000042.png")),
            ("100%/", Ok("100%/000042.png")),
            ("out", Ok("out/000042.png")),
            ("out/", Ok("out/000042.png")),
            ("a/%d.jpg", Ok("a/42.jpg")),
            ("a/f-%03d.webp", Ok("a/f-042.webp")),
            ("a/%d%d.png", Err("one number")),
            ("a/%s.png", Err("one number")),
            ("a/%06d.xyz", Err("unsupported image format")),
            ("a/%06d.gif", Err("unsupported image format")),
            ("notes", Err("it is a file")),
        ];
        for (target, expected) in cases {
            match (ImageSequence::create(Path::new(&at(target))), expected) {
                (Ok(sequence), Ok(expected)) => {
                    assert_eq!(sequence.path(42), Path::new(&at(expected)), "{target}");
                }
                (Err(e), Err(word)) => assert!(e.to_string().contains(word), "{target}: {e}"),
                (found, expected) => panic!("{target}: {found:?}, expected {expected:?}"),
            }
        }
        for (path, expected) in [
            ("100%.mp4", false),
            ("100%done.mp4", false),
            ("50%/a.mp4", false),
            ("a/%d.png", true),
            ("a-%06d", true),
            ("%s.png", true),
        ] {
            assert_eq!(is_image_pattern(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn every_format_can_be_read_back() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = Image::from_rgb8(5, 3, [200, 10, 60].repeat(15)).expect("15 pixels");
        for name in ["a.png", "a.jpg", "a.webp", "a.bmp", "a.tif", "a"] {
            let path = folder.path().join(name);
            write_image(&path, &image).expect("the folder can be written to");
            let read = Image::open(&path).expect("it was written");
            assert_eq!((read.width(), read.height()), (5, 3), "{name}");
            assert!(read.as_rgb8()[0] > 150 && read.as_rgb8()[1] < 60, "{name}: {:?}", read.as_rgb8());
        }
    }
}
