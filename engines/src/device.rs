//! Devices with memory of their own.
//!
//! A [`Tensor`](crate::Tensor) can be [on a device](crate::Tensor::on). Engines that compute there read and write it in
//! place, so that what one engine hands to the next is not copied to the host and back.

// Without any device the two enums have no variants, and nothing can reach the methods.
#![cfg_attr(not(feature = "cuda"), allow(unused_variables, unreachable_code))]

#[cfg(feature = "cuda")]
use crate::cuda::{CudaBuffer, CudaDevice};
use ocelli_error::Result;
use std::fmt;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// A device with memory of its own. Clones are handles to the same device.
///
/// There are values of this type only in builds with the feature of a device, such as `cuda`.
#[derive(Clone)]
pub struct Device(AnyDevice);

#[derive(Clone)]
enum AnyDevice {
    #[cfg(feature = "cuda")]
    Cuda(Arc<CudaDevice>),
}

/// Memory of a device.
#[derive(Clone)]
pub(crate) struct DeviceBuffer(AnyBuffer);

/// The variants are those of [`AnyDevice`].
#[derive(Clone)]
enum AnyBuffer {
    #[cfg(feature = "cuda")]
    Cuda(Arc<CudaBuffer>),
}

/// The bytes that were copied between a device and the host since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes from the host to the device.
    pub to_device: u64,
    /// Bytes from the device to the host.
    pub to_host: u64,
}

impl Device {
    /// The name and number: `NVIDIA H200 (CUDA device 0)`.
    pub fn name(&self) -> &str {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(ref device) => device.name(),
        }
    }

    /// The bytes copied so far by tensors and engines.
    pub fn transferred(&self) -> Transferred {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(ref device) => device.transferred(),
        }
    }

    /// The device as an NVIDIA GPU.
    #[cfg(feature = "cuda")]
    pub fn as_cuda(&self) -> Option<&Arc<CudaDevice>> {
        match &self.0 {
            AnyDevice::Cuda(device) => Some(device),
        }
    }

    /// The ordinal of an NVIDIA GPU, as CUDA counts.
    pub(crate) fn cuda_ordinal(&self) -> Option<usize> {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(ref device) => Some(device.ordinal()),
        }
    }

    /// Memory of at least this many bytes, aligned for every element type, with unspecified contents.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceBuffer> {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(ref device) => {
                Ok(DeviceBuffer(AnyBuffer::Cuda(Arc::new(device.allocate_buffer(bytes)?))))
            }
        }
    }

    /// Copies to a buffer of this device. When this returns, `bytes` can be reused.
    pub(crate) fn copy_to_device(&self, buffer: &DeviceBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        match (&self.0, &buffer.0) {
            #[cfg(feature = "cuda")]
            (AnyDevice::Cuda(device), AnyBuffer::Cuda(buffer)) => {
                device.upload.copy_to_device(buffer, offset, bytes)
            }
            #[cfg(not(feature = "cuda"))]
            _ => match self.0 {},
        }
    }

    /// Copies from a buffer of this device, and waits for the copy.
    pub(crate) fn copy_to_host(&self, buffer: &DeviceBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        match (&self.0, &buffer.0) {
            #[cfg(feature = "cuda")]
            (AnyDevice::Cuda(device), AnyBuffer::Cuda(buffer)) => {
                device.download.copy_to_host(buffer, offset, bytes)
            }
            #[cfg(not(feature = "cuda"))]
            _ => match self.0 {},
        }
    }

    /// Copies between two buffers of this device, each given with an offset, or between separate ranges of one buffer.
    pub(crate) fn copy_on_device(
        &self,
        (target, to): (&DeviceBuffer, usize),
        (source, from): (&DeviceBuffer, usize),
        bytes: usize,
    ) -> Result<()> {
        match (&self.0, &target.0, &source.0) {
            #[cfg(feature = "cuda")]
            (AnyDevice::Cuda(device), AnyBuffer::Cuda(target), AnyBuffer::Cuda(source)) => {
                device.upload.copy_on_device((target, to), (source, from), bytes)
            }
            #[cfg(not(feature = "cuda"))]
            _ => match self.0 {},
        }
    }
}

impl PartialEq for Device {
    /// Whether both have the same memory.
    fn eq(&self, other: &Self) -> bool {
        self.cuda_ordinal() == other.cuda_ordinal()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

#[cfg(feature = "cuda")]
impl From<Arc<CudaDevice>> for Device {
    fn from(device: Arc<CudaDevice>) -> Self {
        Self(AnyDevice::Cuda(device))
    }
}

impl DeviceBuffer {
    /// The address on the device.
    pub(crate) fn address(&self) -> u64 {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyBuffer::Cuda(ref buffer) => buffer.address(),
        }
    }

    /// The size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyBuffer::Cuda(ref buffer) => buffer.capacity(),
        }
    }

    /// Waits until the last enqueued write has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyBuffer::Cuda(ref buffer) => buffer.wait(),
        }
    }

    /// Waits until every enqueued read and write has finished.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyBuffer::Cuda(ref buffer) => buffer.wait_idle(),
        }
    }

    /// Whether no other tensor holds this memory.
    pub(crate) fn is_unshared(&mut self) -> bool {
        match self.0 {
            #[cfg(feature = "cuda")]
            AnyBuffer::Cuda(ref mut buffer) => Arc::get_mut(buffer).is_some(),
        }
    }

    /// The buffer of an NVIDIA GPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn as_cuda(&self) -> Option<&CudaBuffer> {
        match &self.0 {
            AnyBuffer::Cuda(buffer) => Some(buffer),
        }
    }
}
