//! Videos and windows in a build without OpenCV: none.

use std::path::Path;

use super::Sink;
use crate::cancellation::Cancellation;
use crate::error::{Error, ErrorKind, Result};

/// Makes a video file.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn create_video(path: &Path, _frame_rate: f64) -> Result<Box<dyn Sink>> {
    let message = format!(
        "cannot write a video, {}: this build has no OpenCV; build it with the feature opencv, or write pictures: -o \
         out/%06d.png",
        path.display()
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Opens a window.
///
/// # Errors
/// [`ErrorKind::Unavailable`]: this build has no OpenCV.
pub fn open_window(_title: &str, _wish_to_end: Cancellation) -> Result<Box<dyn Sink>> {
    let message = "cannot open a window: this build has no OpenCV; build it with the feature opencv, or leave --display \
                   out";
    Err(Error::new(ErrorKind::Unavailable, message))
}
