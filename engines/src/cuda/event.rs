//! Events, which are made once and go round.

use super::calls::{CallResult, RawEvent, RawStream};
use super::context::Context;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One event of the driver's.
struct Event {
    raw: RawEvent,
    context: Arc<Context>,
}

impl Drop for Event {
    fn drop(&mut self) {
        let destroyed = self.context.bound().and_then(|calls| {
            // SAFETY: the event is ours alone; whoever waits for it goes on waiting.
            unsafe { calls.destroy_event(self.raw) }
        });
        if let Err(error) = destroyed {
            tracing::debug!(%error, "a CUDA event was not destroyed");
        }
    }
}

/// A point on a stream. While one exists, its event is not moved.
#[derive(Clone)]
pub(super) struct Mark {
    event: Arc<Event>,
    /// Which stream it is a point of; see [`CudaStream`](super::CudaStream).
    stream: u64,
}

impl Mark {
    /// Whether the point lies on the stream of this number, where order is kept without waiting.
    pub(super) fn is_on(&self, stream: u64) -> bool {
        self.stream == stream
    }

    /// The number of the stream.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// Has a stream wait for the point.
    pub(super) fn hold(&self, stream: RawStream) -> CallResult<()> {
        // SAFETY: the event is held by this mark and was recorded; the stream is the caller's.
        unsafe { self.event.context.bound()?.wait_event(stream, self.event.raw) }
    }

    /// Has the host wait for the point.
    pub(super) fn wait(&self) -> CallResult<()> {
        // SAFETY: the event is held by this mark and was recorded.
        unsafe { self.event.context.bound()?.synchronize_event(self.event.raw) }
    }

    /// Whether everything before the point is done.
    pub(super) fn is_done(&self) -> CallResult<bool> {
        // SAFETY: the event is held by this mark and was recorded.
        unsafe { self.event.context.bound()?.event_is_done(self.event.raw) }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mark(stream {})", self.stream)
    }
}

/// The events of a context. One that no mark holds is recorded again.
#[derive(Debug)]
pub(super) struct Events {
    context: Arc<Context>,
    made: Mutex<Vec<Arc<Event>>>,
}

impl Events {
    pub(super) fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self { context: Arc::clone(context), made: Mutex::default() })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Marks the end of a stream, whose number is given beside it.
    pub(super) fn mark(&self, raw: RawStream, stream: u64) -> CallResult<Mark> {
        let calls = self.context.bound()?;
        let event = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            // Only a holder could make another holder, and there is none besides this list.
            match made.iter().position(|event| Arc::strong_count(event) == 1) {
                Some(index) => {
                    // The next search begins with those that have rested longest.
                    let event = made.remove(index);
                    made.push(Arc::clone(&event));
                    event
                }
                None => {
                    // SAFETY: the context is bound.
                    let raw = unsafe { calls.create_event() }?;
                    let event = Arc::new(Event { raw, context: Arc::clone(&self.context) });
                    made.push(Arc::clone(&event));
                    event
                }
            }
        };
        // SAFETY: nobody else has the event, and the stream is the caller's.
        unsafe { calls.record_event(event.raw, raw) }?;
        Ok(Mark { event, stream })
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x})", self.raw.0)
    }
}
