//! How an engine is made: where it runs, with how many threads, how much it may rewrite the model.

use super::graph::Graph;
use super::provider::ExecutionProvider;
use super::residence::Residence;
use super::session::OnnxRuntimeEngine;
use super::{OnnxRuntime, call, optimized, placement, registration};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use ort::session::builder::{AutoDevicePolicy, GraphOptimizationLevel, SessionBuilder};
use ort::session::{RunOptions, Session};
use std::path::{Path, PathBuf};

/// How much ONNX Runtime rewrites the model before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OptimizationLevel {
    /// Not at all; for models that were optimised before, and for finding faults.
    Disabled,
    /// Constants are folded, what is redundant goes.
    Basic,
    /// Operators are fused too.
    Extended,
    /// Memory layouts are changed too, for the processor at hand.
    #[default]
    All,
}

impl From<OptimizationLevel> for GraphOptimizationLevel {
    fn from(level: OptimizationLevel) -> Self {
        match level {
            OptimizationLevel::Disabled => Self::Disable,
            OptimizationLevel::Basic => Self::Level1,
            OptimizationLevel::Extended => Self::Level2,
            OptimizationLevel::All => Self::All,
        }
    }
}

/// The number of threads an engine uses unless told otherwise: the physical cores this process may use.
///
/// Two threads on one core's two hyperthreads share its arithmetic units and gain matrix products nothing.
pub fn default_threads() -> usize {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    physical_cores().map_or(available, |physical| physical.min(available)).max(1)
}

/// The number of physical cores, where the system says (Linux).
fn physical_cores() -> Option<usize> {
    let mut cores = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir("/sys/devices/system/cpu").ok()? {
        let siblings = entry.ok()?.path().join("topology/thread_siblings_list");
        // Every hyperthread of a core states the same list, so the lists count the cores.
        if let Ok(siblings) = std::fs::read_to_string(siblings) {
            cores.insert(siblings);
        }
    }
    if cores.is_empty() { None } else { Some(cores.len()) }
}

/// Whether the processor adds products of 8 bits in 32 (VNNI). x86 processors without it add two of them in 16 first, which
/// can overflow: there ONNX Runtime is asked for exact kernels, which took 1.6 times as long.
fn adds_products_exactly() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Makes an [`OnnxRuntimeEngine`]; from [`OnnxRuntimeEngine::builder`].
#[derive(Debug, Clone)]
pub struct OnnxRuntimeBuilder {
    runtime: OnnxRuntime,
    provider: ExecutionProvider,
    device: Option<Device>,
    allow_partial: bool,
    fixed_dimensions: Vec<(String, usize)>,
    threads: usize,
    spinning: bool,
    optimization: OptimizationLevel,
    optimized_models: Option<PathBuf>,
    memory_arena: bool,
    memory_pattern: bool,
    arena_shrinkage: bool,
    prepacking: bool,
}

impl OnnxRuntimeBuilder {
    pub(super) fn new(runtime: &OnnxRuntime) -> Self {
        Self {
            runtime: runtime.clone(),
            provider: ExecutionProvider::default(),
            device: None,
            allow_partial: false,
            fixed_dimensions: Vec::new(),
            threads: 0,
            spinning: false,
            optimization: OptimizationLevel::default(),
            optimized_models: None,
            memory_arena: true,
            memory_pattern: true,
            arena_shrinkage: false,
            prepacking: true,
        }
    }

    /// What computes; the processor unless said otherwise.
    pub fn with_provider(mut self, provider: ExecutionProvider) -> Self {
        self.provider = provider;
        self
    }

    /// The device whose memory inputs and outputs may be in: the GPU of the CUDA or TensorRT provider. Without it, inputs
    /// and outputs are in host memory, and ONNX Runtime copies them in every run.
    pub fn with_device(mut self, device: impl Into<Device>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Whether the provider may leave nodes to the processor, which is a warning then; off by default, and then it is an
    /// error with the list when the model is loaded.
    ///
    /// Computations of shapes are no part of this: `Shape` and `Size`, and nodes that see what these say and no element of
    /// an input, always may run on the processor, where shapes are known.
    pub fn with_partial_placement(mut self, allowed: bool) -> Self {
        self.allow_partial = allowed;
        self
    }

    /// Gives a named dimension this size for good, before the model is optimised and given to the provider. The engine's
    /// specification says so, and other sizes are refused. A name that the model does not have changes nothing.
    pub fn with_fixed_dimension(mut self, name: impl Into<String>, size: usize) -> Self {
        self.fixed_dimensions.push((name.into(), size));
        self
    }

    /// The threads that work on one operator together; 0, the default, is [`default_threads`].
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether a thread without work keeps its core busy for a moment before it sleeps; off by default.
    ///
    /// Waking a thread costs more than a small operator does, so it can gain a little where one engine has the machine
    /// to itself. Where cores are shared it costs more than it gains: on two cores, with other work running, a small
    /// backbone and decoder that took turns needed 53 ms without and 207 ms with it (medians, n = 100).
    pub fn with_spinning(mut self, spinning: bool) -> Self {
        self.spinning = spinning;
        self
    }

    /// How much the model is rewritten; [`OptimizationLevel::All`] unless said otherwise.
    pub fn with_optimization(mut self, level: OptimizationLevel) -> Self {
        self.optimization = level;
        self
    }

    /// Keeps the rewritten model in this folder and loads it from there the next time; off by default.
    ///
    /// An entry belongs to the model file (path, size, time of change), ONNX Runtime's version, the optimisation level
    /// and the processor's features; where one differs, another entry is made. Entries appear whole or not at all, and
    /// can be deleted at any time. Weights are stored again, so an entry is as large as the model. Only for
    /// [`build_from_file`](Self::build_from_file) and the processor; other providers have caches of their own.
    pub fn with_optimized_model_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.optimized_models = Some(folder.into());
        self
    }

    /// Whether memory for intermediate results is kept between runs; on by default.
    ///
    /// Without it every run allocates anew: less memory while idle, more time.
    pub fn with_memory_arena(mut self, arena: bool) -> Self {
        self.memory_arena = arena;
        self
    }

    /// Whether the arena gives back after each run what the run added to it; off by default.
    ///
    /// For large engines that take turns: the next one finds the memory free.
    pub fn with_arena_shrinkage(mut self, shrinkage: bool) -> Self {
        self.arena_shrinkage = shrinkage;
        self
    }

    /// Whether the memory of one run is planned from the last with the same shapes; on by default.
    pub fn with_memory_pattern(mut self, pattern: bool) -> Self {
        self.memory_pattern = pattern;
        self
    }

    /// Whether weights are copied at load into the layout the kernels like best; on by default.
    ///
    /// Without it weights stay in memory once, and mapped from their file where they are external.
    pub fn with_prepacking(mut self, prepacking: bool) -> Self {
        self.prepacking = prepacking;
        self
    }

    /// Loads a model from a file, with its external data beside it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] if the file is missing, damaged, or holds an operator, type or version that ONNX
    /// Runtime does not know; [`ErrorKind::Unavailable`] if the execution provider cannot start.
    pub fn build_from_file(self, model: impl AsRef<Path>) -> Result<OnnxRuntimeEngine> {
        let model = model.as_ref();
        let name = model.display().to_string();
        if !model.is_file() {
            let what = if model.exists() { "it is not a file" } else { "no such file" };
            return Err(Error::new(
                ErrorKind::InvalidModel,
                format!("cannot load the model, {name}: {what}"),
            ));
        }
        let graph = || {
            Graph::of_file(model).map_err(|error| {
                let message = format!("cannot read the model, {name}: {error}");
                Error::new(ErrorKind::InvalidModel, message).with_source(error)
            })
        };
        let session = match &self.optimized_models {
            Some(_) if self.provider != ExecutionProvider::Cpu => {
                let message = format!("{}: optimised models are kept for the processor alone", self.provider);
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            Some(folder) => {
                let entry = optimized::Entry::new(folder, model, self.runtime.version(), self.optimization)?;
                entry.load_or_make(|file, level, store| {
                    let mut builder = self.session_builder(level, &name, &graph)?;
                    if let Some(store) = store {
                        builder =
                            optimized::store(builder, store).map_err(|error| self.failure(&name, &error))?;
                    }
                    let shown = file.display().to_string();
                    builder.commit_from_file(file).map_err(|error| self.failure(&shown, &error))
                })?
            }
            None => {
                let mut builder = self.session_builder(self.optimization, &name, &graph)?;
                builder.commit_from_file(model).map_err(|error| self.failure(&name, &error))?
            }
        };
        self.engine(session, name.clone(), &graph)
    }

    /// Loads a model without external data from memory, which is copied.
    ///
    /// # Errors
    /// As [`build_from_file`](Self::build_from_file).
    pub fn build_from_memory(self, model: &[u8]) -> Result<OnnxRuntimeEngine> {
        let name = "(in memory)".to_owned();
        let graph = || {
            let message = |error| format!("cannot read the model, (in memory): {error}");
            Graph::of_bytes(model).map_err(|error| Error::new(ErrorKind::InvalidModel, message(error)))
        };
        let mut builder = self.session_builder(self.optimization, &name, &graph)?;
        let session = builder.commit_from_memory(model).map_err(|error| self.failure(&name, &error))?;
        self.engine(session, name, &graph)
    }

    fn engine(
        &self,
        session: Session,
        name: String,
        graph: &dyn Fn() -> Result<Graph>,
    ) -> Result<OnnxRuntimeEngine> {
        let options = self.run_options().map_err(|error| self.failure(&name, &error))?;
        let version = self.runtime.version();
        let description = if self.provider == ExecutionProvider::Cpu {
            let threads = self.effective_threads();
            let plural = if threads == 1 { "" } else { "s" };
            format!("ONNX Runtime {version}, CPU, {threads} thread{plural}")
        } else {
            let nodes = call::placement(&session).map_err(|error| self.failure(&name, &error))?;
            placement::check(&name, &self.provider, &nodes, self.allow_partial, graph)?;
            format!("ONNX Runtime {version}, {}", self.provider)
        };
        let residence =
            self.device.clone().map(|device| Residence::new(device, &self.provider)).transpose()?;
        OnnxRuntimeEngine::new(session, options, residence, &self.fixed_dimensions, name, description)
    }

    fn effective_threads(&self) -> usize {
        if self.threads == 0 { default_threads() } else { self.threads }
    }

    fn session_builder(
        &self,
        level: OptimizationLevel,
        model: &str,
        graph: &dyn Fn() -> Result<Graph>,
    ) -> Result<SessionBuilder> {
        let begun = || -> ort::Result<SessionBuilder> {
            let mut builder = Session::builder(self.runtime.environment())?
                // Without this ONNX Runtime may choose a provider by itself (CoreML on macOS).
                .with_auto_device(AutoDevicePolicy::PreferCPU)?
                .with_intra_threads(self.effective_threads())?
                .with_intra_op_spinning(self.spinning)?
                .with_memory_pattern(self.memory_pattern)?
                .with_prepacking(self.prepacking)?
                .with_config_entry(
                    "session.x64quantprecision",
                    if adds_products_exactly() { "0" } else { "1" },
                )?
                .with_optimization_level(level.into())?;
            for (name, size) in &self.fixed_dimensions {
                builder = builder.with_dimension_override(name, i64::try_from(*size).unwrap_or(i64::MAX))?;
            }
            if self.provider != ExecutionProvider::Cpu {
                builder = builder.with_config_entry("session.record_ep_graph_assignment_info", "1")?;
            }
            Ok(builder)
        };
        let builder = begun().map_err(|error| self.failure(model, &error))?;
        registration::register(&self.runtime, builder, &self.provider, self.memory_arena, graph)
    }

    fn run_options(&self) -> ort::Result<RunOptions> {
        let mut options = RunOptions::new()?;
        if self.arena_shrinkage && self.memory_arena {
            options.set("memory.enable_memory_arena_shrinkage", "cpu:0")?;
        }
        Ok(options)
    }

    fn failure(&self, model: &str, error: &ort::Error) -> Error {
        if registration::is_of_provider(&self.provider, error) {
            return registration::cannot_start(&self.provider, &self.runtime, error.message());
        }
        let kind = match error.code() {
            ort::ErrorCode::ExecutionProviderFailure => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidModel,
        };
        let reason = error.message();
        // ONNX Runtime names the file as well.
        let reason =
            reason.strip_prefix(&format!("Load model from {model} failed:")).unwrap_or(reason).trim();
        Error::new(kind, format!("cannot load the model, {model}: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_at_most_what_the_process_may_use() {
        let available = std::thread::available_parallelism().expect("this system counts").get();
        assert!((1..=available).contains(&default_threads()));
    }
}
