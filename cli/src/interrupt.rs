//! Ctrl-C ends a program after the current step; finished results stay complete.

use std::fmt;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ocelli::Cancellation;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static CANCELLATIONS: Mutex<Vec<Cancellation>> = Mutex::new(Vec::new());

/// The error of a program that Ctrl-C stopped; its exit status is 130.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl From<Interrupted> for ocelli::Error {
    fn from(stop: Interrupted) -> Self {
        Self::new(ocelli::ErrorKind::Cancelled, stop.to_string())
    }
}

/// Handles Ctrl-C: the first cancels, the second ends the process.
///
/// # Errors
/// If the handler cannot be installed.
pub(crate) fn on_interrupt() -> Result<(), ocelli::Error> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        CANCELLATIONS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Cancellation::cancel);
        // A terminal shows ^C where the cursor is.
        let start = if std::io::stderr().is_terminal() { "\n" } else { "" };
        crate::output::diagnostic(&format!("{start}stopping after this step; Ctrl-C again stops at once"));
    })
    .map_err(|e| {
        ocelli::Error::new(ocelli::ErrorKind::Io, format!("cannot handle Ctrl-C: {e}")).with_source(e)
    })
}

/// A token that Ctrl-C cancels; it is cancelled already if that was pressed before.
pub fn cancel_on_interrupt() -> Cancellation {
    let cancellation = Cancellation::new();
    CANCELLATIONS.lock().unwrap_or_else(PoisonError::into_inner).push(cancellation.clone());
    if INTERRUPTED.load(Ordering::SeqCst) {
        cancellation.cancel();
    }
    cancellation
}

/// Checks between steps whether Ctrl-C was pressed.
///
/// # Errors
/// [`Interrupted`] if it was.
pub fn interrupted() -> Result<(), Interrupted> {
    if INTERRUPTED.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
}

/// Does work that may block for long, such as reading a pipe, on another thread, and waits for it until Ctrl-C is pressed.
///
/// # Errors
/// That of the work; [`ErrorKind::Cancelled`](ocelli::ErrorKind::Cancelled) after Ctrl-C: the thread ends with the process.
pub fn until_interrupted<T: Send + 'static>(
    work: impl FnOnce() -> ocelli::Result<T> + Send + 'static,
) -> ocelli::Result<T> {
    on_thread(work, Duration::ZERO)?
}

/// Does work on another thread. After Ctrl-C it has `patience` to end, and is then left to end with the program.
///
/// # Errors
/// [`Interrupted`], also if the work is done by then.
pub(crate) fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    patience: Duration,
) -> Result<T, Interrupted> {
    unless_cancelled(work, patience, &cancel_on_interrupt())
}

fn unless_cancelled<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    patience: Duration,
    interrupt: &Cancellation,
) -> Result<T, Interrupted> {
    let (end, ended) = channel();
    let stop = end.clone();
    let _hook = interrupt.on_cancel(move || drop(stop.send(None)));
    std::thread::spawn(move || end.send(Some(catch_unwind(AssertUnwindSafe(work)))));
    match ended.recv() {
        Ok(Some(done)) if !interrupt.is_cancelled() => Ok(done.unwrap_or_else(|panic| resume_unwind(panic))),
        Ok(Some(_)) => Err(Interrupted),
        _ => {
            drop(ended.recv_timeout(patience));
            Err(Interrupted)
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
        let left = unless_cancelled(move || waits.recv().is_ok(), Duration::from_millis(10), &stopped);
        assert_eq!(left, Err(Interrupted), "it waits for ever");
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(unless_cancelled(|| 7, Duration::ZERO, &running), Ok(7));
        let late = unless_cancelled(|| 7, Duration::from_secs(1), &stopped);
        assert_eq!(late, Err(Interrupted), "the result comes too late");
    }
}
