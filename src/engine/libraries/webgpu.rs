//! WebGPU as the engine of a model: the library, the adapter, and the check of the adapter before its first use.

use ocelli_engines::onnxruntime::{ExecutionProvider, OnnxRuntime};
use ocelli_engines::webgpu::{Adapter, WebGpu};

use super::{EngineKind, EngineOptions, cannot_start, load_onnxruntime};
use ocelli_error::Result;

/// A provider on an adapter that was found to start.
#[derive(Clone)]
pub(super) struct WebGpuChoice {
    pub(super) provider: ExecutionProvider,
    pub(super) webgpu: WebGpu,
    pub(super) adapter: Adapter,
}

impl WebGpuChoice {
    /// Loads the libraries, finds the adapter and starts the provider on it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if a library, the adapter or its driver is missing.
    pub(super) fn start(options: &EngineOptions, ordinal: usize) -> Result<(OnnxRuntime, Self)> {
        let start = || {
            let runtime = load_onnxruntime(options)?;
            let webgpu = WebGpu::load(options.webgpu.as_deref())?;
            let (provider, adapter) = webgpu.provider_and_adapter(ordinal)?;
            runtime.try_provider(&provider)?;
            Ok((runtime, Self { provider, webgpu, adapter }))
        };
        start().map_err(|reason| cannot_start(EngineKind::WebGpu { ordinal }, reason))
    }

    /// `WebGPU 0.4.0, NVIDIA GeForce RTX 4060`.
    pub(super) fn description(&self) -> String {
        format!("WebGPU {}, {}", self.webgpu.version(), self.adapter.name)
    }
}
