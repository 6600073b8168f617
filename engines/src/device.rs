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

/// Memory of a device.
#[derive(Clone)]
pub(crate) struct DeviceBuffer(AnyBuffer);

/// The variants are those of [`AnyDevice`].
#[derive(Clone)]
enum AnyBuffer {
    #[cfg(not(target_family = "wasm"))]
    Cuda(Arc<CudaBuffer>),
    #[cfg(not(target_family = "wasm"))]
    WebGpu(Arc<WebGpuBuffer>),
}

/// The same call for either kind of device or memory.
macro_rules! of_either {
    ($any:expr, $kind:ident, $it:pat => $call:expr) => {
        match $any {
            #[cfg(not(target_family = "wasm"))]
            $kind::Cuda($it) => $call,
            #[cfg(not(target_family = "wasm"))]
            $kind::WebGpu($it) => $call,
        }
    };
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
        of_either!(self.0, AnyDevice, ref device => device.name())
    }

    /// The bytes copied so far by tensors and engines.
    pub fn transferred(&self) -> Transferred {
        of_either!(self.0, AnyDevice, ref device => device.transferred())
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
        match self.0 {
            #[cfg(not(target_family = "wasm"))]
            AnyDevice::Cuda(ref device) => Some(device.ordinal()),
            #[cfg(not(target_family = "wasm"))]
            AnyDevice::WebGpu(_) => None,
        }
    }

    /// Memory of at least this many bytes, aligned for every element type, with unspecified contents.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceBuffer> {
        Ok(DeviceBuffer(match self.0 {
            #[cfg(not(target_family = "wasm"))]
            AnyDevice::Cuda(ref device) => AnyBuffer::Cuda(Arc::new(device.allocate_buffer(bytes)?)),
            #[cfg(not(target_family = "wasm"))]
            AnyDevice::WebGpu(ref device) => AnyBuffer::WebGpu(Arc::new(device.allocate(bytes)?)),
        }))
    }

    /// Copies to a buffer of this device. When this returns, `bytes` can be reused.
    pub(crate) fn copy_to_device(&self, buffer: &DeviceBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        match (&self.0, &buffer.0) {
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::Cuda(device), AnyBuffer::Cuda(buffer)) => {
                device.upload.copy_to_device(buffer, offset, bytes)
            }
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::WebGpu(device), AnyBuffer::WebGpu(buffer)) => {
                device.copy_to_device(buffer, offset, bytes)
            }
            #[allow(unreachable_patterns, reason = "without CUDA there is one kind of device")]
            _ => Err(self.other_device()),
        }
    }

    /// Copies to the start of a buffer of this device; what follows in the buffer is unspecified. When this returns, `bytes`
    /// can be reused.
    pub(crate) fn fill(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<()> {
        match (&self.0, &buffer.0) {
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::WebGpu(device), AnyBuffer::WebGpu(buffer)) => device.fill(buffer, bytes),
            _ => self.copy_to_device(buffer, 0, bytes),
        }
    }

    /// Copies from a buffer of this device, and waits for the copy.
    pub(crate) fn copy_to_host(&self, buffer: &DeviceBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        match (&self.0, &buffer.0) {
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::Cuda(device), AnyBuffer::Cuda(buffer)) => {
                device.download.copy_to_host(buffer, offset, bytes)
            }
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::WebGpu(device), AnyBuffer::WebGpu(buffer)) => {
                device.copy_to_host(buffer, offset, bytes)
            }
            #[allow(unreachable_patterns, reason = "without CUDA there is one kind of device")]
            _ => Err(self.other_device()),
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
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::Cuda(device), AnyBuffer::Cuda(target), AnyBuffer::Cuda(source)) => {
                device.upload.copy_on_device((target, to), (source, from), bytes)
            }
            #[cfg(not(target_family = "wasm"))]
            (AnyDevice::WebGpu(device), AnyBuffer::WebGpu(target), AnyBuffer::WebGpu(source)) => {
                device.copy_on_device((target, to), (source, from), bytes)
            }
            #[allow(unreachable_patterns, reason = "without CUDA there is one kind of device")]
            _ => Err(self.other_device()),
        }
    }

    fn other_device(&self) -> Error {
        let message = format!("cannot copy to or from {}: the memory is on another device", self.name());
        Error::invalid_argument(message)
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
    /// The address on the device; of WebGPU the handle of the buffer.
    pub(crate) fn address(&self) -> u64 {
        match self.0 {
            #[cfg(not(target_family = "wasm"))]
            AnyBuffer::Cuda(ref buffer) => buffer.address(),
            #[cfg(not(target_family = "wasm"))]
            AnyBuffer::WebGpu(ref buffer) => buffer.handle(),
        }
    }

    /// The size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        of_either!(self.0, AnyBuffer, ref buffer => buffer.capacity())
    }

    /// Waits until the last enqueued write has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        if let AnyBuffer::Cuda(buffer) = &self.0 {
            return buffer.wait();
        }
        // WebGPU's work is done in order.
        Ok(())
    }

    /// Waits until every enqueued read and write has finished.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        #[cfg(not(target_family = "wasm"))]
        if let AnyBuffer::Cuda(buffer) = &self.0 {
            return buffer.wait_idle();
        }
        // WebGPU's work is done in order.
        Ok(())
    }

    /// `true` if no other tensor holds this memory.
    pub(crate) fn is_unshared(&mut self) -> bool {
        of_either!(self.0, AnyBuffer, ref mut buffer => Arc::get_mut(buffer).is_some())
    }

    /// The buffer of an NVIDIA GPU.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn as_cuda(&self) -> Option<&CudaBuffer> {
        match &self.0 {
            AnyBuffer::Cuda(buffer) => Some(buffer),
            AnyBuffer::WebGpu(_) => None,
        }
    }
}
