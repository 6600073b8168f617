//! Looks for instances in images and frames, on one device or several, and records what is found.

mod job;
mod low_memory;
mod prefetch;
mod prompts;
mod refine;
mod turns;

#[cfg(test)]
pub(in crate::label) use job::SearchedImage;
pub use job::{LabelEvent, LabelJob, OnEvent};
pub use low_memory::SPILL_BYTES;
