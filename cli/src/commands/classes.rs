//! `ocelli classes`.

use clap::Args;
use ocelli::builtin::vocabulary;

use crate::print;

/// Arguments of `ocelli classes`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/classes.txt"))]
pub struct ClassesArgs {}

/// Prints the names that the built-in model knows, one per line, as `--classes FILE` reads them.
pub fn run(_: &ClassesArgs) -> anyhow::Result<()> {
    print(|out| vocabulary().iter().try_for_each(|name| writeln!(out, "{name}")))
}
