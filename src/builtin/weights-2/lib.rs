//! The built-in model of `ocelli`, part 2 of 2.
//!
//! A package of the registry holds at most 10 MiB, so the weights are cut in two. This crate has no code of its own.

#![no_std]
#![forbid(unsafe_code)]

/// The second half of the bytes of `model.safetensors`.
pub static BYTES: &[u8] = include_bytes!("weights.bin");
