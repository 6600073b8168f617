//! Devices with memory of their own.
//!
//! A [`Tensor`](crate::Tensor) can be [on a device](crate::Tensor::on). Engines that compute there read and write it in
//! place, so that what one engine hands to the next is not copied to the host and back.

// A web page has no device: there the two enums have no variants, and nothing can reach the methods.
#![cfg_attr(target_family = "wasm", allow(unused_variables, unreachable_code))]

#[cfg(not(target_family = "wasm"))]
use crate::cuda::{CudaBuffer, CudaDevice};
#[cfg(not(target_family = "wasm"))]
use crate::onnxruntime::{WebGpuBuffer, WebGpuDevice};
use crate::transferred::Transferred;
use ocelli_error::{Error, Result};
#[cfg(not(target_family = "wasm"))]
use std::sync::Arc;

/// A device with memory of its own. Clones are handles to the same device.
///
/// A [`WebGpuDevice`](crate::onnxruntime::WebGpuDevice), or an NVIDIA GPU.
#[derive(Clone)]
pub struct Device(AnyDevice);

#[derive(Clone)]
enum AnyDevice {
    #[cfg(not(target_family = "wasm"))]
    Cuda(Arc<CudaDevice>),
    #[cfg(not(target_family = "wasm"))]
    WebGpu(Arc<WebGpuDevice>),
}

/// Memory of a device. The variants are those of [`AnyDevice`].
#[derive(Clone)]
pub(crate) enum DeviceBuffer {
    #[cfg(not(target_family = "wasm"))]
    Cuda(Arc<CudaDevice>, Arc<CudaBuffer>),
    #[cfg(not(target_family = "wasm"))]
    WebGpu(Arc<WebGpuBuffer>),
}

/// A match of both kinds of devices, or of their memory.
macro_rules! of_either {
    ($any:expr, $cuda:pat => $of_cuda:expr, $webgpu:pat => $of_webgpu:expr $(,)?) => {
        match $any {
            #[cfg(not(target_family = "wasm"))]
            $cuda => $of_cuda,
            #[cfg(not(target_family = "wasm"))]
            $webgpu => $of_webgpu,
        }
    };
}

impl Device {
    /// The name and number: `NVIDIA H200 (CUDA device 0)`.
    pub fn name(&self) -> &str {
        of_either!(self.0, AnyDevice::Cuda(ref it) => it.name(), AnyDevice::WebGpu(ref it) => it.name())
    }

    /// The bytes copied so far by tensors and engines.
    pub fn transferred(&self) -> Transferred {
        of_either!(
            self.0,
            AnyDevice::Cuda(ref device) => device.transferred(),
            AnyDevice::WebGpu(ref device) => device.transferred(),
        )
    }

    /// The device as an NVIDIA GPU.
    #[cfg(not(target_family = "wasm"))]
    pub fn as_cuda(&self) -> Option<&Arc<CudaDevice>> {
        match &self.0 {
            AnyDevice::Cuda(device) => Some(device),
            AnyDevice::WebGpu(_) => None,
        }
    }

    /// The device as a WebGPU adapter.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn as_webgpu(&self) -> Option<&Arc<WebGpuDevice>> {
        match &self.0 {
            AnyDevice::Cuda(_) => None,
            AnyDevice::WebGpu(device) => Some(device),
        }
    }

    /// `true` if a tensor may begin inside a buffer. WebGPU's begin where their buffer does: writing a part of one there takes
    /// a copy to the host and back.
    pub fn has_addresses(&self) -> bool {
        self.cuda_ordinal().is_some()
    }

    /// The ordinal of an NVIDIA GPU, as CUDA counts.
    pub(crate) fn cuda_ordinal(&self) -> Option<usize> {
        of_either!(self.0, AnyDevice::Cuda(ref device) => Some(device.ordinal()), AnyDevice::WebGpu(_) => None)
    }

    /// Memory of at least this many bytes, aligned for every element type, with unspecified contents.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceBuffer> {
        of_either!(
            self.0,
            AnyDevice::Cuda(ref device) => {
                let buffer = device.allocate_buffer(bytes)?;
                Ok(DeviceBuffer::Cuda(Arc::clone(device), Arc::new(buffer)))
            },
            AnyDevice::WebGpu(ref device) => Ok(DeviceBuffer::WebGpu(Arc::new(device.allocate(bytes)?))),
        )
    }
}

impl PartialEq for Device {
    /// `true` if both have the same memory. A process has one WebGPU adapter.
    fn eq(&self, other: &Self) -> bool {
        self.cuda_ordinal() == other.cuda_ordinal()
    }
}

debug_as!(Device, it => "Device({})", it.name());

#[cfg(not(target_family = "wasm"))]
impl From<Arc<CudaDevice>> for Device {
    fn from(device: Arc<CudaDevice>) -> Self {
        Self(AnyDevice::Cuda(device))
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<Arc<WebGpuDevice>> for Device {
    fn from(device: Arc<WebGpuDevice>) -> Self {
        Self(AnyDevice::WebGpu(device))
    }
}

impl DeviceBuffer {
    /// Copies bytes to the buffer. When this returns, `bytes` can be reused.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        of_either!(
            *self,
            Self::Cuda(ref device, ref buffer) => device.upload.copy_to_device(buffer, offset, bytes),
            Self::WebGpu(ref buffer) => buffer.write(offset, bytes),
        )
    }

    /// Copies bytes to the start of the buffer; what follows in the buffer is unspecified. When this returns, `bytes` can be
    /// reused.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<()> {
        of_either!(
            *self,
            Self::Cuda(ref device, ref buffer) => device.upload.copy_to_device(buffer, 0, bytes),
            Self::WebGpu(ref buffer) => buffer.fill(bytes),
        )
    }

    /// Copies bytes from the buffer, and waits for the copy.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        of_either!(
            *self,
            Self::Cuda(ref device, ref buffer) => device.download.copy_to_host(buffer, offset, bytes),
            Self::WebGpu(ref buffer) => buffer.read(offset, bytes),
        )
    }

    /// Copies bytes from a buffer of the same device, or from a separate range of this one.
    pub(crate) fn copy_from(&self, to: usize, source: &Self, from: usize, bytes: usize) -> Result<()> {
        match (self, source) {
            #[cfg(not(target_family = "wasm"))]
            (Self::Cuda(device, target), Self::Cuda(_, source)) => {
                device.upload.copy_on_device((target, to), (source, from), bytes)
            }
            #[cfg(not(target_family = "wasm"))]
            (Self::WebGpu(target), Self::WebGpu(source)) => target.copy_from(to, source, from, bytes),
            #[allow(unreachable_patterns, reason = "without CUDA there is one kind of device")]
            _ => Err(Error::invalid_argument("cannot copy from the memory of another kind of device")),
        }
    }

    /// The address on the device; of WebGPU the handle of the buffer.
    pub(crate) fn address(&self) -> u64 {
        of_either!(*self, Self::Cuda(_, ref it) => it.address(), Self::WebGpu(ref it) => it.handle())
    }

    /// The size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        of_either!(*self, Self::Cuda(_, ref it) => it.capacity(), Self::WebGpu(ref it) => it.capacity())
    }

    /// Waits until the last enqueued write has finished. WebGPU's work is done in order.
    pub(crate) fn wait(&self) -> Result<()> {
        of_either!(*self, Self::Cuda(_, ref buffer) => buffer.wait(), Self::WebGpu(_) => Ok(()))
    }

    /// Waits until every enqueued read and write has finished. WebGPU's work is done in order.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        of_either!(*self, Self::Cuda(_, ref buffer) => buffer.wait_idle(), Self::WebGpu(_) => Ok(()))
    }

    /// `true` if no other tensor holds this memory.
    pub(crate) fn is_unshared(&mut self) -> bool {
        of_either!(
            *self,
            Self::Cuda(_, ref mut buffer) => Arc::get_mut(buffer).is_some(),
            Self::WebGpu(ref mut buffer) => Arc::get_mut(buffer).is_some(),
        )
    }

    /// The buffer of an NVIDIA GPU.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn as_cuda(&self) -> Option<&CudaBuffer> {
        match self {
            Self::Cuda(_, buffer) => Some(buffer),
            Self::WebGpu(_) => None,
        }
    }
}
