//! Buffers in a device's memory.

use super::context::{Context, Mark, Usage};
use super::driver::failed;
use cudarc::driver::{DriverError, result};
use ocelli_error::{Result, refuse};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The alignment of tensors on a device, in bytes: TensorRT requires it, and the driver guarantees it for allocations.
const ALIGNMENT: usize = 256;

/// A buffer in a GPU's memory.
///
/// It records the reads and writes that are enqueued through [`CudaStream`](super::CudaStream)s, which keep their order.
/// Memory is allocated and freed in stream order: dropping a buffer returns at once, and the driver reuses its memory
/// after the last enqueued use.
pub struct CudaBuffer {
    pub(super) context: Arc<Context>,
    address: u64,
    bytes: usize,
    usage: Mutex<Usage>,
}

impl CudaBuffer {
    pub(super) fn allocate(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        context.counts.allocations.fetch_add(1, Ordering::Relaxed);
        Self::try_allocate(context, bytes).map_err(|error| {
            let free = context.cuda.mem_get_info().map_or("unknown".to_owned(), |(free, _)| free.to_string());
            let name = &context.name;
            failed(format_args!("cannot allocate {bytes} bytes on {name} ({free} bytes are free)"), error)
        })
    }

    fn try_allocate(context: &Arc<Context>, bytes: usize) -> Result<Self, DriverError> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        context.cuda.bind_to_thread()?;
        let ordered = context.cuda.has_async_alloc();
        // SAFETY: the stream is the context's own, and `usage` makes every use wait for the allocation. Nothing reads
        // the memory before it is written, except where a caller asks for unspecified contents.
        let address = unsafe {
            if ordered {
                result::malloc_async(context.memory.cu_stream(), bytes)?
            } else {
                result::malloc_sync(bytes)?
            }
        };
        let buffer = Self { context: Arc::clone(context), address, bytes, usage: Mutex::default() };
        if ordered {
            let event = Arc::new(context.memory.record_event(None)?);
            buffer.usage().written(Mark { stream: context.memory_number, event });
        }
        Ok(buffer)
    }

    /// The device pointer.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes
    }

    /// Waits until the last enqueued write has finished.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if it failed.
    pub(crate) fn wait(&self) -> Result<()> {
        // Cloned, because the lock must not be held while waiting.
        let event = self.usage().last_write().cloned();
        event.map_or(Ok(()), |event| event.synchronize()).map_err(|error| failed(&self.context.name, error))
    }

    /// Waits until every enqueued read and write has finished, so that the memory can be written outside this order.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if one of them failed.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let marks: Vec<Mark> = self.usage().marks().cloned().collect();
        marks
            .iter()
            .try_for_each(|mark| mark.event.synchronize())
            .map_err(|error| failed(&self.context.name, error))
    }

    pub(super) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of `bytes` bytes starting at `offset`.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> Result<u64> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            refuse!("{self:?}: {bytes} bytes at offset {offset} are out of bounds");
        }
        Ok(self.address + offset as u64)
    }

    fn free(&mut self) -> Result<(), DriverError> {
        let usage = self.usage.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Context { cuda, memory, .. } = &*self.context;
        cuda.bind_to_thread()?;
        if cuda.has_async_alloc() {
            usage.marks().try_for_each(|mark| memory.wait(&mark.event))?;
            // SAFETY: the memory was allocated on this stream, which has just been made to wait for every use.
            unsafe { result::free_async(self.address, memory.cu_stream()) }
        } else {
            usage.marks().try_for_each(|mark| mark.event.synchronize())?;
            // SAFETY: every use has finished.
            unsafe { result::free_sync(self.address) }
        }
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::debug!(%error, "cannot free a CUDA buffer");
        }
    }
}

debug_as!(CudaBuffer, it => "CudaBuffer of {} bytes on {}", it.bytes, it.context.name);
