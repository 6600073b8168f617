//! What the measuring programs share: quantiles, drawn videos, what a figure was measured on, the halves of a detector and
//! whether two ways of running them agree, weights of the released model's size, and the
//! report of a run on a GPU.

#![forbid(unsafe_code)]

pub mod agreement;
pub mod drawn_video;
pub mod gpu_report;
pub mod halves;
pub mod machine;
pub mod nvidia;
pub mod quantiles;
pub mod random_weights;
