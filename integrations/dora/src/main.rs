//! `ocelli-dora`: open-vocabulary detection as a node of dora dataflows, with a source of images and a recorder.

mod detector;
mod image;
mod objects;
mod recorder;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use dora_node_api::{DoraNode, EventStream};
use tracing_subscriber::EnvFilter;

/// Open-vocabulary detection as a node of dora dataflows
///
/// Without a command it detects in the images of the input `image`. The variables OCELLI_CLASSES, OCELLI_CONFIDENCE,
/// OCELLI_ENGINE, OCELLI_FRAME_RATE, OCELLI_MASKS, OCELLI_MODEL, OCELLI_THREADS and OCELLI_TRACK of its `env` are its
/// parameters: docs/robots.md.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Send the frames of a source as the output `image`, at their pace
    Source(source::SourceArgs),
    /// Write the results of the input `objects`
    Record {
        /// JSON lines, as `ocelli video --jsonl` writes them, or a recording for ROS 2's tools: FILE.mcap
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("ocelli=info,ocelli_dora=info"));
    // dora has the time and the node of each line.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .without_time()
        .with_writer(std::io::stderr)
        .init();
    let result = match &arguments.command {
        None => detector::run(),
        Some(Command::Source(arguments)) => source::run(arguments),
        Some(Command::Record { file }) => recorder::run(file),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Takes part in the dataflow that has started this program.
fn join() -> anyhow::Result<(DoraNode, EventStream)> {
    DoraNode::init_from_env_force().context("no dataflow has started this program: see `dora run`")
}

/// Leaves the dataflow once its last message has arrived. Messages go from node to node, while dora's daemon announces the end of
/// a node; the announcement can overtake the message, and nothing is read after it. The next node may be busy with the message
/// before the last one, and with one that waits already.
fn leave(node: DoraNode) {
    std::thread::sleep(Duration::from_secs(1));
    drop(node);
}
