//! The memory of the adapter that the WebGPU provider runs on.
//!
//! WebGPU has buffers and no addresses. What ONNX Runtime takes as the address of a tensor is the handle of a buffer, and a
//! tensor begins at the start of its buffer. Work is done in the order in which it was enqueued, so that nothing waits for
//! a buffer but a copy to the host.

use super::call::{self, Memory, check};
use super::provider::{ExecutionProvider, WEBGPU};
use super::{OnnxRuntime, webgpu};
use crate::tensor::ElementType;
use crate::transferred::{Counts, Transferred};
use ocelli_error::{Error, Result};
use ort::value::{DynValue, TensorRef, TensorRefMut};
use ort::{AsPointer, sys};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// WebGPU copies multiples of 4 bytes, and the provider's buffers are multiples of this.
const GRANULARITY: usize = 16;

/// The memory of the process's WebGPU adapter, in which [`Tensor`](crate::Tensor)s stay between models.
///
/// A process has one adapter, and all of these have the same memory.
pub struct WebGpuDevice {
    name: String,
    pub(crate) runtime: OnnxRuntime,
    pub(crate) provider: ExecutionProvider,
    pub(crate) memory: Arc<Memory>,
    /// The provider's own, which ONNX Runtime keeps for the life of the process.
    allocator: NonNull<sys::OrtAllocator>,
    counts: Counts,
}

// SAFETY: every call that is given the allocator or a buffer is made by the thread that holds `webgpu::exclusive`.
unsafe impl Send for WebGpuDevice {}
// SAFETY: as above.
unsafe impl Sync for WebGpuDevice {}

/// A buffer of the adapter.
pub(crate) struct WebGpuBuffer {
    device: Arc<WebGpuDevice>,
    handle: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the handle is used as the device says.
unsafe impl Send for WebGpuBuffer {}
// SAFETY: as above.
unsafe impl Sync for WebGpuBuffer {}

impl WebGpuDevice {
    /// The memory of the adapter of a provider of WebGPU that [was started](OnnxRuntime::try_provider); `name` is the
    /// adapter's.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if the provider is not started, or has no memory of
    /// its own.
    pub fn open(runtime: &OnnxRuntime, provider: &ExecutionProvider, name: &str) -> Result<Arc<Self>> {
        let unavailable =
            |reason: &dyn fmt::Display| Error::unavailable(format!("WebGPU adapter {name}: {reason}"));
        let environment = runtime.environment();
        let device =
            environment.devices().find(|device| device.ep().is_ok_and(|provider| provider == WEBGPU));
        let memory = device.as_ref().and_then(Memory::of_device);
        let memory = memory.ok_or_else(|| unavailable(&"the provider has no memory of its own"))?;
        let mut allocator = ptr::null_mut();
        // SAFETY: the environment and the description of the memory live for the life of the process; the call fills in the
        // result, which stays the environment's.
        check(unsafe {
            (ort::api().GetSharedAllocator)(environment.ptr().cast_mut(), memory.info(), &mut allocator)
        })
        .map_err(|error| unavailable(&error.message()))?;
        let allocator = NonNull::new(allocator);
        let allocator =
            allocator.ok_or_else(|| unavailable(&"the provider has no allocator that models share"))?;
        Ok(Arc::new(Self {
            name: format!("{name} (WebGPU)"),
            runtime: runtime.clone(),
            provider: provider.clone(),
            memory: Arc::new(memory),
            allocator,
            counts: Counts::default(),
        }))
    }

    /// `NVIDIA GeForce RTX 4060 (WebGPU)`
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes that were copied between this device and the host since it was opened.
    pub fn transferred(&self) -> Transferred {
        self.counts.transferred()
    }

    /// The number of buffers allocated so far. In a steady state it does not grow.
    pub fn allocations(&self) -> usize {
        self.counts.allocations.load(Ordering::Relaxed)
    }

    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<WebGpuBuffer> {
        let bytes = bytes.max(1).checked_next_multiple_of(GRANULARITY).unwrap_or(usize::MAX);
        let mut handle = ptr::null_mut();
        let status = self.in_turn(|| {
            // SAFETY: the allocator lives as long as the environment; no other thread calls the provider.
            check(unsafe { (ort::api().AllocatorAlloc)(self.allocator.as_ptr(), bytes, &mut handle) })
        });
        let failed = |reason: &dyn fmt::Display| {
            Error::execution(format!("cannot allocate {bytes} bytes on {}: {reason}", self.name))
        };
        status.map_err(|reason| failed(&reason))?;
        let handle = NonNull::new(handle).ok_or_else(|| failed(&"no memory is left"))?;
        self.counts.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(WebGpuBuffer { device: Arc::clone(self), handle, bytes })
    }

    /// Copies between two tensors, and waits if the target is in host memory.
    ///
    /// # Safety
    /// Both are tensors of equal size that live until the call returns, and nothing else uses the target's host memory.
    unsafe fn copy(&self, source: *const sys::OrtValue, target: *const sys::OrtValue) -> Result<(), String> {
        self.in_turn(|| {
            // SAFETY: guaranteed by the caller; the arrays have one element each. No other thread calls the provider.
            check(unsafe {
                (ort::api().CopyTensors)(
                    self.runtime.environment().ptr().cast_mut(),
                    [source].as_ptr(),
                    [target].as_mut_ptr(),
                    ptr::null_mut(),
                    1,
                )
            })
        })
    }

    fn done(&self, copied: ort::Result<Result<(), String>>) -> Result<()> {
        let reason = match copied {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => reason,
            Err(error) => error.message().to_owned(),
        };
        Err(Error::execution(format!("{}: {reason}", self.name)))
    }

    /// Calls the provider while no other thread does; its errors are in the log alone.
    fn in_turn(&self, call: impl FnOnce() -> ort::Result<()>) -> Result<(), String> {
        let _turn = webgpu::exclusive();
        let _ = webgpu::take_error();
        let outcome = call().map_err(|error| error.message().to_owned());
        webgpu::take_error().map_or(outcome, Err)
    }
}

debug_as!(WebGpuDevice, it => "WebGpuDevice({})", it.name);

impl WebGpuBuffer {
    /// Writes the bytes at this offset.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len();
        if offset > 0 || (!end.is_multiple_of(GRANULARITY) && self.bytes - end >= GRANULARITY) {
            // The provider writes from the start of a buffer, and up to the next multiple.
            let mut whole = vec![0; self.bytes];
            self.read(0, &mut whole)?;
            whole[offset..end].copy_from_slice(bytes);
            return self.fill(&whole);
        }
        self.fill(bytes)
    }

    /// Writes the bytes at the start, and zeros or nothing up to the next multiple of 16.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<()> {
        let copied = self.value(bytes.len()).and_then(|target| {
            let source = TensorRef::from_array_view((vec![bytes.len()], bytes))?;
            // SAFETY: both are of this size and live until the call returns.
            Ok(unsafe { self.device.copy(source.ptr(), target.ptr()) })
        });
        self.device.done(copied)?;
        self.device.counts.to_device.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the bytes at this offset, after everything that was enqueued.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let end = offset + bytes.len();
        if offset > 0 {
            // The provider reads from the start of a buffer.
            let mut before = vec![0; end];
            self.read(0, &mut before)?;
            bytes.copy_from_slice(&before[offset..]);
            return Ok(());
        }
        let count = bytes.len();
        let copied = self.value(count).and_then(|source| {
            let target = TensorRefMut::from_array_view_mut((vec![count], bytes))?;
            // SAFETY: both are of this size and live until the call returns; the host's memory is borrowed exclusively.
            Ok(unsafe { self.device.copy(source.ptr(), target.ptr()) })
        });
        self.device.done(copied)?;
        self.device.counts.to_host.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Copies from another buffer, or from a separate range of this one.
    pub(crate) fn copy_from(&self, to: usize, source: &Self, from: usize, bytes: usize) -> Result<()> {
        if to == 0 && from == 0 && bytes.is_multiple_of(GRANULARITY) && self.handle != source.handle {
            let values = source.value(bytes).and_then(|source| Ok((source, self.value(bytes)?)));
            // SAFETY: both are of this size and live until the call returns.
            let copied =
                values.map(|(source, target)| unsafe { self.device.copy(source.ptr(), target.ptr()) });
            return self.device.done(copied);
        }
        let mut part = vec![0; bytes];
        source.read(from, &mut part)?;
        self.write(to, &part)
    }

    /// The value that ONNX Runtime takes as the address of a tensor in this buffer.
    pub(crate) fn handle(&self) -> u64 {
        self.handle.as_ptr() as u64
    }

    /// In bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes
    }

    /// The first bytes as a tensor.
    fn value(&self, bytes: usize) -> ort::Result<DynValue> {
        // SAFETY: callers pass no more bytes than the buffer has, and drop the tensor before the buffer. Work on the buffer
        // is in the order in which it is enqueued.
        unsafe { call::value_at(&self.device.memory, self.handle(), ElementType::U8, &[bytes]) }
    }
}

impl Drop for WebGpuBuffer {
    fn drop(&mut self) {
        let _turn = webgpu::exclusive();
        // SAFETY: the allocator made the handle, and it is freed once, while no other thread calls the provider. The provider
        // keeps the buffer until work that was enqueued with it has finished.
        let status =
            unsafe { (ort::api().AllocatorFree)(self.device.allocator.as_ptr(), self.handle.as_ptr()) };
        if let Err(error) = check(status) {
            tracing::debug!("{}: cannot free a buffer: {}", self.device.name, error.message());
        }
    }
}
