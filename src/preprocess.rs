//! From a picture of any size to the tensor that the backbone reads.
//!
//! The model sees every picture squashed to a square, without a letterbox: bilinear with antialias on 8 bits, then
//! (v / 255 - mean) / std. The reference is torchvision's `resize(antialias=True)` on 8-bit tensors, which on x86
//! CPUs rounds after each of its two passes, horizontal first. [`Preprocessor`] does the same through
//! `fast_image_resize`, in the same order, and equals it to the bit (above 150 to 1, where the libraries' integer
//! weights differ in places by one, all but a value in a thousand, which is one level off).

mod resize;

use crate::error::{Error, ErrorKind, Result};
use crate::image::ImageView;
use resize::Resize;

/// What a model asks of its input pictures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PreprocessConfig {
    /// Side S of the square in pixels.
    pub imgsz: usize,
    /// What is subtracted from red, green and blue, on the scale 0..1.
    pub mean: [f32; 3],
    /// What red, green and blue are divided by afterwards.
    pub std: [f32; 3],
    /// Where the resize rounds to 8 bits.
    pub rounding: Rounding,
}

/// Where the resize rounds to 8 bits; the two differ by at most one level.
///
/// torchvision does both: after each pass on x86 CPUs (AVX2), once elsewhere. Measured on 250 random sizes, up and
/// down: [`EachPass`](Self::EachPass) equals the first to the bit and stays within 1.005 levels of the resize in
/// float (1.02 is the theoretical bound); [`Once`](Self::Once) stays within 0.52 of the resize in float.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rounding {
    /// After the horizontal and after the vertical pass: the reference, and the fastest.
    #[default]
    EachPass,
    /// After the vertical pass alone: nearest to the exact result, four to five times the time.
    Once,
}

impl PreprocessConfig {
    /// The square with the model family's normalisation, mean = std = 0.5: values from -1 to 1.
    pub fn new(imgsz: usize) -> Self {
        Self { imgsz, mean: [0.5; 3], std: [0.5; 3], rounding: Rounding::default() }
    }
}

/// Turns pictures into `pixel_values`; made once, its buffers go round.
///
/// The buffers grow to the largest picture seen, 3·S·height bytes; a picture of the same size needs no new ones.
/// (The resize library computes its filter tables anew for each picture, some 100 kB.)
pub struct Preprocessor {
    config: PreprocessConfig,
    resize: Resize,
    /// The normalised value of each of the 256 levels: [rgb, level].
    levels: [[f32; 256]; 3],
}

impl Preprocessor {
    /// Makes the tables and buffers.
    ///
    /// # Errors
    /// `InvalidArgument` when `imgsz` is zero or above 16384, a mean is not finite, or a standard deviation is not
    /// positive.
    pub fn new(config: PreprocessConfig) -> Result<Self> {
        let PreprocessConfig { imgsz, mean, std, rounding } = config;
        let refuse =
            |why: String| Err(Error::new(ErrorKind::InvalidArgument, format!("preprocessing: {why}")));
        if !(1..=MAX_IMGSZ).contains(&imgsz) {
            return refuse(format!("imgsz is {imgsz}, expected 1 to {MAX_IMGSZ}"));
        }
        if mean.iter().any(|v| !v.is_finite()) || std.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
            return refuse(format!("mean {mean:?} and std {std:?} must be finite, std above zero"));
        }
        let levels = std::array::from_fn(|c| {
            // The reference folds /255 into mean and std; its results are met to the bit this way only.
            let (mean, std) = (mean[c] * 255.0, std[c] * 255.0);
            std::array::from_fn(|level| (level as f32 - mean) / std)
        });
        Ok(Self { config, resize: Resize::new(imgsz as u32, rounding), levels })
    }

    /// What it was made for.
    pub fn config(&self) -> &PreprocessConfig {
        &self.config
    }

    /// How many values one picture becomes: 3·S·S.
    pub fn output_len(&self) -> usize {
        3 * self.config.imgsz * self.config.imgsz
    }

    /// Resizes and normalises one picture into `out`, [3, S, S].
    ///
    /// # Errors
    /// `InvalidArgument` when `out` has another length than [`output_len`](Self::output_len).
    pub fn run_into<'a>(&mut self, view: impl Into<ImageView<'a>>, out: &mut [f32]) -> Result<()> {
        if out.len() != self.output_len() {
            let (side, came) = (self.config.imgsz, out.len());
            let message = format!("preprocessing: the output [3, {side}, {side}] does not fit {came} values");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let square = self.resize.run(view.into())?;
        let plane = self.config.imgsz * self.config.imgsz;
        let (red, rest) = out.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        let [reds, greens, blues] = &self.levels;
        // [y·x, rgb] to [rgb, y·x]
        for (((pixel, r), g), b) in square.iter().zip(red).zip(green).zip(blue) {
            let [red, green, blue] = pixel.0.map(usize::from);
            *r = reds[red];
            *g = greens[green];
            *b = blues[blue];
        }
        Ok(())
    }
}

impl std::fmt::Debug for Preprocessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preprocessor").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Far above what any model takes; keeps 3·S·S and the buffers within reason.
const MAX_IMGSZ: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_that_make_no_sense_are_refused() {
        let fine = PreprocessConfig::new(14);
        let cases = [
            PreprocessConfig { imgsz: 0, ..fine },
            PreprocessConfig { imgsz: MAX_IMGSZ + 1, ..fine },
            PreprocessConfig { mean: [0.5, f32::NAN, 0.5], ..fine },
            PreprocessConfig { std: [0.5, 0.0, 0.5], ..fine },
            PreprocessConfig { std: [0.5, 0.5, f32::INFINITY], ..fine },
        ];
        for config in cases {
            let error = Preprocessor::new(config).expect_err("each case is wrong in one value");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{config:?}: {error}");
        }
        assert!(Preprocessor::new(fine).is_ok());
    }

    #[test]
    fn the_size_itself_is_exact_and_planar() {
        let mut preprocessor = Preprocessor::new(PreprocessConfig {
            mean: [0.0, 0.5, 1.0],
            std: [1.0, 0.5, 1.0],
            ..PreprocessConfig::new(2)
        })
        .expect("the configuration is fine");
        let pixels = [0u8, 0, 0, 51, 255, 0, 102, 0, 255, 255, 255, 255];
        let mut out = [9.0; 12];
        let view = ImageView::new(2, 2, &pixels).expect("12 bytes are 4 pixels");
        preprocessor.run_into(view, &mut out).expect("12 values are [3, 2, 2]");
        assert_eq!(out, [0.0, 0.2, 0.4, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 0.0, 0.0]);
        assert!(preprocessor.run_into(view, &mut out[..11]).is_err());
    }

    #[test]
    fn padded_rows_give_the_same() {
        let (width, height, stride) = (37, 23, 37 * 3 + 5);
        let padded: Vec<u8> = (0..stride * height).map(|i| (i * 31 % 251) as u8).collect();
        let view = ImageView::with_stride(width, height as u32, stride, &padded).expect("the sizes fit");
        let mut preprocessor =
            Preprocessor::new(PreprocessConfig::new(28)).expect("the configuration is fine");
        let mut from_padded = vec![0.0; preprocessor.output_len()];
        let mut from_copy = from_padded.clone();
        preprocessor.run_into(view, &mut from_padded).expect("the length is right");
        preprocessor.run_into(&view.to_image(), &mut from_copy).expect("the length is right");
        assert!(from_padded == from_copy, "padding changed the result");
    }
}
