//! A shared cancellation token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ocelli_error::{Error, ErrorKind, Result};

/// A shared cancellation token: cancelling one clone cancels all of them, for good.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels this token and all of its clones.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// [`ErrorKind::Cancelled`](ocelli_error::ErrorKind::Cancelled) once any clone was cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::new(ErrorKind::Cancelled, "cancelled")),
            false => Ok(()),
        }
    }

    /// Whether any clone was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
