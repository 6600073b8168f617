//! One GPU.

use super::buffer::{Blocks, CudaBuffer};
use super::calls::{CudaCalls, RawContext};
use super::context::Context;
use super::driver::Driver;
use super::event::Events;
use super::staging::{Staging, StagingPool};
use super::stream::{CudaStream, StreamPriority};
use crate::device::{Device, DeviceBuffer, DeviceKind, Transferred};
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The part of a device's memory that buffers nobody owns may keep: one of so many.
const IDLE_PART: u64 = 4;

/// An NVIDIA GPU, with the primary context that every library in the process shares.
///
/// Its [buffers](CudaBuffer) keep the order of what is enqueued on them by themselves.
pub struct CudaDevice {
    core: Arc<Core>,
    compute_capability: (u32, u32),
    driver_version: u32,
}

/// A GPU's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMemory {
    /// What no process has.
    pub free: u64,
    /// What there is.
    pub total: u64,
}

/// The devices that are open, so that who opens one again gets the same.
static OPEN: Mutex<Vec<(usize, Weak<CudaDevice>)>> = Mutex::new(Vec::new());

impl CudaDevice {
    /// Opens the GPU of this ordinal, as CUDA counts (`CUDA_VISIBLE_DEVICES` applied), or returns the one that is open.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where NVIDIA's driver is missing, too old or does not start, or there is no such GPU;
    /// the message says which and what to do.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        let driver = Driver::open()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, device)| device.strong_count() > 0);
        if let Some(device) =
            open.iter().find(|(own, _)| *own == ordinal).and_then(|(_, device)| device.upgrade())
        {
            return Ok(device);
        }
        let device = Self::open_with(driver, ordinal)?;
        open.push((ordinal, Arc::downgrade(&device)));
        Ok(device)
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] as [`open`](Self::open).
    pub fn count() -> Result<usize> {
        Driver::open()?.device_count().map_err(|error| unavailable(&error))
    }

    /// Opens a GPU through other calls than the driver's: a [fake](super::fake)'s.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] as [`open`](Self::open).
    pub fn open_with(calls: Arc<dyn CudaCalls>, ordinal: usize) -> Result<Arc<Self>> {
        let count = calls.device_count().map_err(|error| unavailable(&error))?;
        if ordinal >= count {
            let there = match count {
                0 => "there is none on this machine".to_owned(),
                1 => "there is 1, number 0".to_owned(),
                count => format!("there are {count}, numbers 0 to {}", count - 1),
            };
            let hint = "CUDA_VISIBLE_DEVICES says which ones a program sees";
            return Err(unavailable(&format!("no GPU has number {ordinal}, {there}; {hint}")));
        }
        let read = || -> Result<_, super::CallError> {
            let name = calls.device_name(ordinal)?;
            let compute_capability = calls.compute_capability(ordinal)?;
            let driver_version = calls.driver_version()?;
            let context = Context::retain(Arc::clone(&calls), ordinal)?;
            let (_, total) = memory(&context)?;
            Ok((name, compute_capability, driver_version, context, total))
        };
        let (name, compute_capability, driver_version, context, total) =
            read().map_err(|error| unavailable(&error))?;
        let core = Core::new(format!("{name} (CUDA device {ordinal})"), context, total)?;
        Ok(Arc::new(Self { core: Arc::new(core), compute_capability, driver_version }))
    }

    /// The generation of the GPU, major and minor number: (9, 0) is Hopper.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.compute_capability
    }

    /// The version of CUDA that the driver speaks: `13.0`.
    pub fn driver_version(&self) -> String {
        cuda_version(self.driver_version)
    }

    /// As CUDA counts.
    pub fn ordinal(&self) -> usize {
        self.core.context.ordinal()
    }

    /// How much memory is free at the moment, and how much there is. What idle buffers keep is not free.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device is lost.
    pub fn memory(&self) -> Result<CudaMemory> {
        let (free, total) = memory(&self.core.context).map_err(|error| error.during(self.core.name()))?;
        Ok(CudaMemory { free, total })
    }

    /// A buffer as its own type; [`Device::allocate`] for those who know that it is a GPU's.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where there is no such memory left.
    pub fn allocate_buffer(&self, bytes: usize) -> Result<CudaBuffer> {
        let core = &self.core;
        core.allocations.fetch_add(1, Ordering::Relaxed);
        let (block, usage) = core.blocks.take(&core.context, bytes).map_err(|error| {
            let free = self.memory().map_or("unknown".to_owned(), |memory| memory.free.to_string());
            let what = format!("cannot allocate {bytes} bytes on {}, where {free} are free", core.name());
            error.during(what)
        })?;
        Ok(CudaBuffer::new(Arc::clone(core), block, usage))
    }

    /// How many buffers were asked for so far: in a steady state the number stands still.
    pub fn allocations(&self) -> usize {
        self.core.allocations.load(Ordering::Relaxed)
    }

    /// Gives the memory of idle buffers back to the driver, for others in the process or on the machine.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device is lost.
    pub fn give_idle_memory_back(&self) -> Result<()> {
        self.core.blocks.clear().map_err(|error| error.during(self.core.name()))
    }

    /// The primary context, for libraries that ask for it; it is not to be destroyed.
    pub fn raw_context(&self) -> RawContext {
        self.core.context.raw()
    }

    /// The calls to the driver, with the context bound to this thread, for those who enqueue kernels of their own within
    /// [`CudaStream::enqueue`].
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device is lost.
    pub fn calls(&self) -> Result<&dyn CudaCalls> {
        self.core.context.bound().map_err(|error| error.during(self.core.name()))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        self.core.name()
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda { ordinal: self.ordinal() }
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Ok(Arc::new(self.allocate_buffer(bytes)?))
    }

    fn transferred(&self) -> Transferred {
        Transferred {
            to_device: self.core.to_device_bytes.load(Ordering::Relaxed),
            to_host: self.core.to_host_bytes.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({})", self.core.name())
    }
}

/// What the buffers of a device share. The fields are dropped in this order: who uses memory before the memory, and the
/// context last.
pub(super) struct Core {
    name: String,
    to_device: CudaStream,
    to_host: CudaStream,
    blocks: Blocks,
    staging: StagingPool,
    events: Arc<Events>,
    context: Arc<Context>,
    to_device_bytes: AtomicU64,
    to_host_bytes: AtomicU64,
    allocations: AtomicUsize,
}

impl Core {
    fn new(name: String, context: Arc<Context>, total_bytes: u64) -> Result<Self> {
        let events = Events::new(&context);
        let most_idle_bytes = usize::try_from(total_bytes / IDLE_PART).unwrap_or(usize::MAX);
        Ok(Self {
            name,
            // Copies are short, and others wait for them.
            to_device: CudaStream::on(&events, StreamPriority::High)?,
            to_host: CudaStream::on(&events, StreamPriority::High)?,
            blocks: Blocks::new(most_idle_bytes),
            staging: StagingPool::default(),
            events,
            context,
            to_device_bytes: AtomicU64::new(0),
            to_host_bytes: AtomicU64::new(0),
            allocations: AtomicUsize::new(0),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn events(&self) -> &Arc<Events> {
        &self.events
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(super) fn stream_to_device(&self) -> &CudaStream {
        &self.to_device
    }

    pub(super) fn stream_to_host(&self) -> &CudaStream {
        &self.to_host
    }

    /// Page-locked memory of at least this many bytes, at most [`MOST_BYTES`](super::staging::MOST_BYTES).
    pub(super) fn staging(&self, bytes: usize) -> Result<Staging> {
        self.staging.take(&self.context, bytes).map_err(|error| {
            error.during(format_args!("cannot lock {bytes} bytes of the host's memory for {}", self.name))
        })
    }

    pub(super) fn give_back(&self, piece: Staging) {
        self.staging.give_back(piece);
    }

    pub(super) fn count_to_device(&self, bytes: usize) {
        self.to_device_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_to_host(&self, bytes: usize) {
        self.to_host_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[allow(unsafe_code)]
fn memory(context: &Context) -> super::CallResult<(u64, u64)> {
    // SAFETY: the context is bound.
    unsafe { context.bound()?.memory() }
}

/// `12080` as `12.8`.
pub(super) fn cuda_version(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn unavailable(why: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot use an NVIDIA GPU: {why}"))
}
