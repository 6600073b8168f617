//! Builds engines: threads, and how weights are kept.

use super::map;
use super::session::EmbeddedEngine;
use crate::cpu::threads_or_default;
use crate::model_file::{self, unusable};
use crate::spec::onnx;
use ocelli_error::{Error, Result};
use ocelli_onnx::schema::GraphProto;
use rten::{LoadError, LoadErrorKind, Model, ModelOptions, ThreadPool};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Threads that several engines share. Engines that run at the same time then compute side by side on these threads, and
/// an engine that runs alone has all of them: no more threads compute than there are cores.
#[derive(Debug, Clone)]
pub struct SharedThreads {
    pool: Arc<ThreadPool>,
    count: usize,
}

impl SharedThreads {
    /// Starts `count` threads; 0 means [`default_threads`](crate::default_threads).
    pub fn start(count: usize) -> Self {
        let count = threads_or_default(count);
        Self { pool: Arc::new(ThreadPool::with_num_threads(count)), count }
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Builds an [`EmbeddedEngine`]; see [`EmbeddedEngine::builder`].
#[derive(Debug, Clone, Default)]
pub struct EmbeddedBuilder {
    threads: usize,
    shared: Option<SharedThreads>,
}

impl EmbeddedEngine {
    /// Configures an engine.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::default()
    }
}

impl EmbeddedBuilder {
    setters! {
        /// The number of threads that compute one operator; 0, the default, means
        /// [`default_threads`](crate::default_threads). Loading a model uses one for each physical core.
        with_threads(threads: usize) => threads;

        /// Computes on threads that other engines use as well, instead of threads of its own.
        with_shared_threads(threads: SharedThreads) => shared;
    }

    /// Loads a model and its external data, which is mapped: neither file may change while the engine exists.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the file cannot be read, is no ONNX model, or
    /// holds an operator or a type that the engine lacks.
    pub fn build_from_file(self, model: impl AsRef<Path>) -> Result<EmbeddedEngine> {
        let path = model.as_ref();
        let name = model_file::name_of(path)?;
        let graph = ocelli_onnx::read_graph(path).map_err(|error| unreadable(&name, error))?;
        self.build(name, &graph, |options| map::load(options, path))
    }

    /// Loads a model without external data from memory, which is copied.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is no ONNX model, or holds an operator or a type
    /// that the engine lacks.
    pub fn build_from_memory(self, model: &[u8]) -> Result<EmbeddedEngine> {
        self.build_from_parts("(in memory)", model, [])
    }

    /// Loads a model from memory. `external_data` has the files of its weights by the names that the model gives them;
    /// they are kept, not copied. `name` stands for the model in errors.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is no ONNX model, or holds an operator or a type
    /// that the engine lacks.
    pub fn build_from_parts(
        self,
        name: &str,
        model: &[u8],
        external_data: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<EmbeddedEngine> {
        let graph = ocelli_onnx::read_graph_from(&mut Cursor::new(model));
        let graph = graph.map_err(|error| unreadable(name, error))?;
        self.build(name.to_owned(), &graph, |options| {
            for (file, bytes) in external_data {
                options.external_data(&file, bytes);
            }
            options.load(model.to_vec())
        })
    }

    fn build(
        self,
        name: String,
        graph: &GraphProto,
        load: impl FnOnce(&mut ModelOptions) -> Result<Model, LoadError>,
    ) -> Result<EmbeddedEngine> {
        let spec = onnx::spec(graph).map_err(|reason| unusable(&name, &reason))?;
        let mut options = ModelOptions::with_all_ops();
        let loaded = catch_unwind(AssertUnwindSafe(|| load(&mut options)));
        let model = match loaded {
            Ok(Ok(model)) => model,
            Ok(Err(error)) => return Err(refused(&name, &error)),
            Err(_) => return Err(unusable(&name, "the model is corrupt: it panics when it is loaded")),
        };
        let threads = self.shared.unwrap_or_else(|| SharedThreads::start(self.threads));
        EmbeddedEngine::new(model, spec, threads.pool, threads.count, name)
    }
}

fn unreadable(model: &str, error: std::io::Error) -> Error {
    unusable(model, &error.to_string()).with_source(error)
}

fn refused(model: &str, error: &LoadError) -> Error {
    let reason = error.to_string().replace('\n', " ");
    let remedy = match error.kind() {
        LoadErrorKind::OperatorInvalid | LoadErrorKind::GraphError => {
            "; ONNX Runtime has more operators and types than the embedded engine"
        }
        _ => "",
    };
    unusable(model, &format!("{reason}{remedy}"))
}
