//! From the mask head's logits to a mask of the image's size.

use super::{Mask, RunBuilder, check_size};
use crate::error::{Error, ErrorKind, Result};

/// In the mask is what lies above this.
const THRESHOLD: f32 = 0.5;
/// How far from the threshold both ends of a stretch have to be before the pixels between are taken as decided:
/// more than the rounding of an interpolation between numbers from 0 to 1.
const MARGIN: f32 = 1e-5;

/// Makes masks from logits on the model's grid; its buffers go round from mask to mask.
///
/// As the reference does: sigmoid, bilinear to the image (sample positions at pixel centres, no antialias),
/// then what is above 0.5. The image is never held: columns are interpolated one after the other and become
/// runs at once, and where both neighbours on the grid agree the whole stretch between them is one run. A mask
/// of a 4K image takes about as long as one of a small image.
#[derive(Debug, Default)]
pub struct MaskResampler {
    /// [grid column, grid row], 0 to 1.
    probabilities: Vec<f32>,
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

    /// The mask of an image of `image_size` (width, height) pixels from `logits` [row, column] on a grid of
    /// `grid_size` (width, height), which covers the whole image.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] where there are not as many logits as the grid has places, [`ErrorKind::Engine`]
    /// where one is NaN, [`ErrorKind::InvalidArgument`] where the image has no pixels or more than `u32` counts.
    pub fn run(&mut self, logits: &[f32], grid_size: (usize, usize), image_size: (u32, u32)) -> Result<Mask> {
        let (grid_width, grid_height) = grid_size;
        let (width, height) = image_size;
        check_size(width, height)?;
        if logits.is_empty() || Some(logits.len()) != grid_width.checked_mul(grid_height) {
            let came = logits.len();
            let message =
                format!("mask head output, masks: expected {grid_width}×{grid_height} logits, came {came}");
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        self.take_probabilities(logits, grid_width)?;
        self.columns.prepare(grid_width, width);
        self.rows.prepare(grid_height, height);

        let mut runs = RunBuilder::default();
        for sample in &self.columns.samples {
            let below = &self.probabilities[sample.below * grid_height..][..grid_height];
            let above = &self.probabilities[sample.above * grid_height..][..grid_height];
            self.column.clear();
            self.column.extend(below.iter().zip(above).map(|(&below, &above)| sample.mix(below, above)));
            push_column(&self.column, &self.rows, &mut runs);
        }
        Ok(Mask::from_runs(runs, width, height))
    }

    fn take_probabilities(&mut self, logits: &[f32], grid_width: usize) -> Result<()> {
        let grid_height = logits.len() / grid_width;
        self.probabilities.clear();
        self.probabilities.resize(logits.len(), 0.0);
        let mut sum = 0.0;
        for (y, row) in logits.chunks_exact(grid_width).enumerate() {
            for (x, &logit) in row.iter().enumerate() {
                let probability = 1.0 / (1.0 + (-logit).exp());
                self.probabilities[x * grid_height + y] = probability;
                sum += probability;
            }
        }
        if sum.is_nan() {
            let message = "mask head output, masks: the engine returned a logit that is no number; if the model \
                           runs in half precision, export it with --precision fp32";
            return Err(Error::new(ErrorKind::Engine, message));
        }
        Ok(())
    }
}

fn push_column(column: &[f32], rows: &Axis, runs: &mut RunBuilder) {
    for stretch in &rows.stretches {
        let samples = &rows.samples[stretch.clone()];
        let (below, above) = (column[samples[0].below], column[samples[0].above]);
        if below.min(above) > THRESHOLD + MARGIN {
            runs.push(true, samples.len() as u32);
        } else if below.max(above) < THRESHOLD - MARGIN {
            runs.push(false, samples.len() as u32);
        } else {
            for sample in samples {
                runs.push(sample.mix(below, above) > THRESHOLD, 1);
            }
        }
    }
}

/// Where one pixel of an axis lies between two places of the grid.
#[derive(Clone, Copy, Debug)]
struct Sample {
    below: usize,
    above: usize,
    /// How much of `above`; the rest is of `below`.
    share: f32,
}

impl Sample {
    #[inline]
    fn mix(&self, below: f32, above: f32) -> f32 {
        (1.0 - self.share) * below + self.share * above
    }
}

/// All pixels of one axis, in order.
#[derive(Debug, Default)]
struct Axis {
    grid: usize,
    samples: Vec<Sample>,
    /// Ranges of samples between the same two places of the grid.
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
