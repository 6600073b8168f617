//! `ocelli completions`.

use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::print;
use crate::program::{DemoImage, DemoVideo, Ocelli};

/// Arguments of `ocelli completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ocelli completions bash > ~/.local/share/bash-completion/completions/ocelli
  ocelli completions zsh > ~/.zfunc/_ocelli
  ocelli completions fish > ~/.config/fish/completions/ocelli.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// The program to complete
    #[arg(long, value_enum, default_value = "ocelli", value_name = "NAME")]
    program: Program,
}

/// A program that `make install` installs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Program {
    Ocelli,
    DemoImage,
    DemoVideo,
}

impl Program {
    /// Its name, arguments and subcommands.
    pub fn command(self) -> Command {
        match self {
            Self::Ocelli => Ocelli::command(),
            Self::DemoImage => DemoImage::command(),
            Self::DemoVideo => DemoVideo::command(),
        }
    }
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut command = args.program.command();
    let name = command.get_name().to_owned();
    print(|out| {
        let mut script = Vec::new();
        clap_complete::generate(args.shell, &mut command, name, &mut script);
        out.write_all(&script)
    })
}
