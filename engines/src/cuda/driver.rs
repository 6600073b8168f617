//! NVIDIA's driver, found while the program runs.
//!
//! The table of functions is filled when the library is opened, so that a driver that lacks one is an error with its
//! name and no call can miss. Codes stay numbers: a newer driver has codes that no header of today knows.

use super::calls::{
    CallError, CallResult, CudaCalls, Launch, RawContext, RawEvent, RawFunction, RawGraph, RawModule,
    RawStream,
};
use crate::error::{Error, ErrorKind, Result};
use crate::library::one_line;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

/// The oldest CUDA whose functions all are in the table.
const OLDEST: u32 = 12_000;

const SUCCESS: i32 = 0;
const ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
const STREAM_NON_BLOCKING: c_uint = 1;
const EVENT_DISABLE_TIMING: c_uint = 2;
/// Page-locked for every context of the process.
const HOST_ALLOC_PORTABLE: c_uint = 1;
/// Only what this thread does can spoil a capture.
const CAPTURE_THREAD_LOCAL: c_int = 1;

type Handle = *mut c_void;

macro_rules! table {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        struct Table {
            $($field: unsafe extern "C" fn($($argument),*) -> i32,)+
        }

        impl Table {
            /// Looks every function up; an error is the name of one that is not there.
            fn of(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the symbol is the driver's function of this name, whose C declaration has these
                        // arguments and answers a `CUresult`, an `int`.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> i32>(concat!($symbol, "\0").as_bytes())
                        };
                        *symbol.map_err(|_| $symbol)?
                    },)+
                })
            }
        }
    };
}

table! {
    init = "cuInit": fn(c_uint);
    driver_get_version = "cuDriverGetVersion": fn(*mut c_int);
    get_error_name = "cuGetErrorName": fn(i32, *mut *const c_char);
    get_error_string = "cuGetErrorString": fn(i32, *mut *const c_char);
    device_get_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_get_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    device_get_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    primary_ctx_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int);
    primary_ctx_release = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    ctx_set_current = "cuCtxSetCurrent": fn(Handle);
    ctx_get_stream_priority_range = "cuCtxGetStreamPriorityRange": fn(*mut c_int, *mut c_int);
    mem_get_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    mem_alloc = "cuMemAlloc_v2": fn(*mut c_ulonglong, usize);
    mem_free = "cuMemFree_v2": fn(c_ulonglong);
    mem_host_alloc = "cuMemHostAlloc": fn(*mut Handle, usize, c_uint);
    mem_free_host = "cuMemFreeHost": fn(Handle);
    memcpy_htod = "cuMemcpyHtoDAsync_v2": fn(c_ulonglong, *const c_void, usize, Handle);
    memcpy_dtoh = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, c_ulonglong, usize, Handle);
    memcpy_dtod = "cuMemcpyDtoDAsync_v2": fn(c_ulonglong, c_ulonglong, usize, Handle);
    memset_d8 = "cuMemsetD8Async": fn(c_ulonglong, u8, usize, Handle);
    stream_create = "cuStreamCreateWithPriority": fn(*mut Handle, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2": fn(Handle);
    stream_synchronize = "cuStreamSynchronize": fn(Handle);
    stream_wait_event = "cuStreamWaitEvent": fn(Handle, Handle, c_uint);
    stream_begin_capture = "cuStreamBeginCapture_v2": fn(Handle, c_int);
    stream_end_capture = "cuStreamEndCapture": fn(Handle, *mut Handle);
    event_create = "cuEventCreate": fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2": fn(Handle);
    event_record = "cuEventRecord": fn(Handle, Handle);
    event_query = "cuEventQuery": fn(Handle);
    event_synchronize = "cuEventSynchronize": fn(Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags": fn(*mut Handle, Handle, c_ulonglong);
    graph_launch = "cuGraphLaunch": fn(Handle, Handle);
    graph_destroy = "cuGraphDestroy": fn(Handle);
    graph_exec_destroy = "cuGraphExecDestroy": fn(Handle);
    module_load_data = "cuModuleLoadData": fn(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload": fn(Handle);
    module_get_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    launch_kernel = "cuLaunchKernel": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
}

/// The driver of this machine.
pub(super) struct Driver {
    table: Table,
    /// Dropped after the table, which points into it; in fact never: the process keeps the driver.
    _library: Library,
}

/// The driver once it has been opened. A failure is not kept, so that it can be repaired while the program runs.
static DRIVER: Mutex<Option<Arc<Driver>>> = Mutex::new(None);

impl Driver {
    /// Opens and starts the driver, or returns the one that this process has.
    pub(super) fn open() -> Result<Arc<Self>> {
        let mut opened = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = &*opened {
            return Ok(Arc::clone(driver));
        }
        let driver = Arc::new(Self::load(NAMES)?);
        *opened = Some(Arc::clone(&driver));
        Ok(driver)
    }

    /// Opens the first library of these names that is there, and starts it.
    pub(super) fn load(names: &[&str]) -> Result<Self> {
        let unavailable =
            |why: String| Error::new(ErrorKind::Unavailable, format!("cannot use an NVIDIA GPU: {why}"));
        let mut refusals = Vec::new();
        let library = names.iter().find_map(|name| {
            // SAFETY: what a library runs when it is loaded is the operating system's trust in the installed driver.
            unsafe { Library::new(*name) }.map_err(|error| refusals.push(one_line(&error))).ok()
        });
        let library = library.ok_or_else(|| {
            let why = refusals.join("; ");
            unavailable(format!(
                "NVIDIA's driver is not installed: {why}; install the driver (580 or newer for CUDA 13)"
            ))
        })?;
        let table = Table::of(&library).map_err(|symbol| {
            unavailable(format!(
                "NVIDIA's driver lacks {symbol}: it is too old; install one for CUDA 12 or newer"
            ))
        })?;
        let driver = Self { table, _library: library };
        // SAFETY: no requirement; it is the first call.
        driver.check("cuInit", unsafe { (driver.table.init)(0) }).map_err(|error| match error.code {
            CallError::NO_DEVICE => unavailable(format!("there is none on this machine ({error})")),
            _ => unavailable(format!("NVIDIA's driver does not start: {error}")),
        })?;
        let version = driver.driver_version().map_err(|error| unavailable(error.to_string()))?;
        if version < OLDEST {
            return Err(unavailable(format!(
                "NVIDIA's driver speaks CUDA {}, it takes {} or newer: install a newer driver",
                super::device::cuda_version(version),
                super::device::cuda_version(OLDEST)
            )));
        }
        tracing::debug!(version, "NVIDIA's driver opened");
        Ok(driver)
    }

    fn check(&self, call: &'static str, code: i32) -> CallResult<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.refused(call, code)) }
    }

    fn refused(&self, call: &'static str, code: i32) -> CallError {
        let text = |look_up: unsafe extern "C" fn(i32, *mut *const c_char) -> i32| {
            let mut text = ptr::null();
            // SAFETY: the pointer is written to; an unknown code is answered with an error.
            let known = unsafe { look_up(code, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: the driver's texts end with a null byte and live as long as the library.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.table.get_error_name).unwrap_or_else(|| format!("CUDA error {code}"));
        let reason =
            text(self.table.get_error_string).map_or(name.clone(), |text| format!("{text} ({name})"));
        CallError { call, code, reason }
    }

    fn device(&self, ordinal: usize) -> CallResult<c_int> {
        let mut device = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the driver is started; it answers an ordinal that does not exist with an error.
        self.check("cuDeviceGet", unsafe { (self.table.device_get)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    fn attribute(&self, ordinal: usize, attribute: c_int) -> CallResult<u32> {
        let (device, mut value) = (self.device(ordinal)?, 0);
        // SAFETY: the device exists, and the value is written to.
        let code = unsafe { (self.table.device_get_attribute)(&raw mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(u32::try_from(value).unwrap_or_default())
    }
}

#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}

/// A handle as the driver counts.
fn raw(handle: usize) -> Handle {
    ptr::with_exposed_provenance_mut(handle)
}

/// What a handle is kept as.
fn exposed(handle: Handle) -> usize {
    handle.expose_provenance()
}

// SAFETY of the calls below: the driver is started (`load`), every pointer to a local is written to during the call, and
// what concerns handles, addresses, the current context and the order of work is what `CudaCalls` asks of its callers.
impl CudaCalls for Driver {
    fn driver_version(&self) -> CallResult<u32> {
        let mut version = 0;
        // SAFETY: no requirement but the pointer.
        self.check("cuDriverGetVersion", unsafe { (self.table.driver_get_version)(&raw mut version) })?;
        Ok(u32::try_from(version).unwrap_or_default())
    }

    fn device_count(&self) -> CallResult<usize> {
        let mut count = 0;
        // SAFETY: the driver is started.
        self.check("cuDeviceGetCount", unsafe { (self.table.device_get_count)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    fn device_name(&self, ordinal: usize) -> CallResult<String> {
        let device = self.device(ordinal)?;
        let mut name = [0_u8; 256];
        // SAFETY: the driver writes at most as many bytes as it is told, with a null byte at the end.
        let code =
            unsafe { (self.table.device_get_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        self.check("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    fn compute_capability(&self, ordinal: usize) -> CallResult<(u32, u32)> {
        let major = self.attribute(ordinal, ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(ordinal, ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    fn retain_primary_context(&self, ordinal: usize) -> CallResult<RawContext> {
        let (device, mut context) = (self.device(ordinal)?, ptr::null_mut());
        // SAFETY: the device exists.
        let code = unsafe { (self.table.primary_ctx_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(RawContext(exposed(context)))
    }

    unsafe fn release_primary_context(&self, ordinal: usize) -> CallResult<()> {
        let device = self.device(ordinal)?;
        // SAFETY: upheld by the caller.
        self.check("cuDevicePrimaryCtxRelease", unsafe { (self.table.primary_ctx_release)(device) })
    }

    unsafe fn set_current(&self, context: RawContext) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuCtxSetCurrent", unsafe { (self.table.ctx_set_current)(raw(context.0)) })
    }

    unsafe fn memory(&self) -> CallResult<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: upheld by the caller.
        self.check("cuMemGetInfo", unsafe { (self.table.mem_get_info)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    unsafe fn allocate(&self, bytes: usize) -> CallResult<u64> {
        let mut address = 0;
        // SAFETY: upheld by the caller.
        self.check("cuMemAlloc", unsafe { (self.table.mem_alloc)(&raw mut address, bytes) })?;
        Ok(address)
    }

    unsafe fn free(&self, address: u64) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuMemFree", unsafe { (self.table.mem_free)(address) })
    }

    unsafe fn allocate_host(&self, bytes: usize) -> CallResult<NonNull<u8>> {
        let mut memory = ptr::null_mut();
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.mem_host_alloc)(&raw mut memory, bytes, HOST_ALLOC_PORTABLE) };
        self.check("cuMemHostAlloc", code)?;
        NonNull::new(memory.cast()).ok_or_else(|| self.refused("cuMemHostAlloc", CallError::OUT_OF_MEMORY))
    }

    unsafe fn free_host(&self, memory: NonNull<u8>) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuMemFreeHost", unsafe { (self.table.mem_free_host)(memory.as_ptr().cast()) })
    }

    unsafe fn priorities(&self) -> CallResult<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.ctx_get_stream_priority_range)(&raw mut least, &raw mut greatest) };
        self.check("cuCtxGetStreamPriorityRange", code)?;
        Ok((least, greatest))
    }

    unsafe fn create_stream(&self, priority: i32) -> CallResult<RawStream> {
        let mut stream = ptr::null_mut();
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.stream_create)(&raw mut stream, STREAM_NON_BLOCKING, priority) };
        self.check("cuStreamCreate", code)?;
        Ok(RawStream(exposed(stream)))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuStreamDestroy", unsafe { (self.table.stream_destroy)(raw(stream.0)) })
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuStreamSynchronize", unsafe { (self.table.stream_synchronize)(raw(stream.0)) })
    }

    unsafe fn create_event(&self) -> CallResult<RawEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.event_create)(&raw mut event, EVENT_DISABLE_TIMING) };
        self.check("cuEventCreate", code)?;
        Ok(RawEvent(exposed(event)))
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuEventDestroy", unsafe { (self.table.event_destroy)(raw(event.0)) })
    }

    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuEventRecord", unsafe { (self.table.event_record)(raw(event.0), raw(stream.0)) })
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.stream_wait_event)(raw(stream.0), raw(event.0), 0) };
        self.check("cuStreamWaitEvent", code)
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuEventSynchronize", unsafe { (self.table.event_synchronize)(raw(event.0)) })
    }

    unsafe fn event_is_done(&self, event: RawEvent) -> CallResult<bool> {
        // SAFETY: upheld by the caller.
        match unsafe { (self.table.event_query)(raw(event.0)) } {
            CallError::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: NonNull<u8>,
        bytes: usize,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.memcpy_htod)(to, from.as_ptr().cast(), bytes, raw(stream.0)) };
        self.check("cuMemcpyHtoDAsync", code)
    }

    unsafe fn copy_to_host(
        &self,
        to: NonNull<u8>,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.memcpy_dtoh)(to.as_ptr().cast(), from, bytes, raw(stream.0)) };
        self.check("cuMemcpyDtoHAsync", code)
    }

    unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: usize, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.memcpy_dtod)(to, from, bytes, raw(stream.0)) };
        self.check("cuMemcpyDtoDAsync", code)
    }

    unsafe fn fill(&self, to: u64, value: u8, bytes: usize, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.memset_d8)(to, value, bytes, raw(stream.0)) };
        self.check("cuMemsetD8Async", code)
    }

    unsafe fn begin_capture(&self, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.stream_begin_capture)(raw(stream.0), CAPTURE_THREAD_LOCAL) };
        self.check("cuStreamBeginCapture", code)
    }

    unsafe fn end_capture(&self, stream: RawStream) -> CallResult<RawGraph> {
        let (mut graph, mut ready) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.stream_end_capture)(raw(stream.0), &raw mut graph) };
        self.check("cuStreamEndCapture", code)?;
        // SAFETY: the graph is the one just captured.
        let code = unsafe { (self.table.graph_instantiate)(&raw mut ready, graph, 0) };
        let instantiated = self.check("cuGraphInstantiate", code);
        // SAFETY: the graph is ours, and what was instantiated does not need it.
        let destroyed = self.check("cuGraphDestroy", unsafe { (self.table.graph_destroy)(graph) });
        instantiated.and(destroyed)?;
        Ok(RawGraph(exposed(ready)))
    }

    unsafe fn launch_graph(&self, graph: RawGraph, stream: RawStream) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuGraphLaunch", unsafe { (self.table.graph_launch)(raw(graph.0), raw(stream.0)) })
    }

    unsafe fn destroy_graph(&self, graph: RawGraph) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuGraphExecDestroy", unsafe { (self.table.graph_exec_destroy)(raw(graph.0)) })
    }

    unsafe fn load_module(&self, image: &[u8]) -> CallResult<RawModule> {
        let mut module = ptr::null_mut();
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.table.module_load_data)(&raw mut module, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", code)?;
        Ok(RawModule(exposed(module)))
    }

    unsafe fn unload_module(&self, module: RawModule) -> CallResult<()> {
        // SAFETY: upheld by the caller.
        self.check("cuModuleUnload", unsafe { (self.table.module_unload)(raw(module.0)) })
    }

    unsafe fn function(&self, module: RawModule, name: &CStr) -> CallResult<RawFunction> {
        let mut function = ptr::null_mut();
        // SAFETY: upheld by the caller.
        let code =
            unsafe { (self.table.module_get_function)(&raw mut function, raw(module.0), name.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        Ok(RawFunction(exposed(function)))
    }

    unsafe fn launch_kernel(
        &self,
        function: RawFunction,
        launch: Launch,
        parameters: &mut [*mut c_void],
        stream: RawStream,
    ) -> CallResult<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: upheld by the caller.
        let code = unsafe {
            (self.table.launch_kernel)(
                raw(function.0),
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                launch.shared_bytes,
                raw(stream.0),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.check("cuLaunchKernel", code)
    }
}
