//! One frame of a stream.

use std::time::Duration;

use crate::image::Image;

/// One frame of a stream. It owns its pixels; a [`Source`](crate::Source) refills the same buffer again and again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// The pixels, upright.
    pub image: Image,
    /// The frame's index in the stream, from 0. Frames that were skipped leave gaps.
    pub index: u64,
    /// When the frame was taken, relative to the start of the stream; never decreases from frame to frame.
    pub time: Duration,
}

impl Default for Frame {
    /// A buffer to be filled: one black pixel.
    fn default() -> Self {
        let image = Image::from_rgb8(1, 1, vec![0; 3]).expect("three bytes are one pixel");
        Self { image, index: 0, time: Duration::ZERO }
    }
}
