//! What the running side of TensorRT is asked, as traits: behind them stands the library, or a fake.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// Why TensorRT refused: what it told its logger, in one line.
pub(super) type Reason = String;

/// Why a plan does not load.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "without a library nobody refuses")]
pub(super) enum Refusal {
    /// The library itself does not start.
    Library(Reason),
    /// It does not take the plan.
    Plan(Reason),
}

/// A loaded library that runs plans.
///
/// The driver is asked before any of this (there is a [`CudaDevice`](crate::cuda::CudaDevice)): without one TensorRT
/// answers null. The device's context is bound to the thread that calls.
pub(super) trait RunCalls: Send + Sync + fmt::Debug {
    /// `TensorRT for RTX 1.7.1`.
    fn library(&self) -> String;

    /// Makes what a plan describes, weights on the device included.
    fn deserialize(&self, plan: &[u8]) -> Result<Arc<dyn PlanCalls>, Refusal>;
}

/// A plan on the device. Contexts share its weights.
pub(super) trait PlanCalls: Send + Sync {
    /// Inputs and outputs, in the plan's order; their positions are what contexts know them by.
    fn tensors(&self) -> Result<Vec<PlanTensor>, Reason>;

    /// The memory that each context takes on the device, in bytes.
    fn context_bytes(&self) -> u64;

    /// A context of its own memory, with the plan's first profile. Where runs are to be captured, TensorRT for RTX must
    /// not put better kernels in their place later: a capture keeps those it was made with.
    fn create_context(self: Arc<Self>, is_captured: bool) -> Result<Box<dyn ContextCalls>, Reason>;
}

/// One at a time runs in it.
pub(super) trait ContextCalls: Send {
    /// Says what shape an input has from now on.
    fn set_input_shape(&mut self, tensor: usize, shape: &[i64]) -> Result<(), Reason>;

    /// The shape of a tensor with the inputs as they are; -1 where it is not known before the run.
    fn shape_into(&self, tensor: usize, shape: &mut Vec<i64>) -> Result<(), Reason>;

    /// Says where a tensor lies from now on: at a multiple of 256, and not null even if it has no elements.
    ///
    /// # Safety
    /// What is enqueued from now on reads or writes there: it must be memory of the tensor's size.
    unsafe fn set_address(&mut self, tensor: usize, address: u64) -> Result<(), Reason>;

    /// Whether what would be enqueued can be captured.
    fn can_be_captured(&self, stream: *mut c_void) -> bool;

    /// Enqueues one run.
    ///
    /// # Safety
    /// Every tensor has an address whose memory stays until the run is done, and the stream waits for whoever uses it
    /// (see [`CudaStream::enqueue`](crate::cuda::CudaStream::enqueue)).
    unsafe fn enqueue(&mut self, stream: *mut c_void) -> Result<(), Reason>;
}

/// An input or output of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanTensor {
    pub(super) name: String,
    pub(super) is_input: bool,
    /// The number of `nvinfer1::DataType`.
    pub(super) data_type: i32,
    /// Whether it must lie in the host's memory, as what shapes are computed with.
    pub(super) is_on_host: bool,
    /// Whether it lies row by row, without gaps.
    pub(super) is_linear: bool,
    /// -1 where it is dynamic.
    pub(super) sizes: Vec<i64>,
    /// The least and the greatest sizes, of inputs.
    pub(super) range: Option<[Vec<i64>; 2]>,
}
