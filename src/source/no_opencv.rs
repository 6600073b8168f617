//! Videos, cameras and streams in a build without OpenCV.

use std::path::Path;

use super::{Source, StreamKind, StreamTimeouts};
use ocelli_error::{Error, ErrorKind, Result};

/// Opens a video file.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_video(path: &Path) -> Result<Box<dyn Source>> {
    unavailable("video", &path.display().to_string())
}

/// Opens a camera by its index.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_camera(index: u32) -> Result<Box<dyn Source>> {
    unavailable("camera", &index.to_string())
}

/// Opens a stream by its URL.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_stream(url: &str, _: StreamTimeouts) -> Result<Box<dyn Source>> {
    unavailable("stream", url)
}

/// As [`open_stream`], with a kind.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_stream_as(url: &str, _: Option<StreamKind>, timeouts: StreamTimeouts) -> Result<Box<dyn Source>> {
    open_stream(url, timeouts)
}

fn unavailable<T>(what: &str, name: &str) -> Result<T> {
    let message = format!(
        "cannot open the {what}, {name}: this build has no OpenCV; enable the feature opencv, or use picture files or raw \
         frames"
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}
