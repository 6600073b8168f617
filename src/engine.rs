//! The engines that run the graphs. A named engine that cannot start is an error; only `auto` tries another.

mod adapter_check;
mod automatic;
mod graphs;
mod kind;
mod openvino;
mod webgpu;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::embedded::{self, EmbeddedEngine};
use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeEngine, TensorRtOptions,
    default_threads,
};
use ocelli_engines::tensorrt::Product;
use ocelli_engines::{Device, Engine};
use ocelli_export::contract::{Precision, Target};

use self::adapter_check::Checked;
use self::openvino::OpenVinoMaker;
use self::webgpu::WebGpuChoice;
use crate::model::ModelSource;
use ocelli_error::{Error, ErrorKind, Result};

pub use adapter_check::AdapterVerdict;
pub(crate) use automatic::ModelFormat;
pub(crate) use graphs::GraphSizes;
pub use kind::EngineKind;

/// Options of an [`EngineFactory`].
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// What runs the graphs. [`EngineKind::TensorRt`] means ONNX Runtime's TensorRT provider in every build; engine files
    /// that were built ahead of time are given by path, with
    /// [`DetectorBuilder::with_trt_backbone`](crate::DetectorBuilder::with_trt_backbone).
    pub kind: EngineKind,
    /// Threads that share one operator; the number of physical cores by default.
    pub threads: Option<usize>,
    /// The path of ONNX Runtime's library; the usual places are searched by default. A library that is named and cannot be
    /// loaded is an error, with [`EngineKind::Auto`] as well.
    pub onnxruntime: Option<PathBuf>,
    /// The path of OpenVINO's library (`libopenvino_c`) or its folder; the usual places are searched by default.
    pub openvino: Option<PathBuf>,
    /// The path of the library of ONNX Runtime's WebGPU provider or its folder; the usual places are searched by default.
    pub webgpu: Option<PathBuf>,
    /// Whether nodes that the engine does not support run on the CPU, with a warning. By default loading such a graph
    /// fails, and the error lists the nodes.
    pub cpu_fallback: bool,
    /// Whether a WebGPU adapter is used that computes wrongly, with a warning. By default that is an error.
    pub allow_inexact: bool,
    /// Whether CUDA may multiply f32 matrices in TF32: several times as fast, with 10 mantissa bits in place of 23.
    pub tf32: bool,
}

/// Loads the graphs of a model as engines.
#[derive(Clone)]
pub struct EngineFactory(Maker);

#[derive(Clone)]
enum Maker {
    OnnxRuntime(OnnxRuntimeMaker),
    Embedded { threads: usize },
    OpenVino(OpenVinoMaker),
    Custom { description: Arc<str>, make: Arc<Make> },
}

/// ONNX Runtime with a provider that was found to start.
#[derive(Clone)]
struct OnnxRuntimeMaker {
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

type Make = dyn Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync;

impl EngineFactory {
    /// Loads the library of the engine and starts it. [`EngineKind::Auto`] takes an engine that runs the operators of every
    /// exported model; [`start_for_model`](Self::start_for_model) may know a faster one.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if a library, a driver or a GPU is missing, broken or too old; the message says what to
    /// install or change. [`ErrorKind::Mismatch`] if a WebGPU adapter computes wrongly.
    pub fn start(options: &EngineOptions) -> Result<Self> {
        Self::start_for(options, ModelFormat::ANY)
    }

    /// As [`start`](Self::start); [`EngineKind::Auto`] takes an engine that runs the model's number format and operators.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_for_model(options: &EngineOptions, source: &ModelSource) -> Result<Self> {
        Self::start_for(options, ModelFormat::of(source, Precision::default()))
    }

    /// As [`start`](Self::start); [`EngineKind::Auto`] takes an engine that runs the format.
    pub(crate) fn start_for(options: &EngineOptions, format: ModelFormat) -> Result<Self> {
        match options.kind {
            EngineKind::Auto => automatic::start(options, format),
            EngineKind::Embedded => Ok(Self(Maker::Embedded { threads: threads(options) })),
            EngineKind::TensorRt { .. } => {
                let why = match Product::COMPILED {
                    None => crate::tensorrt::missing(),
                    Some(_) => "its engines are built from a model before they run, and none were prepared",
                };
                let message = format!(
                    "engine {}: {why}; with TensorRT 10, onnxruntime-tensorrt runs any model through ONNX Runtime",
                    options.kind
                );
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            EngineKind::OpenVino { device } => {
                Ok(Self(Maker::OpenVino(OpenVinoMaker::start(options, device)?)))
            }
            EngineKind::WebGpu { ordinal } => Self::start_webgpu(options, ordinal),
            kind => Self::start_onnxruntime(options, kind),
        }
    }

    fn start_onnxruntime(options: &EngineOptions, kind: EngineKind) -> Result<Self> {
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
                cuda_device(ordinal)?
            }
            _ => None,
        };
        Ok(Self(Maker::OnnxRuntime(OnnxRuntimeMaker {
            runtime,
            kind,
            threads: threads(options),
            cpu_fallback: options.cpu_fallback,
            tf32: options.tf32,
            device,
            class_chunk: 1,
            webgpu: None,
        })))
    }

    /// Starts the adapter, and compares it with the CPU before its first use.
    fn start_webgpu(options: &EngineOptions, ordinal: usize) -> Result<Self> {
        let (runtime, webgpu) = WebGpuChoice::start(options, ordinal)?;
        let bytes = webgpu.webgpu.path().metadata().map_or(0, |metadata| metadata.len());
        let maker = OnnxRuntimeMaker {
            runtime,
            kind: EngineKind::WebGpu { ordinal },
            threads: threads(options),
            cpu_fallback: options.cpu_fallback,
            tf32: false,
            device: None,
            class_chunk: 1,
            webgpu: Some(Box::new(webgpu.clone())),
        };
        let checked = Checked {
            adapter: &webgpu.adapter,
            provider: (webgpu.webgpu.version(), bytes),
            onnxruntime: maker.runtime.version(),
        };
        checked.check(options.allow_inexact, |graph| maker.load(graph, None))?;
        Ok(Self(Maker::OnnxRuntime(maker)))
    }

    /// The number of classes decoded at once, which some engines need when they load a graph.
    #[doc(hidden)]
    #[must_use]
    pub fn with_class_chunk(mut self, classes: usize) -> Self {
        if let Maker::OnnxRuntime(maker) = &mut self.0 {
            maker.class_chunk = classes;
        }
        self
    }

    /// Requests a number format; `None` is the engine's default. Returns the format in which a model is to be exported,
    /// or has to be in: OpenVINO computes graphs of 32-bit weights in 16 bits by itself, other engines run what the graphs
    /// say.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a format that the engine does not support.
    pub(crate) fn set_precision(&mut self, precision: Option<Precision>) -> Result<Option<Precision>> {
        match &mut self.0 {
            Maker::OpenVino(maker) => Ok(maker.set_precision(precision)),
            Maker::OnnxRuntime(OnnxRuntimeMaker { kind: kind @ EngineKind::WebGpu { .. }, .. })
                if matches!(precision, Some(Precision::Bf16 | Precision::Int8)) =>
            {
                let format = precision.unwrap_or_default();
                let message = format!(
                    "precision {format}, engine {kind}: WebGPU has no such number format; choose precision fp32 or fp16, or \
                     another engine"
                );
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
            Maker::OnnxRuntime(_) | Maker::Embedded { .. } | Maker::Custom { .. } => Ok(precision),
        }
    }

    /// The fastest number format of the engine in which detections stay close to those in fp32; `None` for the default.
    pub(crate) fn fast_precision(&self) -> Option<Precision> {
        match &self.0 {
            Maker::OpenVino(maker) if maker.has_bf16() => Some(Precision::Bf16),
            _ => None,
        }
    }

    /// Checks the side of the model's input, in patches.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the engine cannot run it.
    pub(crate) fn check_patches(&self, patches: usize) -> Result<()> {
        if patches > 2 || !matches!(self.0, Maker::OpenVino(_)) {
            return Ok(());
        }
        // OpenVINO 2026.4.1 ends the process with a segmentation fault while it compiles such a graph.
        let message = "engine openvino: OpenVINO crashes with an imgsz below three patches; choose a larger imgsz or another \
                       engine";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// How a model exported for this engine writes attention: [`ModelRequest::target`](crate::ModelRequest::target) for
    /// programs that load graphs themselves.
    pub fn target(&self) -> Target {
        match &self.0 {
            Maker::OnnxRuntime(maker) => match maker.kind {
                EngineKind::OnnxRuntimeTensorRt { .. } | EngineKind::WebGpu { .. } | EngineKind::CoreMl => {
                    Target::TensorRt
                }
                _ => Target::OnnxRuntime,
            },
            Maker::OpenVino(_) => Target::TensorRt,
            Maker::Embedded { .. } | Maker::Custom { .. } => Target::OnnxRuntime,
        }
    }

    /// A factory for your own engines: `make` is called with the path of each graph that is needed, whose file name
    /// says which graph it is ([`export::contract::file`](crate::export::contract::file)). `description` names the
    /// library and the hardware for logs.
    pub fn custom(
        description: impl Into<Arc<str>>,
        make: impl Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync + 'static,
    ) -> Self {
        Self(Maker::Custom { description: description.into(), make: Arc::new(make) })
    }

    /// Loads one graph.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if the engine cannot run the file.
    pub fn load(&self, graph: &Path) -> Result<Box<dyn Engine>> {
        self.load_sized(graph, None)
    }

    /// Like [`load`](Self::load), with the sizes of the model for engines that need them fixed or bounded.
    pub(crate) fn load_sized(&self, graph: &Path, sizes: Option<GraphSizes>) -> Result<Box<dyn Engine>> {
        let started = std::time::Instant::now();
        let engine: Box<dyn Engine> = match &self.0 {
            Maker::OnnxRuntime(maker) => maker.load(graph, sizes)?,
            Maker::Embedded { threads } => {
                Box::new(EmbeddedEngine::builder().with_threads(*threads).build_from_file(graph)?)
            }
            Maker::OpenVino(maker) => maker.load(graph)?,
            Maker::Custom { make, .. } => make(graph)?,
        };
        tracing::debug!(
            graph = %graph.display(),
            engine = engine.description(),
            ms = started.elapsed().as_millis(),
            "engine loaded"
        );
        Ok(engine)
    }

    /// The library and the hardware, for logs: `ONNX Runtime 1.31.1, CPU, 2 threads`.
    pub fn description(&self) -> String {
        match &self.0 {
            Maker::OnnxRuntime(maker) => maker.description(),
            Maker::Embedded { threads } => embedded::description(*threads),
            Maker::OpenVino(maker) => maker.description(),
            Maker::Custom { description, .. } => description.to_string(),
        }
    }
}

impl fmt::Debug for EngineFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineFactory({})", self.description())
    }
}

impl OnnxRuntimeMaker {
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

fn threads(options: &EngineOptions) -> usize {
    options.threads.unwrap_or_else(default_threads)
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

/// The memory of the GPU, in builds with CUDA: tensors stay there between graphs. Without it ONNX Runtime copies every
/// tensor to host memory and back.
#[cfg(feature = "cuda")]
fn cuda_device(ordinal: usize) -> Result<Option<Device>> {
    Ok(Some(ocelli_engines::cuda::CudaDevice::open(ordinal)?.into()))
}

#[cfg(not(feature = "cuda"))]
#[allow(clippy::unnecessary_wraps, reason = "the other build can fail")]
fn cuda_device(_: usize) -> Result<Option<Device>> {
    Ok(None)
}
