//! Pipelines read one trait, wherever frames come from: files, cameras, streams and pipes.

#[cfg(not(target_family = "wasm"))]
mod capture;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod container;
mod image_files;
mod raw;
mod reconnecting;
mod secrets;
mod selection;
mod several;
mod stream_kind;

#[cfg(not(target_family = "wasm"))]
pub use capture::{
    InputOptions, check_cameras, open_camera, open_stream, open_video, open_video_with, video_library,
};
pub use image_files::{ImageFiles, natural_order};
pub use raw::{RawFormat, RawFrames};
pub use reconnecting::Reconnecting;
pub use secrets::without_secrets;
pub use selection::{Position, Selected, Selection};
pub use several::{Feed, FeedState, Several, SeveralStates};
pub use stream_kind::StreamKind;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::frame::Frame;
pub use crate::frame::Origin;
use ocelli_error::Result;

/// The frame rates that sources accept, in frames per second: from a frame in eleven days to a million in a second.
pub const FRAME_RATES: RangeInclusive<f64> = 1e-6..=1e6;

/// The time of a frame of a stream with a constant rate.
fn time_of(index: u64, frame_rate: f64) -> Duration {
    Duration::try_from_secs_f64(index as f64 / frame_rate).unwrap_or(Duration::MAX)
}

/// The properties of a stream that are known before its first frame.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// The name that messages use: a path, a URL, `camera 0`.
    pub name: String,
    /// Width and height of upright frames in pixels.
    pub size: Option<(u32, u32)>,
    /// Frames per second.
    pub frame_rate: Option<f64>,
    /// The shortest time between two frames, if the file has an index of them; a variable rate shows in it.
    pub shortest_interval: Option<Duration>,
    /// The number of frames; a file's header may be wrong about it.
    pub frame_count: Option<u64>,
    /// `true` if that number follows from duration and frame rate alone, as in Matroska.
    pub estimates_frames: bool,
    /// `true` if frames arrive at their own pace, whether or not they are read in time.
    pub live: bool,
    /// `true` if the source itself drops frames in favour of newer ones, so that each one that it provides is to be processed.
    pub keeps_newest: bool,
    /// `true` if the stream has sound, as far as its container tells.
    pub has_sound: bool,
    /// The file, if it is a video file that the video library reads.
    pub file: Option<PathBuf>,
}

/// Provides frames, one after the other. Two methods are required; implement [`skip`](Self::skip) if a frame can be
/// skipped faster than read.
pub trait Source: Send {
    /// The properties of the stream.
    fn info(&self) -> &SourceInfo;

    /// Reads the next frame into `frame`, reusing its buffer. Returns `false` at the end of the stream, after which it
    /// is not called again.
    ///
    /// A live source waits for the next frame, and checks its [`Cancellation`](crate::Cancellation) while it waits. A source that looks
    /// at the pixels of another sets [`Frame::gpu`] to `None` before it reads them, so that they are in the image.
    ///
    /// # Errors
    /// If the stream cannot be read any further: a truncated file, a disconnected camera. Earlier frames stay valid.
    fn read_into(&mut self, frame: &mut Frame) -> Result<bool>;

    /// Skips the next frame: sets the index and time of `frame` and leaves its pixels unspecified.
    ///
    /// # Errors
    /// If the stream cannot be read any further.
    fn skip(&mut self, frame: &mut Frame) -> Result<bool> {
        self.read_into(frame)
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn info(&self) -> &SourceInfo {
        (**self).info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        (**self).read_into(frame)
    }

    fn skip(&mut self, frame: &mut Frame) -> Result<bool> {
        (**self).skip(frame)
    }
}

/// Timeouts of a network stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamTimeouts {
    /// For opening the stream.
    pub open: Duration,
    /// For the next frame to arrive.
    pub read: Duration,
}

impl Default for StreamTimeouts {
    /// 10 seconds to open, 5 seconds to read.
    fn default() -> Self {
        Self { open: Duration::from_secs(10), read: Duration::from_secs(5) }
    }
}
