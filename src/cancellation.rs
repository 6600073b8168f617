//! A wish to end, that threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A wish to end: clones share it, and it cannot be taken back.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Nobody wishes to end yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everyone who holds a clone to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether someone asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
