//! `bench-report`: the report of a run on a GPU.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ocelli::atomic_file::write_atomically;
use ocelli_benchmarks::gpu_report::Run;
use ocelli_cli::{self as cli, LogArgs, print};

/// Writes the measurements of a run on a GPU and its targets as Markdown.
#[derive(Parser)]
#[command(name = "bench-report", version)]
struct Arguments {
    /// Folder of the run, as written by `benchmarks/gpu.sh`: plan.json and JSON lines
    run: PathBuf,
    /// File to write [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let args: Arguments = cli::parse();
    cli::run::<Arguments>(&args.log, || {
        let report = Run::read(&args.run)?.report();
        match &args.output {
            Some(path) => Ok(write_atomically(path, |file| file.write_all(report.as_bytes()))?),
            None => print(|out| out.write_all(report.as_bytes())),
        }
    })
}
