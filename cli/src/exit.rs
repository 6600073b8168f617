//! How a program ends: 0 on success, 1 on a failure, 2 on wrong usage, 130 after Ctrl-C.

use std::process::ExitCode;

use clap::CommandFactory;
use ocelli::{Error, ErrorKind};

use crate::interrupt::{Interrupted, interrupted, on_interrupt};
use crate::output::{diagnostic, one_line};
use crate::{LogArgs, flags};

/// Runs a program whose arguments are `Arguments`: sets up logging and Ctrl-C, and turns an error into one line on
/// stderr and an exit status. Parameters that the error names get the spelling of their flag.
pub fn run<Arguments: CommandFactory>(
    log: &LogArgs,
    program: impl FnOnce() -> anyhow::Result<()>,
) -> ExitCode {
    ExitCode::from(status_of::<Arguments>(log, program))
}

/// As [`run`], with the exit status as a number.
pub(crate) fn status_of<Arguments: CommandFactory>(
    log: &LogArgs,
    program: impl FnOnce() -> anyhow::Result<()>,
) -> u8 {
    log.start();
    let end = on_interrupt().map_err(anyhow::Error::from).and_then(|()| program());
    let Err(error) = end else { return 0 };
    if is_closed_pipe(&error) {
        return CLOSED_PIPE;
    }
    let cancelled = |e: &Error| e.kind() == ErrorKind::Cancelled && interrupted().is_err();
    if error.is::<Interrupted>() || error.downcast_ref().is_some_and(cancelled) {
        return 130;
    }
    let cause = Cause::of(&error);
    let message = flags::with_flags(&text(&error), cause, &flags::running(Arguments::command()));
    diagnostic(&format!("error: {message}"));
    if cause == Cause::Usage { 2 } else { 1 }
}

/// The exit status of a program that writes into a pipe whose reader has ended, as shells report it (128 + SIGPIPE).
const CLOSED_PIPE: u8 = 141;

/// Whether the program that read our output has ended: `| head -1` is not an error worth a message.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// The error in one line. Errors of the libraries contain the text of their cause; of others it follows.
fn text(error: &anyhow::Error) -> String {
    let is_ours = error.is::<Error>();
    one_line(&if is_ours { error.to_string() } else { format!("{error:#}") })
}

/// An error of usage: exit status 2.
pub fn usage(message: impl AsRef<str>) -> anyhow::Error {
    Error::new(ErrorKind::InvalidArgument, message).into()
}

/// What an error is about, as far as a program reacts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An argument is invalid.
    Usage,
    /// An argument does not fit the model or the machine.
    Fit,
    /// Anything else.
    Other,
}

impl Cause {
    fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref().map(Error::kind) {
            Some(ErrorKind::InvalidArgument) => Self::Usage,
            Some(ErrorKind::Mismatch | ErrorKind::Unavailable) => Self::Fit,
            _ => Self::Other,
        }
    }
}
