//! What a program gets from another one that runs it in its own process, as Python's console scripts do.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ocelli::sink::{VideoOptions, is_stream_address};
use ocelli::source::StreamKind;
use ocelli::{Cancellation, Error, ErrorKind, Result, Sink, Source};

/// A program that runs another one in its own process.
pub struct Host {
    /// The arguments, the program's name first.
    pub arguments: Vec<OsString>,
    /// Reads and writes videos in a build without the video library.
    pub videos: Option<Box<dyn Videos>>,
}

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

/// What reads and writes videos in place of the video library.
pub trait Videos: Send + Sync {
    /// Its name and version, for `ocelli doctor`.
    fn library(&self) -> Option<String>;

    /// Opens a source.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, input: VideoInput<'_>) -> Result<Box<dyn Source>>;

    /// Creates a video file with a constant frame rate and the usual codec.
    ///
    /// # Errors
    /// If it cannot be created.
    fn create(&self, path: &Path, frame_rate: f64) -> Result<Box<dyn Sink>>;
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Sets the host for the rest of the process; the first one stays.
pub(crate) fn set(host: Host) {
    drop(HOST.set(host));
}

/// The arguments of the program, its name first.
pub(crate) fn arguments() -> Vec<OsString> {
    HOST.get().map_or_else(|| std::env::args_os().collect(), |host| host.arguments.clone())
}

/// The program to start for another process of this one.
///
/// # Errors
/// If the system does not know where it is.
pub(crate) fn executable() -> std::io::Result<PathBuf> {
    match HOST.get().and_then(|host| host.arguments.first()) {
        Some(script) => Ok(script.into()),
        None => std::env::current_exe(),
    }
}

/// What reads and writes videos in place of the video library.
pub(crate) fn videos() -> Option<&'static dyn Videos> {
    HOST.get()?.videos.as_deref()
}

/// Opens a video file, a stream or a camera, through the host or the video library.
pub(crate) fn open_video(input: VideoInput<'_>) -> Result<Box<dyn Source>> {
    use ocelli::source::{StreamTimeouts, open_camera, open_stream_as, open_video};
    match (videos(), input) {
        (Some(videos), input) => videos.open(input),
        (None, VideoInput::File(path)) => open_video(path),
        (None, VideoInput::Url(url, kind, cancellation)) => {
            open_stream_as(url, kind, StreamTimeouts::default(), cancellation.clone())
        }
        (None, VideoInput::Camera(index)) => open_camera(index),
    }
}

/// Whether videos can be read here at all.
pub(crate) fn can_read_videos() -> bool {
    videos().map_or_else(|| ocelli::source::video_library().is_ok(), |videos| videos.library().is_some())
}

/// Creates a video file, through the host or the video library.
pub(crate) fn create_video(path: &Path, options: &VideoOptions) -> Result<Box<dyn Sink>> {
    match videos() {
        Some(_) if options.codec.is_some() || options.quality.is_some() || is_stream_address(path) => {
            let why =
                "codecs, qualities and addresses of servers need the video library: run the program `ocelli`";
            Err(Error::new(ErrorKind::Unavailable, why))
        }
        Some(videos) => videos.create(path, options.frame_rate),
        None => ocelli::sink::create_video(path, options),
    }
}
