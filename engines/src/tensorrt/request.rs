//! What to build.

use super::version::ComputeCapability;
use crate::spec::DimensionRange;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of building a plan; the [`Default`] is one for the GPU of this machine, without dynamic dimensions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanRequest {
    /// The compute capabilities to build for, of which no GPU needs to be present; the GPU of this machine if empty.
    ///
    /// Only TensorRT for RTX supports this, for the capabilities in [`Product::targets`](super::Product::targets); TensorRT proper
    /// builds for the GPU of this machine.
    pub targets: Vec<ComputeCapability>,
    /// The sizes that dynamic dimensions may have, by name (ONNX's `dim_param`).
    ///
    /// Every dynamic dimension of an input needs a range. A range for a dimension that the graph does not have is ignored,
    /// so that all graphs of a folder can be given the same ranges.
    pub dimensions: BTreeMap<String, DimensionRange>,
    /// The most GPU memory that the workspace of one layer may use, in bytes; all of it by default.
    pub workspace_bytes: Option<u64>,
    /// The file of measured kernel times, which make later builds faster. It is replaced after the build. A file from
    /// another version or GPU is ignored with a warning.
    ///
    /// TensorRT for RTX has no timing cache: it compiles kernels when an engine first runs, and caches them itself.
    pub timing_cache: Option<PathBuf>,
    /// Lets later versions of TensorRT load the plan. TensorRT for RTX does not build such plans.
    pub version_compatible: bool,
    /// Lets later GPUs (Ampere and newer) run the plan. TensorRT for RTX does not build such plans, but takes several
    /// [targets](Self::targets).
    pub hardware_compatible: bool,
    /// The effort of the search for fast kernels, 0 to 5; TensorRT's default is 3.
    pub optimization_level: Option<u8>,
}
