//! Page-locked memory of the host.

use super::calls::{CallResult, HostAccess};
use super::context::Context;
use super::device::CudaDevice;
use crate::error::Result;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of the host that stays where it is, so that the device copies from and to it by itself.
///
/// Locking pages takes long: make one and keep it. Nothing is enqueued on one that its owner does not wait for.
pub struct PinnedBuffer {
    memory: NonNull<u8>,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the memory is this one's alone, and page-locked memory belongs to no thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: a shared reference reads alone.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Locks memory of this many bytes, all zero.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where there is none left.
    pub fn new(device: &CudaDevice, bytes: usize) -> Result<Self> {
        Self::lock(device.core().context(), bytes).map_err(|error| {
            error.during(format_args!(
                "cannot lock {bytes} bytes of the host's memory for {}",
                device.core().name()
            ))
        })
    }

    pub(super) fn lock(context: &Arc<Context>, bytes: usize) -> CallResult<Self> {
        // SAFETY: the context is bound, and the size is not zero.
        let memory = unsafe { context.bound()?.allocate_host(bytes.max(1)) }?;
        // SAFETY: the memory is new and of at least this size.
        unsafe { memory.write_bytes(0, bytes) };
        Ok(Self { memory, bytes, context: Arc::clone(context) })
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.context.calls().host_accesses(self.memory, HostAccess::Read);
        // SAFETY: the memory is of this size, was written by `lock`, and nothing enqueued writes it: see the type.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes) }
    }

    /// The bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.context.calls().host_accesses(self.memory, HostAccess::Write);
        // SAFETY: as above, nothing enqueued reads it either, and the reference is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }

    pub(super) fn address(&self) -> NonNull<u8> {
        self.memory
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let freed = self.context.bound().and_then(|calls| {
            // SAFETY: the memory is ours, and nothing is enqueued on it: see the type.
            unsafe { calls.free_host(self.memory) }
        });
        if let Err(error) = freed {
            tracing::debug!(%error, "page-locked memory was not given back");
        }
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer of {} bytes", self.bytes)
    }
}
