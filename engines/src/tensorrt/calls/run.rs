//! The calls of a run: from the bytes of a plan to work on a stream.

use super::{Create, Owned, create, element_type, function, sizes};
use crate::tensor::ElementType;
use crate::tensorrt::log::{LOG, Mark};
use ocelli_error::{Error, ErrorKind, Result};
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trtx::trtx_sys::{self, nvinfer1};

/// The optimisation profile of all contexts.
const PROFILE: i32 = 0;

/// The function that creates a library's runtime.
#[derive(Clone, Copy)]
pub(in crate::tensorrt) struct Functions {
    create_runtime: Create,
}

impl Functions {
    pub(in crate::tensorrt) fn open(library: &Path) -> Result<Self, String> {
        let create_runtime = function(library, "createInferRuntime_INTERNAL")?;
        // SAFETY: the function has this type in NvInferRuntime.h, unchanged since TensorRT 8.
        Ok(Self { create_runtime: unsafe { std::mem::transmute::<*const c_void, Create>(create_runtime) } })
    }
}

/// Binds the device's context to the thread when it is dropped.
#[derive(Clone)]
pub(in crate::tensorrt) struct Binding(Arc<dyn Fn() + Send + Sync>);

impl Binding {
    pub(in crate::tensorrt) fn new(bind: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(bind))
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Objects that are freed with the device's context bound: TensorRT frees device memory in the context of the thread, which
/// may be any thread. Fields are dropped in this order.
struct OnDevice<T> {
    binding: Binding,
    objects: T,
}

/// A plan on the device with its weights, which contexts share.
pub(in crate::tensorrt) struct LoadedPlan {
    loaded: OnDevice<Loaded>,
    names: Vec<CString>,
}

/// Fields are dropped in this order: the engine before the runtime that created it.
struct Loaded {
    engine: Mutex<Owned<nvinfer1::ICudaEngine>>,
    _runtime: Owned<nvinfer1::IRuntime>,
}

/// An input or output of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tensorrt) struct PlanTensor {
    pub(in crate::tensorrt) name: String,
    pub(in crate::tensorrt) is_input: bool,
    pub(in crate::tensorrt) element_type: ElementType,
    /// -1 for dynamic dimensions.
    pub(in crate::tensorrt) sizes: Vec<i64>,
    /// The smallest and the largest sizes; `None` for outputs.
    pub(in crate::tensorrt) range: Option<[Vec<i64>; 2]>,
}

impl LoadedPlan {
    /// Loads a plan onto the device whose context is bound to this thread; `binding` binds it to others.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if TensorRT does not start, [`ErrorKind::InvalidData`] if it refuses the plan; the
    /// message is TensorRT's reason.
    pub(in crate::tensorrt) fn deserialize(
        functions: Functions,
        plan: &[u8],
        binding: Binding,
    ) -> Result<Self> {
        let mark = LOG.mark();
        // SAFETY: the function creates a runtime.
        let runtime = unsafe { create::<nvinfer1::IRuntime>(functions.create_runtime) };
        let mut runtime = runtime.ok_or_else(|| Error::new(ErrorKind::Unavailable, LOG.since(mark)))?;
        // SAFETY: the bytes are read during the call; the result is null or owned by the caller.
        let engine =
            unsafe { Owned::new(runtime.get_mut().deserializeCudaEngine(plan.as_ptr().cast(), plan.len())) };
        let engine = engine.ok_or_else(|| {
            let reason = [diagnosis(&runtime, plan), Some(LOG.since(mark))];
            let reason: Vec<_> = reason.into_iter().flatten().collect();
            Error::new(ErrorKind::InvalidData, reason.join("; "))
        })?;
        let names = (0..engine.get().getNbIOTensors()).map(|index| {
            let name = engine.get().getIOTensorName(index);
            // SAFETY: null or a string of the engine's that ends with a null byte.
            (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
        });
        let names: Option<Vec<_>> = names.collect();
        let names = names.ok_or_else(|| Error::new(ErrorKind::InvalidData, "a tensor has no name"))?;
        let objects = Loaded { engine: Mutex::new(engine), _runtime: runtime };
        Ok(Self { loaded: OnDevice { binding, objects }, names })
    }

    fn engine(&self) -> MutexGuard<'_, Owned<nvinfer1::ICudaEngine>> {
        self.loaded.objects.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inputs and outputs, in the plan's order; contexts know them by their positions.
    pub(in crate::tensorrt) fn tensors(&self) -> Result<Vec<PlanTensor>, String> {
        let engine = self.engine();
        self.names.iter().map(|name| describe(engine.get(), name)).collect()
    }

    /// The memory that each context takes on the device, in bytes.
    pub(in crate::tensorrt) fn context_bytes(&self) -> u64 {
        let engine = self.engine();
        u64::try_from(engine.get().getDeviceMemorySizeV2()).unwrap_or_default()
    }
}

/// What is wrong with a plan according to its header.
#[cfg(feature = "tensorrt-rtx")]
fn diagnosis(runtime: &Owned<nvinfer1::IRuntime>, plan: &[u8]) -> Option<String> {
    use trtx_sys::EngineInvalidityDiagnostics as Diagnostics;
    if (plan.len() as u64) < runtime.get().getEngineHeaderSize() as u64 {
        return Some("the plan is shorter than a plan's header".to_owned());
    }
    let mut bits = 0;
    // SAFETY: the bytes are read and the bits written during the call.
    unsafe { runtime.get().getEngineValidity(plan.as_ptr().cast(), plan.len() as i64, &raw mut bits) };
    let bits = Diagnostics::from_bits_retain(bits);
    let meanings = [
        (Diagnostics::VERSION_MISMATCH, "another version of TensorRT for RTX built the plan"),
        (Diagnostics::UNSUPPORTED_CC, "the plan was built for other compute capabilities"),
        (Diagnostics::OLD_CUDA_DRIVER, "the driver is older than the one the plan was built with"),
        (Diagnostics::OLD_CUDA_RUNTIME, "the CUDA runtime is older than the one the plan was built with"),
        (Diagnostics::INSUFFICIENT_GPU_MEMORY, "the GPU has too little memory for the plan's weights"),
        (Diagnostics::MALFORMED_ENGINE, "the plan is corrupt, or the file is not a plan"),
        (Diagnostics::CUDA_ERROR, "CUDA is not installed correctly"),
    ];
    let found = meanings.iter().filter(|(bit, _)| bits.contains(*bit)).map(|(_, meaning)| *meaning);
    let found: Vec<_> = found.collect();
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(not(feature = "tensorrt-rtx"))]
fn diagnosis(_: &Owned<nvinfer1::IRuntime>, _: &[u8]) -> Option<String> {
    None
}

fn describe(engine: &nvinfer1::ICudaEngine, name: &CStr) -> Result<PlanTensor, String> {
    use trtx_sys::OptProfileSelector::{kMAX, kMIN};
    use trtx_sys::{TensorFormat, TensorIOMode, TensorLocation};
    let (text, at) = (name.to_string_lossy().into_owned(), name.as_ptr());
    let shape = |dims: nvinfer1::Dims64| {
        sizes(&dims).map(<[i64]>::to_vec).ok_or_else(|| format!("`{text}` has no shape"))
    };
    // SAFETY: the name is the engine's own and valid during the calls.
    unsafe {
        let is_input = match TensorIOMode::from(engine.getTensorIOMode(at)) {
            TensorIOMode::kINPUT => true,
            TensorIOMode::kOUTPUT => false,
            TensorIOMode::kNONE => return Err(format!("`{text}` is neither an input nor an output")),
        };
        let side = if is_input { "input" } else { "output" };
        if TensorLocation::from(engine.getTensorLocation(at)) == TensorLocation::kHOST {
            return Err(format!("{side} `{text}` is a shape in host memory, which is not supported"));
        }
        if TensorFormat::from(engine.getTensorFormat(at)) != TensorFormat::kLINEAR {
            return Err(format!("{side} `{text}` is not in row-major order, which is not supported"));
        }
        let sizes = shape(engine.getTensorShape(at))?;
        let range = match is_input {
            true => Some([
                shape(engine.getProfileShape(at, PROFILE, kMIN.into()))?,
                shape(engine.getProfileShape(at, PROFILE, kMAX.into()))?,
            ]),
            false => None,
        };
        if range.iter().flatten().any(|range| range.len() != sizes.len()) {
            return Err(format!("{side} `{text}`: its profile has another rank than its shape"));
        }
        let element_type =
            element_type(engine.getTensorDataType(at)).map_err(|why| format!("{side} `{text}`: {why}"))?;
        Ok(PlanTensor { name: text.clone(), is_input, element_type, sizes, range })
    }
}

/// An execution context, for one run at a time. It keeps the plan, which it may read as long as it lives.
pub(in crate::tensorrt) struct Context {
    made: OnDevice<Made>,
    plan: Arc<LoadedPlan>,
}

/// Fields are dropped in this order: the context before what it may read.
struct Made {
    context: Owned<nvinfer1::IExecutionContext>,
    _config: Config,
    kernels: Kernels,
}

type Config = Option<Owned<nvinfer1::IRuntimeConfig>>;

/// The kernels that TensorRT for RTX has compiled on this machine.
#[cfg(feature = "tensorrt-rtx")]
type Kernels = Option<Owned<nvinfer1::IRuntimeCache>>;
#[cfg(not(feature = "tensorrt-rtx"))]
type Kernels = ();

impl Context {
    /// A context with memory of its own. `is_captured` says that runs are captured as CUDA graphs: TensorRT for RTX then
    /// compiles its kernels before the first run, because a graph keeps the kernels it was captured with. It compiles none
    /// that are among `kernels`, which an earlier context [returned](Self::kernels); returns whether it accepts these, or
    /// whether there are none.
    pub(in crate::tensorrt) fn new(
        plan: &Arc<LoadedPlan>,
        is_captured: bool,
        kernels: &[u8],
    ) -> Result<(Self, bool), String> {
        let mark = LOG.mark();
        let mut engine = plan.engine();
        let made = make_context(engine.get_mut(), is_captured, kernels);
        drop(engine);
        let (objects, accepted) = made.ok_or_else(|| LOG.since(mark))?;
        let made = OnDevice { binding: plan.loaded.binding.clone(), objects };
        Ok((Self { made, plan: Arc::clone(plan) }, accepted))
    }

    /// The kernels that were compiled so far, for the next process; `None` for TensorRT proper, which compiles none.
    pub(in crate::tensorrt) fn kernels(&self) -> Option<Vec<u8>> {
        #[cfg(feature = "tensorrt-rtx")]
        // SAFETY: the memory is null or owned by the caller.
        return unsafe { super::take_memory(self.made.objects.kernels.as_ref()?.get().serialize()) };
        #[cfg(not(feature = "tensorrt-rtx"))]
        return {
            let () = self.made.objects.kernels;
            None
        };
    }

    /// Sets the shape of an input.
    pub(in crate::tensorrt) fn set_input_shape(
        &mut self,
        tensor: usize,
        shape: &[usize],
    ) -> Result<(), String> {
        let mark = LOG.mark();
        let mut sizes = [0; 8];
        let rank = shape.len().min(sizes.len());
        sizes.iter_mut().zip(shape).for_each(|(to, &size)| *to = i64::try_from(size).unwrap_or(i64::MAX));
        let dims = nvinfer1::Dims64::from_slice(&sizes[..rank]);
        // SAFETY: the name and the sizes are valid during the call.
        accepted(mark, unsafe {
            self.made.objects.context.get_mut().setInputShape(self.plan.names[tensor].as_ptr(), &dims)
        })
    }

    /// The shape of an output, which follows from the shapes of the inputs.
    pub(in crate::tensorrt) fn shape_into(
        &self,
        tensor: usize,
        shape: &mut Vec<usize>,
    ) -> Result<(), String> {
        let mark = LOG.mark();
        // SAFETY: the name is valid during the call.
        let dims =
            unsafe { self.made.objects.context.get().getTensorShape(self.plan.names[tensor].as_ptr()) };
        let sizes = sizes(&dims).ok_or_else(|| LOG.since(mark))?;
        shape.clear();
        shape.extend(sizes.iter().map_while(|&size| usize::try_from(size).ok()));
        if shape.len() == sizes.len() {
            return Ok(());
        }
        Err("it depends on the data, which is not supported".to_owned())
    }

    /// Sets the address of a tensor: a multiple of 256, and not null even for a tensor without elements.
    ///
    /// # Safety
    /// Later runs read or write there: it must be memory of the tensor's size.
    pub(in crate::tensorrt) unsafe fn set_address(
        &mut self,
        tensor: usize,
        address: u64,
    ) -> Result<(), String> {
        let mark = LOG.mark();
        let address: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        let name = self.plan.names[tensor].as_ptr();
        // SAFETY: the name is valid during the call; the caller guarantees the memory.
        accepted(mark, unsafe { self.made.objects.context.get_mut().setTensorAddress(name, address.cast()) })
    }

    /// Whether a run can be captured. TensorRT proper does not know in advance.
    pub(in crate::tensorrt) fn can_be_captured(&self, stream: *mut c_void) -> bool {
        #[cfg(feature = "tensorrt-rtx")]
        // SAFETY: the stream lives; the driver's streams are those of the CUDA runtime.
        return unsafe { self.made.objects.context.get().isStreamCapturable(stream.cast()) };
        #[cfg(not(feature = "tensorrt-rtx"))]
        return !stream.is_null();
    }

    /// Enqueues one run.
    ///
    /// # Safety
    /// Every tensor has an address whose memory stays until the run is done, and the stream waits for earlier work on that
    /// memory (see [`CudaStream::enqueue`](crate::cuda::CudaStream::enqueue)).
    pub(in crate::tensorrt) unsafe fn enqueue(&mut self, stream: *mut c_void) -> Result<(), String> {
        let mark = LOG.mark();
        // SAFETY: the driver's streams are those of the CUDA runtime; the caller guarantees addresses and order.
        accepted(mark, unsafe { self.made.objects.context.get_mut().enqueueV3(stream.cast()) })
    }
}

/// Makes a context; also returns whether it accepts the kernels that it is given. `None` for null.
#[cfg(feature = "tensorrt-rtx")]
fn make_context(
    mut engine: Pin<&mut nvinfer1::ICudaEngine>,
    is_captured: bool,
    known: &[u8],
) -> Option<(Made, bool)> {
    use trtx_sys::DynamicShapesKernelSpecializationStrategy::{kEAGER, kLAZY};
    // SAFETY: the result is null or owned by the caller.
    let mut config = unsafe { Owned::new(engine.as_mut().createRuntimeConfig()) }?;
    let allocation = trtx_sys::ExecutionContextAllocationStrategy::kSTATIC;
    config.get_mut().setExecutionContextAllocationStrategy(allocation.into());
    let kernels = if is_captured { kEAGER } else { kLAZY };
    config.get_mut().setDynamicShapesKernelSpecializationStrategy(kernels.into());
    // Runs are captured here, with the waits between streams; TensorRT must not capture them as well.
    let _is_set = config.get_mut().setCudaGraphStrategy(trtx_sys::CudaGraphStrategy::kDISABLED.into());
    // SAFETY: the result is null or owned by the caller.
    let mut cache = unsafe { Owned::new(config.get().createRuntimeCache()) };
    let accepted = cache.as_ref().is_none_or(|cache| {
        // SAFETY: the bytes are read during the call.
        known.is_empty() || unsafe { cache.get().deserialize(known.as_ptr().cast(), known.len()) }
    });
    // Without a cache, kernels are compiled as if there were no file.
    cache = cache.filter(|cache| config.get_mut().setRuntimeCache(cache.get()));
    // SAFETY: `Context` drops the configuration after the context; the result is null or owned by the caller.
    let context = unsafe {
        let config: *mut nvinfer1::IRuntimeConfig = config.get_mut().get_unchecked_mut();
        Owned::new(engine.createExecutionContext1(config))
    };
    Some((Made { context: context?, _config: Some(config), kernels: cache }, accepted))
}

#[cfg(not(feature = "tensorrt-rtx"))]
fn make_context(
    engine: Pin<&mut nvinfer1::ICudaEngine>,
    _is_captured: bool,
    _known: &[u8],
) -> Option<(Made, bool)> {
    let strategy = trtx_sys::ExecutionContextAllocationStrategy::kSTATIC;
    // SAFETY: the result is null or owned by the caller.
    let context = unsafe { Owned::new(engine.createExecutionContext(strategy.into())) }?;
    Some((Made { context, _config: None, kernels: () }, true))
}

fn accepted(mark: Mark, accepted: bool) -> Result<(), String> {
    if accepted { Ok(()) } else { Err(LOG.since(mark)) }
}

#[cfg(test)]
mod tests;
