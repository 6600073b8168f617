//! Tests that cross crates; see `all.rs`.
