//! Pieces of a device's memory.

use super::calls::{CallError, CallResult};
use super::context::Context;
use super::device::Core;
use super::event::Mark;
use super::usage::Usage;
use crate::device::DeviceBuffer;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::DeviceSlice;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses of tensors begin at multiples of this, in bytes: what TensorRT asks for, and what the driver gives.
pub(crate) const ALIGNMENT: usize = 256;

/// A piece of a GPU's memory.
///
/// It knows the last write and the reads that were enqueued on it through [`CudaStream`](super::CudaStream)s, which keep
/// the order among each other. Dropped, it goes back to its device, which hands it out again: whoever gets it then waits
/// for those who still use it.
pub struct CudaBuffer {
    core: Arc<Core>,
    /// None only while it is dropped.
    block: Option<Block>,
    usage: Mutex<Usage>,
}

impl CudaBuffer {
    pub(super) fn new(core: Arc<Core>, block: Block, usage: Usage) -> Self {
        Self { core, block: Some(block), usage: Mutex::new(usage) }
    }

    /// The buffer that a tensor's memory is a piece of, if it is a GPU's.
    pub fn of<'t>(slice: &DeviceSlice<'t>) -> Option<&'t Self> {
        slice.buffer.as_any().downcast_ref()
    }

    pub(super) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last_write(&self) -> Option<Mark> {
        self.usage().last_write()
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The address of `bytes` bytes from `offset` on.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> Result<u64> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.capacity()) {
            let (device, capacity) = (self.core.name(), self.capacity());
            let message = format!("{device}: {bytes} bytes from {offset} on, of a buffer of {capacity}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(self.address() + offset as u64)
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("it is taken by drop alone")
    }
}

impl DeviceBuffer for CudaBuffer {
    fn address(&self) -> u64 {
        self.block().address
    }

    fn capacity(&self) -> usize {
        self.block().bytes
    }

    fn copy_to_host(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let stream = self.core.stream_to_host();
        stream.copy_to_host(self, offset, bytes)
    }

    fn copy_from_host(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.core.stream_to_device().copy_to_device(self, offset, bytes)
    }

    fn copy_from_device(
        &self,
        offset: usize,
        source: &dyn DeviceBuffer,
        source_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let Some(source) = source.as_any().downcast_ref::<Self>() else {
            let message =
                format!("{}: {source:?} is not its own, and cannot be copied from", self.core.name());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        let (to, from) = (self.range(offset, bytes)?, source.range(source_offset, bytes)?);
        let (reads, writes) = (std::iter::once(source), std::iter::once(self));
        self.core.stream_to_device().enqueue(reads, writes, |stream| {
            let copied = self.core.context().bound().and_then(|calls| {
                // SAFETY: both places are of this size and apart, and what is enqueued on the two buffers is waited for.
                unsafe { calls.copy_on_device(to, from, bytes, stream) }
            });
            copied.map_err(|error| error.during(self.core.name()))
        })
    }

    fn wait(&self) -> Result<()> {
        match self.last_write() {
            Some(mark) => mark.wait().map_err(|error| error.during(self.core.name())),
            None => Ok(()),
        }
    }

    fn wait_idle(&self) -> Result<()> {
        let marks = self.usage().marks();
        marks.iter().try_for_each(Mark::wait).map_err(|error| error.during(self.core.name()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        let usage = std::mem::take(self.usage.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(block) = self.block.take() {
            self.core.blocks().take_back(block, usage);
        }
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaBuffer of {} bytes on {}", self.capacity(), self.core.name())
    }
}

/// Memory of the driver's.
pub(super) struct Block {
    address: u64,
    /// Rounded up, see [`size_class`].
    bytes: usize,
    context: Arc<Context>,
}

impl Block {
    fn new(context: &Arc<Context>, bytes: usize) -> CallResult<Self> {
        // SAFETY: the context is bound, and no class is of no bytes.
        let address = unsafe { context.bound()?.allocate(bytes) }?;
        Ok(Self { address, bytes, context: Arc::clone(context) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let freed = self.context.bound().and_then(|calls| {
            // SAFETY: the memory is ours; whoever drops a block has waited for its users.
            unsafe { calls.free(self.address) }
        });
        if let Err(error) = freed {
            tracing::debug!(%error, "memory of a CUDA device was not given back");
        }
    }
}

/// Memory that nobody owns at the moment, and what may still be enqueued on it.
///
/// The driver's own way of giving memory back waits for everything that runs on the device; this waits for nobody, and
/// who comes next waits for those who were there before, on the device.
#[derive(Default)]
pub(super) struct Blocks {
    idle: Mutex<Vec<(Block, Usage)>>,
    /// How many bytes may be idle.
    most_idle_bytes: usize,
}

impl Blocks {
    pub(super) fn new(most_idle_bytes: usize) -> Self {
        Self { idle: Mutex::default(), most_idle_bytes }
    }

    /// Memory of at least this many bytes, with what is still enqueued on it.
    pub(super) fn take(&self, context: &Arc<Context>, bytes: usize) -> CallResult<(Block, Usage)> {
        let bytes = size_class(bytes);
        let mut idle = self.idle();
        // The latest first: memory that is used in turn comes back at the same addresses.
        if let Some(index) = idle.iter().rposition(|(block, _)| block.bytes == bytes) {
            return Ok(idle.remove(index));
        }
        drop(idle);
        match Block::new(context, bytes) {
            Err(error) if error.code == CallError::OUT_OF_MEMORY => {
                self.clear()?;
                Block::new(context, bytes).map(|block| (block, Usage::default()))
            }
            made => made.map(|block| (block, Usage::default())),
        }
    }

    fn take_back(&self, block: Block, usage: Usage) {
        let mut idle = self.idle();
        idle.push((block, usage));
        let mut bytes: usize = idle.iter().map(|(block, _)| block.bytes).sum();
        let mut leaving = 0;
        while bytes > self.most_idle_bytes && leaving < idle.len() {
            bytes -= idle[leaving].0.bytes;
            leaving += 1;
        }
        let leaving: Vec<_> = if leaving == 0 { Vec::new() } else { idle.drain(..leaving).collect() };
        drop(idle);
        leaving.into_iter().for_each(give_back);
    }

    /// Gives everything idle back to the driver, after its users.
    pub(super) fn clear(&self) -> CallResult<()> {
        let idle: Vec<_> = self.idle().drain(..).collect();
        idle.into_iter().for_each(give_back);
        Ok(())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Block, Usage)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.idle().drain(..).for_each(give_back);
    }
}

fn give_back((block, usage): (Block, Usage)) {
    if let Err(error) = usage.wait() {
        // The device is lost, and its memory with it.
        tracing::debug!(%error, "the last users of a CUDA buffer failed");
    }
    drop(block);
}

/// Rounds a size up so that tensors of about the same size can have each other's memory: to an eighth of the power of two
/// below it.
fn size_class(bytes: usize) -> usize {
    let step = (bytes.max(1).next_power_of_two() / 16).max(ALIGNMENT);
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        let cases =
            [(0, 256), (1, 256), (256, 256), (257, 512), (4096, 4096), (4097, 4608), (1 << 20, 1 << 20)];
        let mut wrong = Vec::new();
        for (bytes, expected) in cases {
            if size_class(bytes) != expected {
                wrong.push(format!("{bytes}: expected {expected}, got {}", size_class(bytes)));
            }
        }
        for bytes in (3000..300_000).step_by(997) {
            let class = size_class(bytes);
            if class < bytes || class > bytes + bytes / 8 + ALIGNMENT || size_class(class) != class {
                wrong.push(format!("{bytes}: got {class}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
