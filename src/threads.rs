//! A thread that panics must not leave the others waiting: the stages of a pipeline, and a guard against their panics.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use ocelli_error::{Error, ErrorKind, Result};

/// The stages of a pipeline, in the order in which a frame passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Stage {
    /// Reading a frame, including its decoding.
    Source,
    /// Pixels to the backbone's input.
    Preprocess,
    /// The image backbone.
    Backbone,
    /// Encoder-decoder, thresholds, suppression, masks.
    Decode,
    /// The tracker, on the thread of [`Decode`](Self::Decode) or, with several devices, on its own.
    Track,
    /// Drawing, if a sink asks for it.
    Draw,
    /// All sinks together.
    Sinks,
}

impl Stage {
    pub(crate) const ALL: [Self; 7] =
        [Self::Source, Self::Preprocess, Self::Backbone, Self::Decode, Self::Track, Self::Draw, Self::Sinks];

    /// Number of `devices` that work at this stage at the same time.
    pub(crate) fn parallel(self, devices: usize) -> f64 {
        if matches!(self, Self::Backbone | Self::Decode) { devices.max(1) as f64 } else { 1.0 }
    }
}

/// The stage's name in statistics, for example `backbone`.
impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Locks a mutex, also after a thread that held it has panicked: what is locked is valid between any two statements.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error for a thread that the system does not start.
pub fn cannot_start_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot start a thread: {error}")).with_source(error)
}

/// Runs a stage's work; a panic becomes an error that names the stage.
pub(crate) fn guard<T>(stage: Stage, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half done is never used again: the stage ends with it.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::execution(format!("stage {stage} panicked: {}", panic_message(&*panic))))
    })
}

/// What a thread that panicked said.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
