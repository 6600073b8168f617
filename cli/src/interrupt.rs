//! Ctrl-C ends a program after the current step; finished results stay complete.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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

/// Cancels `cancellation` on Ctrl-C, or now if it was pressed before.
pub fn cancel_on_interrupt(cancellation: &Cancellation) {
    CANCELLATIONS.lock().unwrap_or_else(PoisonError::into_inner).push(cancellation.clone());
    if INTERRUPTED.load(Ordering::SeqCst) {
        cancellation.cancel();
    }
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
    let thread = std::thread::spawn(work);
    while !thread.is_finished() {
        interrupted().map_err(|stop| ocelli::Error::new(ocelli::ErrorKind::Cancelled, stop.to_string()))?;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
