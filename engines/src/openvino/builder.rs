//! Builds engines: device, threads, number format and the cache of compiled models.

use super::OpenVino;
use super::call::Compiled;
use super::device::{InferencePrecision, OpenVinoDevice, takes_amx};
use super::session::OpenVinoEngine;
use crate::cpu::{self, threads_or_default};
use crate::model_file::{self, unreadable, unusable};
use crate::spec::{EngineSpec, onnx};
use ocelli_error::{Error, Result};
use ocelli_onnx::schema::GraphProto;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Builds an [`OpenVinoEngine`]; see [`OpenVinoEngine::builder`].
#[derive(Debug, Clone)]
pub struct OpenVinoBuilder {
    runtime: OpenVino,
    device: OpenVinoDevice,
    threads: usize,
    precision: InferencePrecision,
    quantization_group: usize,
    cache: Option<PathBuf>,
}

impl OpenVinoEngine {
    /// Configures an engine.
    pub fn builder(runtime: &OpenVino) -> OpenVinoBuilder {
        OpenVinoBuilder {
            runtime: runtime.clone(),
            device: OpenVinoDevice::default(),
            threads: 0,
            precision: InferencePrecision::default(),
            quantization_group: 0,
            cache: None,
        }
    }
}

impl OpenVinoBuilder {
    setters! {
        /// The device; the CPU by default.
        with_device(device: OpenVinoDevice) => device;

        /// The number of threads that compute one operator on the CPU; 0, the default, means
        /// [`default_threads`](crate::default_threads). Other devices ignore it.
        with_threads(threads: usize) => threads;

        /// The number format of the computation; [`InferencePrecision::F32`] by default. A model whose weights are f32 runs in
        /// any of them.
        with_precision(precision: InferencePrecision) => precision;

        /// For weights that the model stores in 8 bits: how many inputs of a product share a scale when they are rounded to
        /// 8 bits as well. 0, the default, leaves the inputs as they are, which is slower and more exact; 64 is a good
        /// choice. Models without such weights are not affected.
        with_dynamic_quantization(group: usize) => quantization_group;
    }

    /// The folder that keeps compiled models; none by default. It is created if it is missing, and processes that share it
    /// take turns.
    ///
    /// OpenVINO looks a model up by the path and the modification time of its file, the options and its own version. It
    /// does not look at external data, so that a folder must belong to one content of a model.
    pub fn with_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Loads a model from a file, with its external data beside it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the file is missing or corrupt, or has an
    /// operator, type or version that OpenVINO does not know;
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if this machine lacks the device, or the device the
    /// number format.
    pub fn build_from_file(self, model: impl AsRef<Path>) -> Result<OpenVinoEngine> {
        let path = model.as_ref();
        let name = model_file::name_of(path)?;
        let graph = ocelli_onnx::read_graph(path).map_err(|error| unreadable(&name, error))?;
        let spec = onnx::spec(&graph).map_err(|reason| unusable(&name, &reason))?;
        check_operators(&graph).map_err(|reason| unusable(&name, &reason))?;
        self.check_precision()?;
        // OpenVINO itself lets a process remove the entry that another one is writing.
        let _lock = self.cache.as_deref().map(model_file::lock_cache).transpose()?;
        let (runtime, device) = (self.runtime.runtime(), self.device.to_string());
        let compiled = runtime.compile_file(path, &device, &self.properties()?);
        let compiled = compiled.map_err(|reason| unusable(&name, &reason))?;
        self.check_compiled(&compiled)?;
        self.engine(&name, spec, compiled)
    }

    fn engine(&self, name: &str, spec: EngineSpec, compiled: Compiled) -> Result<OpenVinoEngine> {
        let runs_on = match self.device {
            OpenVinoDevice::Cpu => cpu::description(threads_or_default(self.threads)),
            // AUTO names the device that it has chosen.
            device => compiled.property("EXECUTION_DEVICES").unwrap_or_else(|_| device.to_string()),
        };
        let precision = match self.precision {
            InferencePrecision::F32 => String::new(),
            precision => format!(", {precision}"),
        };
        let description = format!("OpenVINO {}, {runs_on}{precision}", self.runtime.version());
        OpenVinoEngine::new(&compiled, spec, name.to_owned(), description)
            .map_err(|reason| unusable(name, &reason))
    }

    /// OpenVINO silently replaces a format that the device lacks.
    fn check_precision(&self) -> Result<()> {
        self.runtime.check_device(self.device)?;
        if self.precision == InferencePrecision::F32 && self.device != OpenVinoDevice::Npu {
            return Ok(());
        }
        let devices = self.runtime.devices()?;
        let own = devices.iter().find(|device| self.device.is_among(std::slice::from_ref(&device.name)));
        match own.filter(|_| self.device != OpenVinoDevice::Auto) {
            Some(device) if !device.computes_in(self.precision) => Err(Error::unavailable(format!(
                "OpenVINO, {}: {} ({}) has no fast {} arithmetic, only {}; choose one of these number formats{}",
                self.runtime.path().display(),
                device.name,
                device.product,
                self.precision,
                device.number_formats.join(", "),
                if takes_amx(&device.name) { LEAVE_AMX_OUT } else { "" }
            ))),
            _ => Ok(()),
        }
    }

    fn check_compiled(&self, compiled: &Compiled) -> Result<()> {
        match compiled.property("INFERENCE_PRECISION_HINT") {
            Ok(used) if used != self.precision.to_string() => Err(Error::unavailable(format!(
                "OpenVINO, {}: {} computes in {used} when {} is requested; request {used}",
                self.runtime.path().display(),
                self.device,
                self.precision
            ))),
            _ => Ok(()),
        }
    }

    fn properties(&self) -> Result<Vec<(&'static str, String)>> {
        let mut properties = vec![
            ("PERFORMANCE_HINT", "LATENCY".to_owned()),
            ("INFERENCE_PRECISION_HINT", self.precision.to_string()),
        ];
        if self.device == OpenVinoDevice::Cpu {
            properties.push(("NUM_STREAMS", "1".to_owned()));
            properties.push(("INFERENCE_NUM_THREADS", threads_or_default(self.threads).to_string()));
            // Pinned threads of two engines, or of two processes, would share some cores and leave others idle.
            properties.push(("ENABLE_CPU_PINNING", "NO".to_owned()));
            properties.push(("DYNAMIC_QUANTIZATION_GROUP_SIZE", self.quantization_group.to_string()));
        }
        if let Some(folder) = &self.cache {
            properties.push(("CACHE_DIR", model_file::cache_folder(folder)?.to_owned()));
        }
        Ok(properties)
    }
}

/// A remedy.
const LEAVE_AMX_OUT: &str = "; bf16 with AMX is wrong, ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 leaves AMX out";

/// OpenVINO 2026.4.1 reads some of ONNX Runtime's own operators and computes `RotaryEmbedding` wrongly, without an error.
fn check_operators(graph: &GraphProto) -> Result<(), String> {
    let foreign = graph.node.iter().filter(|node| !matches!(&*node.domain, "" | "ai.onnx"));
    let names: BTreeSet<String> = foreign.map(|node| format!("{}.{}", node.domain, node.op_type)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = names.into_iter().collect();
    Err(format!("it has {}; expected ONNX's standard operators alone", names.join(", ")))
}
