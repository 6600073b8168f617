//! Pictures of answers.

use image::ImageFormat;
use ocelli::{Image, Result};

/// A PNG of a picture.
///
/// # Errors
/// [`ErrorKind::Execution`](ocelli::ErrorKind::Execution) if it cannot be encoded.
pub(crate) fn png(picture: &Image) -> Result<Vec<u8>> {
    picture.view().encoded(ImageFormat::Png, 0)
}

/// A JPEG of a picture, of a quality from 1 to 100.
///
/// # Errors
/// As [`png`].
pub(crate) fn jpeg(picture: &Image, quality: u8) -> Result<Vec<u8>> {
    picture.view().encoded(ImageFormat::Jpeg, quality)
}
