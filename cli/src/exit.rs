//! Scripts see from the exit status how a program ended: 0 on success, 1 on a failure, 2 on wrong usage, 130 after Ctrl-C, 141 if
//! the reader of its output has ended.

use ocelli::{Error, ErrorKind};

use crate::interrupt::{interrupted, on_interrupt};
use crate::output::{diagnostic, one_line};
use crate::{LogArgs, flags, given};

/// Runs a program that has parsed its arguments: sets up logging and Ctrl-C, and turns an error into one line on stderr and an
/// exit status. The parameter that the error is about is spelled as its flag.
pub fn run(log: &LogArgs, program: impl FnOnce() -> anyhow::Result<()>) -> u8 {
    log.start();
    ocelli::engines::report_file_limits();
    let end = on_interrupt().map_err(anyhow::Error::from).and_then(|()| program());
    let Err(error) = end else { return 0 };
    if is_closed_pipe(&error) {
        return CLOSED_PIPE;
    }
    let is_cancelled = |e: &Error| e.kind() == ErrorKind::Cancelled;
    if interrupted().is_err() && ours(&error).is_some_and(is_cancelled) {
        return 130;
    }
    let parameter = ours(&error).and_then(Error::parameter);
    let message = given::program().map_or_else(
        || text(&error),
        |program| flags::with_flag(&text(&error), parameter, program, flags::running(program)),
    );
    diagnostic(&format!("error: {message}"));
    let is_usage = ours(&error).is_some_and(|error| error.kind() == ErrorKind::InvalidArgument);
    if is_usage { 2 } else { 1 }
}

/// The exit status of a program that writes into a pipe whose reader has ended, as shells report it (128 + SIGPIPE).
const CLOSED_PIPE: u8 = 141;

/// `true` if the program that read our output has ended: `| head -1` is not an error worth a message.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

fn ours(error: &anyhow::Error) -> Option<&Error> {
    error.downcast_ref()
}

/// The error in one line. Errors of the libraries contain the text of their cause; of others it follows.
fn text(error: &anyhow::Error) -> String {
    one_line(&if ours(error).is_some() { error.to_string() } else { format!("{error:#}") })
}

/// Returns a [`usage`] error from the function, whose errors are those of `anyhow` or of the library.
macro_rules! refuse {
    ($($message:tt)+) => {
        return Err(ocelli::Error::new(ocelli::ErrorKind::InvalidArgument, format!($($message)+)).into())
    };
}

/// An error of usage: exit status 2.
pub fn usage(message: impl AsRef<str>) -> anyhow::Error {
    Error::invalid_argument(message).into()
}
