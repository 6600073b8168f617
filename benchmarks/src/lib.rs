//! What the measuring programs share: quantiles, drawn videos, and what a figure was measured on.

#![forbid(unsafe_code)]

pub mod drawn_video;
pub mod machine;
pub mod quantiles;
