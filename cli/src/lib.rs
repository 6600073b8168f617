//! The `ocelli` program, and what its programs share: arguments, progress, logging, exit statuses.
//!
//! [`main`] is the whole program. `demo-image` and `demo-video` run [`commands::detect`] and [`commands::video`] through
//! [`run`], which turns an error into one line on stderr and an exit status.

#![deny(unsafe_code)]

mod args;
mod classes;
mod coco;
pub mod commands;
mod exemplar;
mod files;
mod interrupt;
mod logging;
mod program;
mod progress;
pub mod report;
pub mod tensorrt;
mod tracker;
mod usage;
mod verification;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub use args::{DetectorArgs, ModelArgs};
pub use classes::class_names;
pub use files::{ImageFiles, expand_images};
pub use interrupt::{Interrupted, cancel_on_interrupt, interrupted, on_interrupt};
pub use logging::LogArgs;
pub use program::{main, quiet_decoder};
pub use progress::Progress;
pub use tracker::{ClassMatching, TrackerArgs};
pub use usage::parse;
pub use verification::VerificationArgs;

use ocelli::{Error, ErrorKind, Result};

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

fn fail(error: &anyhow::Error) -> ExitCode {
    let cancelled = |e: &Error| e.kind() == ErrorKind::Cancelled && interrupted().is_err();
    if error.is::<Interrupted>() || error.downcast_ref::<Error>().is_some_and(cancelled) {
        return ExitCode::from(130);
    }
    tell(&format!("error: {}", one_line(&error.to_string())));
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

/// A line on stderr. A terminal that is gone cannot be told; the exit status still says how it ended.
fn tell(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// An error of usage: exit status 2.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Error::new(ErrorKind::InvalidArgument, message).into()
}

/// Puts the flag that an error is about in front of its message.
pub fn with_flag(flag: &str) -> impl Fn(Error) -> Error + '_ {
    move |error| Error::new(error.kind(), format!("{flag}, {error}"))
}

/// Replaces the library's parameter names in an error of usage by the flags that set them.
pub fn with_flags(error: Error, flags: &[(&str, &str)]) -> Error {
    if error.kind() != ErrorKind::InvalidArgument {
        return error;
    }
    let message = flags.iter().fold(error.to_string(), |text, (name, flag)| text.replace(name, flag));
    Error::new(error.kind(), message)
}

/// Writes to stdout what a program found. A closed pipe is an error like any other.
///
/// # Errors
/// Where stdout cannot be written.
pub fn print(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|e| anyhow::anyhow!("cannot write the result, stdout: {e}"))
}

/// Tells the person at the terminal something on stderr, unless `--quiet`.
pub fn say(log: &LogArgs, line: &str) {
    if !log.quiet {
        tell(line);
    }
}

/// Finds out before the work begins what would make writing its result fail: a folder in the file's place, or none for
/// it to be in. `flag` is the argument that names the file.
///
/// # Errors
/// [`ErrorKind::Io`], naming the flag and the path.
pub fn check_output_file(flag: &str, path: &Path) -> Result<()> {
    let refuse = |why: String| Err(Error::new(ErrorKind::Io, format!("{flag}, {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a folder; name a file".into());
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            refuse(format!("the folder {} does not exist; create it first", folder.display()))
        }
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            refuse(format!("{} is no folder", folder.display()))
        }
        _ => Ok(()),
    }
}
