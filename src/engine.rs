//! Which engine runs the graphs. A named engine that cannot start is an error; nothing falls back to another.

mod graphs;
mod kind;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::onnxruntime::{
    CoreMlOptions, CudaOptions, ExecutionProvider, LibrarySearch, OnnxRuntime, OnnxRuntimeEngine,
    TensorRtOptions,
};
use ocelli_engines::{Device, Engine};
use ocelli_export::contract::Target;

use crate::error::{Error, ErrorKind, Result};

pub(crate) use graphs::GraphSizes;
pub use kind::EngineKind;

/// What `auto` prefers to the processor.
const GPU: EngineKind = EngineKind::Cuda { ordinal: 0 };

/// How engines are made.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// What computes.
    pub kind: EngineKind,
    /// Threads that work on one operator together; the number of physical cores by default.
    pub threads: Option<usize>,
    /// ONNX Runtime's library; searched for where it is not named.
    pub onnxruntime: Option<PathBuf>,
    /// Whether an engine may leave a part of a graph to the processor, which is a warning then; otherwise it is an error
    /// with the list.
    pub allow_partial: bool,
    /// Whether CUDA may compute products of f32 in TF32: several times as fast, with 10 bits of fraction in place of 23.
    pub tf32: bool,
}

/// Makes engines from graphs.
#[derive(Clone)]
pub struct EngineFactory(Maker);

#[derive(Clone)]
enum Maker {
    OnnxRuntime(OnnxRuntimeMaker),
    Custom { description: Arc<str>, make: Arc<Make> },
}

/// ONNX Runtime with one of its providers, which has started.
#[derive(Clone)]
struct OnnxRuntimeMaker {
    runtime: OnnxRuntime,
    kind: EngineKind,
    threads: usize,
    allow_partial: bool,
    tf32: bool,
    /// Where tensors stay between the graphs.
    device: Option<Arc<dyn Device>>,
    class_chunk: usize,
}

type Make = dyn Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync;

impl EngineFactory {
    /// Loads what the engine needs, and starts it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where a library, a driver or a GPU is missing, broken or too old; the message says what to
    /// install or type.
    pub fn start(options: &EngineOptions) -> Result<Self> {
        match options.kind {
            EngineKind::Auto => Self::start_best(options),
            // TensorRT's engines are built and run by ONNX Runtime's provider.
            EngineKind::Cpu | EngineKind::Cuda { .. } | EngineKind::TensorRt { .. } | EngineKind::CoreMl => {
                Self::start_onnxruntime(options, options.kind)
            }
            EngineKind::CudaNative { .. } => {
                let message = format!(
                    "engine {}: this build has no such engine; `--engine cuda` runs on the same GPU (`ocelli doctor` lists \
                     engines)",
                    options.kind
                );
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }

    fn start_best(options: &EngineOptions) -> Result<Self> {
        let runtime = load_onnxruntime(options)?;
        let built_in = runtime.providers()?;
        let has = |kind| built_in.iter().any(|name| name == probe(kind).name());
        let (factory, reason) = best(has, |kind| Self::start_onnxruntime(options, kind))?;
        if let Some(reason) = reason {
            // Whoever has a library with CUDA expects a GPU.
            tracing::warn!("engine auto: the processor, not {GPU}: {reason}");
        } else if !has(GPU) {
            tracing::debug!("engine auto: not {GPU}: {} was built without it", runtime.path().display());
        }
        tracing::debug!("engine auto: {}", factory.description());
        Ok(factory)
    }

    fn start_onnxruntime(options: &EngineOptions, kind: EngineKind) -> Result<Self> {
        let runtime = load_onnxruntime(options)?;
        if kind != EngineKind::Cpu {
            runtime.try_provider(&probe(kind)).map_err(|reason| {
                let message = format!("engine {kind}: {reason}; `--engine cpu` runs on the processor");
                Error::new(ErrorKind::Unavailable, message).with_source(reason)
            })?;
        }
        let device = match kind {
            EngineKind::Cuda { ordinal } | EngineKind::TensorRt { ordinal } => cuda_device(ordinal)?,
            _ => None,
        };
        Ok(Self(Maker::OnnxRuntime(OnnxRuntimeMaker {
            runtime,
            kind,
            threads: options.threads.unwrap_or_else(ocelli_engines::onnxruntime::default_threads),
            allow_partial: options.allow_partial,
            tf32: options.tf32,
            device,
            class_chunk: 1,
        })))
    }

    /// How many classes are decoded at once, for engines that want to know before.
    #[doc(hidden)]
    #[must_use]
    pub fn with_class_chunk(mut self, classes: usize) -> Self {
        if let Maker::OnnxRuntime(maker) = &mut self.0 {
            maker.class_chunk = classes;
        }
        self
    }

    /// What attention is best written as for this engine, where a model is exported for it.
    pub(crate) fn target(&self) -> Target {
        match &self.0 {
            Maker::OnnxRuntime(maker) => match maker.kind {
                EngineKind::TensorRt { .. } | EngineKind::CoreMl => Target::TensorRt,
                _ => Target::OnnxRuntime,
            },
            Maker::Custom { .. } => Target::OnnxRuntime,
        }
    }

    /// Engines of the caller's own: `make` is given a graph's path, whose file name says which it is
    /// ([`export::contract::file`](crate::export::contract::file)), each time one is needed. `description` says what
    /// runs, and where, for people.
    pub fn custom(
        description: impl Into<Arc<str>>,
        make: impl Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync + 'static,
    ) -> Self {
        Self(Maker::Custom { description: description.into(), make: Arc::new(make) })
    }

    /// An engine for one graph.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] where the file is no graph this engine runs.
    pub fn load(&self, graph: &Path) -> Result<Box<dyn Engine>> {
        self.load_sized(graph, None)
    }

    /// As [`load`](Self::load), with the model's sizes for engines that want them fixed or bounded.
    pub(crate) fn load_sized(&self, graph: &Path, sizes: Option<GraphSizes>) -> Result<Box<dyn Engine>> {
        let started = std::time::Instant::now();
        let engine: Box<dyn Engine> = match &self.0 {
            Maker::OnnxRuntime(maker) => maker.load(graph, sizes)?,
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

    /// What runs, and where, for people.
    pub fn description(&self) -> String {
        match &self.0 {
            Maker::OnnxRuntime(maker) => maker.description(),
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
        let builder = OnnxRuntimeEngine::builder(&self.runtime)
            .with_threads(self.threads)
            .with_partial_placement(self.allow_partial)
            .with_provider(graph.provider()?);
        let builder = match &self.device {
            Some(device) => builder.with_device(device.clone()),
            None => builder,
        };
        Ok(Box::new(graph.fix_dimensions(builder).build_from_file(path)?))
    }

    fn description(&self) -> String {
        let version = self.runtime.version();
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

/// What starts: the GPU where the library has it, else the processor, with the reason why a GPU that it has did not start.
fn best<T>(
    has: impl Fn(EngineKind) -> bool,
    start: impl Fn(EngineKind) -> Result<T>,
) -> Result<(T, Option<Error>)> {
    let reason = match has(GPU).then(|| start(GPU)) {
        Some(Ok(started)) => return Ok((started, None)),
        Some(Err(reason)) => Some(reason),
        None => None,
    };
    Ok((start(EngineKind::Cpu)?, reason))
}

fn load_onnxruntime(options: &EngineOptions) -> Result<OnnxRuntime> {
    let search = LibrarySearch::new();
    let search = match &options.onnxruntime {
        Some(path) => search.with_path(path),
        None => search,
    };
    Ok(OnnxRuntime::load(&search)?)
}

/// The engine's provider without options, to see whether it starts.
fn probe(kind: EngineKind) -> ExecutionProvider {
    let cuda = |ordinal| CudaOptions { ordinal, ..CudaOptions::default() };
    match kind {
        EngineKind::Cuda { ordinal } | EngineKind::CudaNative { ordinal } => {
            ExecutionProvider::Cuda(cuda(ordinal))
        }
        EngineKind::TensorRt { ordinal } => {
            ExecutionProvider::TensorRt(TensorRtOptions { cuda: cuda(ordinal), ..TensorRtOptions::default() })
        }
        EngineKind::CoreMl => ExecutionProvider::CoreMl(CoreMlOptions::default()),
        EngineKind::Auto | EngineKind::Cpu => ExecutionProvider::Cpu,
    }
}

/// The GPU's memory, where this build knows how to use it: what goes from graph to graph stays there. Otherwise everything
/// crosses, and ONNX Runtime copies it.
#[cfg(feature = "cuda")]
fn cuda_device(ordinal: usize) -> Result<Option<Arc<dyn Device>>> {
    Ok(Some(ocelli_engines::cuda::CudaDevice::open(ordinal)?))
}

#[cfg(not(feature = "cuda"))]
#[allow(clippy::unnecessary_wraps, reason = "the other build can fail")]
fn cuda_device(_: usize) -> Result<Option<Arc<dyn Device>>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_driver(kind: EngineKind) -> Error {
        Error::new(ErrorKind::Unavailable, format!("engine {kind}: there is no driver"))
    }

    #[test]
    fn auto_takes_the_gpu_where_it_starts() {
        let (kind, reason) = best(|_| true, Ok).expect("both start");
        assert_eq!(kind, GPU);
        assert!(reason.is_none(), "{reason:?}");
    }

    #[test]
    fn auto_goes_to_the_processor_with_the_reason_where_the_library_has_a_gpu_that_does_not_start() {
        let start = |kind| if kind == GPU { Err(no_driver(kind)) } else { Ok(kind) };
        let (kind, reason) = best(|_| true, start).expect("the processor starts");
        assert_eq!(kind, EngineKind::Cpu);
        assert_eq!(reason.expect("it is told").to_string(), "engine cuda: there is no driver");
    }

    #[test]
    fn auto_does_not_try_a_gpu_that_the_library_has_not() {
        let start = |kind| if kind == EngineKind::Cpu { Ok(kind) } else { Err(no_driver(kind)) };
        let (kind, reason) = best(|_| false, start).expect("the processor starts");
        assert_eq!(kind, EngineKind::Cpu);
        assert!(reason.is_none(), "{reason:?}");
    }

    #[test]
    fn auto_fails_where_the_processor_fails_too() {
        let start = |kind| Err::<EngineKind, _>(no_driver(kind));
        let error = best(|_| true, start).expect_err("nothing starts");
        assert_eq!(error.to_string(), "engine cpu: there is no driver");
    }
}
