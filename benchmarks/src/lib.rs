//! What the measuring programs share: quantiles, and what a figure was measured on.

#![forbid(unsafe_code)]

pub mod machine;
pub mod quantiles;
