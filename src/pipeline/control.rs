//! What all threads of a loop share.

use crate::error::Result;
use crate::sink::FrameOutcome;

/// How results are drawn into a picture.
pub(super) type Drawing = Box<dyn FnMut(&mut image::RgbImage, &FrameOutcome) -> Result<()> + Send>;
