//! Runs of pixels down the columns, the order of COCO's encoding.

use super::MaskSpan;

/// Collects runs of background and foreground pixels in COCO's order and merges equal neighbours.
#[derive(Debug, Default)]
pub(super) struct RunBuilder {
    counts: Vec<u32>,
    inside: bool,
    length: u32,
}

impl RunBuilder {
    /// Adds `length` pixels that are all inside or all outside the mask.
    #[inline]
    pub(super) fn push(&mut self, inside: bool, length: u32) {
        if inside == self.inside || length == 0 {
            self.length += length;
        } else {
            self.counts.push(self.length);
            (self.inside, self.length) = (inside, length);
        }
    }

    /// The alternating run lengths; the first is background and may be 0.
    pub(super) fn finish(mut self) -> Vec<u32> {
        self.counts.push(self.length);
        self.counts
    }
}

/// The foreground runs, split at the end of each column of `height` pixels.
pub(super) fn column_spans(counts: Vec<u32>, height: u32) -> impl Iterator<Item = MaskSpan> {
    let mut counts = counts.into_iter();
    let mut position = 0; // of the next pixel, down the columns
    let mut run_end = 0; // of the current foreground run
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
