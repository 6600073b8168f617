//! Ctrl-C ends a program after the current step; finished results stay complete.

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use ocelli::{Cancellation, Error, ErrorKind, Result, locked};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static CANCELLATIONS: Mutex<Vec<Cancellation>> = Mutex::new(Vec::new());

/// Handles Ctrl-C: the first cancels, the second ends the process.
///
/// # Errors
/// If the handler cannot be installed.
pub(crate) fn on_interrupt() -> Result<()> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        locked(&CANCELLATIONS).iter().for_each(Cancellation::cancel);
        // A terminal shows ^C where the cursor is.
        let start = if std::io::stderr().is_terminal() { "\n" } else { "" };
        crate::output::diagnostic(&format!("{start}stopping after this step; Ctrl-C again stops at once"));
    })
    .map_err(|e| Error::new(ErrorKind::Io, format!("cannot handle Ctrl-C: {e}")).with_source(e))
}

/// A token that Ctrl-C cancels; it is cancelled already if that was pressed before.
pub fn cancel_on_interrupt() -> Cancellation {
    let cancellation = Cancellation::new();
    locked(&CANCELLATIONS).push(cancellation.clone());
    if INTERRUPTED.load(Ordering::SeqCst) {
        cancellation.cancel();
    }
    cancellation
}

/// Checks between steps whether Ctrl-C was pressed.
///
/// # Errors
/// [`ErrorKind::Cancelled`] if it was.
pub fn interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) { Err(stopped()) } else { Ok(()) }
}

/// The error of a program that Ctrl-C stopped; its exit status is 130.
fn stopped() -> Error {
    Error::cancelled("interrupted")
}

/// The result of work that Ctrl-C ends early.
///
/// # Errors
/// [`ErrorKind::Cancelled`] after Ctrl-C, however the work has ended; else that of the work.
pub(crate) fn unless_interrupted<T, E: Into<anyhow::Error>>(
    done: std::result::Result<T, E>,
) -> anyhow::Result<T> {
    interrupted()?;
    done.map_err(Into::into)
}

/// Does work that may block for long, such as reading a pipe, on another thread, and waits for it until Ctrl-C is pressed.
///
/// # Errors
/// That of the work; [`ErrorKind::Cancelled`] after Ctrl-C: the thread ends with the process.
pub fn until_interrupted<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    on_thread(work, Duration::ZERO)?
}

/// Does work on another thread. After Ctrl-C it has `patience` to end, and is then left to end with the program.
///
/// # Errors
/// [`ErrorKind::Cancelled`], also if the work is done by then.
pub(crate) fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    patience: Duration,
) -> Result<T> {
    unless_cancelled(work, patience, &cancel_on_interrupt())
}

fn unless_cancelled<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    patience: Duration,
    interrupt: &Cancellation,
) -> Result<T> {
    let (end, ended) = channel();
    let stop = end.clone();
    let _hook = interrupt.on_cancel(move || drop(stop.send(None)));
    std::thread::spawn(move || end.send(Some(catch_unwind(AssertUnwindSafe(work)))));
    match ended.recv() {
        Ok(Some(done)) if !interrupt.is_cancelled() => Ok(done.unwrap_or_else(|panic| resume_unwind(panic))),
        Ok(Some(_)) => Err(stopped()),
        _ => {
            drop(ended.recv_timeout(patience));
            Err(stopped())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_takes_long_is_left_behind() {
        let (running, stopped) = (Cancellation::new(), Cancellation::new());
        let began = Instant::now();
        let (_never, waits) = channel::<()>();
        stopped.cancel();
        let kind = |end: Result<_>| end.map_err(|error| error.kind());
        let left = unless_cancelled(move || waits.recv().is_ok(), Duration::from_millis(10), &stopped);
        assert_eq!(left.map_err(|error| error.kind()), Err(ErrorKind::Cancelled), "it waits for ever");
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(kind(unless_cancelled(|| 7, Duration::ZERO, &running)), Ok(7));
        let late = unless_cancelled(|| 7, Duration::from_secs(1), &stopped);
        assert_eq!(kind(late), Err(ErrorKind::Cancelled), "the result comes too late");
    }
}
