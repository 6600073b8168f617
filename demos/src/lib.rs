//! What the demonstration programs are made of, besides the `ocelli` library.

#![forbid(unsafe_code)]

pub mod coco;
pub mod exemplar;
pub mod outputs;
pub mod semantic;
pub mod sheet;
pub mod video;
