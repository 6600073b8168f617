//! Runs the `ocelli` program.

#![allow(clippy::unwrap_used, missing_docs)]

mod arguments;
mod build_engine;
mod checkpoints;
mod clicks;
mod coco;
mod demos;
mod detect;
mod devices;
#[cfg(unix)]
mod docs;
mod engines;
mod eval;
#[cfg(feature = "fonts")]
mod fonts;
#[cfg(feature = "hub")]
mod hub;
mod images;
mod label;
mod low_memory;
mod memory;
#[path = "../../tests/modules.rs"]
mod modules;
mod programs;
mod prune;
mod run;
#[cfg(all(unix, feature = "serve"))]
mod serve;
mod tiles;
mod track;
mod tracking_golden;
#[cfg(not(without_video))]
mod video;
mod video_without_library;
mod webgpu;

#[test]
fn every_file_is_a_module() {
    modules::are_complete(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), &["all.rs"]);
}
