//! Reads and writes videos, streams and cameras: with the video library, or with what a program has instead, as Python has.

use std::path::Path;
use std::sync::OnceLock;

use crate::sink::{self, VideoOptions};
use crate::source::{self, InputOptions, StreamKind, StreamTimeouts};
use crate::{Cancellation, Error, Result, Sink, Source};

/// A video, a stream or a camera to open.
#[derive(Clone, Copy, Debug)]
pub enum VideoInput<'a> {
    /// A video file.
    File(&'a Path),
    /// A stream or a file behind a URL, until it is cancelled; without a kind, the URL tells.
    Url(&'a str, Option<StreamKind>, &'a Cancellation),
    /// A camera by its index.
    Camera(u32),
}

/// The reader and writer of videos in place of the video library.
pub trait Videos: Send + Sync {
    /// Its name and version; `None` if it is not installed.
    fn library(&self) -> Option<String>;

    /// Opens a source.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, input: VideoInput<'_>, options: &InputOptions) -> Result<Box<dyn Source>>;

    /// Creates a video file with a constant frame rate and the usual codec, without sound.
    ///
    /// # Errors
    /// If it cannot be created.
    fn create(&self, path: &Path, frame_rate: f64) -> Result<Box<dyn Sink>>;
}

static REPLACEMENT: OnceLock<Box<dyn Videos>> = OnceLock::new();

/// Replaces the video library in [`open`] and [`create`] for the rest of the process; the first replacement stays.
pub fn replace(videos: Box<dyn Videos>) {
    drop(REPLACEMENT.set(videos));
}

/// The replacement of the video library, if there is one.
pub fn replacement() -> Option<&'static dyn Videos> {
    REPLACEMENT.get().map(AsRef::as_ref)
}

/// `true` if videos can be read here at all.
pub fn can_read() -> bool {
    replacement().map_or_else(|| source::video_library().is_ok(), |videos| videos.library().is_some())
}

/// Opens a video file, a stream or a camera.
///
/// # Errors
/// As [`open_video`](source::open_video), [`open_stream`](source::open_stream) and [`open_camera`](source::open_camera).
pub fn open(input: VideoInput<'_>, options: &InputOptions) -> Result<Box<dyn Source>> {
    match (replacement(), input) {
        (Some(videos), input) => videos.open(input, options),
        (None, VideoInput::File(path)) => source::open_video_with(path, options),
        (None, VideoInput::Url(url, kind, cancellation)) => {
            source::open_stream(url, kind, StreamTimeouts::default(), options, cancellation.clone())
        }
        (None, VideoInput::Camera(index)) => source::open_camera(index, options),
    }
}

/// Creates a video.
///
/// # Errors
/// As [`create_video`](sink::create_video); [`Unavailable`](ocelli_error::ErrorKind::Unavailable) for a codec, a
/// quality or a server without the video library.
pub fn create(path: &Path, options: &VideoOptions) -> Result<Box<dyn Sink>> {
    match replacement() {
        Some(_) if options.codec.is_some() || options.quality.is_some() || sink::is_stream_address(path) => {
            Err(Error::unavailable("codecs, qualities and addresses of servers need the video library"))
        }
        Some(videos) => videos.create(path, options.frame_rate),
        None => sink::create_video(path, options),
    }
}
