//! A device's primary context, for as long as anything lives in it.

use super::calls::{CallResult, CudaCalls, RawContext};
use std::fmt;
use std::sync::Arc;

/// The context and the calls that concern it. Everything that belongs to the context holds this.
pub(super) struct Context {
    calls: Arc<dyn CudaCalls>,
    raw: RawContext,
    ordinal: usize,
}

impl Context {
    pub(super) fn retain(calls: Arc<dyn CudaCalls>, ordinal: usize) -> CallResult<Arc<Self>> {
        let raw = calls.retain_primary_context(ordinal)?;
        Ok(Arc::new(Self { calls, raw, ordinal }))
    }

    /// The calls, with the context made the thread's: threads come and go, and other libraries set theirs.
    pub(super) fn bound(&self) -> CallResult<&dyn CudaCalls> {
        // SAFETY: the context is retained until this is dropped.
        unsafe { self.calls.set_current(self.raw) }?;
        Ok(&*self.calls)
    }

    pub(super) fn calls(&self) -> &Arc<dyn CudaCalls> {
        &self.calls
    }

    pub(super) fn raw(&self) -> RawContext {
        self.raw
    }

    pub(super) fn ordinal(&self) -> usize {
        self.ordinal
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once by `retain`, and whatever belongs to it held it and is gone.
        if let Err(error) = unsafe { self.calls.release_primary_context(self.ordinal) } {
            tracing::debug!(%error, "the CUDA context was not released");
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA device {}", self.ordinal)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
