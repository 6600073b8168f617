//! Memory that is not the host's, and who may copy to and from it.
//!
//! A [`Tensor`](crate::Tensor) can lie on a device ([`Tensor::on`](crate::Tensor::on)); engines that compute there read
//! and write it where it is, so that what goes from network to network never crosses the bus.

use crate::error::Result;
use crate::kernels::KernelCompiler;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What kind of memory a device has: engines look at this to see whether an address means anything to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// An NVIDIA GPU: addresses are CUDA device pointers of the primary context of this ordinal.
    Cuda {
        /// As CUDA counts, `CUDA_VISIBLE_DEVICES` applied.
        ordinal: usize,
    },
    /// [`fake`](crate::fake): the host's memory behind another door.
    Fake,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda { ordinal } => write!(f, "CUDA device {ordinal}"),
            Self::Fake => f.write_str("the fake device"),
        }
    }
}

/// What has crossed between a device and the host since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes from the host to the device.
    pub to_device: u64,
    /// Bytes from the device to the host.
    pub to_host: u64,
}

/// Something with memory of its own.
pub trait Device: Send + Sync + fmt::Debug {
    /// For people: `NVIDIA H200 (CUDA device 0)`.
    fn name(&self) -> &str;

    /// Which memory this is.
    fn kind(&self) -> DeviceKind;

    /// Memory of at least this many bytes, at an address that suits every element type; what it holds is unspecified.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where the device has no such memory left; the message says how much
    /// was asked for and how much is free.
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>>;

    /// What has crossed so far, through tensors and engines alike.
    fn transferred(&self) -> Transferred;

    /// The device's own compiler of [kernels](crate::kernels), if it brings one along; a GPU's is made with its options
    /// ([`CudaCompiler`](crate::cuda::CudaCompiler)).
    fn kernel_compiler(self: Arc<Self>) -> Option<Arc<dyn KernelCompiler>> {
        None
    }
}

/// A piece of a device's memory, given back when it is dropped and nothing on the device uses it any more.
///
/// Order is the implementor's: what is enqueued on the device to write a buffer comes before what is enqueued later to
/// read it, whoever enqueues; a copy to the host waits for it.
pub trait DeviceBuffer: Send + Sync + fmt::Debug {
    /// Where it begins, as the device counts.
    fn address(&self) -> u64;

    /// Its size in bytes.
    fn capacity(&self) -> usize;

    /// Copies bytes from `offset` on, which it waits for.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where what was to fill the buffer failed, or the device is lost.
    fn copy_to_host(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Copies bytes to `offset` on; when it returns, `bytes` may be used for something else.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where the device is lost.
    fn copy_from_host(&self, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Copies bytes of another buffer of the same device, or of this one, from `source_offset` on to `offset` on: the
    /// device does it, in order with everything else that touches the two, and nothing crosses. The two pieces do not
    /// overlap.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `source` is another device's;
    /// [`Execution`](crate::ErrorKind::Execution) where the device is lost.
    fn copy_from_device(
        &self,
        offset: usize,
        source: &dyn DeviceBuffer,
        source_offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Waits until what was enqueued to write the buffer is done.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where it failed.
    fn wait(&self) -> Result<()>;

    /// Waits until nothing that was enqueued reads or writes the buffer: whoever writes it in no order that the device
    /// knows of, does so after this.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) where some of it failed.
    fn wait_idle(&self) -> Result<()>;

    /// The buffer as the type its engines know.
    fn as_any(&self) -> &dyn Any;
}
