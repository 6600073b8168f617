//! A picture in someone else's memory: what a camera driver or a robot's node hands over.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::image::{Image, ImageView};

/// How the bytes of a [`FrameView`] make pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PixelFormat {
    /// Three bytes a pixel: red, green, blue.
    Rgb8,
    /// Three bytes a pixel: blue, green, red, as OpenCV has them.
    Bgr8,
    /// A plane of luma, a byte a pixel, and below it, in rows of the same stride, a plane of chroma: blue and red
    /// differences in turn for every 2 × 2 pixels. BT.601, limited range (luma 16–235), converted as OpenCV does.
    Nv12,
    /// One byte a pixel: grey.
    Gray8,
}

/// A borrowed picture of a stream. Nothing of it is kept once it has been preprocessed.
///
/// ```
/// use std::time::Duration;
/// use ocelli::{FrameView, PixelFormat};
///
/// let pixels = vec![0; 640 * 480 * 3];
/// let frame = FrameView {
///     data: &pixels,
///     width: 640,
///     height: 480,
///     stride: 640 * 3,
///     format: PixelFormat::Bgr8,
///     timestamp: Duration::from_millis(33),
/// };
/// assert!(frame.check().is_ok());
/// ```
#[derive(Clone, Copy)]
pub struct FrameView<'a> {
    /// The pixels, rows from the top.
    pub data: &'a [u8],
    /// Width in pixels, at least 1.
    pub width: u32,
    /// Height in pixels, at least 1.
    pub height: u32,
    /// Bytes from one row's start to the next's; the last row needs no padding.
    pub stride: usize,
    /// How bytes make pixels.
    pub format: PixelFormat,
    /// When it was taken, on any clock that does not run backwards.
    pub timestamp: Duration,
}

impl<'a> FrameView<'a> {
    /// Whether the bytes are enough for the picture.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where a side is zero, a row does not fit the stride, or `data` is too short.
    pub fn check(&self) -> Result<()> {
        let (width, height) = (self.width as usize, self.height as usize);
        let invalid = |why: String| {
            let message = format!("frame of {width}x{height}, {:?}: {why}", self.format);
            Err(Error::new(ErrorKind::InvalidArgument, message))
        };
        if width == 0 || height == 0 {
            return invalid("a picture has at least one pixel".into());
        }
        let (row, rows) = match self.format {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => (width.checked_mul(3), Some(height)),
            PixelFormat::Gray8 => (Some(width), Some(height)),
            PixelFormat::Nv12 => (width.checked_next_multiple_of(2), height.checked_add(height.div_ceil(2))),
        };
        let (Some(row), Some(rows)) = (row, rows) else {
            return invalid("more bytes than this machine can address".into());
        };
        if self.stride < row {
            return invalid(format!("a row is {row} bytes, the stride {}", self.stride));
        }
        let expected = self.stride.checked_mul(rows - 1).and_then(|bytes| bytes.checked_add(row));
        match expected {
            Some(expected) if self.data.len() >= expected => Ok(()),
            _ => invalid(format!("{} bytes at a stride of {} are too few", self.data.len(), self.stride)),
        }
    }

    /// The bytes as interleaved colours, whichever comes first; for formats that are.
    pub(crate) fn as_interleaved(&self) -> Result<ImageView<'a>> {
        ImageView::with_stride(self.width, self.height, self.stride, self.data)
    }
}

impl<'a> From<ImageView<'a>> for FrameView<'a> {
    /// The picture at time zero.
    fn from(image: ImageView<'a>) -> Self {
        Self {
            data: image.as_bytes(),
            width: image.width(),
            height: image.height(),
            stride: image.stride(),
            format: PixelFormat::Rgb8,
            timestamp: Duration::ZERO,
        }
    }
}

impl<'a> From<&'a Image> for FrameView<'a> {
    /// The picture at time zero.
    fn from(image: &'a Image) -> Self {
        image.view().into()
    }
}

impl std::fmt::Debug for FrameView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameView({}x{} {:?}, stride {})", self.width, self.height, self.format, self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        use PixelFormat::{Bgr8, Gray8, Nv12, Rgb8};
        // width, height, stride, format, bytes, fine?
        let cases = [
            (2, 3, 6, Rgb8, 18, true),
            (2, 3, 8, Bgr8, 22, true),
            (2, 3, 8, Bgr8, 21, false),
            (2, 3, 5, Rgb8, 30, false),
            (0, 3, 6, Rgb8, 18, false),
            (3, 0, 6, Gray8, 18, false),
            (3, 2, 3, Gray8, 6, true),
            (3, 2, 4, Gray8, 7, true),
            (3, 2, 4, Gray8, 6, false),
            (4, 2, 4, Nv12, 12, true),
            (4, 2, 4, Nv12, 11, false),
            (3, 3, 4, Nv12, 20, true),
            (3, 3, 4, Nv12, 19, false),
            (3, 3, 3, Nv12, 30, false),
            (1, 1, usize::MAX, Nv12, 30, false),
            (u32::MAX, u32::MAX, usize::MAX, Bgr8, 30, false),
        ];
        let data = [7u8; 30];
        let mut failures = Vec::new();
        for (width, height, stride, format, bytes, fine) in cases {
            let view =
                FrameView { data: &data[..bytes], width, height, stride, format, timestamp: Duration::ZERO };
            match view.check() {
                Ok(()) if fine => {}
                Err(error) if !fine && error.kind() == ErrorKind::InvalidArgument => {}
                other => failures.push(format!("{view:?}, {bytes} bytes: {other:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
