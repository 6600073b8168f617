//! The frame that a session works on.

use crate::masklets::bank::Course;
use crate::masklets::{MaskNetwork, MaskletOptions};

/// A frame, and what decides about it and computes it.
pub(crate) struct Current<'n> {
    pub(crate) frame: usize,
    /// Of the run that passes the frame.
    pub(crate) course: Course,
    pub(crate) options: MaskletOptions,
    /// Width and height of the video.
    pub(crate) video: [usize; 2],
    pub(crate) network: &'n mut dyn MaskNetwork,
}
