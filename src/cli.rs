//! What the programs share: arguments, progress, the way an error ends.
//!
//! Only with the feature `cli`.

mod args;
mod files;
mod interrupt;
mod progress;

use std::process::ExitCode;

pub use args::{DetectorArgs, LogArgs};
pub use files::{ImageFiles, expand_images};
pub use interrupt::{Interrupted, interrupted, on_interrupt};
pub use progress::Progress;

use crate::error::{Error, ErrorKind};

/// Runs a program: sets up logging and Ctrl-C, and turns an error into one line on stderr and an exit status:
/// 0 on success, 1 on a failure, 2 on wrong usage, 130 after Ctrl-C.
pub fn run(log: &LogArgs, program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    log.start();
    if let Err(e) = on_interrupt() {
        return fail(&e.into());
    }
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

#[allow(clippy::print_stderr, reason = "this is where programs report errors")]
fn fail(error: &anyhow::Error) -> ExitCode {
    if error.is::<Interrupted>() {
        return ExitCode::from(130);
    }
    let line = one_line(&format!("{error}"));
    // A terminal that is gone cannot be told; the exit status still says it.
    drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {line}\n")));
    let usage = error.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::InvalidArgument);
    let usage = usage
        || error
            .downcast_ref::<ocelli_export::Error>()
            .is_some_and(|e| e.kind() == ocelli_export::ErrorKind::InvalidArgument);
    ExitCode::from(if usage { 2 } else { 1 })
}

/// Line ends inside a message become spaces: an error is one line.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// An error of usage: exit status 2.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Error::new(ErrorKind::InvalidArgument, message).into()
}

/// Writes to stdout what a program found. A closed pipe is an error like any other.
///
/// # Errors
/// Where stdout cannot be written.
pub fn print(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    write(&mut out)
        .and_then(|()| std::io::Write::flush(&mut out))
        .map_err(|e| anyhow::anyhow!("cannot write the result, stdout: {e}"))
}

/// Tells the person at the terminal something on stderr, unless `--quiet`.
pub fn say(log: &LogArgs, line: &str) {
    if !log.quiet {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n")));
    }
}
