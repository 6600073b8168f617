//! Objects with masks that keep their identity through a video, by SAM 3's memory tracker.
//!
//! A [`VideoSession`] runs through a video file, a folder or pushed frames in any direction, and takes texts, boxes, clicks and
//! masks. A [pipeline](crate::options::PipelineOptions::memory) with memory follows the objects of several classes through any
//! source, with bounded memory; its detector works on the next frame while this one is tracked.
//!
//! Which detections start objects, which memories an object reads and what is shown is decided by
//! [`MaskletSession`](crate::tracking::masklets::MaskletSession), one for each class: classes never suppress each other, as in
//! `transformers`. This module computes what a session asks for, in the graphs of [`tracker/`](crate::export::contract::file).
//!
//! ```no_run
//! use ocelli::masklets::{RunDirection, SessionSource, VideoSession, VideoSessionOptions};
//! use ocelli::{Detector, ModelSource};
//!
//! # fn main() -> ocelli::Result<()> {
//! let model = ModelSource::Folder("sam3".into());
//! let detector = Detector::builder().with_model(model).with_masks(true).build()?;
//! let options = VideoSessionOptions::new(&detector);
//! let mut session = VideoSession::new(detector, SessionSource::open("street.mp4")?, options)?;
//! session.add_text(0, "person")?;
//! for shown in session.propagate(RunDirection::Forward, None, None)? {
//!     let shown = shown?;
//!     println!("frame {}: {} objects", shown.frame, shown.objects.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Known deviations from Meta's `sam3` 0.1.4: frames are not rounded to 16 bits before the backbone; the memories of one
//! frame are rounded to bfloat16 in host memory alone, and stay as precise as the engine's on a device; a run shows a clicked
//! object on its frame exactly as the click did; a [`VideoSession`] keeps the objects of a box, refuses clicks on an object
//! that was removed, and takes clicks and masks without a text.

mod bank;
mod detect;
mod given;
mod graphs;
mod network;
#[cfg(not(target_family = "wasm"))]
mod session;
#[cfg(any(test, feature = "test-support"))]
mod test_support;
mod track;
mod tracked;

pub use detect::MaskFrame;
pub(crate) use detect::{mask_side, post_processing};
pub use given::{GivenObject, GivenShape};
#[doc(hidden)]
pub use network::{FrameNetwork, MaskFrames, MaskletNetwork};
pub use ocelli_tracking::masklets::{
    Click, DetectorPrompt, MaskletOptions, ObjectId, Retention, RunDirection, StreamObject, VideoShape,
};
#[cfg(not(target_family = "wasm"))]
pub use session::{KeepFeatures, SessionRun, SessionSource, VideoSession, VideoSessionOptions};
#[doc(hidden)]
pub use track::Sessions;
pub use tracked::{TrackedFrame, TrackedObject};
