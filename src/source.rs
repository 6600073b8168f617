//! Where frames come from: one trait for files, cameras, streams and drawn scenes.

#[cfg(feature = "opencv")]
mod capture;
#[cfg(not(feature = "opencv"))]
#[path = "source/capture/missing.rs"]
mod capture;
mod container;
mod pictures;
mod raw;
mod reconnecting;
mod selection;

pub use capture::{open_camera, open_stream, open_video};
pub use container::Container;
pub use pictures::{PictureFiles, natural_order};
pub use raw::{RawFormat, RawFrames};
pub use reconnecting::{Clock, Reconnecting, ReconnectingOptions, SystemClock};
pub use selection::{Position, Selected, Selection};

use std::time::Duration;

use crate::error::Result;
use crate::frame::Frame;

/// What is known of a stream before its first frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceInfo {
    /// What it is, for people: a path, a URL, `camera 0`.
    pub name: String,
    /// Width and height of its frames in pixels, upright.
    pub size: Option<(u32, u32)>,
    /// Frames per second.
    pub frame_rate: Option<f64>,
    /// How many frames it will give; what a file's header says can be wrong.
    pub frame_count: Option<u64>,
    /// Whether frames come when they come, whether or not anyone is ready for them.
    pub live: bool,
}

/// Something that gives frames, one after the other.
///
/// An implementor owes two methods; [`skip`](Self::skip) is worth a third where frames are cheaper to pass over.
pub trait Source: Send {
    /// What is known of the stream.
    fn info(&self) -> &SourceInfo;

    /// Fills `frame` with the next picture, into the buffer that it has. `false` is the end, after which it is not
    /// called again.
    ///
    /// A live source waits for the next picture, and looks now and then whether its
    /// [`Cancellation`](crate::Cancellation) wants it to end.
    ///
    /// # Errors
    /// What is wrong with the stream: a file that is cut short, a camera that is gone. Frames before stay good.
    fn read_into(&mut self, frame: &mut Frame) -> Result<bool>;

    /// Passes over the next picture: `frame` gets its number and time, its pixels are left open. Where a source can do
    /// that for less than reading costs, it does.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
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

/// How long a network stream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTimeouts {
    /// To be opened.
    pub open: Duration,
    /// To give the next frame.
    pub read: Duration,
}

impl Default for StreamTimeouts {
    fn default() -> Self {
        Self { open: Duration::from_secs(10), read: Duration::from_secs(5) }
    }
}

/// Three bytes a pixel, the first and the third exchanged.
fn swap_red_and_blue(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.chunks_exact_mut(3).zip(from.chunks_exact(3)) {
        to.copy_from_slice(&[from[2], from[1], from[0]]);
    }
}
