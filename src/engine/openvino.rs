//! OpenVINO as the engine of a model.

use std::path::Path;

use ocelli_engines::Engine;
use ocelli_engines::openvino::{InferencePrecision, OpenVino, OpenVinoDevice, OpenVinoEngine};
use ocelli_export::contract::Precision;

use super::EngineOptions;
use super::graphs::cache_of_compiled;
use ocelli_error::{Error, ErrorKind, Result};

/// Inputs of a product with 8-bit weights that share a scale: measured best of 32, 64, 128 and one scale a token.
const QUANTIZATION_GROUP: usize = 64;

/// OpenVINO with a device that this machine has.
#[derive(Clone)]
pub(super) struct OpenVinoMaker {
    runtime: OpenVino,
    device: OpenVinoDevice,
    precision: InferencePrecision,
    threads: usize,
}

impl OpenVinoMaker {
    /// Loads the library and looks for the device.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if either is missing.
    pub(super) fn start(options: &EngineOptions, device: OpenVinoDevice) -> Result<Self> {
        let runtime = OpenVino::load(options.openvino.as_deref())?;
        runtime.check_device(device).map_err(|reason| {
            let message = format!("engine {}: {reason}", options.kind);
            Error::new(ErrorKind::Unavailable, message).with_source(reason)
        })?;
        let threads = options.threads.unwrap_or_else(ocelli_engines::onnxruntime::default_threads);
        Ok(Self { runtime, device, precision: default_precision(device), threads })
    }

    /// Computes in this number format. Returns the format in which the graphs are to be exported: OpenVINO computes a
    /// graph of 32-bit weights in 16 bits by itself.
    pub(super) fn set_precision(&mut self, precision: Option<Precision>) -> Option<Precision> {
        self.precision = match precision {
            None => default_precision(self.device),
            Some(Precision::Bf16) => InferencePrecision::Bf16,
            Some(Precision::Fp16) => InferencePrecision::F16,
            Some(Precision::Fp32 | Precision::Int8) => InferencePrecision::F32,
        };
        precision.filter(|precision| !precision.is_half())
    }

    pub(super) fn load(&self, graph: &Path) -> Result<Box<dyn Engine>> {
        let builder = OpenVinoEngine::builder(&self.runtime)
            .with_device(self.device)
            .with_threads(self.threads)
            .with_precision(self.precision)
            .with_dynamic_quantization(QUANTIZATION_GROUP)
            .with_cache(cache_of_compiled(graph, "openvino")?);
        let engine = builder.build_from_file(graph).map_err(|error| with_remedy(error, graph))?;
        tracing::debug!(graph = %graph.display(), cached = engine.is_from_cache(), "OpenVINO compiled the graph");
        Ok(Box::new(engine))
    }

    pub(super) fn description(&self) -> String {
        let precision = match self.precision {
            InferencePrecision::F32 => String::new(),
            precision => format!(", {precision}"),
        };
        let runs_on = match self.device {
            OpenVinoDevice::Cpu => {
                let plural = if self.threads == 1 { "" } else { "s" };
                format!("CPU, {} thread{plural}", self.threads)
            }
            device => device.to_string(),
        };
        format!("OpenVINO {}, {runs_on}{precision}", self.runtime.version())
    }
}

/// The number format in which OpenVINO computes unless the caller names one.
///
/// On CPUs this is f32 even where bf16 is fast: bf16 moves boxes by up to 2.6 px of 1008, more than any other engine does
/// in its default format. An NPU has f16 only.
fn default_precision(device: OpenVinoDevice) -> InferencePrecision {
    match device {
        OpenVinoDevice::Npu => InferencePrecision::F16,
        _ => InferencePrecision::F32,
    }
}

/// OpenVINO lacks the fused operators of ONNX Runtime.
fn with_remedy(error: Error, path: &Path) -> Error {
    if error.kind() != ErrorKind::InvalidData || !error.to_string().contains("com.microsoft") {
        return error;
    }
    let message = format!(
        "engine openvino, {}: the graph has operators that only ONNX Runtime knows; export the model with target tensorrt, \
         which writes standard operators: {error}",
        path.display()
    );
    Error::new(ErrorKind::Mismatch, message).with_source(error)
}
