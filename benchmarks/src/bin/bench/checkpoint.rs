//! `bench checkpoint`: a checkpoint of the released model's size, for measurements.

use std::path::PathBuf;

use anyhow::Context;
use ocelli_cli::{self as cli, LogArgs, print};
use ocelli_tests::random_weights;

/// Writes a checkpoint of facebook/sam3's size and layout with random weights: 840 million parameters, 3.4 GB.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder to write, created if missing
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// The tokenizer.json to copy: CLIP's, or another of at most 49408 tokens
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
    /// Layers of each transformer [default: all]
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    #[command(flatten)]
    pub log: LogArgs,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.output)
        .with_context(|| format!("cannot create the folder, {}", args.output.display()))?;
    std::fs::copy(&args.tokenizer, args.output.join("tokenizer.json"))
        .with_context(|| format!("cannot copy the tokenizer, {}", args.tokenizer.display()))?;
    let parameters = match args.layers {
        Some(0) => return Err(cli::usage("--layers is 0: expected at least 1")),
        Some(layers) => random_weights::write_shallow(&args.output, layers)?,
        None => random_weights::write(&args.output)?,
    };
    let folder = args.output.display();
    print(|out| writeln!(out, "{:.1} million parameters in {folder}", parameters as f64 / 1e6))
}
