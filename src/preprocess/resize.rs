//! Antialiased bilinear resize to a square, in the order and rounding of the reference.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U16x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use super::Rounding;
use crate::frame_view::FrameView;
use crate::image::ImageView;
use ocelli_error::{Error, ErrorKind, Result};

/// Above this size of the picture between the passes, tall pictures are resized vertically first.
///
/// Horizontal first is the reference's order, but a picture of 1×65535 would grow to S×65535 between the passes.
/// The order matters to the rounding alone.
const MAX_BETWEEN_PIXELS: usize = 64 << 20;

/// Whether the vertical pass comes first.
pub(super) fn is_down_first(width: u32, height: u32, side: usize) -> bool {
    height > width && side * height as usize > MAX_BETWEEN_PIXELS
}

/// The library's state and the pictures between the steps.
pub(super) struct Resize {
    side: u32,
    rounding: Rounding,
    resizer: Resizer,
    /// The source without padding between its rows, where it has some: [height, width, rgb].
    packed: Vec<u8>,
    /// The picture between the passes: [height, S], or [S, width] when the vertical pass comes first.
    between: Vec<U8x3>,
    /// [S, S]
    square: Vec<U8x3>,
    /// The source, between the passes and the result on 16 bits, for [`Rounding::Once`].
    deep_source: Vec<U16x3>,
    deep_between: Vec<U16x3>,
    deep_square: Vec<U16x3>,
    /// Between the passes and the result, for grey pictures; empty until there is one.
    gray_between: Vec<U8>,
    gray_square: Vec<U8>,
}

impl Resize {
    pub(super) fn new(side: u32, rounding: Rounding) -> Self {
        let pixels = side as usize * side as usize;
        let (shallow, deep) = match rounding {
            Rounding::EachPass => (pixels, 0),
            Rounding::Once => (pixels, pixels),
        };
        Self {
            side,
            rounding,
            resizer: Resizer::new(),
            packed: Vec::new(),
            between: Vec::new(),
            square: vec![U8x3::default(); shallow],
            deep_source: Vec::new(),
            deep_between: Vec::new(),
            deep_square: vec![U16x3::default(); deep],
            gray_between: Vec::new(),
            gray_square: Vec::new(),
        }
    }

    /// The picture squashed to the square: [S·S] pixels.
    pub(super) fn run(&mut self, view: ImageView<'_>) -> Result<&[U8x3]> {
        let (width, height) = (view.width(), view.height());
        let bytes = match view.as_contiguous() {
            Some(bytes) => bytes,
            None => {
                self.packed.clear();
                view.rows().for_each(|row| self.packed.extend_from_slice(row));
                &self.packed
            }
        };
        let source = TypedImageRef::from_buffer(width, height, bytes).map_err(failed)?;
        match self.rounding {
            Rounding::EachPass => {
                two_passes(&mut self.resizer, &source, &mut self.between, &mut self.square, self.side)?;
            }
            Rounding::Once => {
                self.deep_source.clear();
                // 255 becomes 65535.
                self.deep_source
                    .extend(source.pixels().iter().map(|p| U16x3::new(p.0.map(|v| u16::from(v) * 257))));
                let source = TypedImageRef::new(width, height, &self.deep_source).map_err(failed)?;
                let (between, square) = (&mut self.deep_between, &mut self.deep_square);
                two_passes(&mut self.resizer, &source, between, square, self.side)?;
                for (to, from) in self.square.iter_mut().zip(square) {
                    to.0 = from.0.map(|v| ((u32::from(v) + 128) / 257) as u8);
                }
            }
        }
        Ok(&self.square)
    }

    /// A grey picture squashed to the square, rounding after each pass: [S·S] pixels.
    pub(super) fn run_gray(&mut self, picture: &FrameView<'_>) -> Result<&[U8]> {
        let (width, height) = (picture.width as usize, picture.height as usize);
        let bytes = if picture.stride == width {
            &picture.data[..width * height]
        } else {
            self.packed.clear();
            let rows = picture.data.chunks(picture.stride).take(height);
            rows.for_each(|row| self.packed.extend_from_slice(&row[..width]));
            &self.packed
        };
        let source = TypedImageRef::from_buffer(picture.width, picture.height, bytes).map_err(failed)?;
        self.gray_square.resize(self.side as usize * self.side as usize, U8::default());
        let (between, square) = (&mut self.gray_between, &mut self.gray_square);
        two_passes(&mut self.resizer, &source, between, square, self.side)?;
        Ok(&self.gray_square)
    }
}

/// Resizes `source` into `square`, one direction at a time, rounding to the pixel type in between.
///
/// The library does both passes in one call too, but for 8 bits it then starts with the vertical one.
fn two_passes<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &TypedImageRef<'_, P>,
    between: &mut Vec<P>,
    square: &mut [P],
    side: u32,
) -> Result<()> {
    use fast_image_resize::ImageView as _;
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false);
    let mut square = TypedImage::from_pixels_slice(side, side, square).map_err(failed)?;

    let (width, height) = (source.width(), source.height());
    if width == side || height == side {
        // One pass is left, or none.
        return resizer.resize_typed(source, &mut square, &options).map_err(failed);
    }
    let tall = is_down_first(width, height, side as usize);
    let (between_width, between_height) = if tall { (width, side) } else { (side, height) };
    let pixels = between_width as usize * between_height as usize;
    if between.len() < pixels {
        between.resize(pixels, P::default());
    }
    let mut half = TypedImage::from_pixels_slice(between_width, between_height, &mut between[..pixels])
        .map_err(failed)?;
    resizer.resize_typed(source, &mut half, &options).map_err(failed)?;
    resizer.resize_typed(&half, &mut square, &options).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("preprocessing, resize: {error}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of weights that is not one, or a wrong edge, shows on a flat picture at once.
    #[test]
    fn a_flat_picture_stays_flat_at_any_size() {
        let sizes = [
            (1, 1),
            (1, 500),
            (500, 1),
            (7, 5000),
            (5000, 7),
            (28, 3),
            (3, 28),
            (29, 27),
            (28, 28),
            (1, 9999),
        ];
        let mut failures = Vec::new();
        for rounding in [Rounding::EachPass, Rounding::Once] {
            let mut resize = Resize::new(28, rounding);
            for (width, height) in sizes {
                for level in [0u8, 1, 127, 254, 255] {
                    let data = vec![level; width as usize * height as usize * 3];
                    let view = ImageView::new(width, height, &data).expect("the length is right");
                    let square = resize.run(view).expect("every size can be resized");
                    if square.iter().any(|pixel| pixel.0 != [level; 3]) {
                        failures.push(format!("{rounding:?}, {width}x{height}, level {level}"));
                    }
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn very_tall_pictures_take_the_other_order_and_little_memory() {
        let (side, height) = (2048, 40_000);
        let data = vec![9u8; height * 3];
        let mut resize = Resize::new(side, Rounding::EachPass);
        let view = ImageView::new(1, height as u32, &data).expect("the length is right");
        let square = resize.run(view).expect("every size can be resized");
        assert!(square.iter().all(|pixel| pixel.0 == [9; 3]));
        assert_eq!(resize.between.len(), side as usize, "horizontal first would have needed 82 M pixels");
    }
}
