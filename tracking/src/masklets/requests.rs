//! The requests to a session.

use serde::{Deserialize, Serialize};

use crate::masklets::{BitMask, Click, ObjectId};

/// The video of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VideoShape {
    /// The number of frames; `None` for a live source.
    pub frames: Option<usize>,
    /// The width in pixels.
    pub width: usize,
    /// The height in pixels.
    pub height: usize,
}

/// The memory of a session for frames that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retention {
    /// Everything: each object costs one memory slot, one pointer slot, one mask and its shown mask as run lengths a frame.
    /// Any frame can be clicked, shown or passed again.
    #[default]
    Video,
    /// Only what the run may still read: each object costs at most
    /// [`conditioning_frames`](crate::masklets::MaskletOptions::conditioning_frames) + [`memory_frames`](crate::masklets::MaskletOptions::memory_frames) memory
    /// slots (10), `conditioning_frames` + [`pointer_frames`](crate::masklets::MaskletOptions::pointer_frames) pointer slots (20) and
    /// `conditioning_frames` masks (4), however long the video is. The session runs once, in one direction, and takes clicks
    /// with the frames of its run alone, if it has no prompt.
    Window,
}

/// The direction of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RunDirection {
    /// To later frames.
    #[default]
    Forward,
    /// To earlier frames, from the frame before the start.
    Backward,
    /// Forward, then backward.
    Both,
}

ocelli_error::read_by_name!(RunDirection, "direction", "\"forward\", \"backward\" or \"both\"");

/// The detector's prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectorPrompt {
    /// A text: on every frame.
    Text,
    /// A box without text: on its frame alone.
    Box,
}

/// An object of a stream, clicked or given on a frame.
#[derive(Clone, Debug)]
pub enum StreamObject {
    /// Clicks: an object that is tracked is refined, another one is added.
    Clicks {
        /// The object.
        id: ObjectId,
        /// At least one.
        clicks: Vec<Click>,
    },
    /// The mask of a new object.
    Mask {
        /// The object.
        id: ObjectId,
        /// Of the size of the video.
        mask: BitMask,
    },
}
