//! Engines whose libraries are loaded at run time.

mod adapter_check;
mod automatic;
mod graphs;
mod openvino;
mod speed;

use std::path::Path;
use std::sync::Arc;

use ocelli_engines::cuda::CudaDevice;
use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, OnnxRuntime, OnnxRuntimeEngine, WebGpuDevice,
};
use ocelli_engines::webgpu::WebGpu;
use ocelli_engines::{Device, Engine, cpu_description};
use ocelli_export::contract::{Precision, Target};

use self::adapter_check::Checked;
use self::openvino::OpenVinoLoader;
use super::loader::{Computing, Loader};
use super::{EngineFactory, EngineKind, EngineOptions, threads};
use ocelli_error::{Error, Result};

pub use adapter_check::AdapterVerdict;
pub(super) use automatic::start as start_automatic;

/// Loads the library of a named engine and starts it.
pub(super) fn start(options: &EngineOptions) -> Result<Arc<dyn Loader>> {
    let loader: Arc<dyn Loader> = match options.kind {
        EngineKind::TensorRt { .. } => {
            let message = format!(
                "engine {}: its engines are built from a model before they run, and none were prepared",
                options.kind
            );
            return Err(Error::unavailable(message).about("engine"));
        }
        EngineKind::OpenVino { device } => Arc::new(OpenVinoLoader::start(options, device)?),
        EngineKind::WebGpu { ordinal } => Arc::new(OnnxRuntimeLoader::start_webgpu(options, ordinal)?),
        _ => Arc::new(OnnxRuntimeLoader::start(options)?),
    };
    Ok(loader)
}

/// ONNX Runtime with a provider that was found to start.
struct OnnxRuntimeLoader {
    runtime: OnnxRuntime,
    options: EngineOptions,
    /// The device on which tensors stay between graphs.
    device: Option<Device>,
    /// Of the engine [`EngineKind::WebGpu`]: the provider on its adapter, and what they are for users.
    webgpu: Option<(ExecutionProvider, String)>,
}

impl OnnxRuntimeLoader {
    /// Loads ONNX Runtime and starts a provider.
    fn start(options: &EngineOptions) -> Result<Self> {
        let (runtime, kind) = (load_onnxruntime(options)?, options.kind);
        if kind != EngineKind::Cpu {
            runtime.try_provider(&default_provider(kind)).map_err(|reason| cannot_start(kind, reason))?;
        }
        let device = match kind {
            EngineKind::Cuda { ordinal } => {
                // Tensors stay on the GPU between graphs.
                Some(CudaDevice::open(ordinal)?.into())
            }
            _ => None,
        };
        Ok(Self { runtime, options: with_threads(options), device, webgpu: None })
    }

    /// Starts the adapter, and compares it with the CPU before its first use.
    fn start_webgpu(options: &EngineOptions, ordinal: usize) -> Result<Self> {
        let start = || {
            let runtime = load_onnxruntime(options)?;
            let webgpu = WebGpu::load(options.webgpu.as_deref())?;
            let (provider, adapter) = webgpu.provider_and_adapter(ordinal)?;
            runtime.try_provider(&provider)?;
            Ok((runtime, webgpu, provider, adapter))
        };
        let (runtime, webgpu, provider, adapter) =
            start().map_err(|reason| cannot_start(options.kind, reason))?;
        let device = Some(WebGpuDevice::open(&runtime, &provider, &adapter.name)?.into());
        let description = format!("WebGPU {}, {}", webgpu.version(), adapter.name);
        let options = with_threads(options);
        let loader = Self { runtime, options, device, webgpu: Some((provider, description)) };
        let bytes = webgpu.path().metadata().map_or(0, |metadata| metadata.len());
        let checked = Checked {
            adapter: &adapter,
            provider: (webgpu.version(), bytes),
            onnxruntime: loader.runtime.version(),
        };
        checked.check(loader.options.allow_inexact, |graph| loader.load(graph, None, 1))?;
        Ok(loader)
    }
}

impl Loader for OnnxRuntimeLoader {
    fn load(&self, path: &Path, context_length: Option<usize>, classes: usize) -> Result<Box<dyn Engine>> {
        let EngineOptions { kind, tf32, cpu_fallback, .. } = self.options;
        let graph = graphs::Graph { path, kind, tf32, class_chunk: classes, context_length };
        let provider = match &self.webgpu {
            Some((provider, _)) => provider.clone(),
            None => graph.provider()?,
        };
        let builder = OnnxRuntimeEngine::builder(&self.runtime)
            .with_threads(threads(&self.options))
            .with_cpu_fallback(cpu_fallback)
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
        if let Some((_, webgpu)) = &self.webgpu {
            return format!("ONNX Runtime {version}, {webgpu}");
        }
        match self.options.kind {
            EngineKind::Cpu => format!("ONNX Runtime {version}, {}", cpu_description(threads(&self.options))),
            kind => {
                let name =
                    self.device.as_ref().map_or_else(String::new, |device| format!(", {}", device.name()));
                format!("ONNX Runtime {version}, {}{name}", default_provider(kind))
            }
        }
    }

    /// The CPU runs them for comparison with TensorRT.
    fn runs_calibrated(&self) -> bool {
        self.options.kind == EngineKind::Cpu
    }

    fn loads_in_parallel(&self) -> bool {
        self.options.kind == EngineKind::Cpu
    }

    fn target(&self, _: Option<Precision>) -> Target {
        match self.options.kind {
            EngineKind::WebGpu { .. } | EngineKind::CoreMl => Target::TensorRt,
            _ => Target::OnnxRuntime,
        }
    }

    fn computing_in(&self, precision: Option<Precision>) -> Result<Computing> {
        match (self.options.kind, precision) {
            (kind @ EngineKind::WebGpu { .. }, Some(format @ (Precision::Bf16 | Precision::Int8))) => {
                Err(Error::invalid_argument(format!(
                    "precision {format}, engine {kind}: WebGPU has no such number format; choose precision fp32 or fp16, or \
                     another engine"
                )).about("precision"))
            }
            _ => Ok((None, precision)),
        }
    }
}

fn cannot_start(kind: EngineKind, reason: Error) -> Error {
    let message = format!("engine {kind}: {reason}; the engine {} runs on the CPU", EngineKind::Cpu);
    Error::unavailable(message).with_source(reason)
}

/// The options with the number of threads of this moment: the cores that a process may use can change.
fn with_threads(options: &EngineOptions) -> EngineOptions {
    EngineOptions { threads: Some(threads(options)), ..options.clone() }
}

fn load_onnxruntime(options: &EngineOptions) -> Result<OnnxRuntime> {
    OnnxRuntime::load(options.onnxruntime.as_deref())
}

/// The provider of an engine with default options.
fn default_provider(kind: EngineKind) -> ExecutionProvider {
    match kind {
        EngineKind::Cuda { ordinal } => {
            ExecutionProvider::Cuda(CudaOptions { ordinal, ..CudaOptions::default() })
        }
        EngineKind::CoreMl => ExecutionProvider::CoreMl(CoreMlOptions::default()),
        _ => ExecutionProvider::Cpu,
    }
}
