//! Videos and windows in a build without OpenCV.

use std::path::Path;

use super::Sink;
use crate::cancellation::Cancellation;
use ocelli_error::{Error, ErrorKind, Result};

/// Creates a video file.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn create_video(path: &Path, _frame_rate: f64) -> Result<Box<dyn Sink>> {
    let message = format!(
        "cannot write a video, {}: this build has no OpenCV; enable the feature opencv, or write pictures such as \
         out/%06d.png",
        path.display()
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Opens a window.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_window(_title: &str, _cancellation: Cancellation) -> Result<Box<dyn Sink>> {
    let message = "cannot open a window: this build has no OpenCV; enable the feature opencv";
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// The file extensions of videos that can be written: none in this build.
pub fn video_formats() -> Vec<&'static str> {
    Vec::new()
}
