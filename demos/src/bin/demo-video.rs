//! `demo-video`: `ocelli video` under the name of the paper's demonstration.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use ocelli_cli::commands::video::{AFTER_HELP, VideoArgs, run};
use ocelli_cli::{self as cli, LogArgs};

/// Finds what you name in videos, tracks it, and draws it.
#[derive(Parser)]
#[command(name = "demo-video", version, arg_required_else_help = true, after_help = AFTER_HELP.replace("ocelli video", "demo-video"))]
#[command(override_usage = "demo-video [--video <VIDEO>] --classes <PHRASE>... [OPTIONS]")]
struct Arguments {
    #[command(flatten)]
    args: VideoArgs,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    cli::quiet_decoder();
    let Arguments { args, log } = cli::parse();
    cli::run(&log, || run(&args, &log))
}
