//! Runs of pixels down the columns, the order of COCO's code.

use super::MaskSpan;

/// Collects runs of background and foreground pixels in COCO's order; neighbours of one kind become one run.
#[derive(Debug, Default)]
pub(super) struct RunBuilder {
    counts: Vec<u32>,
    inside: bool,
    length: u32,
}

impl RunBuilder {
    /// The next `length` pixels, one at least, are all in the mask or all outside.
    #[inline]
    pub(super) fn push(&mut self, inside: bool, length: u32) {
        if inside == self.inside {
            self.length += length;
        } else {
            self.counts.push(self.length);
            (self.inside, self.length) = (inside, length);
        }
    }

    /// The run lengths: background first, which may be 0, then alternating.
    pub(super) fn finish(mut self) -> Vec<u32> {
        self.counts.push(self.length);
        self.counts
    }
}

/// The foreground of run lengths, cut at the end of each column of `height` pixels.
pub(super) fn column_spans(counts: Vec<u32>, height: u32) -> impl Iterator<Item = MaskSpan> {
    let mut counts = counts.into_iter();
    let mut position = 0; // of the next pixel, down the columns
    let mut run_end = 0; // of the foreground run at hand
    std::iter::from_fn(move || {
        while position == run_end {
            position += counts.next()?;
            run_end = position + counts.next()?;
        }
        let (x, top) = (position / height, position % height);
        let length = (run_end - position).min(height - top);
        position += length;
        Some(MaskSpan { x, top, bottom: top + length })
    })
    .fuse()
}

/// How many pixels two masks of one size have in common.
pub(super) fn common_pixels(a: &[u32], b: &[u32]) -> u64 {
    // Runs alternate, background first: an odd place is foreground.
    let (mut a, mut b) = (a.iter().enumerate(), b.iter().enumerate());
    let (mut run_a, mut run_b) = (a.next().map(owned), b.next().map(owned));
    let mut common = 0;
    while let (Some((place_a, left_a)), Some((place_b, left_b))) = (run_a, run_b) {
        let length = left_a.min(left_b);
        if place_a % 2 == 1 && place_b % 2 == 1 {
            common += u64::from(length);
        }
        run_a = if left_a == length { a.next().map(owned) } else { Some((place_a, left_a - length)) };
        run_b = if left_b == length { b.next().map(owned) } else { Some((place_b, left_b - length)) };
    }
    common
}

fn owned((place, length): (usize, &u32)) -> (usize, u32) {
    (place, *length)
}
