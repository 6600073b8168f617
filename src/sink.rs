//! Where results go: one trait for videos, JSON lines, MOTChallenge files, crops, windows and pipes.

mod crops;
mod json_lines;
mod lines;
mod mot;
mod picture;
mod raw;
#[cfg(feature = "opencv")]
mod video;
#[cfg(not(feature = "opencv"))]
#[path = "sink/video/missing.rs"]
mod video;
#[cfg(feature = "opencv")]
mod window;

use std::sync::Arc;
use std::time::Duration;

use ocelli_tracking::Track;

use crate::detection::Detection;
use crate::detector::StageTimes;
use crate::error::Result;
use crate::image::Image;

pub use crops::Crops;
pub use json_lines::JsonLines;
pub use mot::MotFile;
pub use picture::{PictureSequence, check_picture_file, write_picture};
pub use raw::{RawOrder, RawWriter};
pub use video::create_video;
#[cfg(not(feature = "opencv"))]
pub use video::open_window;
#[cfg(feature = "opencv")]
pub use window::open_window;

/// Everything that is known of one frame when it leaves the loop.
#[derive(Clone, Debug, Default)]
pub struct FrameOutcome {
    /// The frame's number in its stream, from 0.
    pub index: u64,
    /// When it was taken: what the source, or the caller, said.
    pub time: Duration,
    /// Its width and height in pixels.
    pub size: (u32, u32),
    /// Whether the detector looked at it; `detections` is empty where it did not.
    pub detected: bool,
    /// What the detector found, the highest score first.
    pub detections: Vec<Detection>,
    /// What the tracker follows; empty without a tracker.
    pub tracks: Vec<Track>,
    /// The prompts' words by class id.
    pub labels: Arc<[Arc<str>]>,
    /// The frame as it came, where a sink asked for it.
    pub clean: Option<Image>,
    /// The frame with boxes and labels drawn in, where a sink asked for it.
    pub annotated: Option<Image>,
    /// How long its stages took.
    pub times: StageTimes,
}

/// Which pictures a sink wants to be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    /// [`FrameOutcome::clean`].
    pub clean: bool,
    /// [`FrameOutcome::annotated`].
    pub annotated: bool,
}

/// Something that takes results, frame after frame in order.
pub trait Sink: Send {
    /// Which pictures it needs; none unless said otherwise, and none are made that nobody needs.
    fn pictures(&self) -> Pictures {
        Pictures::default()
    }

    /// Takes one frame's results.
    ///
    /// # Errors
    /// Where they cannot be written. What was written before is kept, [`finish`](Self::finish) is still called.
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()>;

    /// There will be no more frames: the file is completed.
    ///
    /// # Errors
    /// Where it cannot be completed.
    fn finish(&mut self) -> Result<()>;
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn pictures(&self) -> Pictures {
        (**self).pictures()
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        (**self).write(outcome)
    }

    fn finish(&mut self) -> Result<()> {
        (**self).finish()
    }
}
