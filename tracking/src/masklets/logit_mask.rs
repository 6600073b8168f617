//! Masks of logits, and how they are resized.

use crate::masklets::BitMask;
use ocelli_error::{Result, refuse};
use std::ops::Range;

/// A mask of logits in row-major order: foreground is above 0.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitMask {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

impl LogitMask {
    /// A mask of `width` × `height` logits in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is 0, or the number of values is
    /// not the number of pixels.
    pub fn new(width: usize, height: usize, values: Vec<f32>) -> Result<Self> {
        if width == 0 || height == 0 || values.len() != width * height {
            refuse!("a mask has {} logits: expected {width} × {height}, neither of them 0", values.len());
        }
        Ok(Self { width, height, values })
    }

    /// A square mask of one value.
    pub(crate) fn filled(side: usize, value: f32) -> Self {
        Self::from_pixels(side, side, |_| value)
    }

    /// A mask with one logit for the background of `mask`, and one for its foreground.
    pub(crate) fn of_foreground(mask: &BitMask, [background, foreground]: [f32; 2]) -> Self {
        let (width, height) = (mask.width(), mask.height());
        let is_inside = |pixel: usize| mask.contains(pixel % width, pixel / width);
        Self::from_pixels(width, height, |pixel| if is_inside(pixel) { foreground } else { background })
    }

    pub(crate) fn from_pixels(width: usize, height: usize, pixel: impl FnMut(usize) -> f32) -> Self {
        Self { width, height, values: (0..width * height).map(pixel).collect() }
    }

    /// The width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The logits in row-major order.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Takes the logits of `other`, a mask of the same size, where only one of the two has foreground.
    pub(crate) fn correct(&mut self, other: &Self) {
        let pixels = self.values.iter_mut().zip(&other.values);
        pixels.filter(|(own, other)| (**own > 0.0) != (**other > 0.0)).for_each(|(own, other)| *own = *other);
    }

    /// The foreground.
    pub fn positive(&self) -> BitMask {
        BitMask::from_fn(self.width, self.height, |x, y| self.values[y * self.width + x] > 0.0)
    }

    /// The foreground after a bilinear resize to `width` × `height`.
    pub fn resized_positive(&self, width: usize, height: usize) -> BitMask {
        let rows = BilinearRows::new([self.width, self.height], [width, height]);
        let mut mask = BitMask::empty(width, height);
        let Some([span_x, span_y]) = rows.foreground_span(self) else { return mask };
        let mut row = vec![0.0; width];
        for y in span_y {
            rows.row_into(self, y, span_x.clone(), &mut row);
            span_x.clone().filter(|&x| row[x] > 0.0).for_each(|x| mask.insert(x, y));
        }
        mask
    }

    /// A bilinear resize to `width` × `height`.
    pub fn resized(&self, width: usize, height: usize) -> Self {
        let rows = BilinearRows::new([self.width, self.height], [width, height]);
        let mut values = vec![0.0; width * height];
        values.chunks_exact_mut(width).enumerate().for_each(|(y, row)| rows.row_into(self, y, 0..width, row));
        Self { width, height, values }
    }

    /// A bilinear resize to `width` × `height` that averages where it makes the mask smaller, as PyTorch's `antialias`.
    pub fn resized_antialiased(&self, width: usize, height: usize) -> Self {
        let (columns, rows) = (triangle_windows(self.width, width), triangle_windows(self.height, height));
        let mut wide = Vec::with_capacity(width * self.height);
        for row in self.values.chunks_exact(self.width) {
            wide.extend(columns.iter().map(|window| window.sum(|x| row[x])));
        }
        let mut values = Vec::with_capacity(width * height);
        for window in &rows {
            values.extend((0..width).map(|x| window.sum(|y| wide[y * width + x])));
        }
        Self { width, height, values }
    }
}

/// A bilinear resize, row by row, as PyTorch's `interpolate` with `align_corners=False`.
pub(crate) struct BilinearRows {
    columns: Vec<Sample>,
    rows: Vec<Sample>,
}

/// Two neighbouring source pixels and their weights.
#[derive(Clone, Copy)]
struct Sample {
    first: usize,
    second: usize,
    weights: [f32; 2],
}

impl BilinearRows {
    /// From `[width, height]` to `[width, height]`.
    pub(crate) fn new(from: [usize; 2], to: [usize; 2]) -> Self {
        Self { columns: samples(from[0], to[0]), rows: samples(from[1], to[1]) }
    }

    /// The columns and rows of the resized mask that can have foreground: a mean of background is background.
    pub(crate) fn foreground_span(&self, mask: &LogitMask) -> Option<[Range<usize>; 2]> {
        let [left, top, right, bottom] = mask.positive().bounds()?;
        Some([touching(&self.columns, left, right), touching(&self.rows, top, bottom)])
    }

    /// Writes the given columns of row `y` of the resized mask.
    pub(crate) fn row_into(&self, mask: &LogitMask, y: usize, columns: Range<usize>, out: &mut [f32]) {
        let row = self.rows[y];
        let line = |index: usize| &mask.values[index * mask.width..(index + 1) * mask.width];
        let (above, below) = (line(row.first), line(row.second));
        for (value, column) in out[columns.clone()].iter_mut().zip(&self.columns[columns]) {
            let across = |line: &[f32]| {
                column.weights[0] * line[column.first] + column.weights[1] * line[column.second]
            };
            *value = row.weights[0] * across(above) + row.weights[1] * across(below);
        }
    }
}

/// The samples that read any of the source pixels `first` to `last`.
fn touching(samples: &[Sample], first: usize, last: usize) -> Range<usize> {
    let start = samples.partition_point(|sample| sample.second < first);
    start..samples.partition_point(|sample| sample.first <= last)
}

fn samples(from: usize, to: usize) -> Vec<Sample> {
    let scale = from as f32 / to as f32;
    (0..to)
        .map(|index| {
            let source = (scale * (index as f32 + 0.5) - 0.5).max(0.0);
            let first = (source as usize).min(from - 1);
            let share = (source - first as f32).clamp(0.0, 1.0);
            Sample { first, second: (first + 1).min(from - 1), weights: [1.0 - share, share] }
        })
        .collect()
}

/// The source pixels of one pixel of an antialiased resize, with weights that add up to 1.
struct Window {
    first: usize,
    weights: Vec<f32>,
}

impl Window {
    fn sum(&self, value: impl Fn(usize) -> f32) -> f32 {
        self.weights.iter().enumerate().map(|(index, weight)| weight * value(self.first + index)).sum()
    }
}

fn triangle_windows(from: usize, to: usize) -> Vec<Window> {
    let scale = from as f32 / to as f32;
    let support = scale.max(1.0);
    // A product, as in PyTorch: the quotient rounds differently where a weighted sum is on the threshold.
    let inverse = 1.0 / support;
    (0..to)
        .map(|index| {
            let center = scale * (index as f32 + 0.5);
            let first = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            let weight = |source: usize| (1.0 - ((source as f32 - center + 0.5) * inverse).abs()).max(0.0);
            let total: f32 = (first..end).map(weight).sum();
            Window { first, weights: (first..end).map(|source| weight(source) / total).collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(width: usize, height: usize) -> LogitMask {
        let value = |index: usize| ((index * 37) % 11) as f32 - 5.0;
        LogitMask::new(width, height, (0..width * height).map(value).collect()).expect("the sizes agree")
    }

    fn close(found: &LogitMask, expected: &[f32]) {
        let far = found.values().iter().zip(expected).position(|(a, b)| (a - b).abs() > 1e-5);
        assert_eq!((found.values().len(), far), (expected.len(), None), "{:?}", found.values());
    }

    /// Values of `torch.nn.functional.interpolate`, PyTorch 2.11.
    #[test]
    fn resizes_are_those_of_pytorch() {
        let mask = ramp(3, 2);
        assert_eq!(mask.values(), [-5.0, -1.0, 3.0, -4.0, 0.0, 4.0]);
        close(&mask.resized(4, 3), RESIZED);
        close(&ramp(5, 4).resized_antialiased(3, 2), ANTIALIASED);
        close(&mask.resized_antialiased(4, 3), RESIZED);
        close(&mask.resized(3, 2), mask.values());
    }

    const RESIZED: &[f32] = &[-5.0, -2.5, 0.5, 3.0, -4.5, -2.0, 1.0, 3.5, -4.0, -1.5, 1.5, 4.0];
    const ANTIALIASED: &[f32] =
        &[-1.122_449, 0.523_809_6, -0.448_979_4, 0.448_979_7, -0.523_809_55, 1.122_449_2];

    #[test]
    fn the_foreground_of_a_resize_is_the_resize_above_zero() {
        for [width, height] in [[4, 3], [7, 11], [2, 2]] {
            let spot = LogitMask::from_pixels(5, 4, |pixel| if pixel == 7 { 1.0 } else { -0.1 });
            for mask in [ramp(5, 4), spot, LogitMask::filled(4, -1.0)] {
                assert_eq!(mask.resized_positive(width, height), mask.resized(width, height).positive());
            }
        }
    }

    #[test]
    fn a_mask_has_a_logit_for_each_pixel() {
        let error = LogitMask::new(2, 3, vec![0.0; 5]).expect_err("5 is not 6");
        assert_eq!(error.to_string(), "a mask has 5 logits: expected 2 × 3, neither of them 0");
    }
}
