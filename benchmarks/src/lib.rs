//! What the measuring programs share: quantiles, drawn videos, number formats, and what a figure was
//! measured on.

#![forbid(unsafe_code)]

pub mod bisect;
pub mod drawn_video;
pub mod machine;
pub mod precision;
pub mod quantiles;
