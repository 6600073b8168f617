//! Scaled images, pages of several, and encoded ones.

use ::image::codecs::jpeg::JpegEncoder;
use ::image::{ExtendedColorType, ImageFormat};
use ocelli_error::{Error, Result};
use ocelli_resize::Scaler;

use super::{Image, rgb8_len};
use crate::frame_view::{FrameView, PixelFormat};

impl Image {
    /// An image of one colour.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero.
    pub fn filled(width: u32, height: u32, color: [u8; 3]) -> Result<Self> {
        let mut image = Self::default();
        image.reset_rgb8(width, height)?.as_chunks_mut().0.fill(color);
        Ok(image)
    }

    /// The image, scaled with its aspect ratio to fit into a width and height, bilinear with antialiasing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero.
    pub fn fitted(&self, (width, height): (u32, u32)) -> Result<Self> {
        rgb8_len(self.width, self.height).and(rgb8_len(width, height))?;
        let scale =
            (f64::from(width) / f64::from(self.width)).min(f64::from(height) / f64::from(self.height));
        let side = |side: u32, most: u32| ((f64::from(side) * scale).round() as u32).clamp(1, most);
        let size = (side(self.width, width), side(self.height, height));
        let mut scaled = Self::default();
        let pixels = scaled.reset_rgb8(size.0, size.1)?;
        Scaler::default().run_into(&self.data, (self.width, self.height), pixels, size)?;
        Ok(scaled)
    }

    /// Copies another image into the middle of a rectangle: left, top, width and height. What is outside of the rectangle or of this image
    /// is left out.
    pub fn place(&mut self, image: &Image, [left, top, width, height]: [u32; 4]) {
        let centred = |edge: u32, full: u32, used: u32| edge + (full - used.min(full)) / 2;
        let (x, y) = (centred(left, width, image.width), centred(top, height, image.height));
        let columns = image.width.min(width).min(self.width.saturating_sub(x)) as usize * 3;
        let rows =
            image.height.min(height).min(self.height.saturating_sub(y)) as usize * usize::from(columns > 0);
        let (row, stride) = (image.width as usize * 3, self.width as usize * 3);
        for (line, pixels) in image.data.chunks_exact(row.max(1)).take(rows).enumerate() {
            let at = (y as usize + line) * stride + x as usize * 3;
            self.data[at..at + columns].copy_from_slice(&pixels[..columns]);
        }
    }
}

impl FrameView<'_> {
    /// The pixels as the bytes of a file: PNG, JPEG, WebP, BMP, TIFF, GIF or PNM. JPEG has a quality from 1 to 100.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if they cannot be encoded, and those of
    /// [`to_image`](Self::to_image).
    pub fn encoded(&self, format: ImageFormat, quality: u8) -> Result<Vec<u8>> {
        let copy;
        let pixels = if self.format == PixelFormat::Rgb8 && self.stride == 3 * self.width as usize {
            self.check()?;
            &self.data[..self.stride * self.height as usize]
        } else {
            copy = self.to_image()?;
            copy.as_rgb8()
        };
        let (mut bytes, color) = (std::io::Cursor::new(Vec::new()), ExtendedColorType::Rgb8);
        let done = if format == ImageFormat::Jpeg {
            JpegEncoder::new_with_quality(&mut bytes, quality).encode(pixels, self.width, self.height, color)
        } else {
            ::image::write_buffer_with_format(&mut bytes, pixels, self.width, self.height, color, format)
        };
        done.map_err(|e| Error::execution(format!("cannot encode an image: {e}")).with_source(e))?;
        Ok(bytes.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_placed_in_the_middle_and_cut_at_edges() {
        let red = Image::filled(4, 2, [255, 0, 0]).expect("it has pixels");
        let fitted = red.fitted((8, 8)).expect("it has pixels");
        assert_eq!((fitted.width(), fitted.height()), (8, 4));
        let reds = |cell: [u32; 4]| {
            let mut page = Image::filled(10, 10, [0; 3]).expect("it has pixels");
            page.place(&fitted, cell);
            let at = |index: usize| (index % 10, index / 10);
            let pixels = page.as_rgb8().chunks_exact(3).enumerate();
            let found: Vec<_> =
                pixels.filter(|(_, p)| *p == [255, 0, 0]).map(|(index, _)| at(index)).collect();
            (found.first().copied(), found.last().copied(), found.len())
        };
        assert_eq!(reds([1, 1, 8, 8]), (Some((1, 3)), Some((8, 6)), 32));
        assert_eq!(reds([6, 8, 8, 4]), (Some((6, 8)), Some((9, 9)), 8));
        assert_eq!(reds([0, 0, 3, 2]), (Some((0, 0)), Some((2, 1)), 6));
        assert_eq!(reds([10, 10, 8, 8]), (None, None, 0));
        assert_eq!(reds([12, 9, 8, 8]), (None, None, 0));
        assert_eq!(reds([9, 12, 8, 8]), (None, None, 0));
        assert!(red.fitted((0, 8)).is_err() && Image::filled(0, 1, [0; 3]).is_err());
    }

    #[test]
    fn every_format_is_decoded_as_it_was_or_nearly() {
        let image = Image::filled(5, 3, [200, 100, 50]).expect("it has pixels");
        for format in ["png", "jpg", "webp", "bmp", "tiff", "gif", "ppm"] {
            let known = ImageFormat::from_extension(format).expect("it is a format");
            let bytes = image.view().encoded(known, 90).expect("it can be encoded");
            let again = Image::decode(&bytes, format).expect("it can be decoded");
            let close = again.as_rgb8().iter().zip(image.as_rgb8()).all(|(a, b)| a.abs_diff(*b) < 4);
            assert!(
                close && again.width() == 5 && again.height() == 3,
                "{format}: {:?}",
                &again.as_rgb8()[..3]
            );
        }
    }
}
