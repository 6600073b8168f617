//! Pictures of answers.

use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageFormat};
use ocelli::{Error, ErrorKind, Image, Result};

/// A PNG of a picture.
///
/// # Errors
/// [`ErrorKind::Execution`] if it cannot be encoded.
pub(crate) fn png(picture: &Image) -> Result<Vec<u8>> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let (width, height, color) = (picture.width(), picture.height(), ExtendedColorType::Rgb8);
    image::write_buffer_with_format(&mut bytes, picture.as_rgb8(), width, height, color, ImageFormat::Png)
        .map_err(not_encoded)?;
    Ok(bytes.into_inner())
}

/// A JPEG of a picture, of a quality from 1 to 100.
///
/// # Errors
/// As [`png`].
pub(crate) fn jpeg(picture: &Image, quality: u8) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality)
        .encode(picture.as_rgb8(), picture.width(), picture.height(), ExtendedColorType::Rgb8)
        .map_err(not_encoded)?;
    Ok(bytes)
}

fn not_encoded(error: image::ImageError) -> Error {
    Error::new(ErrorKind::Execution, format!("cannot encode an image: {error}")).with_source(error)
}
