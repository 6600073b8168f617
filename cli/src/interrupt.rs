//! Ctrl-C: what is under way is finished, what was finished stays whole.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ocelli::Cancellation;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static CANCELLATIONS: Mutex<Vec<Cancellation>> = Mutex::new(Vec::new());

/// The error of a program that stopped because of Ctrl-C; it ends with exit status 130.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// From now on Ctrl-C asks for an end, and a second Ctrl-C ends at once.
///
/// # Errors
/// Where the system refuses the handler.
pub fn on_interrupt() -> Result<(), ocelli::Error> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        CANCELLATIONS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Cancellation::cancel);
        // A terminal shows ^C where the cursor is.
        let start = if std::io::stderr().is_terminal() { "\n" } else { "" };
        super::tell(&format!("{start}stopping after this step; Ctrl-C again stops at once"));
    })
    .map_err(|e| {
        ocelli::Error::new(ocelli::ErrorKind::Io, format!("cannot handle Ctrl-C: {e}")).with_source(e)
    })
}

/// Ctrl-C is a wish to end for whoever holds this as well, one that was pressed before included.
pub fn cancel_on_interrupt(cancellation: &Cancellation) {
    CANCELLATIONS.lock().unwrap_or_else(PoisonError::into_inner).push(cancellation.clone());
    if INTERRUPTED.load(Ordering::SeqCst) {
        cancellation.cancel();
    }
}

/// Whether Ctrl-C was pressed; asked between steps.
///
/// # Errors
/// [`Interrupted`] where it was.
pub fn interrupted() -> Result<(), Interrupted> {
    if INTERRUPTED.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
}
