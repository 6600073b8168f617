//! A picture of a stream, and when it was taken.

use std::time::Duration;

use crate::image::Image;

/// One picture of a stream. It owns its pixels and goes round: a source fills it again when everyone is done with it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The pixels, upright.
    pub image: Image,
    /// Its number in the stream, from 0. Frames that were left out (a stride, a dropped frame) leave gaps.
    pub index: u64,
    /// When it was taken, since the stream's beginning; never less than the frame's before.
    pub time: Duration,
}

impl Default for Frame {
    /// One black pixel: a buffer to be filled.
    fn default() -> Self {
        let image = Image::from_rgb8(1, 1, vec![0; 3]).expect("three bytes are one pixel");
        Self { image, index: 0, time: Duration::ZERO }
    }
}
