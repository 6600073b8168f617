//! The engines that run the graphs. A named engine that cannot start is an error; only `auto` tries another.

mod format;
mod kind;
#[cfg(not(target_family = "wasm"))]
mod libraries;
#[cfg(target_family = "wasm")]
#[path = "engine/no_libraries.rs"]
mod libraries;
mod load;
mod loader;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::embedded::SharedThreads;
use ocelli_engines::{Engine, default_threads};
use ocelli_export::contract::{Precision, Target};
use serde::{Deserialize, Serialize};

use self::loader::{Custom, Embedded, Loader};
use crate::Cancellation;
use crate::model::{Model, ModelSource};
use crate::timing::Instant;
use ocelli_error::{Error, Result};

pub(crate) use format::ModelFormat;
pub use kind::EngineKind;
#[cfg(not(target_family = "wasm"))]
pub use libraries::AdapterVerdict;

/// The most threads: more than any machine can use. Engines would start any number.
const MAX_THREADS: usize = 256;

/// Options of an engine, and of the [`EngineFactory`] that starts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineOptions {
    /// The engine that runs the graphs. [`EngineKind::TensorRt`] needs engines that were built from the model beforehand;
    /// engine files of your own are named by [`trt_backbone`](Self::trt_backbone).
    pub kind: EngineKind,
    /// Threads that share one operator, 1 to 256; the number of physical cores by default.
    pub threads: Option<usize>,
    /// The path of ONNX Runtime's library; the usual places are searched by default. A library that is named and cannot be
    /// loaded is an error, with [`EngineKind::Auto`] as well.
    pub onnxruntime: Option<PathBuf>,
    /// The path of OpenVINO's library (`libopenvino_c`) or its folder; the usual places are searched by default.
    pub openvino: Option<PathBuf>,
    /// The path of the library of ONNX Runtime's WebGPU provider or its folder; the usual places are searched by default.
    pub webgpu: Option<PathBuf>,
    /// The path of TensorRT's library or its folder; the usual places are searched by default.
    pub tensorrt: Option<PathBuf>,
    /// A TensorRT engine file in place of the backbone. The model is that of its sidecar unless
    /// [one is named](crate::options::DetectorOptions::model). An [`EngineFactory`] has no use for it.
    pub trt_backbone: Option<PathBuf>,
    /// A TensorRT engine file in place of the encoder-decoder, as [`trt_backbone`](Self::trt_backbone). The file limits the number
    /// of classes that are decoded at once.
    pub trt_encoder_decoder: Option<PathBuf>,
    /// Runs on the CPU the nodes that the engine does not support, with a warning. By default loading such a graph fails, and
    /// the error lists the nodes.
    pub cpu_fallback: bool,
    /// Use a WebGPU adapter that fails the accuracy check, with a warning. By default that is an error.
    pub allow_inexact: bool,
    /// Lets CUDA multiply f32 matrices in TF32: several times as fast, with 10 mantissa bits in place of 23.
    pub tf32: bool,
}

impl EngineOptions {
    /// Checks the number of threads.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = self.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads));
        let refuse = |threads| Err(Error::argument("threads", threads, format!("1 to {MAX_THREADS}")));
        wrong.map_or(Ok(()), refuse)
    }
}

/// The request to a function that [compiles a model](crate::DetectorBuilder::with_prepared_engines).
#[non_exhaustive]
pub struct PrepareEngines<'r> {
    /// The model.
    pub model: &'r Model,
    /// Runs the graphs that are not compiled.
    pub rest: EngineFactory,
    /// The number of classes that are decoded at once.
    pub class_chunk: usize,
    /// The caller's cancellation token.
    pub cancellation: &'r Cancellation,
    /// To be called with a line of progress before each step that takes long.
    pub report: &'r dyn Fn(&str),
}

/// Loads the graphs of a model as engines.
#[derive(Clone)]
pub struct EngineFactory {
    loader: Arc<dyn Loader>,
    class_chunk: usize,
}

impl EngineFactory {
    fn of(loader: Arc<dyn Loader>) -> Self {
        Self { loader, class_chunk: 1 }
    }

    /// Loads the library of the engine and starts it. [`EngineKind::Auto`] takes an engine that runs the operators of every
    /// exported model; [`start_for_model`](Self::start_for_model) may know a faster one.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a number of threads out of range.
    /// [`Unavailable`](ocelli_error::ErrorKind::Unavailable) if a library, a driver or a GPU is missing, broken or too
    /// old; the message says what to
    /// install or change. [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if a WebGPU adapter computes wrongly.
    pub fn start(options: &EngineOptions) -> Result<Self> {
        Self::start_for(options, ModelFormat::ANY)
    }

    /// As [`start`](Self::start); [`EngineKind::Auto`] takes an engine that runs the model's number format and operators.
    pub fn start_for_model(options: &EngineOptions, source: &ModelSource) -> Result<Self> {
        Self::start_for(options, ModelFormat::of(source, Precision::default()))
    }

    /// As [`start`](Self::start); [`EngineKind::Auto`] takes an engine that runs the format.
    pub(crate) fn start_for(options: &EngineOptions, format: ModelFormat) -> Result<Self> {
        options.check()?;
        match options.kind {
            EngineKind::Auto => libraries::start_automatic(options, format),
            EngineKind::Embedded => Ok(Self::of(Arc::new(Embedded(SharedThreads::start(threads(options)))))),
            _ => libraries::start(options).map(Self::of),
        }
    }

    /// The number of classes decoded at once, which some engines need when they load a graph.
    #[doc(hidden)]
    #[must_use]
    pub fn with_class_chunk(self, class_chunk: usize) -> Self {
        Self { class_chunk, ..self }
    }

    /// Requests a number format; `None` is the engine's default. Returns the format in which a model is to be exported,
    /// or has to be in: OpenVINO computes graphs of 32-bit weights in 16 bits by itself, other engines run what the graphs
    /// say.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a format that the engine does not support.
    pub(crate) fn set_precision(&mut self, precision: Option<Precision>) -> Result<Option<Precision>> {
        let is_unknown = |precision: &Precision| precision.is_calibrated() && !self.loader.runs_calibrated();
        if let Some(format) = precision.filter(is_unknown) {
            return Err(Error::unavailable(format!(
                "precision {format}, {}: this format is for TensorRT; besides it, only ONNX Runtime on the CPU computes it, \
                 to compare; choose another engine or another precision",
                self.description()
            )).about("precision"));
        }
        let (other, exported) = self.loader.computing_in(precision)?;
        self.loader = other.unwrap_or_else(|| Arc::clone(&self.loader));
        Ok(exported)
    }

    /// `true` if graphs may be loaded on several threads at once, which the engines of CPUs allow.
    pub(crate) fn loads_in_parallel(&self) -> bool {
        self.loader.loads_in_parallel()
    }

    /// The fastest number format of the engine in which detections stay close to those in fp32; `None` for the default.
    pub(crate) fn fast_precision(&self) -> Option<Precision> {
        self.loader.fast_precision()
    }

    /// The form of attention and 8-bit weights in a model exported for this engine:
    /// [`ModelRequest::target`](crate::model::ModelRequest::target) for programs that load graphs themselves. `precision` is the number
    /// format that was requested, if any.
    pub fn target(&self, precision: Option<Precision>) -> Target {
        self.loader.target(precision)
    }

    /// A factory for your own engines: `make` is called with the path of each graph that is needed, whose file name
    /// says which graph it is ([`export::contract::file`](crate::export::contract::file)). `description` names the
    /// library and the hardware for logs.
    pub fn custom(
        description: impl Into<Arc<str>>,
        make: impl Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Arc::new(Custom { description: description.into(), make }))
    }

    /// Loads one graph.
    ///
    /// # Errors
    /// [`InvalidData`](ocelli_error::ErrorKind::InvalidData) if the engine cannot run the file.
    pub fn load(&self, graph: &Path) -> Result<Box<dyn Engine>> {
        self.load_of(graph, None)
    }

    /// Like [`load`](Self::load), with the tokens of the model's phrases for engines that need sizes fixed.
    fn load_of(&self, graph: &Path, context_length: Option<usize>) -> Result<Box<dyn Engine>> {
        let started = Instant::now();
        let engine = self.loader.load(graph, context_length, self.class_chunk)?;
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
        self.loader.description()
    }
}

debug_as!(EngineFactory, it => "EngineFactory({})", it.description());

fn threads(options: &EngineOptions) -> usize {
    options.threads.unwrap_or_else(default_threads)
}
