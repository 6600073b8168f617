//! Images in 8-bit RGB, the input of the detector.
//!
//! An [`Image`] owns its pixels and comes from a file ([`Image::open`]), from an encoded file in memory
//! ([`Image::decode`]), from raw pixels ([`Image::from_rgb8`]) or from the types of the `image` crate (`From`). A
//! [`FrameView`](crate::FrameView) borrows pixels, with padded rows if need be, so that a video frame reaches the detector without a copy.

mod decode;
mod jpeg;
mod limits;
mod pages;
mod tiff;

use std::io::Read;
use std::path::Path;

use ::image::{DynamicImage, RgbImage};

use ocelli_error::{Error, Result, refuse};

/// Extensions of the formats that [`Image::open`] reads.
const EXTENSIONS: [&str; 18] = [
    "png", "apng", "jpg", "jpeg", "jpe", "jfif", "mpo", "webp", "bmp", "dib", "tif", "tiff", "gif", "pnm",
    "ppm", "pgm", "pbm", "pam",
];

/// Those of them that may be a video as well.
const ANIMATED: [&str; 2] = ["apng", "gif"];

/// True if the file name has the extension of a supported image format, ignoring case.
pub fn has_image_extension(path: &Path) -> bool {
    has_extension(path, &EXTENSIONS)
}

/// True if the file name has the extension of an animation that is a video where one is expected: GIF and APNG.
pub fn has_animation_extension(path: &Path) -> bool {
    has_extension(path, &ANIMATED)
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    path.extension().is_some_and(|e| known.contains(&e.to_string_lossy().to_lowercase().as_str()))
}

/// `true` if a file is an image by its name, or by its first bytes if its extension means nothing to [`Image::open`]. Of TIFF,
/// BMP and PNM the name decides: raw photographs start as TIFF does, and texts as the others do.
pub fn is_image_file(path: &Path) -> bool {
    let starts_as_image = || -> std::io::Result<bool> {
        let mut start = Vec::new();
        std::fs::File::open(path)?.take(12).read_to_end(&mut start)?;
        Ok(matches!(
            &start[..],
            [0x89, b'P', b'N', b'G', ..]
                | [0xFF, 0xD8, 0xFF, ..]
                | [b'G', b'I', b'F', b'8', ..]
                | [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P']
        ))
    };
    has_image_extension(path) || (path.is_file() && starts_as_image().unwrap_or(false))
}

/// Extensions of image formats that are not supported.
const UNSUPPORTED: [&str; 5] = ["heic", "heif", "hif", "avif", "jxl"];

/// `true` if the file name has the extension of an image format that [`Image::open`] does not read (HEIC, AVIF, JPEG XL), so
/// that the file is an image and should not be ignored silently.
pub fn has_unsupported_extension(path: &Path) -> bool {
    has_extension(path, &UNSUPPORTED)
}

pub use limits::{MAX_FILE_BYTES, MAX_PIXELS, MAX_SIDE};
#[doc(hidden)]
pub use limits::{TRUNCATED, check_size, guarded, invalid, no_memory};
#[doc(hidden)]
pub use tiff::palette_photometric;

/// An image that owns its pixels: 8-bit RGB, rows from the top without padding.
///
/// It has at least one pixel unless it was converted from an empty image of the `image` crate; the detector refuses such an
/// image.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: u32,
    height: u32,
    /// [height, width, rgb]
    data: Vec<u8>,
}

impl Default for Image {
    /// A buffer to be filled: one black pixel.
    fn default() -> Self {
        Self { width: 1, height: 1, data: vec![0; 3] }
    }
}

impl Image {
    /// Reads an image file: PNG, JPEG, WebP, BMP, TIFF, GIF (the first frame) or PNM.
    ///
    /// The format is detected from the content. The conversion to 8-bit RGB is that of other tools: the EXIF orientation
    /// is applied; grey is copied to the three channels; the alpha channel is dropped without compositing (PIL's
    /// `convert("RGB")`); 16-bit samples keep their high byte (libpng's `strip_16`, which OpenCV and, for colour, PIL
    /// use); floats are clipped to 0..1. Colour profiles are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](ocelli_error::ErrorKind::Io) if the file cannot be read,
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a folder,
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the file is empty, not an image, corrupt,
    /// truncated, or larger than [`MAX_FILE_BYTES`], [`MAX_SIDE`] or [`MAX_PIXELS`]. Each names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        decode::open(path.as_ref())
    }

    /// Decodes an image file in memory; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open), for the content.
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        decode::decode(bytes, name)
    }

    /// Width and height in pixels that the header of an image file in memory declares, before anything is decoded. Takes less
    /// than 64 MiB, whatever the file holds; `name` stands for it in errors.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the content is no image, or its header is corrupt.
    pub fn declared_size(bytes: &[u8], name: &str) -> Result<(u32, u32)> {
        decode::size_of(bytes, name)
    }

    /// Takes raw pixels: `data` is [height, width, rgb] without padding.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero or `data` does not have
    /// `3 * width * height` bytes.
    pub fn from_rgb8(width: u32, height: u32, data: Vec<u8>) -> Result<Self> {
        let expected = rgb8_len(width, height)?;
        if data.len() != expected {
            refuse!("image of {width}x{height}: expected {expected} bytes, got {}", data.len());
        }
        Ok(Self { width, height, data })
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The pixels: [height, width, rgb].
    pub fn as_rgb8(&self) -> &[u8] {
        &self.data
    }

    /// Changes the size and returns the pixels to be overwritten, [height, width, rgb]; their values are unspecified. A
    /// reused image allocates only if it grows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero; the image is not changed
    /// then.
    pub fn reset_rgb8(&mut self, width: u32, height: u32) -> Result<&mut [u8]> {
        let length = rgb8_len(width, height)?;
        self.data.resize(length, 0);
        (self.width, self.height) = (width, height);
        Ok(&mut self.data)
    }

    /// The pixels, without a copy: [height, width, rgb].
    pub fn into_rgb8(self) -> Vec<u8> {
        self.data
    }

    /// Converts to the type of the `image` crate, without a copy.
    pub fn into_rgb_image(self) -> RgbImage {
        RgbImage::from_raw(self.width, self.height, self.data)
            .expect("the length was checked when the image was made")
    }
}

impl From<RgbImage> for Image {
    /// Without a copy.
    fn from(image: RgbImage) -> Self {
        let (width, height) = image.dimensions();
        Self { width, height, data: image.into_raw() }
    }
}

impl From<DynamicImage> for Image {
    /// Converts the pixels as [`Image::open`] does.
    fn from(image: DynamicImage) -> Self {
        let (width, height) = (image.width(), image.height());
        Self { width, height, data: decode::into_rgb8(image) }
    }
}

impl From<Image> for DynamicImage {
    /// Without a copy.
    fn from(image: Image) -> Self {
        Self::ImageRgb8(image.into_rgb_image())
    }
}

ocelli_engines::debug_as!(Image, it => "Image({}x{})", it.width, it.height);

/// The length of an image without padding, in bytes.
fn rgb8_len(width: u32, height: u32) -> Result<usize> {
    if width == 0 || height == 0 {
        refuse!("image of {width}x{height}: expected at least one pixel");
    }
    (width as usize).checked_mul(3).and_then(|row| row.checked_mul(height as usize)).ok_or_else(|| {
        let message = format!("image of {width}x{height}: more bytes than this machine can address");
        Error::invalid_argument(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    #[test]
    fn the_length_of_raw_pixels_is_checked() {
        for bytes in [17, 19] {
            let error = Image::from_rgb8(2, 3, vec![0; bytes]).expect_err("it has 18 bytes");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn images_of_the_image_crate_convert_both_ways() {
        let rgb = RgbImage::from_fn(3, 2, |x, y| ::image::Rgb([x as u8, y as u8, 9]));
        let image = Image::from(rgb.clone());
        assert_eq!((image.width(), image.height(), image.as_rgb8()), (3, 2, rgb.as_raw().as_slice()));
        assert_eq!(image.clone().into_rgb_image(), rgb);
        assert_eq!(DynamicImage::from(image.clone()), DynamicImage::ImageRgb8(rgb.clone()));
        assert_eq!(Image::from(DynamicImage::ImageRgb8(rgb)), image);
        let deep = ::image::ImageBuffer::from_pixel(1, 1, ::image::Luma([0x12FFu16]));
        assert_eq!(Image::from(DynamicImage::ImageLuma16(deep)).as_rgb8(), [0x12; 3]);
        let empty = Image::from(RgbImage::new(0, 0));
        assert!(empty.view().to_image().is_err(), "it has no pixels");
    }
}
