//! The `ocelli` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{LogArgs, commands, parse, run};

/// Open-vocabulary object detection: find what you name in images and videos, label data sets, export checkpoints,
/// measure models.
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
    /// Find what you name in images, and draw a box around each instance
    #[command(visible_alias = "predict", arg_required_else_help = true, after_help = commands::detect::AFTER_HELP)]
    #[command(override_usage = "ocelli detect --image <FILE|DIR|GLOB>... --classes <PHRASE>... [OPTIONS]")]
    Detect(Box<commands::detect::DetectArgs>),
    /// Find what you name in videos, track it, and draw it
    #[command(arg_required_else_help = true, after_help = commands::video::AFTER_HELP)]
    #[command(override_usage = "ocelli video [--video <VIDEO>] --classes <PHRASE>... [OPTIONS]")]
    Video(Box<commands::video::VideoArgs>),
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

/// Runs the `ocelli` program with the arguments of this process.
pub fn main() -> ExitCode {
    quiet_decoder();
    let Arguments { command, log } = parse();
    run(&log, || match command {
        Command::Detect(args) => commands::detect::run(&args, &log),
        Command::Video(args) => commands::video::run(&args, &log),
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

/// Silences FFmpeg inside OpenCV, whose messages would appear on stderr between ours: what a decoder has to say comes as
/// errors. Call it first in `main`.
#[allow(unsafe_code, reason = "OpenCV takes this from the environment alone")]
pub fn quiet_decoder() {
    const LEVEL: &str = "OPENCV_FFMPEG_LOGLEVEL";
    if std::env::var_os(LEVEL).is_none() {
        // SAFETY: called at the start of `main`, before any thread that could read the environment exists.
        unsafe { std::env::set_var(LEVEL, "-8") };
    }
}
