//! Execution providers and their options.

use std::fmt;
use std::path::PathBuf;

/// ONNX Runtime's name for [`ExecutionProvider::WebGpu`].
pub(crate) const WEBGPU: &str = "WebGpuExecutionProvider";

/// An execution provider: the part of ONNX Runtime that computes on one kind of hardware.
///
/// A provider that cannot start is an error; nothing falls back to another one. Nodes that it does not support are an
/// error as well, unless they [may run on the CPU](super::OnnxRuntimeBuilder::with_cpu_fallback).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExecutionProvider {
    /// The CPU.
    #[default]
    Cpu,
    /// An NVIDIA GPU, with ONNX Runtime's own kernels.
    Cuda(CudaOptions),
    /// Apple's Core ML.
    CoreMl(CoreMlOptions),
    /// Any GPU with Vulkan, Direct3D 12 or Metal, as [`WebGpu::provider`](crate::webgpu::WebGpu::provider) describes it.
    WebGpu(OtherProvider),
    /// Any other provider, by its name.
    Other(OtherProvider),
}

impl ExecutionProvider {
    /// ONNX Runtime's name for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda(_) => "CUDAExecutionProvider",
            Self::CoreMl(_) => "CoreMLExecutionProvider",
            Self::WebGpu(_) => WEBGPU,
            Self::Other(other) => &other.name,
        }
    }

    /// The NVIDIA GPU that it runs on.
    pub(crate) fn cuda_ordinal(&self) -> Option<usize> {
        match self {
            Self::Cuda(options) => Some(options.ordinal),
            _ => None,
        }
    }
}

impl fmt::Display for ExecutionProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("CPU"),
            Self::Cuda(options) => write!(f, "CUDA device {}", options.ordinal),
            Self::CoreMl(_) => f.write_str("Core ML"),
            Self::WebGpu(_) => f.write_str("WebGPU"),
            Self::Other(other) => f.write_str(&other.name),
        }
    }
}

/// Options of [`ExecutionProvider::Cuda`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// The GPU's number in CUDA.
    pub ordinal: usize,
    /// Lets f32 matrices be multiplied in TF32, with 10 mantissa bits instead of 23: several times as fast on GPUs that support
    /// it, and less exact. Off by default, unlike in ONNX Runtime.
    pub tf32: bool,
    /// Makes fused attention do without ONNX Runtime's memory-efficient kernels. In f32 these are wrong where values are
    /// narrower than keys (1.31.1 on an H100: object scores of the memory tracker up to 9 % off); without them it takes the
    /// memory of all scores. Off by default.
    pub no_efficient_attention: bool,
}

/// Options of [`ExecutionProvider::CoreMl`].
///
/// Models become ML programs that run on the CPU, the GPU and the Neural Engine. Shapes are static: fix every named
/// dimension with [`with_fixed_dimension`](super::OnnxRuntimeBuilder::with_fixed_dimension).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreMlOptions {
    /// The folder for compiled models, created if it is missing. Every model needs its own.
    pub model_cache: Option<PathBuf>,
}

/// A provider that this crate has no options for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherProvider {
    /// ONNX Runtime's name for it: `OpenVINOExecutionProvider`.
    pub name: String,
    /// Its library, if it is a plugin; `None` for a provider that is built into ONNX Runtime.
    pub library: Option<PathBuf>,
    /// Options, as the provider's documentation names them.
    pub options: Vec<(String, String)>,
}
