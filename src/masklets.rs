//! Objects with masks that keep their identity through a video, by SAM 3's memory tracker.
//!
//! A [`VideoSession`] runs through a video file, a folder or pushed frames in any direction, and takes texts, boxes, clicks and
//! masks. For streams, a [`MaskDetector`] turns each frame into a [`MaskFrame`]: its features, and detections with masks; a
//! [`MaskTracker`] follows the objects, frame by frame. Detector and tracker can run on different threads, so that the next
//! frame is detected while this one is tracked, as a pipeline [with memory](crate::options::PipelineOptions::memory) does.
//!
//! Which detections start objects, which memories an object reads and what is shown is decided by
//! [`MaskletSession`](crate::tracking::masklets::MaskletSession), one for each class: classes never suppress each other, as in
//! `transformers`. This module computes what a session asks for, in the graphs of [`tracker/`](crate::export::contract::file).
//!
//! ```no_run
//! use ocelli::masklets::{MaskDetector, MaskFrame, MaskTracker, VideoShape};
//! use ocelli::{Detector, Image, ModelSource, Prompts, StageTimes};
//!
//! # fn main() -> ocelli::Result<()> {
//! let model = ModelSource::Folder("sam3".into());
//! let mut detector = Detector::builder().with_model(model).with_masks(true).build()?;
//! let prompts = detector.prepare(&Prompts::new(["person"])?)?;
//! let video = VideoShape { frames: None, width: 1280, height: 720 };
//! let mut tracker = MaskTracker::new(&detector, prompts.len(), video, MaskTracker::options(detector.model()))?;
//! let mut detector = MaskDetector::new(detector, prompts, tracker.session_options())?;
//!
//! let (mut frame, mut times) = (MaskFrame::default(), StageTimes::default());
//! for path in ["1.jpg", "2.jpg"] {
//!     detector.detect_into(&Image::open(path)?, &mut frame, &mut times)?;
//!     for shown in tracker.push(&frame)? {
//!         println!("frame {}: {} objects", shown.frame, shown.objects.len());
//!     }
//! }
//! for shown in tracker.finish()? {
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
mod track;
mod tracked;

pub use detect::{MaskDetector, MaskFrame};
pub(crate) use detect::{mask_side, post_processing};
pub(crate) use given::GivenMasks;
pub use given::{GivenObject, GivenShape};
#[doc(hidden)]
pub use network::{FrameNetwork, MaskFrames, MaskletNetwork};
pub use ocelli_tracking::masklets::{
    Click, DetectorPrompt, MaskletOptions, ObjectId, ObjectPrompt, Retention, RunDirection, VideoShape,
};
#[cfg(not(target_family = "wasm"))]
pub use session::{KeepFeatures, SessionRun, SessionSource, VideoSession, VideoSessionOptions};
pub use track::MaskTracker;
pub(crate) use track::{Sessions, open as open_tracker};
pub use tracked::{TrackedFrame, TrackedObject};
