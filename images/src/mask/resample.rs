//! Logits of the mask head to masks of the image's size.

use super::{Mask, RunBuilder, check_size};
use ocelli_error::{Error, Result};

/// Pixels with a probability above this are in the mask.
const THRESHOLD: f32 = 0.5;
/// If both ends of a stretch are farther than this from the threshold on the same side, so are all pixels between: more
/// than the rounding error of an interpolation between numbers of at most 1.
const MARGIN: f32 = 1e-5;

/// The threshold of a mask, with a margin.
#[derive(Clone, Copy, Debug)]
struct Limit {
    threshold: f32,
    /// More than the rounding error of an interpolation.
    margin: f32,
}

/// Makes masks from logits on the model's grid and reuses its buffers.
///
/// The steps are those of the reference: sigmoid, bilinear resize to the image (samples at pixel centres, no antialias),
/// threshold 0.5. The resized image is never stored: each column is interpolated and encoded at once, and a stretch between
/// two grid points on the same side of the threshold is one run. A mask of a 4K image takes about as long as one of a
/// small image.
#[derive(Debug, Default)]
pub struct MaskResampler {
    /// [grid column, grid row], probabilities or logits.
    values: Vec<f32>,
    /// One image column at the grid's rows.
    column: Vec<f32>,
    columns: Axis,
    rows: Axis,
}

impl MaskResampler {
    /// A resampler with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mask of an image of `image_size` (width, height) from `logits` [row, column] on a grid of `grid_size` (width,
    /// height) that covers the image.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli_error::ErrorKind::Mismatch) if the number of logits is not that of the grid,
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if one is NaN,
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the image has no pixels or more than fit
    /// in `u32`.
    pub fn run(&mut self, logits: &[f32], grid_size: (usize, usize), image_size: (u32, u32)) -> Result<Mask> {
        let probability = |logit: f32| 1.0 / (1.0 + (-logit).exp());
        let limit = Limit { threshold: THRESHOLD, margin: MARGIN };
        self.resample(logits, grid_size, image_size, limit, probability)
    }

    /// As [`run`](Self::run), in the order of the reference for clicks: the logits are interpolated, and those above 0 are in
    /// the mask.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli_error::ErrorKind::Mismatch) if the number of logits is not that of the grid,
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if one is NaN,
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the image has no pixels or more than fit in
    /// `u32`.
    pub fn run_logits(
        &mut self,
        logits: &[f32],
        grid_size: (usize, usize),
        image_size: (u32, u32),
    ) -> Result<Mask> {
        let largest = logits.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        let limit = Limit { threshold: 0.0, margin: MARGIN * largest };
        self.resample(logits, grid_size, image_size, limit, |logit| logit)
    }

    fn resample(
        &mut self,
        logits: &[f32],
        grid_size: (usize, usize),
        image_size: (u32, u32),
        limit: Limit,
        value: impl Fn(f32) -> f32,
    ) -> Result<Mask> {
        let (grid_width, grid_height) = grid_size;
        let (width, height) = image_size;
        check_size(width, height)?;
        if logits.is_empty() || Some(logits.len()) != grid_width.checked_mul(grid_height) {
            let found = logits.len();
            let message =
                format!("mask head output, masks: expected {grid_width}×{grid_height} logits, got {found}");
            return Err(Error::mismatch(message));
        }
        self.take_values(logits, grid_width, value)?;
        self.columns.prepare(grid_width, width);
        self.rows.prepare(grid_height, height);

        let mut runs = RunBuilder::default();
        for sample in &self.columns.samples {
            let below = &self.values[sample.below * grid_height..][..grid_height];
            let above = &self.values[sample.above * grid_height..][..grid_height];
            self.column.clear();
            self.column.extend(below.iter().zip(above).map(|(&below, &above)| sample.mix(below, above)));
            push_column(&self.column, &self.rows, limit, &mut runs);
        }
        Ok(Mask::from_runs(runs, width, height))
    }

    fn take_values(&mut self, logits: &[f32], grid_width: usize, value: impl Fn(f32) -> f32) -> Result<()> {
        let grid_height = logits.len() / grid_width;
        self.values.clear();
        self.values.resize(logits.len(), 0.0);
        let mut sum = 0.0;
        for (y, row) in logits.chunks_exact(grid_width).enumerate() {
            for (x, &logit) in row.iter().enumerate() {
                let value = value(logit);
                self.values[x * grid_height + y] = value;
                sum += value;
            }
        }
        if sum.is_nan() {
            let message = "mask head output, masks: the engine returned NaN; if the model runs in half precision, export \
                           it in fp32";
            return Err(Error::execution(message));
        }
        Ok(())
    }
}

fn push_column(column: &[f32], rows: &Axis, Limit { threshold, margin }: Limit, runs: &mut RunBuilder) {
    for stretch in &rows.stretches {
        let samples = &rows.samples[stretch.clone()];
        let (below, above) = (column[samples[0].below], column[samples[0].above]);
        if below.min(above) > threshold + margin {
            runs.push(true, samples.len() as u32);
        } else if below.max(above) < threshold - margin {
            runs.push(false, samples.len() as u32);
        } else {
            for sample in samples {
                runs.push(sample.mix(below, above) > threshold, 1);
            }
        }
    }
}

/// The position of a pixel between two grid points of an axis.
#[derive(Clone, Copy, Debug)]
struct Sample {
    below: usize,
    above: usize,
    /// The weight of `above`; the rest is the weight of `below`.
    share: f32,
}

impl Sample {
    #[inline]
    fn mix(&self, below: f32, above: f32) -> f32 {
        (1.0 - self.share) * below + self.share * above
    }
}

/// All pixels of one axis in order.
#[derive(Debug, Default)]
struct Axis {
    grid: usize,
    samples: Vec<Sample>,
    /// Ranges of samples between the same two grid points.
    stretches: Vec<std::ops::Range<usize>>,
}

impl Axis {
    /// The positions of `torch.nn.functional.interpolate` with `align_corners=False`, in the same arithmetic.
    fn prepare(&mut self, grid: usize, pixels: u32) {
        if self.grid == grid && self.samples.len() == pixels as usize {
            return;
        }
        self.grid = grid;
        let scale = grid as f32 / pixels as f32;
        let sample = |pixel: u32| {
            let position = (scale * (pixel as f32 + 0.5) - 0.5).max(0.0);
            let below = (position as usize).min(grid - 1);
            let share = (position - below as f32).clamp(0.0, 1.0);
            Sample { below, above: (below + 1).min(grid - 1), share }
        };
        self.samples.clear();
        self.samples.extend((0..pixels).map(sample));
        self.stretches.clear();
        let mut start = 0;
        for stretch in self.samples.chunk_by(|a, b| a.below == b.below) {
            self.stretches.push(start..start + stretch.len());
            start += stretch.len();
        }
    }
}
