//! A GPU.

use super::buffer::CudaBuffer;
use super::context::Context;
use super::driver::{self, failed, reason, unavailable};
use super::stream::{CudaStream, StreamPriority};
use crate::transferred::Transferred;
use cudarc::driver::CudaContext;
#[cfg(doc)]
use ocelli_error::ErrorKind;
use ocelli_error::Result;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An NVIDIA GPU, with the primary context that all libraries in the process share.
pub struct CudaDevice {
    /// For copies of tensors to and on the device.
    pub(crate) upload: CudaStream,
    /// For copies of tensors to the host.
    pub(crate) download: CudaStream,
    context: Arc<Context>,
    compute_capability: (u32, u32),
    driver_version: String,
}

/// The memory of a GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMemory {
    /// Memory that no process has allocated. Freed buffers that the driver keeps for reuse do not count.
    pub free: u64,
    /// The GPU's whole memory.
    pub total: u64,
}

impl CudaDevice {
    /// Opens the GPU with this ordinal among those that `CUDA_VISIBLE_DEVICES` selects. A GPU that is already open is
    /// returned again.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if NVIDIA's driver is missing, too old or does not start, or there is no such GPU; the
    /// message says which, and what to do.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        static OPEN: Mutex<Vec<Weak<CudaDevice>>> = Mutex::new(Vec::new());
        let count = Self::count()?;
        if ordinal >= count {
            let found = match count {
                0 => "there is none on this machine".to_owned(),
                1 => "there is only GPU 0".to_owned(),
                count => format!("there are GPUs 0 to {}", count - 1),
            };
            let hint = "CUDA_VISIBLE_DEVICES selects which GPUs a program can use";
            return Err(unavailable(format!("GPU {ordinal} does not exist, {found}; {hint}")));
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        if let Some(device) = open.iter().filter_map(Weak::upgrade).find(|one| one.ordinal() == ordinal) {
            return Ok(device);
        }
        let device = Arc::new(Self::new(ordinal)?);
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    fn new(ordinal: usize) -> Result<Self> {
        let context = Context::new(ordinal).map_err(|error| unavailable(reason(error)))?;
        let (major, minor) = context.cuda.compute_capability().map_err(|error| unavailable(reason(error)))?;
        let version = driver::version().map_err(|error| unavailable(reason(error)))?;
        let context = Arc::new(context);
        Ok(Self {
            // Copies are short, and engines wait for them.
            upload: CudaStream::on(&context, StreamPriority::High)?,
            download: CudaStream::on(&context, StreamPriority::High)?,
            context,
            compute_capability: (major.unsigned_abs(), minor.unsigned_abs()),
            driver_version: driver::display_version(version),
        })
    }

    /// The number of GPUs.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if NVIDIA's driver is missing, too old or does not start.
    pub fn count() -> Result<usize> {
        driver::start()?;
        let count = CudaContext::device_count().map_err(|error| unavailable(reason(error)))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// `NVIDIA H200 (CUDA device 0)`
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// The position among the GPUs that `CUDA_VISIBLE_DEVICES` selects.
    pub fn ordinal(&self) -> usize {
        self.context.cuda.ordinal()
    }

    /// The major and minor compute capability: (9, 0) is Hopper.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.compute_capability
    }

    /// The newest CUDA version that the driver supports: `13.0`.
    pub fn driver_version(&self) -> &str {
        &self.driver_version
    }

    /// The free and the total memory.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] if the driver fails.
    pub fn memory(&self) -> Result<CudaMemory> {
        let info = self.context.cuda.mem_get_info().map_err(|error| failed(self.name(), error))?;
        Ok(CudaMemory { free: info.0 as u64, total: info.1 as u64 })
    }

    /// The primary context, a `CUcontext` that exists as long as this device, for libraries that take one.
    pub fn raw_context(&self) -> *mut std::ffi::c_void {
        self.context.cuda.cu_ctx().cast()
    }

    /// Binds the primary context to the calling thread, for libraries that expect it there.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] if the driver fails.
    pub(crate) fn bind_to_thread(&self) -> Result<()> {
        self.context.cuda.bind_to_thread().map_err(|error| failed(self.name(), error))
    }

    /// Allocates a buffer of at least this many bytes, with unspecified contents.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] if there is not enough memory; the message says how much is free.
    pub fn allocate_buffer(&self, bytes: usize) -> Result<CudaBuffer> {
        CudaBuffer::allocate(&self.context, bytes)
    }

    /// The number of buffers allocated so far. In a steady state it does not grow.
    pub fn allocations(&self) -> usize {
        self.context.counts.allocations.load(Ordering::Relaxed)
    }

    /// The bytes that were copied between this device and the host since it was opened.
    pub fn transferred(&self) -> Transferred {
        self.context.counts.transferred()
    }
}

debug_as!(CudaDevice, it => "CudaDevice({})", it.name());

impl CudaStream {
    /// Creates a stream on a device.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] if the driver fails.
    pub fn new(device: &CudaDevice, priority: StreamPriority) -> Result<Self> {
        Self::on(&device.context, priority)
    }
}
