//! Tests and benchmarks share random weights of the released size, outlier channels, and a simulation of several devices. The tests
//! are in `all.rs`.

#![forbid(unsafe_code)]

pub mod devices;
pub mod outliers;
pub mod random_weights;

#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub struct EmbeddingGuide;

#[cfg(doctest)]
#[doc = include_str!("../../docs/memory.md")]
pub struct MemoryGuide;
