//! One frame of a stream.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::image::Image;
use ocelli_images::DeviceFrame;

/// One frame of a stream. It owns its pixels; a [`Source`](crate::Source) refills the same buffer again and again. The default
/// is a buffer to be filled: one black pixel.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Frame {
    /// The pixels, upright; unspecified if they are `on_gpu`.
    pub image: Image,
    /// The GPU, as CUDA counts, that the pixels may stay on: set by who reads the frame.
    pub gpu: Option<usize>,
    /// The pixels, if they have stayed on that GPU.
    pub on_gpu: Option<DeviceFrame>,
    /// The frame's index in the stream, from 0. Frames that were skipped leave gaps.
    pub index: u64,
    /// The time when the frame was taken, relative to the start of the stream; never decreases from frame to frame.
    pub time: Duration,
    /// The time when the frame of a live source was taken, by the clock of this machine; `None` for recorded frames, and where
    /// the source does not know: then results have the time when it was read.
    pub captured: Option<SystemTime>,
    /// The image file that the frame was read from; `None` for a frame of a video.
    pub file: Option<Arc<Path>>,
    /// The one of [several](crate::source::Several) sources that it is from.
    pub origin: Option<Origin>,
}

impl Frame {
    /// Width and height in pixels.
    pub fn size(&self) -> (u32, u32) {
        let of_image = (self.image.width(), self.image.height());
        self.on_gpu.as_ref().map_or(of_image, |frame| (frame.width, frame.height))
    }
}

/// One of several sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Its place among them, from 0.
    pub number: usize,
    /// Its name.
    pub name: Arc<str>,
    /// Its frames per second, if known.
    pub frame_rate: Option<f64>,
}
