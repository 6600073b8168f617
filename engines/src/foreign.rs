//! Memory of a GPU that belongs to another library.

use std::any::Any;
use std::sync::Arc;

/// Memory of an NVIDIA GPU that another library has allocated and fills, such as a plane of a decoded frame. Kernels can
/// read it (`cuda::KernelArgument::Foreign`). It is given back when the last clone is dropped.
#[derive(Clone)]
pub struct ForeignMemory {
    address: u64,
    ordinal: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl ForeignMemory {
    /// Memory of the GPU with this ordinal, which `owner` keeps.
    ///
    /// # Safety
    /// Until `owner` is dropped, the address is valid in the primary context of the GPU for all that kernels read from it, and
    /// nothing writes there but work that is already enqueued on the context's default stream.
    pub unsafe fn new(address: u64, ordinal: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { address, ordinal, _owner: owner }
    }

    /// A stand-in for a GPU's memory in tests that run no kernel.
    #[cfg(any(test, feature = "test-support"))]
    pub fn fake(address: u64, ordinal: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { address, ordinal, _owner: owner }
    }

    /// The address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The GPU among those that `CUDA_VISIBLE_DEVICES` selects.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }
}

debug_as!(ForeignMemory, it => "ForeignMemory of GPU {}", it.ordinal);
