//! A frame in borrowed memory, as a camera driver provides it.

#[doc(hidden)]
pub mod nv12;

use std::time::Duration;

use crate::image::Image;
use ocelli_error::{Error, Result};

/// The pixel format of a [`FrameView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PixelFormat {
    /// Three bytes per pixel: red, green, blue.
    Rgb8,
    /// Three bytes per pixel: blue, green, red, as in OpenCV.
    Bgr8,
    /// A plane of luma, one byte per pixel, followed by a plane of interleaved blue and red chroma, one pair per 2 × 2
    /// pixels, with the same stride. BT.601, limited range (luma 16–235), converted as in OpenCV.
    Nv12,
    /// One byte per pixel: grey.
    Gray8,
}

/// A frame in borrowed memory. The memory is not needed any more once the frame is preprocessed.
///
/// ```
/// use std::time::Duration;
/// use ocelli_images::{FrameView, PixelFormat};
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
    /// The pixels, top row first.
    pub data: &'a [u8],
    /// Width in pixels, at least 1.
    pub width: u32,
    /// Height in pixels, at least 1.
    pub height: u32,
    /// Bytes from the start of one row to the next; the last row needs no padding.
    pub stride: usize,
    /// The pixel format.
    pub format: PixelFormat,
    /// The time when the frame was taken, on any clock that never runs backwards.
    pub timestamp: Duration,
}

impl<'a> FrameView<'a> {
    /// Pixels in RGB without padding, [height, width, rgb], as a frame at time zero.
    pub fn rgb8(width: u32, height: u32, data: &'a [u8]) -> Self {
        let (stride, format) = (width as usize * 3, PixelFormat::Rgb8);
        Self { data, width, height, stride, format, timestamp: Duration::ZERO }
    }

    /// Checks that the buffer can hold the frame.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero, a row is longer than the
    /// stride, or `data` is too short.
    pub fn check(&self) -> Result<()> {
        let (width, height) = (self.width as usize, self.height as usize);
        let invalid = |why: String| {
            Err(Error::invalid_argument(format!("frame of {width}x{height}, {:?}: {why}", self.format)))
        };
        if width == 0 || height == 0 {
            return invalid("expected at least one pixel".into());
        }
        let Some((row, rows)) = self.layout() else {
            return invalid("too large for this machine's memory".into());
        };
        if self.stride < row {
            return invalid(format!("the stride is {}: expected at least {row} bytes", self.stride));
        }
        let expected = self.stride.checked_mul(rows - 1).and_then(|bytes| bytes.checked_add(row));
        match expected {
            Some(expected) if self.data.len() >= expected => Ok(()),
            _ => invalid(format!("{} bytes are too few for a stride of {}", self.data.len(), self.stride)),
        }
    }

    /// The bytes of a row without padding, and the number of rows of all planes; `None` if these are too many.
    pub(crate) fn layout(&self) -> Option<(usize, usize)> {
        let (width, height) = (self.width as usize, self.height as usize);
        Some(match self.format {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => (width.checked_mul(3)?, height),
            PixelFormat::Gray8 => (width, height),
            PixelFormat::Nv12 => {
                (width.checked_next_multiple_of(2)?, height.checked_add(height.div_ceil(2))?)
            }
        })
    }

    /// A copy of the pixels in RGB.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero, a row is longer than the
    /// stride, or `data` is too short.
    pub fn to_image(&self) -> Result<Image> {
        let mut image = Image::default();
        self.to_image_into(&mut image)?;
        Ok(image)
    }

    /// As [`to_image`](Self::to_image), into a buffer that is used again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero, a row is longer than the
    /// stride, or `data` is too short.
    pub fn to_image_into(&self, image: &mut Image) -> Result<()> {
        self.check()?;
        let row = self.width as usize * 3;
        let rgb = image.reset_rgb8(self.width, self.height)?;
        if self.format == PixelFormat::Nv12 {
            nv12::to_rgb_into(self, rgb);
            return Ok(());
        }
        for (to, from) in rgb.chunks_exact_mut(row).zip(self.data.chunks(self.stride)) {
            match self.format {
                PixelFormat::Gray8 => to.chunks_exact_mut(3).zip(from).for_each(|(to, grey)| to.fill(*grey)),
                PixelFormat::Bgr8 => swap_red_and_blue(&from[..row], to),
                _ => to.copy_from_slice(&from[..row]),
            }
        }
        Ok(())
    }

    /// The mean luma of each cell of a grid of columns and rows, of up to 8 × 8 of its pixels.
    #[doc(hidden)]
    pub fn mean_lumas(&self, (columns, rows): (usize, usize), cells: &mut Vec<f32>) {
        const SAMPLES: usize = 8;
        let (width, height) = (self.width as usize, self.height as usize);
        let luma = |x: usize, y: usize| -> f32 {
            let row = y * self.stride;
            match self.format {
                PixelFormat::Rgb8 | PixelFormat::Bgr8 => {
                    let pixel = &self.data[row + 3 * x..row + 3 * x + 3];
                    0.25 * (f32::from(pixel[0]) + 2.0 * f32::from(pixel[1]) + f32::from(pixel[2]))
                }
                PixelFormat::Nv12 | PixelFormat::Gray8 => f32::from(self.data[row + x]),
            }
        };
        let range = |index: usize, count: usize, side: usize| {
            let (start, end) =
                (index * side / count, ((index + 1) * side / count).max(index * side / count + 1));
            (start, end.min(side), ((end - start) / SAMPLES).max(1))
        };
        cells.clear();
        for row in 0..rows {
            let (top, bottom, down) = range(row, rows, height);
            for column in 0..columns {
                let (left, right, across) = range(column, columns, width);
                let (mut sum, mut count) = (0.0, 0.0f32);
                for y in (top.min(height - 1)..bottom).step_by(down) {
                    for x in (left.min(width - 1)..right).step_by(across) {
                        sum += luma(x, y);
                        count += 1.0;
                    }
                }
                cells.push(sum / count.max(1.0));
            }
        }
    }
}

impl Image {
    /// The whole image as a frame at time zero.
    pub fn view(&self) -> FrameView<'_> {
        FrameView::rgb8(self.width(), self.height(), self.as_rgb8())
    }
}

impl<'a> From<&'a Image> for FrameView<'a> {
    /// The image as a frame at time zero.
    fn from(image: &'a Image) -> Self {
        image.view()
    }
}

/// Converts three-byte pixels between RGB and BGR.
#[doc(hidden)]
pub fn swap_red_and_blue(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.chunks_exact_mut(3).zip(from.chunks_exact(3)) {
        to.copy_from_slice(&[from[2], from[1], from[0]]);
    }
}

ocelli_engines::debug_as!(FrameView<'_>, it => "FrameView({}x{} {:?}, stride {})", it.width, it.height, it.format, it.stride);

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    /// Two pixels a row and two rows, with padding.
    #[test]
    fn copies_are_in_rgb() {
        use PixelFormat::{Bgr8, Gray8, Nv12, Rgb8};
        let cases: [(PixelFormat, &[u8], usize, [u8; 12]); 4] = [
            (Rgb8, &[1, 2, 3, 4, 5, 6, 0, 7, 8, 9, 10, 11, 12], 7, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            (Bgr8, &[3, 2, 1, 6, 5, 4, 0, 9, 8, 7, 12, 11, 10], 7, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            (Gray8, &[1, 2, 0, 3, 4, 0, 9, 9, 9], 3, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]),
            // Without colour: luma 16 is black, 235 white.
            (Nv12, &[16, 235, 0, 235, 16, 0, 128, 128], 3, [0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0]),
        ];
        for (format, data, stride, expected) in cases {
            let view = FrameView { data, width: 2, height: 2, stride, format, timestamp: Duration::ZERO };
            let found = view.to_image().map(|image| (image.width(), image.height(), image.into_rgb8()));
            assert_eq!(found.map_err(|error| error.to_string()), Ok((2, 2, expected.to_vec())), "{format:?}");
            let short = FrameView { data: &data[..4], ..view };
            assert!(short.to_image().is_err(), "{format:?}");
        }
    }

    #[test]
    fn sizes_are_checked() {
        use PixelFormat::{Bgr8, Gray8, Nv12, Rgb8};
        // width, height, stride, format, bytes, valid?
        let cases = [
            (2, 3, 6, Rgb8, 18, true),
            (2, 3, 8, Rgb8, 22, true),
            (2, 3, 8, Rgb8, 21, false),
            (2, 3, 8, Bgr8, 22, true),
            (2, 3, 8, Bgr8, 21, false),
            (2, 3, 5, Rgb8, 30, false),
            (0, 3, 6, Rgb8, 18, false),
            (3, 0, 6, Gray8, 18, false),
            (2, 0, 6, Rgb8, 18, false),
            (1, 1, 3, Rgb8, 3, true),
            (1, 1, usize::MAX, Rgb8, 3, true),
            (1, 3, usize::MAX, Rgb8, 30, false),
            (u32::MAX, u32::MAX, usize::MAX, Rgb8, 30, false),
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
        for (width, height, stride, format, bytes, valid) in cases {
            let view =
                FrameView { data: &data[..bytes], width, height, stride, format, timestamp: Duration::ZERO };
            match view.check() {
                Ok(()) if valid => {}
                Err(error) if !valid && error.kind() == ErrorKind::InvalidArgument => {}
                other => failures.push(format!("{view:?}, {bytes} bytes: {other:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
