//! `demo-image`: `ocelli detect` under the name of the paper's demonstration.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use ocelli_cli::commands::detect::{AFTER_HELP, DetectArgs, run};
use ocelli_cli::{self as cli, LogArgs};

/// Finds what you name in images, and draws a box around each instance.
#[derive(Parser)]
#[command(name = "demo-image", version, arg_required_else_help = true, after_help = AFTER_HELP.replace("ocelli detect", "demo-image"))]
#[command(override_usage = "demo-image --image <FILE|DIR|GLOB>... --classes <PHRASE>... [OPTIONS]")]
struct Arguments {
    #[command(flatten)]
    args: DetectArgs,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let Arguments { args, log } = cli::parse();
    cli::run(&log, || run(&args, &log))
}
