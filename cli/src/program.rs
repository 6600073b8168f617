//! The programs: `ocelli` with its commands, `demo-image` and `demo-video` with one each.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[cfg(feature = "serve")]
use crate::commands::serve;
use crate::commands::{
    build_engine, cache, classes, coco, completions, detect, doctor, embed, eval, export, label, man, models,
    prune, reference, track, verify, video,
};
use crate::given;
use crate::{LogArgs, parse, run};

/// Open-vocabulary object detection: find what you name in images and videos.
#[derive(Parser)]
#[command(name = "ocelli", version, arg_required_else_help = true, after_help = AFTER_HELP)]
#[command(subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
pub struct Ocelli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

const AFTER_HELP: &str = include_str!("help/program.txt");

#[derive(Subcommand)]
enum Command {
    /// Detect objects in images
    #[command(visible_alias = "predict", arg_required_else_help = true, after_help = detect::AFTER_HELP)]
    #[command(override_usage = "ocelli detect --image <PATH>... --classes <PHRASE>... [OPTIONS]")]
    Detect(Box<detect::DetectArgs>),
    /// Detect and track objects in videos, cameras and streams
    #[command(arg_required_else_help = true, after_help = video::AFTER_HELP)]
    #[command(override_usage = "ocelli video [--video <SOURCE>] --classes <PHRASE>... [OPTIONS]")]
    Video(Box<video::VideoArgs>),
    /// Serve a page, a REST API and a backend for Label Studio
    #[cfg(feature = "serve")]
    #[command(after_help = serve::AFTER_HELP)]
    Serve(Box<serve::ServeArgs>),
    /// Label images: write a YOLO, COCO or Pascal VOC data set
    Label(Box<label::LabelArgs>),
    /// Evaluate a model: average precision, recall, masks, time
    Eval(Box<eval::EvalArgs>),
    /// COCO's eighty classes in one command: evaluate, or detect in a video
    #[command(arg_required_else_help = true)]
    Coco(Box<coco::CocoArgs>),
    /// Track detections from a file, without images
    Track(track::TrackArgs),
    /// Export a checkpoint to ONNX
    Export(export::ExportArgs),
    /// Build TensorRT engines from an exported model
    BuildEngine(Box<build_engine::BuildEngineArgs>),
    /// Compare two exported models, or one model on two engines
    Verify(Box<verify::VerifyArgs>),
    /// Find the blocks of the backbone that matter least
    Prune(Box<prune::PruneArgs>),
    /// List the names that the built-in model knows
    #[command(after_help = include_str!("help/classes.txt"))]
    Classes,
    /// Encode text prompts into a file, so that detection needs no text encoder
    Embed(embed::EmbedArgs),
    /// Check which engines and libraries work on this machine
    Doctor(doctor::DoctorArgs),
    /// List the models that can be named, or remove downloaded ones
    Models(models::ModelsArgs),
    /// Download models ahead of their first use
    Pull(models::PullArgs),
    /// List what the cache keeps, or remove some of it
    Cache(cache::CacheArgs),
    /// Print the completion script of a shell
    Completions(completions::CompletionsArgs),
    /// Write man pages
    #[command(hide = true)]
    Man(man::ManArgs),
    /// Print docs/reference.md
    #[command(hide = true)]
    Reference,
}

/// Detect objects in images: `ocelli detect` as a program.
#[derive(Parser)]
#[command(name = "demo-image", version, arg_required_else_help = true)]
#[command(after_help = detect::AFTER_HELP.replace("ocelli detect", "demo-image"))]
#[command(override_usage = "demo-image --image <PATH>... --classes <PHRASE>... [OPTIONS]")]
pub struct DemoImage {
    #[command(flatten)]
    args: detect::DetectArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Detect and track objects in videos, cameras and streams: `ocelli video` as a program.
#[derive(Parser)]
#[command(name = "demo-video", version, arg_required_else_help = true)]
#[command(after_help = video::AFTER_HELP.replace("ocelli video", "demo-video"))]
#[command(override_usage = "demo-video [--video <SOURCE>] --classes <PHRASE>... [OPTIONS]")]
pub struct DemoVideo {
    #[command(flatten)]
    args: video::VideoArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `ocelli`.
    Ocelli,
    /// `demo-image`.
    DemoImage,
    /// `demo-video`.
    DemoVideo,
}

impl Program {
    /// The program by whose name this process was started: the others are links to `ocelli`.
    pub fn called() -> Self {
        let path = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&path).file_stem().and_then(OsStr::to_str);
        name.and_then(Self::named).unwrap_or(Self::Ocelli)
    }

    /// The program with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ocelli" => Some(Self::Ocelli),
            "demo-image" => Some(Self::DemoImage),
            "demo-video" => Some(Self::DemoVideo),
            _ => None,
        }
    }

    /// Runs the program inside another one with these arguments, the program's name first, and returns its exit status: 0 on success, 1 on a failure, 2 on wrong usage, 130
    /// after Ctrl-C, whose handler it replaces. Wrong usage, `--help` and a second Ctrl-C end the process.
    pub fn run_in(self, arguments: Vec<OsString>) -> u8 {
        given::set(arguments);
        self.status()
    }

    /// Runs the program with the arguments of this process.
    pub fn main(self) -> ExitCode {
        self.status().into()
    }

    fn status(self) -> u8 {
        match self {
            Self::Ocelli => ocelli(),
            Self::DemoImage => {
                let DemoImage { args, log } = parse();
                run(&log, || detect::run(&args))
            }
            Self::DemoVideo => {
                let DemoVideo { args, log } = parse();
                run(&log, || video::run(&args))
            }
        }
    }
}

fn ocelli() -> u8 {
    let Ocelli { command, log } = parse();
    run(&log, || match command {
        Command::Detect(args) => detect::run(&args),
        Command::Video(args) => video::run(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        Command::Label(args) => label::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Coco(args) => coco::run(&args),
        Command::Track(args) => track::run(&args),
        Command::Export(args) => export::run(&args),
        Command::BuildEngine(args) => build_engine::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Prune(args) => prune::run(&args),
        Command::Classes => classes::run(),
        Command::Embed(args) => embed::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Pull(args) => models::pull(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Completions(args) => completions::run(&args, programs()),
        Command::Man(args) => man::run(&args, programs()),
        Command::Reference => reference::run(Ocelli::command()),
    })
}

/// The programs that `make install` installs.
fn programs() -> [clap::Command; 3] {
    [Ocelli::command(), DemoImage::command(), DemoVideo::command()]
}
