//! Runs the `ocelli` program.

#![allow(clippy::unwrap_used, missing_docs)]

mod arguments;
mod build_engine;
mod checkpoints;
mod clicks;
mod coco;
mod devices;
#[cfg(unix)]
mod docs;
mod engines;
mod eval;
#[cfg(feature = "fonts")]
mod fonts;
mod images;
mod interactive;
mod label;
mod low_memory;
mod memory;
mod programs;
mod prune;
mod run;
#[cfg(all(unix, feature = "serve"))]
mod serve;
mod tiles;
mod track;
mod tracking_golden;
mod webgpu;
