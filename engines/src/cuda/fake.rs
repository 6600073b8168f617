//! A GPU that is not there: it runs what is enqueued in the host's memory, as late as the order allows, and reports
//! what is not ordered.
//!
//! - **Late.** What is enqueued runs when the host waits for it, or for something after it, and not before. Whoever
//!   reads without having waited finds what was there earlier.
//! - **Races.** Every stream, and the host, has a vector clock (Fidge 1988, Mattern 1989); an event carries the clock of
//!   the point it marks, and who waits for it takes the clock over. Two accesses of one piece of memory, one of them a
//!   write, neither before the other, are a race, whether or not the result is right this time (as in FastTrack,
//!   Flanagan and Freund 2009). So is memory that is given back while something enqueued uses it.
//! - **Time.** Work has a length in units of nobody's clock; [`timeline`](FakeCudaCalls::timeline) says what ran beside
//!   what on a device that has room for everything.
//! - **Captures.** What a capture forbids is an error, as the driver has it.
//!
//! What it cannot show: that the driver's functions do what their documentation says, and how fast anything is.

mod calls;
mod memory;
mod state;

pub use memory::FakeMemory;

use super::calls::{CallResult, RawStream};
use state::State;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of a GPU that is not there; see the [module](self).
pub struct FakeCudaCalls {
    state: Mutex<State>,
}

impl FakeCudaCalls {
    /// One GPU of 1 GiB.
    pub fn new() -> Arc<Self> {
        Self::with_devices(1, 1 << 30)
    }

    /// So many GPUs with so many bytes each.
    pub fn with_devices(devices: usize, bytes: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::new(devices, bytes)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues work, which is captured if the stream is being captured.
    ///
    /// # Errors
    /// As the driver's launches.
    pub fn enqueue_work(&self, stream: RawStream, work: FakeWork) -> CallResult<()> {
        let mut state = self.state();
        state.begin("work")?;
        state.enqueue(stream, state::Operation::work(work))
    }

    /// Whether what is enqueued on a stream is written down instead of run.
    pub fn is_being_captured(&self, stream: RawStream) -> bool {
        self.state().streams.get(&stream.0).is_some_and(|stream| stream.capture.is_some())
    }

    /// Every race, use after free and misuse so far, one line each; empty is what tests want.
    pub fn races(&self) -> Vec<String> {
        self.state().races.clone()
    }

    /// How often a call was made: `cuMemAlloc`; `work` for [`enqueue_work`](Self::enqueue_work).
    pub fn calls(&self, call: &str) -> usize {
        self.state().counts.get(call).copied().unwrap_or_default()
    }

    /// All calls so far, by name.
    pub fn all_calls(&self) -> BTreeMap<&'static str, usize> {
        self.state().counts.clone()
    }

    /// Has the call of this name fail from now on, `after` times excepted, for as often as `times`.
    pub fn fail(&self, call: &'static str, after: usize, times: usize, code: i32) {
        self.state().failures.push(state::Failure { call, after, times, code });
    }

    /// What work ran when.
    pub fn timeline(&self) -> Vec<Span> {
        self.state().timeline.clone()
    }

    /// What has been made and not given back.
    pub fn live(&self) -> Live {
        self.state().live()
    }
}

impl fmt::Debug for FakeCudaCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeCudaCalls")
    }
}

/// Work for a fake GPU.
#[derive(Clone)]
pub struct FakeWork {
    /// What it is called on the [timeline](FakeCudaCalls::timeline).
    pub label: String,
    /// Addresses and sizes in bytes of what it reads.
    pub reads: Vec<(u64, usize)>,
    /// Addresses and sizes in bytes of what it writes.
    pub writes: Vec<(u64, usize)>,
    /// How long it takes.
    pub duration: u64,
    /// What it does, each time it is run.
    pub run: Arc<dyn Fn(&mut FakeMemory) + Send + Sync>,
}

impl fmt::Debug for FakeWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeWork({})", self.label)
    }
}

/// When work ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Which work.
    pub label: String,
    /// On which stream.
    pub stream: RawStream,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

impl Span {
    /// Whether both ran at once for a while.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// What has been made and not given back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Live {
    pub contexts: usize,
    pub blocks: usize,
    pub pinned: usize,
    pub streams: usize,
    pub events: usize,
    pub graphs: usize,
    pub modules: usize,
}
