//! What computes, and what of each provider's many options is ours to say.

use crate::spec::DimensionRange;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// What computes.
///
/// A provider that is named and cannot start is an error; nothing else is tried in its stead. What it leaves to the
/// processor is looked at when the model is loaded: see
/// [`with_partial_placement`](super::OnnxRuntimeBuilder::with_partial_placement).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExecutionProvider {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, with ONNX Runtime's own kernels.
    Cuda(CudaOptions),
    /// An NVIDIA GPU, with kernels that TensorRT makes when a model is loaded, which takes minutes without a
    /// [cache](TensorRtOptions::engine_cache). What TensorRT does not take, CUDA does.
    TensorRt(TensorRtOptions),
    /// Apple's Core ML.
    CoreMl(CoreMlOptions),
    /// Any other provider, by its name.
    Other(OtherProvider),
}

impl ExecutionProvider {
    /// The name that ONNX Runtime knows it by.
    pub fn name(&self) -> &str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda(_) => "CUDAExecutionProvider",
            Self::TensorRt(_) => "TensorrtExecutionProvider",
            Self::CoreMl(_) => "CoreMLExecutionProvider",
            Self::Other(other) => &other.name,
        }
    }

    /// The NVIDIA GPU that it runs on.
    pub fn cuda_ordinal(&self) -> Option<usize> {
        match self {
            Self::Cuda(options) => Some(options.ordinal),
            Self::TensorRt(options) => Some(options.cuda.ordinal),
            _ => None,
        }
    }
}

impl fmt::Display for ExecutionProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("CPU"),
            Self::Cuda(options) => write!(f, "CUDA device {}", options.ordinal),
            Self::TensorRt(options) => write!(f, "TensorRT on CUDA device {}", options.cuda.ordinal),
            Self::CoreMl(_) => f.write_str("Core ML"),
            Self::Other(other) => f.write_str(&other.name),
        }
    }
}

/// Options of [`ExecutionProvider::Cuda`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// Which GPU, as CUDA counts.
    pub ordinal: usize,
    /// Whether products of f32 may be computed in TF32, with 10 bits of fraction in place of 23: several times as fast on
    /// GPUs that have it, and less exact. Off by default, unlike ONNX Runtime's own.
    pub tf32: bool,
    /// The most memory that intermediate results may take, in bytes; all there is by default.
    pub memory_limit_bytes: Option<usize>,
}

/// Options of [`ExecutionProvider::TensorRt`].
///
/// Precision comes from the model: 16-bit kernels for f32 products are not asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TensorRtOptions {
    /// Of the GPU, and of the CUDA provider that takes what TensorRT leaves.
    pub cuda: CudaOptions,
    /// The folder that built engines and the timings of kernels are kept in, made where it is missing. It has to be the
    /// model's own: TensorRT's provider compares graphs, not weights.
    pub engine_cache: Option<PathBuf>,
    /// The sizes that named dimensions of the inputs may have: without, engines are built again for each new size. Either
    /// every named dimension of the model's inputs has one, or none.
    pub dimensions: BTreeMap<String, DimensionRange>,
    /// The least nodes that a part of the model must have for TensorRT to take it; CUDA takes smaller ones. 1 by default.
    pub least_nodes: Option<usize>,
    /// How hard the builder tries, 0 to 5; TensorRT's own 3 by default.
    pub builder_level: Option<u8>,
    /// The most memory that a kernel may work in, in bytes; all there is by default.
    pub workspace_bytes: Option<usize>,
}

/// Options of [`ExecutionProvider::CoreMl`].
///
/// Models become ML programs, on whatever Apple's machine has: CPU, GPU, Neural Engine. Shapes are static: fix every named
/// dimension with [`with_fixed_dimension`](super::OnnxRuntimeBuilder::with_fixed_dimension).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreMlOptions {
    /// The folder that compiled models are kept in, made where it is missing. It has to be the model's own.
    pub model_cache: Option<PathBuf>,
}

/// A provider that this crate has no options for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherProvider {
    /// As ONNX Runtime calls it: `OpenVINOExecutionProvider`.
    pub name: String,
    /// Its library, for providers that come as plugins; those inside of ONNX Runtime have none.
    pub library: Option<PathBuf>,
    /// Its options, as its documentation names them.
    pub options: Vec<(String, String)>,
}
