//! Masklets.

mod association;
mod bank;
mod bit_mask;
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
mod run;
mod session;
mod slots;
mod track;
mod tracks;

pub use association::{Candidate, suppress};
pub use bit_mask::BitMask;
pub use exclusive::{ExclusiveArea, exclusive_areas, exclusive_foreground};
pub use group::PointerOrigin;
pub use history::{Action, Propagation};
pub use holes::fill_holes;
pub use logit_mask::LogitMask;
pub use network::{
    Click, Detection, EncodeBatch, EncodeObject, MaskNetwork, MaskPrompt, MaskPromptBatch, MemoryInput,
    MemoryKind, MemorySlot, ObjectId, PointPrompt, PointerInput, PointerSlot, TrackBatch, TrackObject,
    TrackedMask,
};
pub use options::MaskletOptions;
pub use output::{ShownFrame, ShownObject};
pub use report::{BankReport, FrameReport, ReadMemory, ReadPointer};
pub use run::Step;
pub use session::{DetectorPrompt, MaskletSession, Retention, RunDirection, VideoShape};
