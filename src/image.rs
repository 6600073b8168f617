//! Pictures as the detector takes them: rows of 8-bit RGB.
//!
//! [`Image`] owns its pixels and comes from a file ([`Image::open`]), from memory ([`Image::decode`]) or from
//! pixels that are already there ([`Image::from_rgb8`]). [`ImageView`] borrows them, padded rows included, so that
//! a video frame reaches the detector without a copy.

mod decode;
mod jpeg;

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// Extensions of the formats that [`Image::open`] reads.
const EXTENSIONS: [&str; 14] =
    ["png", "jpg", "jpeg", "jpe", "jfif", "webp", "bmp", "dib", "tif", "tiff", "gif", "pnm", "ppm", "pgm"];

/// Whether the file name ends in the extension of a supported image format, in any case.
pub fn has_image_extension(path: &Path) -> bool {
    path.extension().is_some_and(|e| EXTENSIONS.contains(&e.to_string_lossy().to_lowercase().as_str()))
}

pub use decode::{MAX_FILE_BYTES, MAX_PIXELS, MAX_SIDE};

/// A picture that owns its pixels: 8-bit RGB, rows from the top without padding, at least one pixel.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: u32,
    height: u32,
    /// [height, width, rgb]
    data: Vec<u8>,
}

impl Image {
    /// Reads a picture file: PNG, JPEG, WebP, BMP, TIFF, GIF (its first frame) or PNM.
    ///
    /// What the file holds decides, not its name. The pixels become 8-bit RGB the way other tools make them:
    /// the EXIF orientation is applied first; grey is copied to the three channels; transparency is discarded
    /// without compositing (PIL's `convert("RGB")`); 16-bit samples keep their high byte (libpng's `strip_16`,
    /// which OpenCV and, for colour, PIL use); floats are clipped to 0..1. Colour profiles are not applied.
    ///
    /// # Errors
    /// `Io` when the file cannot be read, `InvalidArgument` for a folder, `InvalidData` when the file is empty, no
    /// picture, damaged, cut short, or larger than [`MAX_FILE_BYTES`], [`MAX_SIDE`] or [`MAX_PIXELS`]. Each
    /// names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        decode::open(path.as_ref())
    }

    /// Decodes a picture file that is in memory; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open) for what the bytes hold.
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        decode::decode(bytes, name)
    }

    /// Takes pixels that are already RGB: `data` is [height, width, rgb] without padding.
    ///
    /// # Errors
    /// `InvalidArgument` when a side is zero or `data` has another length than the sides ask for.
    pub fn from_rgb8(width: u32, height: u32, data: Vec<u8>) -> Result<Self> {
        let expected = rgb8_len(width, height)?;
        if data.len() != expected {
            let came = data.len();
            let message =
                format!("picture of {width}x{height}: expected {expected} bytes of RGB, {came} came");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Self { width, height, data })
    }

    /// Width in pixels, at least 1.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels, at least 1.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The pixels: [height, width, rgb].
    pub fn as_rgb8(&self) -> &[u8] {
        &self.data
    }

    /// Gives the picture another size and its pixels to be filled, [height, width, rgb]: a buffer that goes round
    /// allocates nothing once it has been as large. What the pixels are until then is unspecified.
    ///
    /// # Errors
    /// `InvalidArgument` when a side is zero; the picture is then what it was.
    pub fn reset_rgb8(&mut self, width: u32, height: u32) -> Result<&mut [u8]> {
        let length = rgb8_len(width, height)?;
        self.data.resize(length, 0);
        (self.width, self.height) = (width, height);
        Ok(&mut self.data)
    }

    /// Gives the pixels away: [height, width, rgb].
    pub fn into_rgb8(self) -> Vec<u8> {
        self.data
    }

    /// The same picture, borrowed.
    pub fn view(&self) -> ImageView<'_> {
        ImageView {
            width: self.width,
            height: self.height,
            stride: self.width as usize * 3,
            data: &self.data,
        }
    }

    /// A copy as the `image` crate's type, to draw on or to save.
    pub fn to_rgb_image(&self) -> ::image::RgbImage {
        self.clone().into_rgb_image()
    }

    /// The `image` crate's type, without a copy.
    pub fn into_rgb_image(self) -> ::image::RgbImage {
        ::image::RgbImage::from_raw(self.width, self.height, self.data)
            .expect("the length was checked when the picture was made")
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}x{})", self.width, self.height)
    }
}

/// A borrowed picture: 8-bit RGB, rows from the top, each possibly followed by padding; at least one pixel.
#[derive(Clone, Copy)]
pub struct ImageView<'a> {
    width: u32,
    height: u32,
    /// Bytes from one row's start to the next's.
    stride: usize,
    data: &'a [u8],
}

impl<'a> ImageView<'a> {
    /// Borrows pixels without padding: `data` is [height, width, rgb].
    ///
    /// # Errors
    /// `InvalidArgument` when a side is zero or `data` is shorter than the sides ask for.
    pub fn new(width: u32, height: u32, data: &'a [u8]) -> Result<Self> {
        Self::with_stride(width, height, rgb8_len(width, 1)?, data)
    }

    /// Borrows pixels whose rows start `stride_bytes` apart; the last row needs no padding.
    ///
    /// # Errors
    /// `InvalidArgument` when a side is zero, a row does not fit the stride, or `data` is too short.
    pub fn with_stride(width: u32, height: u32, stride_bytes: usize, data: &'a [u8]) -> Result<Self> {
        rgb8_len(width, height)?;
        let row = width as usize * 3;
        if stride_bytes < row {
            let message =
                format!("picture of {width}x{height}: a row is {row} bytes, the stride {stride_bytes}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let expected = stride_bytes.checked_mul(height as usize - 1).and_then(|len| len.checked_add(row));
        if expected.is_none_or(|expected| data.len() < expected) {
            let message = format!(
                "picture of {width}x{height}, stride {stride_bytes}: {} bytes are too few",
                data.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Self { width, height, stride: stride_bytes, data })
    }

    /// Width in pixels, at least 1.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels, at least 1.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Bytes from one row's start to the next's.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// All bytes, padding included.
    pub(crate) fn as_bytes(&self) -> &'a [u8] {
        self.data
    }

    /// The rows from the top, each [width, rgb] without its padding.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let row = self.width as usize * 3;
        self.data.chunks(self.stride).take(self.height as usize).map(move |chunk| &chunk[..row])
    }

    /// All pixels at once, [height, width, rgb], where the rows have no padding between them.
    pub fn as_contiguous(&self) -> Option<&'a [u8]> {
        let row = self.width as usize * 3;
        (self.stride == row).then(|| &self.data[..row * self.height as usize])
    }

    /// An owned copy without padding.
    pub fn to_image(&self) -> Image {
        let data = match self.as_contiguous() {
            Some(data) => data.to_vec(),
            None => self.rows().flatten().copied().collect(),
        };
        Image { width: self.width, height: self.height, data }
    }
}

impl<'a> From<&'a Image> for ImageView<'a> {
    fn from(image: &'a Image) -> Self {
        image.view()
    }
}

impl std::fmt::Debug for ImageView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageView({}x{}, stride {})", self.width, self.height, self.stride)
    }
}

/// Bytes of a picture without padding, or why there is no such picture.
fn rgb8_len(width: u32, height: u32) -> Result<usize> {
    if width == 0 || height == 0 {
        let message = format!("picture of {width}x{height}: a picture has at least one pixel");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    (width as usize).checked_mul(3).and_then(|row| row.checked_mul(height as usize)).ok_or_else(|| {
        let message = format!("picture of {width}x{height}: more bytes than this machine can address");
        Error::new(ErrorKind::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_pixels_are_checked() {
        let data = [7u8; 30];
        // width, height, stride, bytes, fine?
        let cases = [
            (2, 3, 6, 18, true),
            (2, 3, 8, 22, true),
            (2, 3, 8, 21, false),
            (2, 3, 5, 30, false),
            (0, 3, 6, 18, false),
            (2, 0, 6, 18, false),
            (1, 1, 3, 3, true),
            (1, 1, usize::MAX, 3, true),
            (1, 3, usize::MAX, 30, false),
            (u32::MAX, u32::MAX, usize::MAX, 30, false),
        ];
        let mut failures = Vec::new();
        for (width, height, stride, bytes, fine) in cases {
            let view = ImageView::with_stride(width, height, stride, &data[..bytes]);
            match view {
                Ok(_) if fine => {}
                Err(error) if !fine && error.kind() == ErrorKind::InvalidArgument => {}
                other => failures.push(format!("{width}x{height} stride {stride}, {bytes} bytes: {other:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(Image::from_rgb8(2, 3, vec![0; 17]).is_err());
        assert!(Image::from_rgb8(2, 3, vec![0; 19]).is_err());
    }

    #[test]
    fn padded_rows_are_left_out() {
        let data: Vec<u8> = (0..14).collect();
        let view =
            ImageView::with_stride(2, 2, 8, &data).expect("14 bytes hold two rows of 6 bytes, 8 apart");
        assert_eq!(view.as_contiguous(), None);
        assert_eq!(view.to_image().as_rgb8(), [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]);
        assert_eq!(view.rows().len(), 2);
    }
}
