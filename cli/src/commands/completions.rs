//! `ocelli completions`.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{print, usage};

/// Arguments of `ocelli completions`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/completions.txt"))]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// The program to complete
    #[arg(long, default_value = "ocelli", value_parser = ["ocelli", "demo-image", "demo-video"], value_name = "NAME")]
    program: String,
}

/// Prints the script for one of `programs`.
pub fn run(args: &CompletionsArgs, programs: impl IntoIterator<Item = Command>) -> anyhow::Result<()> {
    let CompletionsArgs { shell, program: name } = args;
    let command = programs.into_iter().find(|program| program.get_name() == name);
    let mut command = command.ok_or_else(|| usage(format!("--program is {name}: no such program")))?;
    print(|out| {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut command, name, &mut script);
        out.write_all(&script)
    })
}
