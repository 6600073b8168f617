//! Image files as a stream.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FRAME_RATES, Source, SourceInfo, time_of};
use crate::frame::Frame;
use crate::image::Image;
use ocelli_error::{Error, Result, refuse};

/// Image files, one frame each, at a given frame rate. Sizes may differ. An image that cannot be read ends the stream
/// with an error.
#[derive(Debug)]
pub struct ImageFiles {
    info: SourceInfo,
    files: Vec<PathBuf>,
    next: usize,
    frame_rate: f64,
}

impl ImageFiles {
    /// A stream of `files` in this order; see [`natural_order`]. `name` stands for the stream in messages.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are no files or the frame rate is not one of
    /// [`FRAME_RATES`]; what [`Image::open`] returns for the first image, whose size is the stream's.
    pub fn new(name: impl Into<String>, files: Vec<PathBuf>, frame_rate: f64) -> Result<Self> {
        let name = name.into();
        if !FRAME_RATES.contains(&frame_rate) {
            let (least, most) = (FRAME_RATES.start(), FRAME_RATES.end());
            let message = format!("{name}: frame_rate is {frame_rate}: expected {least} to {most}");
            return Err(Error::invalid_argument(message).about("frame_rate"));
        }
        let Some(first) = files.first() else {
            refuse!("{name}: expected at least one image");
        };
        let first = Image::open(first)?;
        let info = SourceInfo {
            name,
            size: Some((first.width(), first.height())),
            frame_rate: Some(frame_rate),
            frame_count: Some(files.len() as u64),
            ..SourceInfo::default()
        };
        Ok(Self { info, files, next: 0, frame_rate })
    }

    fn advance(&mut self, frame: &mut Frame) -> Option<&Path> {
        let file = self.files.get(self.next)?;
        frame.index = self.next as u64;
        frame.time = time_of(self.next as u64, self.frame_rate);
        frame.file = Some(Arc::from(file.as_path()));
        self.next += 1;
        Some(file)
    }
}

impl Source for ImageFiles {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let Some(file) = self.advance(frame) else { return Ok(false) };
        frame.image = Image::open(file)?;
        Ok(true)
    }

    fn skip(&mut self, frame: &mut Frame) -> Result<bool> {
        Ok(self.advance(frame).is_some())
    }
}

/// Sorts paths in natural order: `2.png` before `10.png`.
pub fn natural_order(files: &mut [PathBuf]) {
    files.sort_by(|a, b| {
        let (a, b) = (a.to_string_lossy(), b.to_string_lossy());
        compare(&a, &b).then_with(|| a.cmp(&b))
    });
}

/// Compares runs of digits as numbers, everything else character by character.
fn compare(mut a: &str, mut b: &str) -> Ordering {
    loop {
        let ((a_piece, a_rest), (b_piece, b_rest)) = match (first_piece(a), first_piece(b)) {
            (Some(a), Some(b)) => (a, b),
            (a, b) => return a.is_some().cmp(&b.is_some()),
        };
        let digits = |piece: &str| piece.starts_with(|c: char| c.is_ascii_digit());
        let ordering = if digits(a_piece) && digits(b_piece) {
            let (a, b) = (a_piece.trim_start_matches('0'), b_piece.trim_start_matches('0'));
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        } else {
            a_piece.cmp(b_piece)
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
        (a, b) = (a_rest, b_rest);
    }
}

/// Splits off a run of digits, or one other character.
fn first_piece(text: &str) -> Option<(&str, &str)> {
    let first = text.chars().next()?;
    let end = if first.is_ascii_digit() {
        text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())
    } else {
        first.len_utf8()
    };
    Some(text.split_at(end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_in_names_sort_by_value() {
        let cases: [(&[&str], &[&str]); 5] = [
            (&["10.png", "9.png", "1.png"], &["1.png", "9.png", "10.png"]),
            (&["a10b2", "a10b10", "a2b3"], &["a2b3", "a10b2", "a10b10"]),
            (&["f001", "f01", "f1", "f0"], &["f0", "f001", "f01", "f1"]),
            (&["b/1", "a/2", "a"], &["a", "a/2", "b/1"]),
            (
                &["ä2", "ä10", "x99999999999999999999999", "x100000000000000000000000"],
                &["x99999999999999999999999", "x100000000000000000000000", "ä2", "ä10"],
            ),
        ];
        for (names, expected) in cases {
            let mut files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            natural_order(&mut files);
            assert_eq!(files, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{names:?}");
        }
    }

    #[test]
    fn a_missing_image_ends_the_stream_with_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str, width| {
            let path = folder.path().join(name);
            let image = image::RgbImage::from_pixel(width, 2, image::Rgb([width as u8; 3]));
            image.save(&path).expect("the folder can be written to");
            path
        };
        let files =
            vec![file("a.png", 4), file("b.png", 7), folder.path().join("none.png"), file("c.png", 9)];
        let mut source = ImageFiles::new("images", files, 10.0).expect("the first image is whole");
        assert_eq!((source.info().size, source.info().frame_count), (Some((4, 2)), Some(4)));
        let mut frame = Frame::default();
        assert!(source.skip(&mut frame).expect("there is a first"));
        assert!(source.read_into(&mut frame).expect("there is a second"));
        assert_eq!((frame.image.width(), frame.index, frame.time), (7, 1, Duration::from_millis(100)));
        let error = source.read_into(&mut frame).expect_err("it is not there");
        assert!(error.to_string().contains("none.png"), "{error}");
        assert!(ImageFiles::new("x", Vec::new(), 10.0).is_err());
        for rate in [0.0, -1.0, 1e-300, 1e300, f64::NAN] {
            assert!(ImageFiles::new("x", vec![folder.path().join("a.png")], rate).is_err(), "{rate}");
        }
    }
}
