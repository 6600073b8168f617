//! From an image of any size to the input of the backbone.
//!
//! Every image is resized to a square without keeping its aspect ratio, bilinear with antialiasing on 8 bits, then
//! normalised: (v / 255 - mean) / std. The reference is torchvision's `resize(antialias=True)` on 8-bit tensors, which on
//! x86 CPUs rounds after each of its two passes, horizontal first. [`Preprocessor`] does the same with
//! `fast_image_resize` and is bit-identical. (If the image is more than 150 times as large as the square, some integer
//! weights of the two libraries differ by one, and one value in a thousand differs by one level.)
//!
//! NV12 is resized plane by plane and converted to RGB afterwards, which is as fast as BGR. The result is that of a
//! conversion before the resize within 6 levels, and 0.6 on average, unless the image has colours outside of RGB's range,
//! which that conversion clips one pixel at a time. A GPU converts before the resize.

#[cfg(not(target_family = "wasm"))]
mod gpu;
#[cfg(not(target_family = "wasm"))]
mod kernel;
#[cfg(not(target_family = "wasm"))]
mod weights;

use crate::frame_view::{FrameView, PixelFormat, nv12};
use ocelli_error::{Error, Result, refuse};
use ocelli_resize::{Resize, U8x3};

#[cfg(not(target_family = "wasm"))]
pub use gpu::DevicePreprocessor;

/// The preprocessing of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PreprocessConfig {
    /// Side S of the square in pixels.
    pub imgsz: usize,
    /// Subtracted from red, green and blue, on a scale from 0 to 1.
    pub mean: [f32; 3],
    /// The divisors of red, green and blue afterwards.
    pub std: [f32; 3],
}

impl PreprocessConfig {
    /// A square with the normalisation of SAM3, mean = std = 0.5: values from -1 to 1.
    pub fn new(imgsz: usize) -> Self {
        Self { imgsz, mean: [0.5; 3], std: [0.5; 3] }
    }

    fn validate(&self) -> Result<()> {
        let Self { imgsz, mean, std } = *self;
        let message = if !(1..=MAX_IMGSZ).contains(&imgsz) {
            format!("preprocessing: imgsz is {imgsz}: expected 1 to {MAX_IMGSZ}")
        } else if mean.iter().any(|v| !v.is_finite()) || std.iter().any(|v| !(v.is_finite() && *v > 0.0)) {
            format!("preprocessing: mean is {mean:?}, std is {std:?}: expected finite values, std above 0")
        } else {
            return Ok(());
        };
        Err(Error::invalid_argument(message))
    }
}

/// Turns images into `pixel_values` on the CPU. The buffers are reused and grow to the largest image seen.
pub struct Preprocessor {
    config: PreprocessConfig,
    resize: Resize,
    /// The normalised value of each of the 256 levels: [rgb, level].
    levels: [[f32; 256]; 3],
    /// The image without padding, three bytes per pixel or one: [height, width, channel].
    packed: Vec<u8>,
}

impl Preprocessor {
    /// Creates the tables and buffers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if `imgsz` is not 1 to 16384, a mean is not
    /// finite, or a standard deviation is not positive.
    pub fn new(config: PreprocessConfig) -> Result<Self> {
        config.validate()?;
        let PreprocessConfig { imgsz, mean, std } = config;
        let levels = std::array::from_fn(|c| {
            // The reference folds /255 into mean and std; other ways round differently.
            let (mean, std) = (mean[c] * 255.0, std[c] * 255.0);
            std::array::from_fn(|level| (level as f32 - mean) / std)
        });
        Ok(Self { config, resize: Resize::new(imgsz as u32), levels, packed: Vec::new() })
    }

    /// The configuration.
    pub fn config(&self) -> &PreprocessConfig {
        &self.config
    }

    /// The number of values of one image: 3·S·S.
    pub fn output_len(&self) -> usize {
        3 * self.config.imgsz * self.config.imgsz
    }

    /// Resizes and normalises one image into `out`, [3, S, S].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the length of `out` is not
    /// [`output_len`](Self::output_len), or the image has too few bytes.
    pub fn run_into<'a>(&mut self, image: impl Into<FrameView<'a>>, out: &mut [f32]) -> Result<()> {
        let image = image.into();
        image.check()?;
        if out.len() != self.output_len() {
            let (side, found) = (self.config.imgsz, out.len());
            refuse!("preprocessing: expected an output of [3, {side}, {side}], got {found} values");
        }
        let Self { config, resize, levels, packed } = self;
        let FrameView { data, width, height, stride, format, .. } = image;
        if format == PixelFormat::Nv12 {
            let (luma, chroma) = nv12::planes(&image, packed);
            let (luma, chroma) = resize.run_nv12(luma, chroma, (width, height))?;
            nv12::write_planes(luma, chroma, config.mean, config.std, out);
            return Ok(());
        }
        let is_gray = format == PixelFormat::Gray8;
        let row = width as usize * if is_gray { 1 } else { 3 };
        let rows = data.chunks(stride).take(height as usize).map(|line| &line[..row]);
        let bytes = if stride == row {
            &data[..row * height as usize]
        } else {
            packed.clear();
            rows.for_each(|row| packed.extend_from_slice(row));
            &packed[..]
        };
        if is_gray {
            let square = resize.run_gray(bytes, width, height)?;
            for (plane, levels) in out.chunks_exact_mut(square.len()).zip(levels) {
                plane.iter_mut().zip(square).for_each(|(v, pixel)| *v = levels[usize::from(pixel.0)]);
            }
        } else {
            let square = resize.run(bytes, width, height)?;
            write_planes(square, format == PixelFormat::Bgr8, levels, out);
        }
        Ok(())
    }
}

/// [y·x, rgb] to [rgb, y·x], normalised.
fn write_planes(square: &[U8x3], blue_first: bool, levels: &[[f32; 256]; 3], out: &mut [f32]) {
    let (red, rest) = out.split_at_mut(square.len());
    let (green, blue) = rest.split_at_mut(square.len());
    let [reds, greens, blues] = levels;
    let (first, firsts, last, lasts) =
        if blue_first { (blue, blues, red, reds) } else { (red, reds, blue, blues) };
    for (((pixel, f), g), l) in square.iter().zip(first).zip(green).zip(last) {
        let [first, green, last] = pixel.0.map(usize::from);
        *f = firsts[first];
        *g = greens[green];
        *l = lasts[last];
    }
}

ocelli_engines::debug_as!(Preprocessor, it => "Preprocessor({:?})", it.config);

/// Far above the size of any model; bounds the buffers.
const MAX_IMGSZ: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    #[test]
    fn invalid_configurations_are_rejected() {
        let fine = PreprocessConfig::new(14);
        let cases = [
            PreprocessConfig { imgsz: 0, ..fine },
            PreprocessConfig { imgsz: MAX_IMGSZ + 1, ..fine },
            PreprocessConfig { mean: [0.5, f32::NAN, 0.5], ..fine },
            PreprocessConfig { std: [0.5, 0.0, 0.5], ..fine },
            PreprocessConfig { std: [0.5, 0.5, f32::INFINITY], ..fine },
        ];
        for config in cases {
            let error = Preprocessor::new(config).expect_err("each case has one invalid value");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{config:?}: {error}");
        }
        assert!(Preprocessor::new(fine).is_ok());
    }

    #[test]
    fn an_image_of_the_models_size_is_exact_and_planar() {
        let mut preprocessor = Preprocessor::new(PreprocessConfig {
            mean: [0.0, 0.5, 1.0],
            std: [1.0, 0.5, 1.0],
            ..PreprocessConfig::new(2)
        })
        .expect("the configuration is valid");
        let pixels = [0u8, 0, 0, 51, 255, 0, 102, 0, 255, 255, 255, 255];
        let mut out = [9.0; 12];
        let view = FrameView::rgb8(2, 2, &pixels);
        preprocessor.run_into(view, &mut out).expect("12 values are [3, 2, 2]");
        assert_eq!(out, [0.0, 0.2, 0.4, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 0.0, 0.0]);
        assert!(preprocessor.run_into(view, &mut out[..11]).is_err());
    }

    #[test]
    fn padded_rows_give_the_same_result() {
        let (width, height, stride) = (37, 23, 37 * 3 + 5);
        let padded: Vec<u8> = (0..stride * height).map(|i| (i * 31 % 251) as u8).collect();
        let view = FrameView { stride, ..FrameView::rgb8(width, height as u32, &padded) };
        let mut preprocessor =
            Preprocessor::new(PreprocessConfig::new(28)).expect("the configuration is valid");
        let mut from_padded = vec![0.0; preprocessor.output_len()];
        let mut from_copy = from_padded.clone();
        preprocessor.run_into(view, &mut from_padded).expect("the length is right");
        let copy = view.to_image().expect("the sizes fit");
        preprocessor.run_into(&copy, &mut from_copy).expect("the length is right");
        assert!(from_padded == from_copy, "padding changed the result");
    }

    /// Every format that is not resized plane by plane against the same image converted to RGB first, with padded rows and odd sizes.
    #[test]
    fn all_formats_give_the_same_result_as_rgb() {
        let sizes = [(37u32, 23u32), (1, 1), (28, 28), (64, 7), (5, 300), (29, 2)];
        let mut failures = Vec::new();
        let config =
            PreprocessConfig { mean: [0.1, 0.5, 0.9], std: [0.3, 0.5, 0.7], ..PreprocessConfig::new(28) };
        let mut preprocessor = Preprocessor::new(config).expect("the configuration is valid");
        let mut expected = vec![0.0; preprocessor.output_len()];
        let mut found = expected.clone();
        for (width, height) in sizes {
            for format in [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Gray8] {
                let (w, h) = (width as usize, height as usize);
                let stride = w * 3 + 5;
                let data: Vec<u8> = (0..stride * 2 * (h + 1)).map(|i| (i * 131 % 251) as u8).collect();
                let timestamp = std::time::Duration::ZERO;
                let view = FrameView { data: &data, width, height, stride, format, timestamp };
                let rows = data.chunks(stride).take(h);
                let rgb: Vec<u8> = rows
                    .flat_map(|row| match format {
                        PixelFormat::Gray8 => row[..w].iter().flat_map(|&v| [v; 3]).collect::<Vec<_>>(),
                        PixelFormat::Bgr8 => {
                            row[..w * 3].chunks(3).flat_map(|p| [p[2], p[1], p[0]]).collect()
                        }
                        _ => row[..w * 3].to_vec(),
                    })
                    .collect();
                let rgb = FrameView::rgb8(width, height, &rgb);
                preprocessor.run_into(rgb, &mut expected).expect("the length is right");
                preprocessor.run_into(view, &mut found).expect("the length is right");
                if found != expected {
                    failures.push(format!("{width}x{height}, {format:?}"));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Waves of colours inside RGB's range, with edges.
    fn colourful(width: u32, height: u32, stride: usize) -> Vec<u8> {
        let mut data = vec![7; stride * (height + height.div_ceil(2)) as usize];
        let wave = |at: u32, period: f32| (at as f32 / period).sin();
        for (y, row) in (0..height).zip(data.chunks_mut(stride)) {
            for (x, luma) in (0..width).zip(row) {
                let edge = if (x / 9 + y / 7) % 3 == 0 { 20.0 } else { 0.0 };
                *luma = (112.0 + 25.0 * wave(x, 3.0) + 20.0 * wave(y, 5.0) + edge) as u8;
            }
        }
        for (y, row) in (0..height.div_ceil(2)).zip(data.chunks_mut(stride).skip(height as usize)) {
            for (x, uv) in (0..width.div_ceil(2)).zip(row.chunks_mut(2)) {
                let edge = if (x / 5 + y / 4) % 2 == 0 { 12.0 } else { -12.0 };
                uv[0] = (128.0 + 16.0 * wave(x, 4.0) + edge) as u8;
                uv[1] = (128.0 + 14.0 * wave(y, 6.0) - edge) as u8;
            }
        }
        data
    }

    #[test]
    fn nv12_converted_after_the_resize_is_close_to_nv12_converted_before() {
        let sizes = [
            (640u32, 480u32, 0),
            (1920, 1080, 64),
            (37, 23, 5),
            (101, 99, 0),
            (100, 60, 0),
            (300, 200, 6),
            (64, 800, 0),
            (2, 2, 0),
            (1, 1, 3),
        ];
        let mut failures = Vec::new();
        for (width, height, padding) in sizes {
            for side in [70, 196] {
                let stride = width.next_multiple_of(2) as usize + padding;
                let data = colourful(width, height, stride);
                let (format, timestamp) = (PixelFormat::Nv12, std::time::Duration::ZERO);
                let view = FrameView { data: &data, width, height, stride, format, timestamp };
                let mut config = PreprocessConfig::new(side);
                (config.mean, config.std) = ([0.0, 0.25, 0.5], [1.0 / 255.0; 3]);
                let run = |before| {
                    let mut preprocessor = Preprocessor::new(config).expect("the configuration is valid");
                    let mut out = vec![f32::NAN; preprocessor.output_len()];
                    let rgb = view.to_image().expect("it has its planes");
                    let image = if before { rgb.view() } else { view };
                    preprocessor.run_into(image, &mut out).expect("the length is right");
                    out
                };
                let differences: Vec<f32> =
                    run(true).iter().zip(run(false)).map(|(a, b)| (a - b).abs()).collect();
                let mean = differences.iter().sum::<f32>() / differences.len() as f32;
                let most = differences.iter().fold(0.0, |most: f32, d| most.max(*d));
                // The last sample of an odd side counts as two pixels here.
                let allowed = if width % 2 + height % 2 > 0 { 16.0 } else { 6.0 };
                let is_close = most <= allowed && mean <= 0.75;
                if !is_close {
                    failures.push(format!("{width}x{height} to {side}: {most} at most, {mean} on average"));
                }
            }
        }
        assert!(failures.is_empty(), "levels that differ:\n{}", failures.join("\n"));
    }

    /// A sum of weights other than one, or a wrong edge, shows on an image of one colour.
    #[test]
    fn an_image_of_one_colour_keeps_it_at_any_size() {
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
        let mut resize = Resize::new(28);
        for (width, height) in sizes {
            for level in [0u8, 1, 127, 254, 255] {
                let data = vec![level; width as usize * height as usize * 3];
                let square = resize.run(&data, width, height).expect("every size can be resized");
                if square.iter().any(|pixel| pixel.0 != [level; 3]) {
                    failures.push(format!("{width}x{height}, level {level}"));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
