//! What the detector asks of TensorRT.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ocelli_engines::Engine;
use ocelli_engines::tensorrt::{ComputeCapability, DimensionRange, Version};

use crate::error::Result;
use crate::model_graph::ModelGraph;

/// Which TensorRT there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRtLibrary {
    /// `TensorRT` or `TensorRT for RTX`: engines of the one are nothing to the other.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The file it was loaded from.
    pub path: PathBuf,
}

impl fmt::Display for TensorRtLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The GPU that engines run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// As its maker calls it.
    pub name: String,
    /// Its generation.
    pub compute_capability: ComputeCapability,
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (compute capability {})", self.name, self.compute_capability)
    }
}

/// What an engine is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanRequest {
    /// Generations of GPUs that it is for; empty for the GPU that is here.
    pub targets: Vec<ComputeCapability>,
    /// Sizes of the graph's dynamic dimensions, by name.
    pub dimensions: BTreeMap<String, DimensionRange>,
    /// Memory of the GPU that one layer may use, in bytes.
    pub workspace_bytes: Option<u64>,
    /// A file of measured times, read and written.
    pub timing_cache: Option<PathBuf>,
    /// Whether later versions of the library can run it.
    pub version_compatible: bool,
    /// Whether GPUs of other generations can run it.
    pub hardware_compatible: bool,
}

/// How far the building of an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildStep<'s> {
    /// What is being done, in TensorRT's words.
    pub phase: &'s str,
    /// How many phases it lies within.
    pub depth: usize,
    /// Steps of the phase that are done.
    pub done: usize,
    /// Steps that it has.
    pub total: usize,
}

/// Called while an engine is built, perhaps on another thread; [`ControlFlow::Break`] ends the build.
pub type ReportStep<'r> = dyn FnMut(&BuildStep<'_>) -> ControlFlow<()> + Send + 'r;

/// Builds engines and runs them: TensorRT, or what stands in for it in tests.
pub trait TensorRtBackend: Send + Sync + fmt::Debug {
    /// Which library this is.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where there is none.
    fn library(&self) -> Result<TensorRtLibrary>;

    /// The GPU that engines run on.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) where there is no driver or no GPU.
    fn gpu(&self) -> Result<Gpu>;

    /// Turns an ONNX file into an engine: the bytes of its file.
    ///
    /// # Errors
    /// [`InvalidData`](crate::ErrorKind::InvalidData) for a graph that TensorRT cannot build,
    /// [`Cancelled`](crate::ErrorKind::Cancelled) where `report` ended it.
    fn build(&self, onnx: &Path, request: &PlanRequest, report: &mut ReportStep<'_>) -> Result<Vec<u8>>;

    /// Makes an engine of the file of one, which is taken for `graph`: that names its dynamic dimensions.
    ///
    /// # Errors
    /// [`InvalidData`](crate::ErrorKind::InvalidData) where the file is damaged.
    fn load(&self, engine: &Path, graph: Option<ModelGraph>) -> Result<Box<dyn Engine>>;
}
