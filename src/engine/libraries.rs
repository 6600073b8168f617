//! Engines whose libraries are loaded at run time.

mod adapter_check;
mod automatic;
mod graphs;
mod openvino;
mod speed;
mod webgpu;

use std::path::Path;

use ocelli_engines::cuda::CudaDevice;
use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeEngine, TensorRtOptions,
    WebGpuDevice,
};
use ocelli_engines::{Device, Engine};
use ocelli_export::contract::{Precision, Target};

use self::adapter_check::Checked;
use self::openvino::OpenVinoMaker;
use self::webgpu::WebGpuChoice;
use super::{EngineFactory, EngineKind, EngineOptions, GraphSizes, threads};
use ocelli_error::{Error, ErrorKind, Result};

pub use adapter_check::AdapterVerdict;
pub(super) use automatic::start as start_automatic;

/// An engine whose library was loaded.
#[derive(Clone)]
pub(super) enum LibraryMaker {
    OnnxRuntime(OnnxRuntimeMaker),
    OpenVino(OpenVinoMaker),
}

/// ONNX Runtime with a provider that was found to start.
#[derive(Clone)]
pub(super) struct OnnxRuntimeMaker {
    runtime: OnnxRuntime,
    kind: EngineKind,
    threads: usize,
    cpu_fallback: bool,
    tf32: bool,
    /// The device on which tensors stay between graphs.
    device: Option<Device>,
    class_chunk: usize,
    /// Of the engine [`EngineKind::WebGpu`].
    webgpu: Option<Box<WebGpuChoice>>,
}

impl LibraryMaker {
    /// Loads the library of a named engine and starts it.
    ///
    /// # Errors
    /// As [`EngineFactory::start`].
    pub(super) fn start(options: &EngineOptions) -> Result<Self> {
        match options.kind {
            EngineKind::TensorRt { .. } => {
                let message = format!(
                    "engine {}: its engines are built from a model before they run, and none were prepared; with TensorRT 10, \
                     onnxruntime-tensorrt runs any model through ONNX Runtime",
                    options.kind
                );
                Err(Error::new(ErrorKind::Unavailable, message).about("engine"))
            }
            EngineKind::OpenVino { device } => Ok(Self::OpenVino(OpenVinoMaker::start(options, device)?)),
            EngineKind::WebGpu { ordinal } => {
                Ok(Self::OnnxRuntime(OnnxRuntimeMaker::start_webgpu(options, ordinal)?))
            }
            kind => Ok(Self::OnnxRuntime(OnnxRuntimeMaker::start(options, kind)?)),
        }
    }

    pub(super) fn set_class_chunk(&mut self, classes: usize) {
        if let Self::OnnxRuntime(maker) = self {
            maker.class_chunk = classes;
        }
    }

    pub(super) fn set_precision(&mut self, precision: Option<Precision>) -> Result<Option<Precision>> {
        match self {
            Self::OpenVino(maker) => Ok(maker.set_precision(precision)),
            Self::OnnxRuntime(OnnxRuntimeMaker { kind: kind @ EngineKind::WebGpu { .. }, .. })
                if matches!(precision, Some(Precision::Bf16 | Precision::Int8)) =>
            {
                let format = precision.unwrap_or_default();
                let message = format!(
                    "precision {format}, engine {kind}: WebGPU has no such number format; choose precision fp32 or fp16, or \
                     another engine"
                );
                Err(Error::new(ErrorKind::InvalidArgument, message).about("precision"))
            }
            Self::OnnxRuntime(_) => Ok(precision),
        }
    }

    /// Whether the engine runs graphs of a [calibrated](Precision::is_calibrated) precision: TensorRT, and the CPU for
    /// comparison.
    pub(super) fn runs_calibrated(&self) -> bool {
        match self {
            Self::OnnxRuntime(maker) => {
                matches!(maker.kind, EngineKind::Cpu | EngineKind::OnnxRuntimeTensorRt { .. })
            }
            Self::OpenVino(_) => false,
        }
    }

    /// Whether graphs may be loaded on several threads at once.
    pub(super) fn loads_in_parallel(&self) -> bool {
        match self {
            Self::OnnxRuntime(maker) => maker.kind == EngineKind::Cpu,
            Self::OpenVino(_) => true,
        }
    }

    pub(super) fn fast_precision(&self) -> Option<Precision> {
        match self {
            Self::OpenVino(maker) if maker.has_bf16() => Some(Precision::Bf16),
            _ => None,
        }
    }

    pub(super) fn check_patches(&self, patches: usize) -> Result<()> {
        if patches > 2 || !matches!(self, Self::OpenVino(_)) {
            return Ok(());
        }
        // OpenVINO 2026.4.1 ends the process with a segmentation fault while it compiles such a graph.
        let message = "engine openvino: OpenVINO crashes with an imgsz below three patches; choose a larger imgsz or another \
                       engine";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    pub(super) fn target(&self) -> Target {
        match self {
            Self::OnnxRuntime(maker) => match maker.kind {
                EngineKind::OnnxRuntimeTensorRt { .. } | EngineKind::WebGpu { .. } | EngineKind::CoreMl => {
                    Target::TensorRt
                }
                _ => Target::OnnxRuntime,
            },
            Self::OpenVino(_) => Target::TensorRt,
        }
    }

    pub(super) fn load(&self, graph: &Path, sizes: Option<GraphSizes>) -> Result<Box<dyn Engine>> {
        match self {
            Self::OnnxRuntime(maker) => maker.load(graph, sizes),
            Self::OpenVino(maker) => maker.load(graph),
        }
    }

    pub(super) fn description(&self) -> String {
        match self {
            Self::OnnxRuntime(maker) => maker.description(),
            Self::OpenVino(maker) => maker.description(),
        }
    }
}

impl OnnxRuntimeMaker {
    /// Loads ONNX Runtime and starts a provider.
    fn start(options: &EngineOptions, kind: EngineKind) -> Result<Self> {
        let runtime = load_onnxruntime(options)?;
        if kind != EngineKind::Cpu {
            runtime.try_provider(&probe(kind)).map_err(|reason| {
                let message =
                    format!("engine {kind}: {reason}; the engine {} runs on the CPU", EngineKind::Cpu);
                Error::new(ErrorKind::Unavailable, message).with_source(reason)
            })?;
        }
        let device = match kind {
            EngineKind::Cuda { ordinal } | EngineKind::OnnxRuntimeTensorRt { ordinal } => {
                // Tensors stay on the GPU between graphs.
                Some(CudaDevice::open(ordinal)?.into())
            }
            _ => None,
        };
        Ok(Self {
            runtime,
            kind,
            threads: threads(options),
            cpu_fallback: options.cpu_fallback,
            tf32: options.tf32,
            device,
            class_chunk: 1,
            webgpu: None,
        })
    }

    /// Starts the adapter, and compares it with the CPU before its first use.
    fn start_webgpu(options: &EngineOptions, ordinal: usize) -> Result<Self> {
        let (runtime, webgpu) = WebGpuChoice::start(options, ordinal)?;
        let device = WebGpuDevice::open(&runtime, &webgpu.provider, &webgpu.adapter.name)?;
        let bytes = webgpu.webgpu.path().metadata().map_or(0, |metadata| metadata.len());
        let maker = Self {
            runtime,
            kind: EngineKind::WebGpu { ordinal },
            threads: threads(options),
            cpu_fallback: options.cpu_fallback,
            tf32: false,
            device: Some(device.into()),
            class_chunk: 1,
            webgpu: Some(Box::new(webgpu.clone())),
        };
        let checked = Checked {
            adapter: &webgpu.adapter,
            provider: (webgpu.webgpu.version(), bytes),
            onnxruntime: maker.runtime.version(),
        };
        checked.check(options.allow_inexact, |graph| maker.load(graph, None))?;
        Ok(maker)
    }

    fn load(&self, path: &Path, sizes: Option<GraphSizes>) -> Result<Box<dyn Engine>> {
        let Self { kind, tf32, class_chunk, .. } = *self;
        let graph = graphs::Graph { path, kind, tf32, class_chunk, sizes };
        let provider = match &self.webgpu {
            Some(webgpu) => webgpu.provider.clone(),
            None => graph.provider()?,
        };
        let builder = OnnxRuntimeEngine::builder(&self.runtime)
            .with_threads(self.threads)
            .with_cpu_fallback(self.cpu_fallback)
            .with_memory_arena(graph.keeps_memory())
            .with_provider(provider);
        let builder = match &self.device {
            Some(device) => builder.with_device(device.clone()),
            None => builder,
        };
        Ok(Box::new(graph.fix_dimensions(builder).build_from_file(path)?))
    }

    fn description(&self) -> String {
        let version = self.runtime.version();
        if let Some(webgpu) = &self.webgpu {
            return format!("ONNX Runtime {version}, {}", webgpu.description());
        }
        match self.kind {
            EngineKind::Cpu => {
                let plural = if self.threads == 1 { "" } else { "s" };
                format!("ONNX Runtime {version}, CPU, {} thread{plural}", self.threads)
            }
            kind => {
                let name =
                    self.device.as_ref().map_or_else(String::new, |device| format!(", {}", device.name()));
                format!("ONNX Runtime {version}, {}{name}", probe(kind))
            }
        }
    }
}

fn load_onnxruntime(options: &EngineOptions) -> Result<OnnxRuntime> {
    OnnxRuntime::load(options.onnxruntime.as_deref())
}

/// The provider of an engine with default options, to test whether it starts.
fn probe(kind: EngineKind) -> ExecutionProvider {
    let cuda = |ordinal| CudaOptions { ordinal, ..CudaOptions::default() };
    match kind {
        EngineKind::Cuda { ordinal } => ExecutionProvider::Cuda(cuda(ordinal)),
        EngineKind::TensorRt { ordinal } | EngineKind::OnnxRuntimeTensorRt { ordinal } => {
            ExecutionProvider::TensorRt(TensorRtOptions { cuda: cuda(ordinal), ..TensorRtOptions::default() })
        }
        EngineKind::CoreMl => ExecutionProvider::CoreMl(CoreMlOptions::default()),
        EngineKind::Auto
        | EngineKind::Embedded
        | EngineKind::Cpu
        | EngineKind::OpenVino { .. }
        | EngineKind::WebGpu { .. } => ExecutionProvider::Cpu,
    }
}
