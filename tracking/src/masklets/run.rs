//! A run through a video.

use crate::masklets::history::Propagation;
use crate::masklets::output::FrameOutput;
use crate::masklets::{BankReport, FrameReport, ShownFrame};
use std::collections::VecDeque;

/// The events of one frame of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The frame that was processed.
    pub frame: usize,
    /// The decisions; `None` if the run is partial or shows earlier results.
    pub report: Option<FrameReport>,
    /// The memories that the groups of a partial run read.
    pub banks: Vec<BankReport>,
    /// The frames that leave now.
    pub shown: Vec<ShownFrame>,
}

/// A run that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) kind: Propagation,
    pub(crate) order: Order,
    /// Frames that are held back.
    pub(crate) buffer: VecDeque<FrameOutput>,
    /// The frame that was processed last.
    pub(crate) last: Option<FrameOutput>,
}

/// An object's confirmation is looked up this many frames ahead of the one that is shown.
const CONFIRMATION_LOOKAHEAD: usize = 2;

impl Run {
    /// The first `count` frames that are held back, without the objects that are not confirmed.
    pub(crate) fn leave(&mut self, count: usize) -> Vec<FrameOutput> {
        let leave = |_| {
            let ahead = self.buffer.get(CONFIRMATION_LOOKAHEAD).or(self.buffer.back())?;
            let unconfirmed = ahead.unconfirmed.clone();
            Some(self.buffer.pop_front()?.without(&unconfirmed))
        };
        (0..count).filter_map(leave).collect()
    }
}

/// The frames of a run.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// The next frame, and the last one.
    Forward { next: usize, last: usize },
    /// The end of the frames before the next one, and the last one.
    Backward { end: usize, last: usize },
}

impl Order {
    /// The frame `start` and `max_frames` more, or as many before it, in a video from its `first` frame on.
    pub(crate) fn new(
        is_reverse: bool,
        start: usize,
        max_frames: Option<usize>,
        (first, frame_count): (usize, Option<usize>),
    ) -> Self {
        let max_frames = max_frames.or(frame_count).unwrap_or(usize::MAX);
        if is_reverse {
            return Self::Backward { end: start, last: start.saturating_sub(max_frames).max(first) };
        }
        let last = frame_count.map_or(usize::MAX, |count| count - 1);
        Self::Forward { next: start, last: start.saturating_add(max_frames).min(last) }
    }

    pub(crate) fn is_reverse(&self) -> bool {
        matches!(self, Self::Backward { .. })
    }

    pub(crate) fn is_done(&self) -> bool {
        match *self {
            Self::Forward { next, last } => next > last,
            Self::Backward { end, last } => end <= last,
        }
    }

    pub(crate) fn next(&mut self) -> Option<usize> {
        if self.is_done() {
            return None;
        }
        Some(match self {
            Self::Forward { next, .. } => {
                *next += 1;
                *next - 1
            }
            Self::Backward { end, .. } => {
                *end -= 1;
                *end
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_start_and_so_many_more_frames() {
        let frames = |is_reverse, start, most| -> Vec<usize> {
            let mut order = Order::new(is_reverse, start, most, (1, Some(8)));
            std::iter::from_fn(|| order.next()).collect()
        };
        assert_eq!(frames(false, 3, Some(2)), [3, 4, 5]);
        assert_eq!(frames(false, 5, None), [5, 6, 7]);
        assert_eq!(frames(true, 5, Some(2)), [4, 3]);
        assert_eq!(frames(true, 3, None), [2, 1], "the first frame is 1");
        assert!(frames(true, 0, None).is_empty());
        assert!(frames(true, 4, Some(0)).is_empty());
    }
}
