//! What the demonstration programs are made of, besides the `ocelli` library.

#![forbid(unsafe_code)]

pub mod exemplar;
pub mod outputs;
pub mod semantic;
pub mod sheet;
