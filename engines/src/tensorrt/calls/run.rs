//! The calls of a run: from the bytes of a plan to work on a stream.

use super::part::{self, Create, INPUT, OUTPUT, Part, Sizes};
use super::{element_type, function};
use crate::c_text::text;
use crate::tensor::ElementType;
use crate::tensorrt::log::{LOG, Mark};
use ocelli_error::{Error, Result};
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The function that creates a library's runtime.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    part: Part,
    create_runtime: Create,
}

impl Functions {
    pub(crate) fn open(part: Part, library: &Path) -> Result<Self, String> {
        let create_runtime = function(library, "createInferRuntime_INTERNAL")?;
        // SAFETY: the function has this type in NvInferRuntime.h, unchanged since TensorRT 8.
        let create_runtime = unsafe { std::mem::transmute::<*const c_void, Create>(create_runtime) };
        Ok(Self { part, create_runtime })
    }
}

/// Binds the device's context to the thread when it is dropped.
#[derive(Clone)]
pub(crate) struct Binding(Arc<dyn Fn() + Send + Sync>);

impl Binding {
    pub(crate) fn new(bind: impl Fn() + Send + Sync + 'static) -> Self {
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
pub(crate) struct LoadedPlan {
    loaded: OnDevice<Mutex<Plan>>,
    names: Vec<CString>,
}

/// Freed once, by `drop`.
struct Plan {
    part: Part,
    plan: NonNull<part::Plan>,
}

// SAFETY: TensorRT's objects belong to no thread, and using this one takes the lock of `LoadedPlan`.
unsafe impl Send for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by `plan_load`, and not used afterwards; contexts keep the `LoadedPlan`.
        unsafe { (self.part.0.plan_free)(self.plan.as_ptr()) }
    }
}

/// An input or output of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanTensor {
    pub(crate) name: String,
    pub(crate) is_input: bool,
    pub(crate) element_type: ElementType,
    /// -1 for dynamic dimensions.
    pub(crate) sizes: Vec<i64>,
    /// The smallest and the largest sizes; `None` for outputs.
    pub(crate) range: Option<[Vec<i64>; 2]>,
}

impl LoadedPlan {
    /// Loads a plan onto the device whose context is bound to this thread; `binding` binds it to others.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if TensorRT does not start,
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if it refuses the plan; the message is TensorRT's
    /// reason.
    pub(crate) fn deserialize(functions: Functions, plan: &[u8], binding: Binding) -> Result<Self> {
        let Functions { part, create_runtime } = functions;
        let mark = LOG.mark();
        let (mut starts, mut diagnosis) = (0, [0u8; 1024]);
        // SAFETY: the function creates a runtime; the bytes are read, and the results written, during the call. What it
        // returns is null or owned by the caller.
        let loaded = unsafe {
            (part.0.plan_load)(
                create_runtime,
                plan.as_ptr().cast(),
                plan.len(),
                &raw mut starts,
                diagnosis.as_mut_ptr().cast(),
                diagnosis.len(),
            )
        };
        let loaded = NonNull::new(loaded).map(|plan| Plan { part, plan }).ok_or_else(|| {
            if starts == 0 {
                return Error::unavailable(LOG.since(mark));
            }
            let diagnosis = CStr::from_bytes_until_nul(&diagnosis).unwrap_or_default().to_string_lossy();
            let reason = [diagnosis.into_owned(), LOG.since(mark)];
            let reason: Vec<_> = reason.into_iter().filter(|text| !text.is_empty()).collect();
            Error::invalid_data(reason.join("; "))
        })?;
        // SAFETY: the strings are null or the plan's own.
        let name = |tensor: part::Tensor| unsafe {
            (!tensor.name.is_null()).then(|| CStr::from_ptr(tensor.name).to_owned())
        };
        let names: Option<Vec<_>> = loaded.tensors().map(name).collect();
        let names = names.ok_or_else(|| Error::invalid_data("a tensor has no name"))?;
        Ok(Self { loaded: OnDevice { binding, objects: Mutex::new(loaded) }, names })
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.loaded.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inputs and outputs, in the plan's order; contexts know them by their positions.
    pub(crate) fn tensors(&self) -> Result<Vec<PlanTensor>, String> {
        self.plan().tensors().map(|tensor| describe(&tensor)).collect()
    }

    /// The memory that each context takes on the device, in bytes.
    pub(crate) fn context_bytes(&self) -> u64 {
        let plan = self.plan();
        // SAFETY: the plan lives.
        let bytes = unsafe { (plan.part.0.plan_context_bytes)(plan.plan.as_ptr()) };
        u64::try_from(bytes).unwrap_or_default()
    }
}

impl Plan {
    /// The inputs and outputs; their strings live as long as the plan.
    fn tensors(&self) -> impl Iterator<Item = part::Tensor> {
        (0..).map_while(|index| {
            let mut tensor = part::Tensor::NONE;
            // SAFETY: the plan lives, and the result is written during the call.
            let found = unsafe { (self.part.0.plan_tensor)(self.plan.as_ptr(), index, &raw mut tensor) };
            (found == 1).then_some(tensor)
        })
    }
}

fn describe(tensor: &part::Tensor) -> Result<PlanTensor, String> {
    // SAFETY: null or a string of the plan's, whose lock the caller holds.
    let name = unsafe { text(tensor.name) }.unwrap_or_default();
    let is_input = match tensor.role {
        INPUT => true,
        OUTPUT => false,
        _ => return Err(format!("`{name}` is neither an input nor an output")),
    };
    let side = if is_input { "input" } else { "output" };
    if tensor.is_on_host == 1 {
        return Err(format!("{side} `{name}` is a shape in host memory, which is not supported"));
    }
    if tensor.is_row_major == 0 {
        return Err(format!("{side} `{name}` is not in row-major order, which is not supported"));
    }
    let shape =
        |sizes: &Sizes| sizes.get().map(<[i64]>::to_vec).ok_or_else(|| format!("`{name}` has no shape"));
    let sizes = shape(&tensor.shape)?;
    let range = if is_input { Some([shape(&tensor.min)?, shape(&tensor.max)?]) } else { None };
    if range.iter().flatten().any(|range| range.len() != sizes.len()) {
        return Err(format!("{side} `{name}`: its profile has another rank than its shape"));
    }
    let element_type = element_type(tensor.element_type).map_err(|why| format!("{side} `{name}`: {why}"))?;
    Ok(PlanTensor { name, is_input, element_type, sizes, range })
}

/// An execution context, for one run at a time. It keeps the plan, which it may read as long as it lives.
pub(crate) struct Context {
    made: OnDevice<Made>,
    plan: Arc<LoadedPlan>,
}

/// Freed once, by `drop`.
struct Made {
    part: Part,
    context: NonNull<part::Context>,
}

// SAFETY: TensorRT's objects belong to no thread, and changing this one takes a `&mut Context`.
unsafe impl Send for Made {}
// SAFETY: as above; the `const` methods of these classes may be called from several threads (TensorRT's developer guide,
// "Thread Safety").
unsafe impl Sync for Made {}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: made by `context_open`, and not used afterwards.
        unsafe { (self.part.0.context_free)(self.context.as_ptr()) }
    }
}

impl Context {
    /// A context with memory of its own. `is_captured` says that runs are captured as CUDA graphs: TensorRT for RTX then
    /// compiles its kernels before the first run, because a graph keeps the kernels it was captured with. It compiles none
    /// that are among `kernels`, which an earlier context [returned](Self::kernels); returns whether it accepts these, or
    /// whether there are none.
    pub(crate) fn new(
        plan: &Arc<LoadedPlan>,
        is_captured: bool,
        kernels: &[u8],
    ) -> Result<(Self, bool), String> {
        let mark = LOG.mark();
        let locked = plan.plan();
        let (part, mut accepted) = (locked.part, 1);
        // SAFETY: the plan is locked, and the context keeps it; the kernels are read during the call. The result is null or
        // owned by the caller.
        let context = unsafe {
            (part.0.context_open)(
                locked.plan.as_ptr(),
                is_captured.into(),
                kernels.as_ptr().cast(),
                kernels.len(),
                &raw mut accepted,
            )
        };
        drop(locked);
        let context = NonNull::new(context).ok_or_else(|| LOG.since(mark))?;
        let made = OnDevice { binding: plan.loaded.binding.clone(), objects: Made { part, context } };
        Ok((Self { made, plan: Arc::clone(plan) }, accepted == 1))
    }

    fn raw(&self) -> (&'static part::Table, *mut part::Context) {
        (self.made.objects.part.0, self.made.objects.context.as_ptr())
    }

    /// The kernels that were compiled so far, for the next process; `None` for TensorRT proper, which compiles none.
    pub(crate) fn kernels(&self) -> Option<Vec<u8>> {
        let (table, context) = self.raw();
        // SAFETY: the memory is null or owned by the caller.
        unsafe { self.made.objects.part.take((table.context_kernels)(context)) }
    }

    /// Sets the shape of an input.
    pub(crate) fn set_input_shape(&mut self, tensor: usize, shape: &[usize]) -> Result<(), String> {
        let mark = LOG.mark();
        let sizes = Sizes::of(shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)));
        let sizes = sizes.ok_or("it has more than eight dimensions")?;
        let (table, context) = self.raw();
        // SAFETY: the name and the sizes are valid during the call.
        accepted(mark, unsafe {
            (table.context_set_shape)(context, self.plan.names[tensor].as_ptr(), &raw const sizes)
        })
    }

    /// The shape of an output, which follows from the shapes of the inputs.
    pub(crate) fn shape_into(&self, tensor: usize, shape: &mut Vec<usize>) -> Result<(), String> {
        let mark = LOG.mark();
        let mut sizes = Sizes::NONE;
        let (table, context) = self.raw();
        // SAFETY: the name is valid, and the sizes are written, during the call.
        unsafe { (table.context_shape)(context, self.plan.names[tensor].as_ptr(), &raw mut sizes) };
        let sizes = sizes.get().ok_or_else(|| LOG.since(mark))?;
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
    pub(crate) unsafe fn set_address(&mut self, tensor: usize, address: u64) -> Result<(), String> {
        let mark = LOG.mark();
        let address: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        let (table, context) = self.raw();
        // SAFETY: the name is valid during the call; the caller guarantees the memory.
        accepted(mark, unsafe {
            (table.context_set_address)(context, self.plan.names[tensor].as_ptr(), address)
        })
    }

    /// `true` if a run can be captured. TensorRT proper does not know in advance.
    pub(crate) fn can_be_captured(&self, stream: *mut c_void) -> bool {
        let (table, context) = self.raw();
        // SAFETY: the stream lives; the driver's streams are those of the CUDA runtime.
        unsafe { (table.context_can_be_captured)(context, stream) == 1 }
    }

    /// Enqueues one run.
    ///
    /// # Safety
    /// Every tensor has an address whose memory stays until the run is done, and the stream waits for earlier work on that
    /// memory (see [`CudaStream::enqueue`](crate::cuda::CudaStream::enqueue)).
    pub(crate) unsafe fn enqueue(&mut self, stream: *mut c_void) -> Result<(), String> {
        let mark = LOG.mark();
        let (table, context) = self.raw();
        // SAFETY: the driver's streams are those of the CUDA runtime; the caller guarantees addresses and order.
        accepted(mark, unsafe { (table.context_enqueue)(context, stream) })
    }
}

fn accepted(mark: Mark, accepted: i32) -> Result<(), String> {
    if accepted == 1 { Ok(()) } else { Err(LOG.since(mark)) }
}

#[cfg(test)]
mod tests;
