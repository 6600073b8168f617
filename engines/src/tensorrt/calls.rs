//! TensorRT's C++ interface with results: [`build`] builds plans, [`run`] runs them.
//!
//! When a call fails, TensorRT returns null or `false` and passes the reason to its logger. So every call here checks the
//! result and takes the reason from the [log](super::log). A null pointer must not be used: the next call would crash.
//!
//! The calls are those of `trtx::trtx_sys`. The safe interface of `trtx` omits the node of a parser error, destroys
//! optimisation profiles that belong to the builder, reports a phase as its own parent, and has neither timing caches nor
//! the ranges of a plan's inputs.

pub(super) mod build;
pub(super) mod run;

use super::log::{LOG, Severity};
use crate::tensor::ElementType;
use cxx::memory::{UniquePtr, UniquePtrTarget};
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::pin::Pin;
use std::sync::OnceLock;
use trtx::trtx_sys::{self, nvinfer1};

#[cfg(windows)]
compile_error!(
    "TensorRT's C++ interface is called with the layout of the Itanium C++ ABI, which Windows does not use"
);

/// `createInferBuilder_INTERNAL` and `createInferRuntime_INTERNAL`: (logger, version).
type Create = unsafe extern "C" fn(*mut c_void, i32) -> *mut c_void;

/// The lowest address an object can have. Without a driver the lean runtime returns the address of a member of a null
/// object, which is not null.
const FIRST_ADDRESS: usize = 1 << 16;

/// A C++ object that is deleted when this is dropped.
struct Owned<T: UniquePtrTarget>(UniquePtr<T>);

// SAFETY: TensorRT's objects belong to no thread, and changing one takes `&mut Owned`.
unsafe impl<T: UniquePtrTarget> Send for Owned<T> {}
// SAFETY: as above; the `const` methods of these classes may be called from several threads (TensorRT's developer guide,
// "Thread Safety").
unsafe impl<T: UniquePtrTarget> Sync for Owned<T> {}

impl<T: UniquePtrTarget> Owned<T> {
    /// `None` for null.
    ///
    /// # Safety
    /// `object` is null, is below [`FIRST_ADDRESS`], or is an object of this class that nothing else deletes.
    unsafe fn new(object: *mut T) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        (object.addr() >= FIRST_ADDRESS).then(|| Self(unsafe { UniquePtr::from_raw(object) }))
    }

    fn get(&self) -> &T {
        &self.0
    }

    fn get_mut(&mut self) -> Pin<&mut T> {
        self.0.pin_mut()
    }
}

/// The address of a function of a library.
fn function(library: &Path, name: &str) -> Result<*const c_void, String> {
    let opened = crate::library::open(library)?;
    // SAFETY: only the address is taken; the caller gives it its type.
    let address = unsafe { opened.get::<*const c_void>(name.as_bytes()) }.map(|symbol| *symbol);
    address.map_err(|_| format!("{} does not export `{name}`", library.display()))
}

/// Creates a builder or a runtime, which create all other objects; `None` if TensorRT fails.
///
/// # Safety
/// `function` is `create…_INTERNAL` of a loaded library, and creates a `T`.
unsafe fn create<T: UniquePtrTarget>(function: Create) -> Option<Owned<T>> {
    let logger = logger();
    if logger.is_null() {
        return None;
    }
    // SAFETY: the logger lives as long as the process, and the version is that of the headers that the bindings were made
    // from: an incompatible library returns null.
    unsafe { Owned::new(function(logger, trtx_sys::get_tensorrt_version() as i32).cast()) }
}

/// The logger of the process: TensorRT keeps the first that it receives. Null if it cannot be created.
fn logger() -> *mut c_void {
    unsafe extern "C" fn take(_: *mut c_void, severity: i32, message: *const c_char) {
        let severity = match severity {
            0 | 1 => Severity::Error,
            2 => Severity::Warning,
            _ => Severity::Info,
        };
        // SAFETY: TensorRT passes a string that is valid during the call.
        if let Some(message) = unsafe { text(message) } {
            LOG.take(severity, &message);
        }
    }
    static LOGGER: OnceLock<usize> = OnceLock::new();
    let address = LOGGER.get_or_init(|| {
        // SAFETY: the callback takes no user data, and the bridge is never destroyed.
        unsafe {
            let bridge = trtx_sys::create_rust_logger_bridge(take, std::ptr::null_mut());
            if bridge.is_null() { 0 } else { trtx_sys::get_logger_interface(bridge).expose_provenance() }
        }
    });
    std::ptr::with_exposed_provenance_mut(*address)
}

/// Copies a C string; `None` for null.
///
/// # Safety
/// `pointer` is null or points to a string that ends with a null byte.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Copies memory that TensorRT allocated for the caller, and frees it; `None` for null.
///
/// # Safety
/// `memory` is null or owned by the caller, who does not use it again.
unsafe fn take_memory(memory: *mut nvinfer1::IHostMemory) -> Option<Vec<u8>> {
    // SAFETY: guaranteed by the caller; the bytes are valid as long as the memory.
    unsafe {
        let memory: Option<UniquePtr<_>> = (!memory.is_null()).then(|| UniquePtr::from_raw(memory));
        let memory = memory?;
        let (data, size) = (memory.data(), memory.size());
        (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast::<u8>(), size).to_vec())
    }
}

/// The sizes of a shape, -1 where they are dynamic; `None` for the shape of rank -1 that stands for an error.
fn sizes(dims: &nvinfer1::Dims64) -> Option<&[i64]> {
    dims.d.get(..usize::try_from(dims.nbDims).ok()?)
}

/// Converts an element type of TensorRT, or returns why it is not supported.
fn element_type(data_type: nvinfer1::DataType) -> Result<ElementType, String> {
    use trtx_sys::DataType;
    Ok(match DataType::from(data_type) {
        DataType::kFLOAT => ElementType::F32,
        DataType::kHALF => ElementType::F16,
        DataType::kINT32 => ElementType::I32,
        DataType::kINT64 => ElementType::I64,
        DataType::kUINT8 => ElementType::U8,
        DataType::kBOOL => ElementType::Bool,
        other => return Err(format!("TensorRT's element type {other:?} is not supported")),
    })
}
