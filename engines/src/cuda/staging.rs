//! Page-locked host memory through which copies between the host and a device pass.
//!
//! The device copies from and to such memory asynchronously, so the caller can reuse its buffer at once. Locking pages is
//! slow, so pieces are pooled.

use cudarc::driver::{CudaContext, CudaEvent, DriverError, PinnedHostSlice};
use std::sync::{Arc, Mutex, PoisonError};

/// The size of the largest piece, in bytes; larger copies are made in several parts.
pub(super) const LARGEST_PIECE: usize = 16 << 20;
/// The size of the smallest piece, in bytes.
const SMALLEST_PIECE: usize = 64 << 10;
/// The number of idle pieces that the pool keeps.
const MOST_IDLE: usize = 16;

/// A piece of page-locked memory, from a [`StagingPool`].
pub(super) struct Staging {
    memory: PinnedHostSlice<u8>,
    /// Reached when the device no longer uses the memory.
    busy: Option<Arc<CudaEvent>>,
}

impl Staging {
    #[allow(unsafe_code)]
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DriverError> {
        // SAFETY: the memory is zeroed below, before anything can read it.
        let mut memory = unsafe { context.alloc_pinned_with_flags::<u8>(bytes, 0) }?;
        let address = memory.as_mut_ptr()?;
        // SAFETY: the memory is new and has this size.
        unsafe { address.write_bytes(0, bytes) };
        Ok(Self { memory, busy: None })
    }

    /// Marks the memory as used by the device until this event.
    pub(super) fn set_busy_until(&mut self, event: Arc<CudaEvent>) {
        self.busy = Some(event);
    }

    /// Marks the memory as no longer used, after the caller has waited for something enqueued later.
    pub(super) fn set_idle(&mut self) {
        self.busy = None;
    }

    /// The bytes, once the device no longer uses them.
    pub(super) fn bytes(&mut self) -> Result<&mut [u8], DriverError> {
        self.wait()?;
        self.memory.as_mut_slice()
    }

    fn wait(&mut self) -> Result<(), DriverError> {
        self.busy.take().map_or(Ok(()), |event| event.synchronize())
    }

    fn is_busy(&self) -> bool {
        // An error of the device is reported by the next use.
        self.busy.as_ref().is_some_and(|event| matches!(event.try_is_complete(), Ok(false)))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::debug!(%error, "the last copy through page-locked memory failed");
        }
    }
}

/// The pieces that are not in use.
#[derive(Default)]
pub(super) struct StagingPool(Mutex<Vec<Staging>>);

impl StagingPool {
    /// A piece of at least this many bytes, which are at most [`LARGEST_PIECE`].
    pub(super) fn take(&self, context: &Arc<CudaContext>, bytes: usize) -> Result<Staging, DriverError> {
        context.bind_to_thread()?;
        let bytes = bytes.next_power_of_two().max(SMALLEST_PIECE);
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |piece: &Staging| piece.memory.len() == bytes;
        let found = idle.iter().position(|piece| fits(piece) && !piece.is_busy());
        // With many pieces in flight, waiting for the oldest bounds how much memory is locked.
        let found = found.or_else(|| idle.iter().position(fits).filter(|_| idle.len() >= MOST_IDLE / 2));
        let found = found.map(|index| idle.remove(index));
        drop(idle);
        found.map_or_else(|| Staging::new(context, bytes), Ok)
    }

    /// Returns a piece to the pool; the device may still use it.
    pub(super) fn put_back(&self, piece: Staging) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(piece);
        let excess = (idle.len() > MOST_IDLE).then(|| idle.remove(0));
        drop(idle);
        // Outside the lock, as it waits for the device.
        drop(excess);
    }
}
