//! `bench report`: the report of a run on a GPU.

use std::io::Write;
use std::path::PathBuf;

use ocelli::atomic_file::write_atomically;
use ocelli_benchmarks::gpu_report::Run;
use ocelli_cli::{LogArgs, print};

/// Writes the measurements of a run on a GPU and its targets as Markdown.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder of the run, as written by `benchmarks/gpu.sh`: plan.json and JSON lines
    run: PathBuf,
    /// File to write [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    let report = Run::read(&args.run)?.report();
    match &args.output {
        Some(path) => Ok(write_atomically(path, |file| file.write_all(report.as_bytes()))?),
        None => print(|out| out.write_all(report.as_bytes())),
    }
}
