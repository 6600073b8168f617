//! Objects with masks that keep their identity through a video: the life cycle of SAM 3's video predictor.
//!
//! A *masklet* is an object's mask over time. A [`MaskletSession`] decides which detections start objects, which memories an
//! object reads, which objects are false and removed, and what is shown. A [`MaskNetwork`] computes: it detects, tracks and
//! encodes memories, which stay where it put them. The session knows them by their slots.
//!
//! ```
//! use ocelli_tracking::masklets::*;
//! use ocelli_tracking::Result;
//!
//! /// A network that always sees the same square.
//! struct Square(LogitMask);
//!
//! impl MaskNetwork for Square {
//!     fn load(&mut self, _frame: usize) -> Result<()> {
//!         Ok(())
//!     }
//!     fn detect(&mut self, _frame: usize) -> Result<Option<Vec<DetectedMask>>> {
//!         Ok(Some(vec![DetectedMask { score: 0.9, mask: self.0.clone() }]))
//!     }
//!     fn track(&mut self, batch: &TrackBatch) -> Result<Vec<TrackedMask>> {
//!         // A real network reads the slots of `batch` here, and writes the new pointers.
//!         let mask = || TrackedMask { mask: self.0.clone(), object_score: 5.0, iou: 0.9 };
//!         Ok(batch.objects().map(|_| mask()).collect())
//!     }
//!     fn prompt_masks(&mut self, _batch: &MaskPromptBatch<'_>) -> Result<()> {
//!         Ok(())
//!     }
//!     fn prompt_points(&mut self, _prompt: &PointPrompt<'_>) -> Result<TrackedMask> {
//!         Ok(TrackedMask { mask: self.0.clone(), object_score: 5.0, iou: 0.9 })
//!     }
//!     fn encode(&mut self, _batch: &EncodeBatch<'_>) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let options = MaskletOptions::default();
//! let side = options.mask_side();
//! let logit = |index: usize| if index % side < side / 2 && index / side < side / 2 { 5.0 } else { -5.0 };
//! let mut network = Square(LogitMask::new(side, side, (0..side * side).map(logit).collect())?);
//!
//! let video = VideoShape { frames: Some(3), width: 64, height: 48 };
//! let mut session = MaskletSession::new(video, Retention::Video, options)?;
//! session.prompt(DetectorPrompt::Text, 0, &mut network)?;
//! session.propagate(RunDirection::Forward, None, None)?;
//! let mut frames = 0;
//! while let Some(step) = session.advance(&mut network)? {
//!     for shown in step.shown {
//!         assert_eq!((shown.objects[0].id, shown.objects[0].mask.area()), (0, 32 * 24));
//!         frames += 1;
//!     }
//! }
//! assert_eq!(frames, 3);
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`MaskletSession`] | prompts, runs, clicks, removals; its [`Action`]s decide whether a run is full, partial or shows earlier results |
//! | [`MaskletOptions`], [`LifeCycle`] | thresholds, with SAM 3's defaults, and the model whose rules hold |
//! | [`Retention`] | what is kept of earlier frames: everything, or what the run may still read |
//! | [`MaskNetwork`] | what the caller implements, with its requests ([`TrackBatch`], [`EncodeBatch`], …) |
//! | [`MemorySlot`], [`PointerSlot`] | places in the network's bank, reused when frames are dropped |
//! | [`Step`], [`ShownFrame`] | what happened on a frame, and the frames that leave the hotstart buffer |
//! | [`FrameReport`] | every decision on a frame |
//! | [`LogitMask`], [`BitMask`] | masks; resizes are those of PyTorch |
//!
//! Objects that are born on the same frame form a *group*: they share their conditioning frames, on which they were given
//! as masks or clicks. An object reads the memories of at most 4 conditioning frames and of 6 others, and pointers of these
//! and of up to 15 frames.
//!
//! The hotstart, the keep-alive counters and reconditioning count *looks*: frames for which [`MaskNetwork::detect`] has detections,
//! none included. On other frames objects are tracked, and none starts, matches, is missed or removed.
//!
//! With [`MaskletOptions::multiplex`] a session follows SAM 3.1, whose groups have *buckets* of 16 places.
//! The objects of a bucket share its memories, and are tracked at once. Later objects join a group with free
//! places.
//!
//! The decisions are those of Meta's code, `sam3` 0.1.4 and SAM 3.1, which `tests/golden/masklets` records.
//! Known deviations: a click or removal that leaves a group without conditioning frames keeps one, where the
//! reference fails; memories that the reference overwrites on the same frame, or throws away, are not
//! encoded: those of masks that recondition objects, and of objects of SAM 3.1 that start when a conditioning
//! frame is passed again. In SAM 3.1 a frame on which objects were given and that is passed again has no
//! masks of objects that started later, where the reference fails; detections that start together have ids in
//! their order; and a click on an object makes its frame a conditioning frame of its whole group, as in
//! SAM 3, where the reference takes the object out and loses its memories.

mod association;
mod bank;
mod bit_mask;
mod clicks;
mod current;
mod exclusive;
mod group;
mod history;
mod holes;
mod identities;
mod logit_mask;
mod network;
mod occlusion;
mod options;
mod output;
mod prompts;
mod report;
mod requests;
mod run;
mod session;
mod slots;
#[cfg(any(test, feature = "test-support"))]
mod test_support;
mod track;
mod tracks;

pub use association::{Candidate, candidates};
pub use bit_mask::BitMask;
pub use exclusive::{ExclusiveArea, exclusive_areas, exclusive_foreground, prompted_masks};
pub use group::PointerOrigin;
pub use history::{Action, Propagation};
pub use holes::fill_holes;
pub use identities::Identity;
pub use logit_mask::LogitMask;
pub use network::{
    Click, DetectedMask, EncodeBatch, EncodeObject, MaskNetwork, MaskPrompt, MaskPromptBatch, MemoryInput,
    MemoryKind, MemorySlot, ObjectId, PointPrompt, PointerInput, PointerSlot, TrackBatch, TrackBucket,
    TrackedMask,
};
pub use options::{LifeCycle, MaskletOptions};
pub use output::{ShownFrame, ShownObject};
pub use report::{BankReport, FrameReport, ReadMemory, ReadPointer};
pub use requests::{DetectorPrompt, Retention, RunDirection, StreamObject, VideoShape};
pub use run::Step;
pub use session::MaskletSession;
