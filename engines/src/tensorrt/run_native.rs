//! The library behind [`RunCalls`], through the C++ bindings of `trtx-sys`.
//!
//! Not through `trtx`: it has no profile's ranges and no size of a context's memory, makes a string for every call, and
//! its runtime borrows the logger.

use super::TensorRt;
use super::calls::FIRST_ADDRESS;
use super::log::LOG;
use super::native::logger;
use super::run_calls::{ContextCalls, PlanCalls, PlanTensor, Reason, Refusal, RunCalls};
use crate::error::{Error, ErrorKind, Result as EngineResult};
use cxx::memory::{UniquePtr, UniquePtrTarget};
use libloading::Library;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use trtx::trtx_sys::{self, nvinfer1};

/// `createInferRuntime_INTERNAL(logger, version)` of `NvInferRuntime.h`.
type CreateRuntime = unsafe extern "C" fn(*mut c_void, i32) -> *mut c_void;

/// The profile that contexts are made with.
const PROFILE: i32 = 0;
/// The number of `nvinfer1::TensorFormat::kLINEAR`.
const LINEAR: i32 = 0;

/// A loaded library.
pub(super) struct Native {
    create_runtime: CreateRuntime,
    text: String,
}

impl Native {
    pub(super) fn new(tensorrt: &TensorRt) -> EngineResult<Self> {
        let path = tensorrt.path();
        let unavailable = |why: String| {
            Error::new(ErrorKind::Unavailable, format!("cannot run plans with {}: {why}", path.display()))
        };
        // SAFETY: the library is loaded already; this counts it once more.
        let library = unsafe { Library::new(path) }.map_err(|error| unavailable(error.to_string()))?;
        // Never unloaded: TensorRT has threads and statics of its own.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the symbol has this type in NvInferRuntime.h, unchanged since TensorRT 8.
        let symbol = unsafe { library.get::<CreateRuntime>(b"createInferRuntime_INTERNAL\0") };
        let create_runtime = *symbol.map_err(|error| unavailable(error.to_string()))?;
        Ok(Self { create_runtime, text: format!("{} {}", tensorrt.name(), tensorrt.version()) })
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An object of TensorRT's that this owns: C++'s `delete` when it is dropped.
struct Owned<T: UniquePtrTarget>(NonNull<T>);

// SAFETY: objects of TensorRT belong to no thread; the owners here let one thread at a time change one.
unsafe impl<T: UniquePtrTarget> Send for Owned<T> {}
// SAFETY: as above; methods that change nothing may be called from several threads ("thread-safe: yes" in the developer
// guide for ICudaEngine).
unsafe impl<T: UniquePtrTarget> Sync for Owned<T> {}

impl<T: UniquePtrTarget> Owned<T> {
    /// None for null, and for an address in the first pages, where nothing lies: the lean runtime that cannot start
    /// answers the place of a part in an object that is null.
    ///
    /// # Safety
    /// `object` is such an address, or an object of this class that nobody else owns.
    unsafe fn new(object: *mut T) -> Option<Self> {
        NonNull::new(object).filter(|object| object.addr().get() >= FIRST_ADDRESS).map(Self)
    }

    fn get(&self) -> &T {
        // SAFETY: the object lives as long as this.
        unsafe { self.0.as_ref() }
    }

    fn get_mut(&mut self) -> Pin<&mut T> {
        // SAFETY: the object lives as long as this, is borrowed exclusively, and C++ does not move it.
        unsafe { Pin::new_unchecked(self.0.as_mut()) }
    }
}

impl<T: UniquePtrTarget> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object is ours, and this is the last that is heard of it.
        drop(unsafe { UniquePtr::from_raw(self.0.as_ptr()) });
    }
}

impl RunCalls for Native {
    fn library(&self) -> String {
        self.text.clone()
    }

    fn deserialize(&self, plan: &[u8]) -> Result<Arc<dyn PlanCalls>, Refusal> {
        let mark = LOG.mark();
        // SAFETY: the logger lives as long as the process (null is answered with null), and the version is that of the
        // headers that the calls below are made by.
        let runtime = unsafe {
            let version = trtx_sys::get_tensorrt_version() as i32;
            Owned::new((self.create_runtime)(logger(), version).cast::<nvinfer1::IRuntime>())
        };
        let mut runtime = runtime.ok_or_else(|| Refusal::Library(LOG.since(mark)))?;
        // SAFETY: the bytes are read during the call.
        let engine =
            unsafe { Owned::new(runtime.get_mut().deserializeCudaEngine(plan.as_ptr().cast(), plan.len())) };
        let engine = engine.ok_or_else(|| match diagnosis(&runtime, plan) {
            Some(diagnosis) => Refusal::Plan(format!("{diagnosis}; {}", LOG.since(mark))),
            None => Refusal::Plan(LOG.since(mark)),
        })?;
        let names = (0..engine.get().getNbIOTensors()).map(|index| {
            let name = engine.get().getIOTensorName(index);
            // SAFETY: null or a string of the engine's that ends with a null byte.
            NonNull::new(name.cast_mut()).map(|name| unsafe { CStr::from_ptr(name.as_ptr()) }.to_owned())
        });
        let names: Option<Vec<CString>> = names.collect();
        let names =
            names.ok_or_else(|| Refusal::Plan(format!("a tensor has no name: {}", LOG.since(mark))))?;
        Ok(Arc::new(NativePlan {
            engine: Mutex::new(engine),
            names: names.into(),
            _runtime: Mutex::new(runtime),
        }))
    }
}

/// What TensorRT for RTX reads from a plan's first bytes that speaks against it.
#[cfg(feature = "tensorrt-rtx")]
fn diagnosis(runtime: &Owned<nvinfer1::IRuntime>, plan: &[u8]) -> Option<String> {
    use trtx_sys::EngineInvalidityDiagnostics as Diagnostics;
    if (plan.len() as u64) < runtime.get().getEngineHeaderSize() as u64 {
        return Some("the plan is too short to be one".to_owned());
    }
    let mut bits = 0;
    // SAFETY: the bytes are read and the bits written during the call.
    unsafe { runtime.get().getEngineValidity(plan.as_ptr().cast(), plan.len() as i64, &raw mut bits) };
    let bits = Diagnostics::from_bits_retain(bits);
    let words = [
        (Diagnostics::VERSION_MISMATCH, "another version of TensorRT for RTX built the plan"),
        (Diagnostics::UNSUPPORTED_CC, "the plan was built for GPUs of other generations"),
        (Diagnostics::OLD_CUDA_DRIVER, "the driver is older than the one the plan was built with"),
        (Diagnostics::OLD_CUDA_RUNTIME, "the CUDA runtime is older than the one the plan was built with"),
        (Diagnostics::INSUFFICIENT_GPU_MEMORY, "the GPU has too little memory for the plan's weights"),
        (Diagnostics::MALFORMED_ENGINE, "the plan is damaged, or is none"),
        (Diagnostics::CUDA_ERROR, "CUDA is not installed as it should be"),
    ];
    let words: Vec<_> = words.iter().filter(|(bit, _)| bits.contains(*bit)).map(|(_, text)| *text).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(not(feature = "tensorrt-rtx"))]
fn diagnosis(_: &Owned<nvinfer1::IRuntime>, _: &[u8]) -> Option<String> {
    None
}

/// Fields are dropped in this order: an engine before the runtime that made it.
struct NativePlan {
    engine: Mutex<Owned<nvinfer1::ICudaEngine>>,
    names: Arc<[CString]>,
    _runtime: Mutex<Owned<nvinfer1::IRuntime>>,
}

impl PlanCalls for NativePlan {
    fn tensors(&self) -> Result<Vec<PlanTensor>, Reason> {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.names.iter().map(|name| describe(engine.get(), name)).collect()
    }

    fn context_bytes(&self) -> u64 {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(engine.get().getDeviceMemorySizeV2()).unwrap_or_default()
    }

    fn create_context(self: Arc<Self>, is_captured: bool) -> Result<Box<dyn ContextCalls>, Reason> {
        let mark = LOG.mark();
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let made = make_context(engine.get_mut(), is_captured);
        drop(engine);
        let (context, config) = made.ok_or_else(|| LOG.since(mark))?;
        Ok(Box::new(NativeContext { context, _config: config, names: Arc::clone(&self.names), _plan: self }))
    }
}

type Config = Option<Owned<nvinfer1::IRuntimeConfig>>;

/// A context, and what it was configured with, which it may look at as long as it lives.
#[cfg(feature = "tensorrt-rtx")]
fn make_context(
    mut engine: Pin<&mut nvinfer1::ICudaEngine>,
    is_captured: bool,
) -> Option<(Owned<nvinfer1::IExecutionContext>, Config)> {
    use trtx_sys::DynamicShapesKernelSpecializationStrategy::{kEAGER, kLAZY};
    // SAFETY: null or a configuration that is the caller's to delete.
    let mut config = unsafe { Owned::new(engine.as_mut().createRuntimeConfig()) }?;
    let allocation = trtx_sys::ExecutionContextAllocationStrategy::kSTATIC;
    config.get_mut().setExecutionContextAllocationStrategy(allocation.into());
    let kernels = if is_captured { kEAGER } else { kLAZY };
    config.get_mut().setDynamicShapesKernelSpecializationStrategy(kernels.into());
    // SAFETY: the configuration lives longer than the context; null or a context that is the caller's to delete.
    let context = unsafe { Owned::new(engine.createExecutionContext1(config.0.as_ptr())) }?;
    Some((context, Some(config)))
}

#[cfg(not(feature = "tensorrt-rtx"))]
fn make_context(
    engine: Pin<&mut nvinfer1::ICudaEngine>,
    _is_captured: bool,
) -> Option<(Owned<nvinfer1::IExecutionContext>, Config)> {
    let strategy = trtx_sys::ExecutionContextAllocationStrategy::kSTATIC;
    // SAFETY: null or a context that is the caller's to delete.
    Some((unsafe { Owned::new(engine.createExecutionContext(strategy.into())) }?, None))
}

fn describe(engine: &nvinfer1::ICudaEngine, name: &CStr) -> Result<PlanTensor, Reason> {
    use trtx_sys::OptProfileSelector::{kMAX, kMIN};
    let text = name.to_string_lossy().into_owned();
    let at = name.as_ptr();
    let sizes = |dims: nvinfer1::Dims64| sizes_of(&dims).ok_or_else(|| format!("`{text}` has no shape"));
    // SAFETY: the name lasts for the calls, and is the engine's own.
    unsafe {
        let mode = trtx_sys::TensorIOMode::from(engine.getTensorIOMode(at));
        let is_input = match mode {
            trtx_sys::TensorIOMode::kINPUT => true,
            trtx_sys::TensorIOMode::kOUTPUT => false,
            trtx_sys::TensorIOMode::kNONE => return Err(format!("`{text}` is neither input nor output")),
        };
        let range = |selector: trtx_sys::OptProfileSelector| {
            sizes(engine.getProfileShape(at, PROFILE, selector.into()))
        };
        let is_on_host =
            trtx_sys::TensorLocation::from(engine.getTensorLocation(at)) == trtx_sys::TensorLocation::kHOST;
        Ok(PlanTensor {
            is_input,
            data_type: trtx_sys::DataType::from(engine.getTensorDataType(at)) as i32,
            is_on_host,
            is_linear: trtx_sys::TensorFormat::from(engine.getTensorFormat(at)) as i32 == LINEAR,
            sizes: sizes(engine.getTensorShape(at))?,
            range: if is_input { Some([range(kMIN)?, range(kMAX)?]) } else { None },
            name: text.clone(),
        })
    }
}

fn sizes_of(dims: &nvinfer1::Dims64) -> Option<Vec<i64>> {
    let rank = usize::try_from(dims.nbDims).ok()?;
    dims.d.get(..rank).map(<[i64]>::to_vec)
}

/// Fields are dropped in this order: a context before what it was made with and of.
struct NativeContext {
    context: Owned<nvinfer1::IExecutionContext>,
    _config: Config,
    names: Arc<[CString]>,
    _plan: Arc<NativePlan>,
}

impl ContextCalls for NativeContext {
    fn set_input_shape(&mut self, tensor: usize, shape: &[i64]) -> Result<(), Reason> {
        let mark = LOG.mark();
        let dims = nvinfer1::Dims64::from_slice(shape);
        // SAFETY: name and dimensions last for the call.
        let taken = unsafe { self.context.get_mut().setInputShape(self.names[tensor].as_ptr(), &dims) };
        if taken { Ok(()) } else { Err(LOG.since(mark)) }
    }

    fn shape_into(&self, tensor: usize, shape: &mut Vec<i64>) -> Result<(), Reason> {
        let mark = LOG.mark();
        // SAFETY: the name lasts for the call.
        let dims = unsafe { self.context.get().getTensorShape(self.names[tensor].as_ptr()) };
        let rank = usize::try_from(dims.nbDims).ok();
        let sizes = rank.and_then(|rank| dims.d.get(..rank)).ok_or_else(|| LOG.since(mark))?;
        shape.clear();
        shape.extend_from_slice(sizes);
        Ok(())
    }

    unsafe fn set_address(&mut self, tensor: usize, address: u64) -> Result<(), Reason> {
        let mark = LOG.mark();
        let address: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the name lasts for the call; the caller vouches for the memory.
        let taken =
            unsafe { self.context.get_mut().setTensorAddress(self.names[tensor].as_ptr(), address.cast()) };
        if taken { Ok(()) } else { Err(LOG.since(mark)) }
    }

    #[cfg(feature = "tensorrt-rtx")]
    fn can_be_captured(&self, stream: *mut c_void) -> bool {
        // SAFETY: the stream is one of the driver's, whose streams the runtime's are.
        unsafe { self.context.get().isStreamCapturable(stream.cast()) }
    }

    /// TensorRT proper does not say beforehand.
    #[cfg(not(feature = "tensorrt-rtx"))]
    fn can_be_captured(&self, _: *mut c_void) -> bool {
        true
    }

    unsafe fn enqueue(&mut self, stream: *mut c_void) -> Result<(), Reason> {
        let mark = LOG.mark();
        // SAFETY: the stream is one of the driver's, whose streams the runtime's are; the caller vouches for addresses
        // and order.
        let enqueued = unsafe { self.context.get_mut().enqueueV3(stream.cast()) };
        if enqueued { Ok(()) } else { Err(LOG.since(mark)) }
    }
}
