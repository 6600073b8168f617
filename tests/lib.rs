//! Tests that cross crates; see `all.rs`.

#[cfg(doctest)]
#[doc = include_str!("../docs/embedding.md")]
pub struct EmbeddingGuide;

#[cfg(doctest)]
#[doc = include_str!("../docs/memory.md")]
pub struct MemoryGuide;
