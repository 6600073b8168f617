//! Where frames come from: one trait for files, cameras, streams and drawn scenes.

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
/// An implementor owes two methods.
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
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn info(&self) -> &SourceInfo {
        (**self).info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        (**self).read_into(frame)
    }
}
