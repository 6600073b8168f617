//! Builds engines: provider, threads, and how ONNX Runtime optimises the model.

use super::device_tensors::DeviceTensors;
use super::provider::{ExecutionProvider, WEBGPU};
use super::session::OnnxRuntimeEngine;
use super::{OnnxRuntime, assignment, call, registration, webgpu};
use crate::cpu::{self, cpu_has_vnni, threads_or_default};
use crate::device::Device;
use crate::model_file::{self, unreadable};
use ocelli_error::{Error, ErrorKind, Result};
use ocelli_onnx::schema::GraphProto;
use ort::session::Session;
use ort::session::builder::{AutoDevicePolicy, GraphOptimizationLevel, SessionBuilder};
use std::io::Cursor;
use std::path::Path;

/// Builds an [`OnnxRuntimeEngine`]; see [`OnnxRuntimeEngine::builder`].
#[derive(Debug, Clone)]
pub struct OnnxRuntimeBuilder {
    runtime: OnnxRuntime,
    provider: ExecutionProvider,
    device: Option<Device>,
    cpu_fallback: bool,
    fixed_dimensions: Vec<(String, usize)>,
    threads: usize,
    memory_arena: bool,
}

/// Reads the model's graph for the steps that need it.
type ReadGraph<'g> = dyn Fn() -> Result<GraphProto> + 'g;

impl OnnxRuntimeEngine {
    /// Configures an engine.
    pub fn builder(runtime: &OnnxRuntime) -> OnnxRuntimeBuilder {
        OnnxRuntimeBuilder {
            runtime: runtime.clone(),
            provider: ExecutionProvider::default(),
            device: None,
            cpu_fallback: false,
            fixed_dimensions: Vec::new(),
            threads: 0,
            memory_arena: true,
        }
    }
}

impl OnnxRuntimeBuilder {
    setters! {
        /// The execution provider; the CPU by default.
        with_provider(provider: ExecutionProvider) => provider;

        /// Lets nodes that the provider does not support run on the CPU, with a warning when the model is loaded. Off
        /// by default: then loading fails and lists the nodes.
        ///
        /// Shape arithmetic may always run on the CPU, which knows the shapes: `Shape` and `Size`, and nodes that compute
        /// with their results and with no element of an input.
        with_cpu_fallback(cpu_fallback: bool) => cpu_fallback;

        /// The number of threads that compute one operator; 0, the default, means [`default_threads`](crate::default_threads).
        with_threads(threads: usize) => threads;

        /// Keeps the memory of intermediate results between runs; on by default.
        ///
        /// Without it every run allocates again: less memory while idle, more time.
        with_memory_arena(arena: bool) => memory_arena;
    }

    /// The device on which inputs and outputs may be: the GPU of the CUDA provider. Without one, every tensor
    /// is copied between host and device in every run.
    ///
    /// Tensors in host memory are copied to the device before a run and back after it, and the device counts the bytes.
    /// When a run returns, ONNX Runtime has finished with the device.
    pub fn with_device(mut self, device: impl Into<Device>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Fixes the size of a named dimension before the model is optimised and compiled. The engine's specification has
    /// that size, and inputs of other sizes are refused. A name that the model does not have changes nothing.
    pub fn with_fixed_dimension(mut self, name: impl Into<String>, size: usize) -> Self {
        self.fixed_dimensions.push((name.into(), size));
        self
    }

    /// Loads a model from a file, with its external data beside it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if the file is missing or corrupt, or has an operator, type or version that ONNX
    /// Runtime does not know; [`ErrorKind::Unavailable`] if the execution provider cannot start or does not support all
    /// nodes.
    pub fn build_from_file(self, model: impl AsRef<Path>) -> Result<OnnxRuntimeEngine> {
        let path = model.as_ref();
        let name = model_file::name_of(path)?;
        let graph = || ocelli_onnx::read_graph(path).map_err(|error| unreadable(&name, error));
        self.build(&name, &graph, |mut builder| builder.commit_from_file(path))
    }

    /// Loads a model without external data from memory, which is copied.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is corrupt, or has an operator, type or version that ONNX Runtime does not know;
    /// [`ErrorKind::Unavailable`] if the execution provider cannot start or does not support all nodes.
    pub fn build_from_memory(self, model: &[u8]) -> Result<OnnxRuntimeEngine> {
        let name = "(in memory)";
        let graph =
            || ocelli_onnx::read_graph_from(&mut Cursor::new(model)).map_err(|error| unreadable(name, error));
        self.build(name, &graph, |mut builder| builder.commit_from_memory(model))
    }

    fn build(
        &self,
        name: &str,
        graph: &ReadGraph<'_>,
        commit: impl FnOnce(SessionBuilder) -> ort::Result<Session>,
    ) -> Result<OnnxRuntimeEngine> {
        let failed = |error: ort::Error| self.failure(name, &error);
        let builder = self.configure().map_err(failed)?;
        let builder = registration::register(&self.runtime, builder, &self.provider, self.memory_arena)?;
        if let ExecutionProvider::WebGpu(_) = self.provider {
            webgpu::refuse_wrong_operators(name, &graph()?)?;
        }
        let is_webgpu = self.provider.name() == WEBGPU;
        let turn = is_webgpu.then(webgpu::exclusive);
        let session = commit(builder).map_err(failed)?;
        drop(turn);
        let session = webgpu::ReleasedAlone::new(session, is_webgpu);
        let version = self.runtime.version();
        let description = if self.provider == ExecutionProvider::Cpu {
            format!("ONNX Runtime {version}, {}", cpu::description(threads_or_default(self.threads)))
        } else {
            let nodes = call::assigned_nodes(&session).map_err(failed)?;
            assignment::check(name, &self.provider, &nodes, self.cpu_fallback, graph)?;
            format!("ONNX Runtime {version}, {}", self.provider)
        };
        let device =
            self.device.clone().map(|device| DeviceTensors::new(device, &self.provider)).transpose()?;
        OnnxRuntimeEngine::new(session, device, &self.fixed_dimensions, name.to_owned(), description)
    }

    fn configure(&self) -> ort::Result<SessionBuilder> {
        let mut builder = Session::builder(self.runtime.environment())?
            // Otherwise ONNX Runtime may choose a provider itself (CoreML on macOS).
            .with_auto_device(AutoDevicePolicy::PreferCPU)?
            .with_intra_threads(threads_or_default(self.threads))?
            // Waking a thread takes longer than a small operator, but on shared cores spinning costs more than it gains: on two
            // cores, with other work running, a small backbone and decoder that took turns needed 53 ms without and 207 ms
            // with it (medians, n = 100).
            .with_intra_op_spinning(false)?
            // x86 CPUs without VNNI add two products of 8-bit integers in 16 bits first, which can overflow: there ONNX Runtime must use
            // its exact kernels, which took 1.6 times as long.
            .with_config_entry("session.x64quantprecision", if cpu_has_vnni() { "0" } else { "1" })?
            .with_optimization_level(GraphOptimizationLevel::All)?;
        for (name, size) in &self.fixed_dimensions {
            builder = builder.with_dimension_override(name, i64::try_from(*size).unwrap_or(i64::MAX))?;
        }
        builder = match self.provider {
            // Otherwise it moves the rounding to 8-bit floating point before transpositions, which have no such kernel.
            ExecutionProvider::Cpu => builder.with_config_entry("session.disable_quant_qdq", "1")?,
            _ => builder.with_config_entry("session.record_ep_graph_assignment_info", "1")?,
        };
        if let ExecutionProvider::Cuda(_) = self.provider {
            // cuBLAS adds a bias that was copied into the result first: the copies took 6.0 of a backbone's 24.6 ms (H100, 16-bit, 1008 px).
            // A bias that stays an addition is fused with the activation or the norm behind it.
            builder =
                builder.with_config_entry("optimization.disable_specified_optimizers", "MatMulAddFusion")?;
        }
        Ok(builder)
    }

    fn failure(&self, model: &str, error: &ort::Error) -> Error {
        if registration::is_provider_failure(&self.provider, error) {
            return registration::cannot_start(&self.provider, &self.runtime, error.message());
        }
        let kind = match error.code() {
            ort::ErrorCode::ExecutionProviderFailure => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidData,
        };
        let text = error.message();
        // ONNX Runtime names the file as well.
        let reason = text.strip_prefix(&format!("Load model from {model} failed:")).unwrap_or(text).trim();
        Error::new(kind, format!("cannot load the model, {model}: {reason}"))
    }
}
