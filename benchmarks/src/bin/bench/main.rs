//! `bench`: measurements of detection, the pipeline, the trackers, engines and number formats.

#![forbid(unsafe_code)]

mod checkpoint;
mod dart;
mod detect;
mod devices;
mod engine;
mod halves;
mod lines;
mod memory;
mod precision;
mod report;
mod tiles;
mod track;
mod video;

use std::process::ExitCode;

use clap::Parser;
use ocelli_cli as cli;

/// Measures ocelli and writes JSON lines.
#[derive(Parser)]
#[command(name = "bench", version)]
enum Bench {
    Detect(detect::Arguments),
    Devices(devices::Arguments),
    Video(video::Arguments),
    Track(track::Arguments),
    Engine(engine::Arguments),
    Halves(halves::Arguments),
    Memory(memory::Arguments),
    Precision(precision::Arguments),
    Dart(dart::Arguments),
    Checkpoint(checkpoint::Arguments),
    Tiles(tiles::Arguments),
    Report(report::Arguments),
}

fn main() -> ExitCode {
    let status = match cli::parse() {
        Bench::Detect(args) => cli::run(&args.log, || detect::run(&args)),
        Bench::Devices(args) => cli::run(&args.log, || devices::run(&args)),
        Bench::Video(args) => cli::run(&args.log, || video::run(&args)),
        Bench::Track(args) => cli::run(&args.log, || track::run(&args)),
        Bench::Engine(args) => cli::run(&args.log, || engine::run(&args)),
        Bench::Halves(args) => cli::run(&args.log, || halves::run(&args)),
        Bench::Memory(args) => cli::run(&args.log, || memory::run(&args)),
        Bench::Precision(args) => cli::run(&args.log, || precision::run(&args)),
        Bench::Dart(args) => cli::run(&args.log, || dart::run(&args)),
        Bench::Checkpoint(args) => cli::run(&args.log, || checkpoint::run(&args)),
        Bench::Tiles(args) => cli::run(&args.log, || tiles::run(&args)),
        Bench::Report(args) => cli::run(&args.log, || report::run(&args)),
    };
    status.into()
}
