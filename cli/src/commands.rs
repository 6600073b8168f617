//! The commands of the `ocelli` program.

pub mod build_engine;
pub mod cache;
pub mod classes;
pub mod coco;
pub mod completions;
pub mod detect;
pub mod doctor;
pub mod embed;
pub mod eval;
pub mod export;
pub mod label;
pub mod man;
pub mod models;
pub mod prune;
pub mod reference;
#[cfg(feature = "serve")]
pub mod serve;
pub mod track;
pub mod verify;
pub mod video;
