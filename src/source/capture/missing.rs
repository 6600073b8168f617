//! Videos, cameras and streams in a build without OpenCV: none.

use std::path::Path;

use super::{Source, StreamTimeouts};
use crate::error::{Error, ErrorKind, Result};

/// Opens a video file.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_video(path: &Path) -> Result<Box<dyn Source>> {
    missing("video", &path.display().to_string())
}

/// Opens a camera by its number.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_camera(index: u32) -> Result<Box<dyn Source>> {
    missing("camera", &index.to_string())
}

/// Opens a stream by its address.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_stream(url: &str, _: StreamTimeouts) -> Result<Box<dyn Source>> {
    missing("stream", url)
}

fn missing<T>(what: &str, name: &str) -> Result<T> {
    let message = format!(
        "cannot open the {what}, {name}: this build has no OpenCV; build it with the feature opencv, or name pictures, \
         or raw frames with --video - --raw"
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}
