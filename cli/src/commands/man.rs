//! `ocelli man`, for packagers.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};

/// Arguments of `ocelli man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The folder to write the pages to; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes a page for each program and each command: `ocelli-detect.1`.
pub fn run(args: &ManArgs, programs: impl IntoIterator<Item = Command>) -> anyhow::Result<()> {
    let failed = || format!("cannot write man pages, {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(failed)?;
    for program in programs {
        clap_mangen::generate_to(program, &args.folder).with_context(failed)?;
    }
    Ok(())
}
