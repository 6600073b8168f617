//! Captured work.

use super::calls::RawGraph;
use super::context::Context;
use super::stream::CudaStream;
use crate::error::Result;
use std::fmt;
use std::sync::Arc;

/// Work that was captured once, with the addresses it had, and is launched as a whole.
pub struct CudaGraph {
    raw: RawGraph,
    context: Arc<Context>,
}

impl CudaGraph {
    pub(super) fn new(context: &Arc<Context>, raw: RawGraph) -> Self {
        Self { raw, context: Arc::clone(context) }
    }

    /// Enqueues everything that was captured.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where the device refuses.
    ///
    /// # Safety
    /// The memory that the captured work names is still there, and the stream waits for whoever uses it (see
    /// [`CudaStream::enqueue`]).
    pub unsafe fn launch(&self, stream: &CudaStream) -> Result<()> {
        // SAFETY: the graph and the stream live, the context is bound, and the caller vouches for the memory.
        let launched = unsafe { stream.bound()?.launch_graph(self.raw, stream.raw()) };
        launched.map_err(|error| error.during(&*self.context))
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        let destroyed = self.context.bound().and_then(|calls| {
            // SAFETY: the graph is ours; launches that are under way still run.
            unsafe { calls.destroy_graph(self.raw) }
        });
        if let Err(error) = destroyed {
            tracing::debug!(%error, "a CUDA graph was not destroyed");
        }
    }
}

impl fmt::Debug for CudaGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaGraph({:#x})", self.raw.0)
    }
}
