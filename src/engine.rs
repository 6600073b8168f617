//! Which engine runs the graphs. A named engine that cannot start is an error; nothing falls back to another.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ocelli_engines::Engine;
use ocelli_engines::onnxruntime::{LibrarySearch, OnnxRuntime, OnnxRuntimeEngine};

use crate::error::{Error, ErrorKind, Result};

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// The best engine of this build that works here. Programs print which one that is.
    #[default]
    Auto,
    /// ONNX Runtime on the processor.
    Cpu,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
        })
    }
}

impl FromStr for EngineKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" | "tensorrt" | "coreml" | "cuda-native" | "gpu" | "mps" | "0" => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "engine {name}: this build has no such engine; it runs on `cpu` (`ocelli doctor` lists engines)"
                ),
            )),
            _ => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "engine {name}: no such engine; the engines are auto, cpu, cuda, tensorrt, coreml, cuda-native"
                ),
            )),
        }
    }
}

/// How engines are made.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// What computes.
    pub kind: EngineKind,
    /// Threads that work on one operator together; the number of physical cores by default.
    pub threads: Option<usize>,
    /// ONNX Runtime's library; searched for where it is not named.
    pub onnxruntime: Option<PathBuf>,
}

/// Makes engines from graphs.
#[derive(Clone)]
pub struct EngineFactory(Maker);

#[derive(Clone)]
enum Maker {
    OnnxRuntime { runtime: OnnxRuntime, threads: usize },
    Custom { description: Arc<str>, make: Arc<Make> },
}

type Make = dyn Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync;

impl EngineFactory {
    /// Loads what the engine needs.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where the library is missing, broken or too old; the message says what to type.
    pub fn start(options: &EngineOptions) -> Result<Self> {
        let mut search = LibrarySearch::new();
        if let Some(path) = &options.onnxruntime {
            search = search.with_path(path);
        }
        let runtime = OnnxRuntime::load(&search)?;
        let threads = options.threads.unwrap_or_else(ocelli_engines::onnxruntime::default_threads);
        Ok(Self(Maker::OnnxRuntime { runtime, threads }))
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
        let started = std::time::Instant::now();
        let engine: Box<dyn Engine> = match &self.0 {
            Maker::OnnxRuntime { runtime, threads } => {
                Box::new(OnnxRuntimeEngine::builder(runtime).with_threads(*threads).build_from_file(graph)?)
            }
            Maker::Custom { make, .. } => make(graph)?,
        };
        tracing::debug!(graph = %graph.display(), ms = started.elapsed().as_millis(), "engine loaded");
        Ok(engine)
    }

    /// What runs, and where, for people.
    pub fn description(&self) -> String {
        match &self.0 {
            Maker::OnnxRuntime { runtime, threads } => {
                let threads = if *threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
                format!("ONNX Runtime {}, CPU, {threads}", runtime.version())
            }
            Maker::Custom { description, .. } => description.to_string(),
        }
    }
}

impl fmt::Debug for EngineFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineFactory({})", self.description())
    }
}
