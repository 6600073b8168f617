//! OpenVINO as the engine of a model.

use std::path::Path;
use std::sync::Arc;

use ocelli_engines::openvino::{InferencePrecision, OpenVino, OpenVinoDevice, OpenVinoEngine};
use ocelli_engines::{Engine, cpu_description};
use ocelli_export::contract::{Precision, Target, file};

use super::graphs::{bytes_of, cache_of_compiled};
use super::{Computing, EngineOptions, Loader};
use ocelli_error::{Error, ErrorKind, Result};

/// Inputs of a product with 8-bit weights that share a scale, for exported models that have such weights.
const QUANTIZATION_GROUP: usize = 64;

/// The largest graph, with its weights, whose compiled form is cached. The entry is as large as the weights, and reading it
/// takes as long as compiling a graph that is mostly weights: 0.3 s of CPU time either way for 0.5 GB.
const LARGEST_CACHED: u64 = 256 << 20;

/// OpenVINO with a device that this machine has.
#[derive(Clone)]
pub(super) struct OpenVinoLoader {
    runtime: OpenVino,
    device: OpenVinoDevice,
    precision: InferencePrecision,
    threads: usize,
}

impl OpenVinoLoader {
    /// Loads the library and looks for the device.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if either is missing.
    pub(super) fn start(options: &EngineOptions, device: OpenVinoDevice) -> Result<Self> {
        let runtime = OpenVino::load(options.openvino.as_deref())?;
        runtime.check_device(device).map_err(|reason| {
            Error::unavailable(format!("engine {}: {reason}", options.kind)).with_source(reason)
        })?;
        let threads = options.threads.unwrap_or_else(ocelli_engines::default_threads);
        let precision = match device {
            OpenVinoDevice::Npu => InferencePrecision::F16,
            _ => InferencePrecision::F32,
        };
        Ok(Self { runtime, device, precision, threads })
    }

    /// `true` if the device is a CPU with instructions for bf16.
    fn has_bf16(&self) -> bool {
        let devices = self.runtime.devices().unwrap_or_default();
        let cpu = devices.iter().find(|device| device.name == "CPU" && self.device == OpenVinoDevice::Cpu);
        cpu.is_some_and(|cpu| cpu.computes_in(InferencePrecision::Bf16))
    }

    /// The number format unless the caller names one: f32, and f16 on an NPU, which has nothing else.
    ///
    /// It is f32 also on CPUs with fast bf16, which takes half the time there: with the built-in model bf16 moves boxes by
    /// up to 2.6 px of 1008 and costs 0.3 points of AP, and every other engine computes in f32 by default. On those CPUs
    /// the log mentions bf16.
    fn default_precision(&self) -> InferencePrecision {
        if self.device == OpenVinoDevice::Npu {
            return InferencePrecision::F16;
        }
        if self.has_bf16() {
            tracing::info!(
                "engine openvino: computing in fp32; precision auto takes bf16 on this CPU, about half the time and less exact"
            );
        }
        InferencePrecision::F32
    }

    /// Text is encoded once and its features are cached for all engines, so that they are computed in f32 where possible.
    fn precision_of(&self, graph: &Path) -> InferencePrecision {
        let is_cached = graph.ends_with(file::TEXT_ENCODER) && self.device != OpenVinoDevice::Npu;
        if is_cached { InferencePrecision::F32 } else { self.precision }
    }
}

impl Loader for OpenVinoLoader {
    fn load(&self, graph: &Path, _: Option<usize>, _: usize) -> Result<Box<dyn Engine>> {
        let mut builder = OpenVinoEngine::builder(&self.runtime)
            .with_device(self.device)
            .with_threads(self.threads)
            .with_precision(self.precision_of(graph))
            .with_dynamic_quantization(QUANTIZATION_GROUP);
        if bytes_of(graph)? <= LARGEST_CACHED {
            builder = builder.with_cache(cache_of_compiled(graph, "openvino")?);
        }
        let engine = builder.build_from_file(graph).map_err(|error| with_remedy(error, graph))?;
        tracing::debug!(graph = %graph.display(), cached = engine.is_from_cache(), "OpenVINO compiled the graph");
        Ok(Box::new(engine))
    }

    fn description(&self) -> String {
        let precision = match self.precision {
            InferencePrecision::F32 => String::new(),
            precision => format!(", {precision}"),
        };
        let runs_on = match self.device {
            OpenVinoDevice::Cpu => cpu_description(self.threads),
            device => device.to_string(),
        };
        format!("OpenVINO {}, {runs_on}{precision}", self.runtime.version())
    }

    fn target(&self, _: Option<Precision>) -> Target {
        Target::TensorRt
    }

    /// OpenVINO computes a graph of 32-bit weights in 16 bits by itself. int8 is the format of weights: what is left computes in
    /// bf16 where the CPU has it.
    fn computing_in(&self, precision: Option<Precision>) -> Result<Computing> {
        let computed = match precision {
            None => self.default_precision(),
            Some(Precision::Bf16) => InferencePrecision::Bf16,
            Some(Precision::Fp16) => InferencePrecision::F16,
            Some(Precision::Int8) if self.has_bf16() => InferencePrecision::Bf16,
            Some(_) => InferencePrecision::F32,
        };
        let other = Arc::new(Self { precision: computed, ..self.clone() });
        Ok((Some(other), precision.filter(|precision| !precision.is_half())))
    }

    fn fast_precision(&self) -> Option<Precision> {
        self.has_bf16().then_some(Precision::Bf16)
    }

    fn loads_in_parallel(&self) -> bool {
        true
    }

    /// OpenVINO 2026.4.1 ends the process with a segmentation fault while it compiles such a graph.
    fn check_patches(&self, patches: usize) -> Result<()> {
        if patches > 2 {
            return Ok(());
        }
        let message = "engine openvino: OpenVINO crashes with an imgsz below three patches; choose a larger imgsz or another \
                       engine";
        Err(Error::unavailable(message))
    }
}

/// A folder that was exported for ONNX Runtime.
fn with_remedy(error: Error, path: &Path) -> Error {
    if error.kind() != ErrorKind::InvalidData || !error.to_string().contains("com.microsoft") {
        return error;
    }
    Error::mismatch(format!(
        "engine openvino, {}: the model was exported for ONNX Runtime; export it with target tensorrt, which writes standard \
         operators: {error}",
        path.display()
    )).with_source(error).about("target")
}
