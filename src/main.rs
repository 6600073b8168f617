//! The `ocelli` program: everything that is not a demonstration.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ocelli::cli::{self, LogArgs};

/// Open-vocabulary object detection: label pictures, export checkpoints, embed words, measure models, see what works
/// here.
///
/// To find things in pictures, use demo-image.
#[derive(Parser)]
#[command(name = "ocelli", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Turn a checkpoint into ONNX graphs, without Python
    Export(commands::export::ExportArgs),
    /// Turn an exported model into TensorRT engines, each compared with its ONNX file before it is put in place
    BuildEngine(Box<commands::build_engine::BuildEngineArgs>),
    /// Compare two exported models, or two ways to run one: the same numbers, the same detections?
    Verify(Box<commands::verify::VerifyArgs>),
    /// Write the text features of words to a file, so that detecting them needs no text encoder
    Embed(commands::embed::EmbedArgs),
    /// Make a data set of pictures: YOLO, YOLO-seg, COCO
    Label(Box<commands::label::LabelArgs>),
    /// Follow objects through a video's detections: boxes in, tracks out, without pictures
    Track(commands::track::TrackArgs),
    /// Measure a model: average precision, recall, masks, time
    Eval(commands::eval::EvalArgs),
    /// Say what works on this machine, with versions and paths, and what to install for the rest
    Doctor(commands::doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let Arguments { command, log } = cli::parse();
    cli::run(&log, || match command {
        Command::Export(args) => commands::export::run(&args, &log),
        Command::BuildEngine(args) => commands::build_engine::run(&args, &log),
        Command::Verify(args) => commands::verify::run(&args, &log),
        Command::Embed(args) => commands::embed::run(&args, &log),
        Command::Label(args) => commands::label::run(&args, &log),
        Command::Track(args) => commands::track::run(&args, &log),
        Command::Eval(args) => commands::eval::run(&args, &log),
        Command::Doctor(args) => commands::doctor::run(&args),
    })
}
