//! From an ONNX file to a plan.

use super::TensorRt;
use super::version::{ComputeCapability, Product, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::EngineSpec;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The sizes that a dynamic dimension may have: any from `min` to `max`, with kernels chosen for `optimal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DimensionRange {
    /// The least size.
    pub min: usize,
    /// The size that the plan is made for.
    pub optimal: usize,
    /// The greatest size.
    pub max: usize,
}

/// How far a build is.
///
/// Phases lie within each other: while a phase runs, others may start and end that name it as their parent. Of one
/// phase the first report has step 0 and the last one step [`steps`](Self::steps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress<'p> {
    /// What is being done, in TensorRT's words.
    pub phase: &'p str,
    /// The phase that this one is a part of.
    pub parent: Option<&'p str>,
    /// How many phases this one lies within.
    pub depth: usize,
    /// How many steps of the phase are done.
    pub step: usize,
    /// How many steps the phase has.
    pub steps: usize,
}

/// What is called as a build proceeds.
type Progress<'b> = Box<dyn FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'b>;

/// Makes a [`Plan`] of an ONNX file.
///
/// Networks are strongly typed: what is computed in which precision is what the ONNX file says.
pub struct TensorRtBuilder<'b> {
    tensorrt: TensorRt,
    targets: Vec<ComputeCapability>,
    dimensions: BTreeMap<String, DimensionRange>,
    workspace_bytes: Option<u64>,
    timing_cache: Option<PathBuf>,
    version_compatible: bool,
    hardware_compatible: bool,
    optimization_level: Option<u8>,
    progress: Option<Progress<'b>>,
}

impl<'b> TensorRtBuilder<'b> {
    /// A build for the GPU that is present, without dynamic dimensions.
    pub fn new(tensorrt: &TensorRt) -> Self {
        Self {
            tensorrt: tensorrt.clone(),
            targets: Vec::new(),
            dimensions: BTreeMap::new(),
            workspace_bytes: None,
            timing_cache: None,
            version_compatible: false,
            hardware_compatible: false,
            optimization_level: None,
            progress: None,
        }
    }

    /// Builds for GPUs of this generation, which need not be present; called again, for another one as well.
    /// TensorRT for RTX alone can do that; TensorRT proper builds for the GPU that is present.
    pub fn with_target(mut self, target: ComputeCapability) -> Self {
        self.targets.push(target);
        self
    }

    /// The sizes that the dynamic dimension of this name (ONNX's `dim_param`) may have. Every dynamic dimension of an
    /// input needs a range; one that the graph does not have is of no consequence.
    pub fn with_dimension(mut self, name: impl Into<String>, range: DimensionRange) -> Self {
        self.dimensions.insert(name.into(), range);
        self
    }

    /// The most memory on the GPU that a layer may use for itself, in bytes; TensorRT's default is the whole GPU.
    pub fn with_workspace_bytes(mut self, bytes: u64) -> Self {
        self.workspace_bytes = Some(bytes);
        self
    }

    /// A file of measured times that is read if it fits and written after the build.
    pub fn with_timing_cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.timing_cache = Some(path.into());
        self
    }

    /// Whether later minor versions of TensorRT can load the plan.
    pub fn with_version_compatible(mut self, yes: bool) -> Self {
        self.version_compatible = yes;
        self
    }

    /// Whether GPUs of other generations (Ampere and later) can run the plan.
    pub fn with_hardware_compatible(mut self, yes: bool) -> Self {
        self.hardware_compatible = yes;
        self
    }

    /// How much time goes into looking for fast kernels, 0 to 5; TensorRT's default is 3.
    pub fn with_optimization_level(mut self, level: u8) -> Self {
        self.optimization_level = Some(level);
        self
    }

    /// Called as the build proceeds, possibly from threads of TensorRT's; [`ControlFlow::Break`] cancels the build.
    pub fn with_progress(
        mut self,
        progress: impl FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'b,
    ) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Reads the ONNX file, with the weights that lie beside it, and builds the plan.
    ///
    /// # Errors
    /// See the kinds of [`ErrorKind`].
    pub fn build(self, onnx: &Path) -> Result<Plan> {
        let message = format!("cannot build, {}: not there yet", onnx.display());
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

/// A built plan: what [`TensorRtBuilder::build`] makes and an engine runs.
#[derive(Debug, Clone)]
pub struct Plan {
    bytes: Vec<u8>,
    spec: EngineSpec,
    dimensions: BTreeMap<String, DimensionRange>,
    product: Product,
    version: Version,
    targets: Vec<ComputeCapability>,
}

impl Plan {
    /// What goes into the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Inputs and outputs, in the order of the ONNX file.
    pub fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// The dynamic dimensions that the graph has and the sizes it was built for.
    pub fn dimensions(&self) -> &BTreeMap<String, DimensionRange> {
        &self.dimensions
    }

    /// Which TensorRT built it.
    pub fn product(&self) -> Product {
        self.product
    }

    /// The version of TensorRT that built it.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The generations of GPUs that it was built for; empty if for the GPU that was present.
    pub fn targets(&self) -> &[ComputeCapability] {
        &self.targets
    }
}
