//! Antialiased bilinear resize to a square, in the order and rounding of the reference.
//!
//! A crate of its own, because the library that it compiles takes a minute, and is generic: it would be compiled wherever it is used.

#![forbid(unsafe_code)]

use std::cell::Cell;

use fast_image_resize::ImageView as _;
use fast_image_resize::images::{TypedImage, TypedImageRef};
pub use fast_image_resize::pixels::{U8, U8x2, U8x3};
use fast_image_resize::{Filter, FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use ocelli_error::{Error, Result};

/// If the image between the passes would have more pixels than this, tall images are resized vertically first.
///
/// Horizontal first is the reference's order, but an image of 1×65535 would grow to S×65535 between the passes. The order
/// only affects rounding.
const MAX_BETWEEN_PIXELS: usize = 64 << 20;

/// `true` if the vertical pass comes first.
pub fn is_down_first(width: u32, height: u32, side: usize) -> bool {
    height > width && side * height as usize > MAX_BETWEEN_PIXELS
}

/// The library's state and the buffers.
///
/// Rounds to 8 bits after each of the two passes, as torchvision does on x86 CPUs (AVX2; elsewhere it rounds once). Measured on 250
/// random sizes, up and down: bit-identical to it, and within 1.005 levels of a resize in floating point (the theoretical bound is
/// 1.02).
#[derive(Default)]
pub struct Resize {
    side: u32,
    resizer: Resizer,
    rgb: Buffers<U8x3>,
    gray: Buffers<U8>,
    chroma: Buffers<U8x2>,
}

#[derive(Default)]
struct Buffers<P> {
    /// The image between the passes: [height, S], or [S, width] if the vertical pass comes first.
    between: Vec<P>,
    /// [S, S]
    square: Vec<P>,
}

impl Resize {
    /// The buffers for squares of this side.
    pub fn new(side: u32) -> Self {
        Self { side, ..Self::default() }
    }

    /// Resizes `bytes` [height, width, rgb] to [S·S] pixels.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there are fewer bytes.
    pub fn run(&mut self, bytes: &[u8], width: u32, height: u32) -> Result<&[U8x3]> {
        let source = TypedImageRef::from_buffer(width, height, bytes).map_err(failed)?;
        two_passes(&mut self.resizer, &source, &mut self.rgb, self.side)?;
        Ok(&self.rgb.square)
    }

    /// Resizes `bytes` [height, width] to [S·S] pixels.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there are fewer bytes.
    pub fn run_gray(&mut self, bytes: &[u8], width: u32, height: u32) -> Result<&[U8]> {
        let source = TypedImageRef::from_buffer(width, height, bytes).map_err(failed)?;
        two_passes(&mut self.resizer, &source, &mut self.gray, self.side)?;
        Ok(&self.gray.square)
    }

    /// Resizes the two planes of NV12, `luma` [height, width] and `chroma` [⌈height / 2⌉, ⌈width / 2⌉, uv], to [S·S] each.
    /// Chroma gets the weights that it would have if it were repeated for 2 × 2 pixels first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there are fewer bytes.
    pub fn run_nv12(
        &mut self,
        luma: &[u8],
        chroma: &[u8],
        (width, height): (u32, u32),
    ) -> Result<(&[U8], &[U8x2])> {
        let Self { side, resizer, gray, chroma: chroma_buffers, .. } = self;
        let luma = TypedImageRef::from_buffer(width, height, luma).map_err(failed)?;
        two_passes(resizer, &luma, gray, *side)?;
        let (columns, rows) = (width.div_ceil(2), height.div_ceil(2));
        let chroma = TypedImageRef::<U8x2>::from_buffer(columns, rows, chroma).map_err(failed)?;
        let tall = is_down_first(width, height, *side as usize);
        // Half of an odd side's last sample lies outside of the image.
        let (w, h) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
        let across = |rows: u32| repeated_chroma(width, *side).crop(0.0, 0.0, w, rows.into());
        let down = |columns: u32| repeated_chroma(height, *side).crop(0.0, 0.0, columns.into(), h);
        if tall {
            passes(resizer, &chroma, chroma_buffers, *side, true, [&|| down(columns), &|| across(*side)])?;
        } else {
            passes(resizer, &chroma, chroma_buffers, *side, false, [&|| across(rows), &|| down(*side)])?;
        }
        Ok((&self.gray.square, &self.chroma.square))
    }
}

thread_local! {
    /// The numbers from which the filter computes its weights: the library takes a function without data, called on this thread.
    static CHROMA_SCALES: Cell<(f64, f64)> = const { Cell::new((1.0, 1.0)) };
}

/// The weights of chroma samples in one direction, for `side` of these pixels: the sum of the two bilinear weights of the pixels
/// that a sample applies to.
fn repeated_chroma(pixels: u32, side: u32) -> ResizeOptions {
    // The width of the bilinear filter in pixels, and the unit of the library's argument in pixels.
    let scale = f64::from(pixels) / f64::from(side);
    let triangle = scale.max(1.0);
    let unit = 2.0 * (0.5 * scale).max(1.0);
    CHROMA_SCALES.set((triangle, unit));
    let weight = |x: f64| {
        let (triangle, unit) = CHROMA_SCALES.get();
        let bilinear = |pixels: f64| (1.0 - (pixels / triangle).abs()).max(0.0);
        bilinear(x * unit - 0.5) + bilinear(x * unit + 0.5)
    };
    let filter = Filter::new("repeated chroma", weight, (triangle + 0.5) / unit);
    let filter = filter.expect("the support is positive and finite");
    ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Custom(filter))).use_alpha(false)
}

/// Resizes images to any size in one pass in each direction. With the width alone, it is the first of the two passes: the second one
/// over all rows of an image that comes in parts gives what [`Resize`] makes of the image.
#[derive(Default)]
pub struct Scaler(Resizer);

impl Scaler {
    /// Resizes `image` [height, width, rgb] into `scaled`; the sizes are widths and heights.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a buffer is too small for its size.
    pub fn run_into(
        &mut self,
        image: &[u8],
        (width, height): (u32, u32),
        scaled: &mut [u8],
        (to_width, to_height): (u32, u32),
    ) -> Result<()> {
        let source = TypedImageRef::<U8x3>::from_buffer(width, height, image).map_err(failed)?;
        let mut target = TypedImage::<U8x3>::from_buffer(to_width, to_height, scaled).map_err(failed)?;
        self.0.resize_typed(&source, &mut target, &one_pass()).map_err(failed)
    }
}

fn one_pass() -> ResizeOptions {
    ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false)
}

/// Resizes `source` in one direction after the other, rounding to the pixel type in between.
///
/// The library can do both passes in one call, but with 8 bits it then starts with the vertical one.
fn two_passes<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &TypedImageRef<'_, P>,
    buffers: &mut Buffers<P>,
    side: u32,
) -> Result<()> {
    let (width, height) = (source.width(), source.height());
    if width == side || height == side {
        // At most one pass is needed.
        buffers.square.resize(side as usize * side as usize, P::default());
        let mut square = TypedImage::from_pixels_slice(side, side, &mut buffers.square).map_err(failed)?;
        return resizer.resize_typed(source, &mut square, &one_pass()).map_err(failed);
    }
    let tall = is_down_first(width, height, side as usize);
    passes(resizer, source, buffers, side, tall, [&one_pass, &one_pass])
}

/// One pass in each direction with these options, which are made just before it; the vertical one comes first if it is `tall`.
fn passes<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &TypedImageRef<'_, P>,
    Buffers { between, square }: &mut Buffers<P>,
    side: u32,
    tall: bool,
    [first, second]: [&dyn Fn() -> ResizeOptions; 2],
) -> Result<()> {
    square.resize(side as usize * side as usize, P::default());
    let (width, height) = if tall { (source.width(), side) } else { (side, source.height()) };
    let pixels = width as usize * height as usize;
    if between.len() < pixels {
        between.resize(pixels, P::default());
    }
    let mut half = TypedImage::from_pixels_slice(width, height, &mut between[..pixels]).map_err(failed)?;
    resizer.resize_typed(source, &mut half, &first()).map_err(failed)?;
    // The same types as above: the library's code, which is large, is compiled once for each kind of pixel.
    let half = TypedImageRef::new(width, height, &between[..pixels]).map_err(failed)?;
    let mut square = TypedImage::from_pixels_slice(side, side, square).map_err(failed)?;
    resizer.resize_typed(&half, &mut square, &second()).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid_argument(format!("resize: {error}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_tall_images_are_resized_vertically_first() {
        let (side, height) = (2048, 40_000);
        let data = vec![9u8; height * 3];
        let mut resize = Resize::new(side);
        let square = resize.run(&data, 1, height as u32).expect("every size can be resized");
        assert!(square.iter().all(|pixel| pixel.0 == [9; 3]));
        assert_eq!(resize.rgb.between.len(), side as usize, "horizontal first would have needed 82 M pixels");
    }
}
