//! Binary masks, one bit a pixel.

use ocelli_error::{Error, Result};

/// A binary mask in row-major order, one bit a pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitMask {
    width: usize,
    height: usize,
    words: Vec<u64>,
}

impl BitMask {
    /// A mask without foreground.
    pub fn empty(width: usize, height: usize) -> Self {
        Self { width, height, words: vec![0; (width * height).div_ceil(64)] }
    }

    /// The mask of the pixels `(x, y)` for which `is_foreground` is true.
    pub fn from_fn(width: usize, height: usize, mut is_foreground: impl FnMut(usize, usize) -> bool) -> Self {
        let mut mask = Self::empty(width, height);
        for y in 0..height {
            for x in 0..width {
                if is_foreground(x, y) {
                    mask.insert(x, y);
                }
            }
        }
        mask
    }

    /// The mask of alternating run lengths in row-major order, background first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the runs do not add up to the number of pixels.
    pub fn from_runs(width: usize, height: usize, runs: &[u32]) -> Result<Self> {
        let total: u64 = runs.iter().map(|&run| u64::from(run)).sum();
        if total != (width * height) as u64 {
            let text = format!("the runs of a mask cover {total} pixels: expected {width} × {height}");
            return Err(Error::invalid_data(text));
        }
        let mut mask = Self::empty(width, height);
        let mut start = 0;
        for (index, &run) in runs.iter().enumerate() {
            let end = start + run as usize;
            if index % 2 == 1 {
                (start..end).for_each(|pixel| mask.words[pixel / 64] |= 1 << (pixel % 64));
            }
            start = end;
        }
        Ok(mask)
    }

    /// Alternating run lengths in row-major order, background first: what [`from_runs`](Self::from_runs) takes.
    pub fn runs(&self) -> Vec<u32> {
        run_lengths(
            (0..self.width * self.height).map(|pixel| self.words[pixel / 64] >> (pixel % 64) & 1 == 1),
        )
    }

    /// Alternating run lengths down the columns, background first, as COCO has them.
    pub fn column_runs(&self) -> Vec<u32> {
        run_lengths((0..self.width).flat_map(|x| (0..self.height).map(move |y| self.contains(x, y))))
    }

    /// The width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// `true` if the pixel is foreground.
    pub fn contains(&self, x: usize, y: usize) -> bool {
        let pixel = y * self.width + x;
        self.words[pixel / 64] >> (pixel % 64) & 1 == 1
    }

    /// Makes the pixel foreground.
    pub fn insert(&mut self, x: usize, y: usize) {
        let pixel = y * self.width + x;
        self.words[pixel / 64] |= 1 << (pixel % 64);
    }

    /// Removes the foreground of `other`, a mask of the same size.
    pub fn subtract(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// The number of foreground pixels.
    pub fn area(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// `true` if no pixel is foreground.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Intersection over union with a mask of the same size; 0 if both are empty.
    pub fn iou(&self, other: &Self) -> f32 {
        let (mut intersection, mut union) = (0, 0);
        for (a, b) in self.words.iter().zip(&other.words) {
            intersection += (a & b).count_ones();
            union += (a | b).count_ones();
        }
        intersection as f32 / union.max(1) as f32
    }

    /// Intersection over the smaller area with a mask of the same size; 0 if one is empty.
    pub fn intersection_over_smaller(&self, other: &Self) -> f32 {
        let shared: u32 = self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones()).sum();
        shared as f32 / self.area().min(other.area()).max(1) as f32
    }

    /// The first and last foreground column and row, `[left, top, right, bottom]`, all inclusive.
    pub fn bounds(&self) -> Option<[usize; 4]> {
        let mut bounds: Option<[usize; 4]> = None;
        for y in 0..self.height {
            let mut columns = (0..self.width).filter(|&x| self.contains(x, y));
            let Some(first) = columns.next() else { continue };
            let last = columns.next_back().unwrap_or(first);
            let [left, top, right, _] = bounds.unwrap_or([first, y, last, y]);
            bounds = Some([left.min(first), top, right.max(last), y]);
        }
        bounds
    }
}

fn run_lengths(pixels: impl Iterator<Item = bool>) -> Vec<u32> {
    let (mut runs, mut run, mut value) = (Vec::new(), 0, false);
    for pixel in pixels {
        if pixel != value {
            runs.push(run);
            (run, value) = (0, pixel);
        }
        run += 1;
    }
    runs.push(run);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::Random;

    #[test]
    fn runs_and_pixels_are_the_same_mask() {
        let mut random = Random::new(1);
        for (width, height) in [(1, 1), (7, 9), (64, 2), (65, 3)] {
            let mask = BitMask::from_fn(width, height, |_, _| random.below(3) == 0);
            let back = BitMask::from_runs(width, height, &mask.runs()).expect("the runs of a mask are valid");
            assert_eq!(back, mask, "{width} × {height}");
            let turned = BitMask::from_fn(height, width, |x, y| mask.contains(y, x));
            assert_eq!(mask.column_runs(), turned.runs(), "{width} × {height}");
        }
        assert_eq!(BitMask::from_fn(2, 2, |x, _| x == 0).runs(), [0, 1, 1, 1, 1]);
        assert_eq!(BitMask::empty(3, 2).runs(), [6]);
    }

    #[test]
    fn runs_of_another_size_are_refused() {
        let error = BitMask::from_runs(2, 2, &[1, 4]).expect_err("5 pixels are not 4");
        assert_eq!(error.to_string(), "the runs of a mask cover 5 pixels: expected 2 × 2");
    }

    #[test]
    fn overlaps_and_bounds_are_counted_in_pixels() {
        let left = BitMask::from_fn(10, 7, |x, y| x < 6 && y > 1);
        let right = BitMask::from_fn(10, 7, |x, y| x > 3 && y > 1);
        assert_eq!((left.area(), right.area()), (30, 30));
        assert_eq!(left.iou(&right), 10.0 / 50.0);
        assert_eq!(BitMask::empty(10, 7).iou(&BitMask::empty(10, 7)), 0.0);
        assert_eq!((left.bounds(), right.bounds()), (Some([0, 2, 5, 6]), Some([4, 2, 9, 6])));
        assert_eq!(BitMask::empty(4, 4).bounds(), None);
        let mut rest = left.clone();
        rest.subtract(&right);
        assert_eq!((rest.area(), rest.is_empty()), (20, false));
        rest.subtract(&left);
        assert!(rest.is_empty());
    }
}
