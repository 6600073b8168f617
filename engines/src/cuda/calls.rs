//! The calls into NVIDIA's driver that this crate makes, as a trait: behind it stands the driver, or a fake that sees
//! who waits for whom.

use crate::error::{Error, ErrorKind};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::NonNull;

/// The primary context of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawContext(pub usize);

/// A stream: what is enqueued on it runs in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(pub usize);

/// A point on a stream that others can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawEvent(pub usize);

/// Work that was captured once and is launched as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawGraph(pub usize);

/// Compiled kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawModule(pub usize);

/// A kernel of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawFunction(pub usize);

/// How a kernel is spread over the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of each block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory for each block besides what the kernel declares.
    pub shared_bytes: u32,
}

/// A call that the driver refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The function's name: `cuMemAlloc`.
    pub call: &'static str,
    /// The driver's number for it.
    pub code: i32,
    /// The driver's words for it: `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`.
    pub reason: String,
}

impl CallError {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `CUDA_ERROR_NO_DEVICE`.
    pub const NO_DEVICE: i32 = 100;
    /// `CUDA_ERROR_NOT_READY`: what an event is asked for has not happened.
    pub const NOT_READY: i32 = 600;

    /// An error of this crate: `what` names what was being done, and where.
    pub(crate) fn during(self, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Execution, format!("{what}: {self}")).with_source(self)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.reason)
    }
}

impl std::error::Error for CallError {}

/// What a call gives.
pub type CallResult<T> = Result<T, CallError>;

/// NVIDIA's driver as far as this crate calls it, each call a `Result`.
///
/// Owners with an order of dropping stand above it: [`CudaDevice`](super::CudaDevice), [`CudaStream`](super::CudaStream),
/// [`CudaBuffer`](super::CudaBuffer), [`PinnedBuffer`](super::PinnedBuffer), [`CudaGraph`](super::CudaGraph).
///
/// # Safety
/// Of every unsafe method: handles and addresses come from this very object and have not been given back; the context
/// they belong to is current on the calling thread (see [`set_current`](Self::set_current)); memory that a call enqueues
/// work on stays where it is until the work is done, and nobody else writes what it reads, or touches what it writes, in
/// between. Whoever owns the handle upholds this.
pub trait CudaCalls: Send + Sync + fmt::Debug {
    /// The version of CUDA that the driver speaks, as `1000 · major + 10 · minor`.
    fn driver_version(&self) -> CallResult<u32>;

    /// How many devices there are.
    fn device_count(&self) -> CallResult<usize>;

    /// `NVIDIA H200`.
    fn device_name(&self, ordinal: usize) -> CallResult<String>;

    /// The generation of the device: major and minor number.
    fn compute_capability(&self, ordinal: usize) -> CallResult<(u32, u32)>;

    /// The context that every library in the process shares, made if it is not there; to be released once.
    fn retain_primary_context(&self, ordinal: usize) -> CallResult<RawContext>;

    /// Gives the primary context back.
    ///
    /// # Safety
    /// It was retained once more than released, and nothing that belongs to it is used afterwards.
    unsafe fn release_primary_context(&self, ordinal: usize) -> CallResult<()>;

    /// Makes the context the calling thread's.
    ///
    /// # Safety
    /// The context is retained.
    unsafe fn set_current(&self, context: RawContext) -> CallResult<()>;

    /// Free bytes, and all bytes there are.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn memory(&self) -> CallResult<(u64, u64)>;

    /// Memory on the device, aligned to 256 bytes or more; `bytes` is not zero.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn allocate(&self, bytes: usize) -> CallResult<u64>;

    /// Gives memory back.
    ///
    /// # Safety
    /// See the trait; nothing enqueued uses it any more.
    unsafe fn free(&self, address: u64) -> CallResult<()>;

    /// Page-locked memory of the host that the device copies from and to by itself; `bytes` is not zero.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn allocate_host(&self, bytes: usize) -> CallResult<NonNull<u8>>;

    /// Gives page-locked memory back.
    ///
    /// # Safety
    /// See the trait; nothing enqueued uses it any more.
    unsafe fn free_host(&self, memory: NonNull<u8>) -> CallResult<()>;

    /// The least and the greatest priority of streams; the greatest is the smaller number.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn priorities(&self) -> CallResult<(i32, i32)>;

    /// A stream that does not wait for the default stream.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn create_stream(&self, priority: i32) -> CallResult<RawStream>;

    /// Ends a stream; what is enqueued on it still runs.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn destroy_stream(&self, stream: RawStream) -> CallResult<()>;

    /// Waits until everything enqueued on the stream is done.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn synchronize_stream(&self, stream: RawStream) -> CallResult<()>;

    /// An event that has not been recorded and keeps no time.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn create_event(&self) -> CallResult<RawEvent>;

    /// Ends an event; whoever waits for it goes on waiting.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn destroy_event(&self, event: RawEvent) -> CallResult<()>;

    /// Moves the event to the stream's end.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> CallResult<()>;

    /// Has what is enqueued from now on wait for where the event is now.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()>;

    /// Waits for where the event is now.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn synchronize_event(&self, event: RawEvent) -> CallResult<()>;

    /// Whether everything before the event is done.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn event_is_done(&self, event: RawEvent) -> CallResult<bool>;

    /// Enqueues a copy from page-locked memory.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: NonNull<u8>,
        bytes: usize,
        stream: RawStream,
    ) -> CallResult<()>;

    /// Enqueues a copy to page-locked memory.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn copy_to_host(
        &self,
        to: NonNull<u8>,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> CallResult<()>;

    /// Enqueues a copy from one place on the device to another.
    ///
    /// # Safety
    /// See the trait; the places do not overlap.
    unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: usize, stream: RawStream) -> CallResult<()>;

    /// Enqueues the filling of memory on the device with one byte.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn fill(&self, to: u64, value: u8, bytes: usize, stream: RawStream) -> CallResult<()>;

    /// From now on what this thread enqueues on the stream is written down instead of run.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn begin_capture(&self, stream: RawStream) -> CallResult<()>;

    /// Ends the capture and makes what was written down ready to be launched. The stream is as before even when this
    /// fails.
    ///
    /// # Safety
    /// See the trait; the capture was begun by this thread.
    unsafe fn end_capture(&self, stream: RawStream) -> CallResult<RawGraph>;

    /// Enqueues everything that was captured.
    ///
    /// # Safety
    /// See the trait; the memory that the captured work names is still there.
    unsafe fn launch_graph(&self, graph: RawGraph, stream: RawStream) -> CallResult<()>;

    /// Ends a graph; launches that are under way still run.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn destroy_graph(&self, graph: RawGraph) -> CallResult<()>;

    /// Loads kernels: PTX that ends with a null byte, or what `ptxas` makes of it.
    ///
    /// # Safety
    /// See the trait; the image is well formed.
    unsafe fn load_module(&self, image: &[u8]) -> CallResult<RawModule>;

    /// Unloads kernels.
    ///
    /// # Safety
    /// See the trait; none of them is enqueued any more.
    unsafe fn unload_module(&self, module: RawModule) -> CallResult<()>;

    /// The kernel of this name.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn function(&self, module: RawModule, name: &CStr) -> CallResult<RawFunction>;

    /// Enqueues a kernel; `parameters` point to its arguments, which are read before this returns.
    ///
    /// # Safety
    /// See the trait; there are as many parameters as the kernel has, of its types, and what they make it read and write
    /// lies within memory that is there.
    unsafe fn launch_kernel(
        &self,
        function: RawFunction,
        launch: Launch,
        parameters: &mut [*mut c_void],
        stream: RawStream,
    ) -> CallResult<()>;

    /// Told of every access of the host to page-locked memory before it happens. The driver has no use for it; a fake
    /// that looks for races has.
    fn host_accesses(&self, memory: NonNull<u8>, access: HostAccess) {
        let _ = (memory, access);
    }
}

/// What the host does with page-locked memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAccess {
    /// It reads what the device wrote.
    Read,
    /// It writes what the device is to read.
    Write,
}
