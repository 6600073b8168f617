//! What stands in for TensorRT where there is none: an "engine" is a file that names an ONNX file, and ONNX Runtime runs
//! it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ocelli::engines::tensorrt::{ComputeCapability, DimensionRange, Version};
use ocelli::tensorrt::{BuildStep, Gpu, PlanRequest, ReportStep, TensorRtBackend, TensorRtLibrary};
use ocelli::{EngineFactory, Error, ErrorKind, ModelGraph, Result};
use ocelli_engines::{Dim, Engine, EngineSpec, Tensor};
use serde_json::{Value, json};

use crate::dart;

/// A change to what engines return.
pub type Change = fn(&str, &mut Tensor);

/// TensorRT, pretended.
#[derive(Debug)]
pub struct FakeTensorRt {
    onnxruntime: EngineFactory,
    pub name: &'static str,
    pub version: Version,
    /// The GPU that is pretended; none by default.
    pub gpu: Option<(&'static str, ComputeCapability)>,
    /// What goes wrong in engines.
    pub change: Option<Change>,
    /// Engines that were built.
    pub built: AtomicUsize,
    /// Engines that were loaded.
    pub loaded: AtomicUsize,
    /// The last request.
    pub request: Mutex<Option<PlanRequest>>,
}

impl FakeTensorRt {
    pub fn new(onnxruntime: &EngineFactory) -> Self {
        Self {
            onnxruntime: onnxruntime.clone(),
            name: "Fake TensorRT",
            version: Version::new(1, 7, 1),
            gpu: Some(("Fake RTX", ComputeCapability::new(8, 9))),
            change: None,
            built: AtomicUsize::new(0),
            loaded: AtomicUsize::new(0),
            request: Mutex::new(None),
        }
    }

    pub fn without_gpu(mut self) -> Self {
        self.gpu = None;
        self
    }

    pub fn with_change(mut self, change: Change) -> Self {
        self.change = Some(change);
        self
    }
}

impl TensorRtBackend for FakeTensorRt {
    fn library(&self) -> Result<TensorRtLibrary> {
        Ok(TensorRtLibrary { name: self.name.into(), version: self.version, path: "libfake.so".into() })
    }

    fn gpu(&self) -> Result<Gpu> {
        let (name, compute_capability) =
            self.gpu.ok_or_else(|| Error::new(ErrorKind::Unavailable, "no NVIDIA GPU: the fake has none"))?;
        Ok(Gpu { name: name.into(), compute_capability })
    }

    fn build(&self, onnx: &Path, request: &PlanRequest, report: &mut ReportStep<'_>) -> Result<Vec<u8>> {
        let total = 3;
        for done in 0..=total {
            if report(&BuildStep { phase: "pretending", depth: 0, done, total }) == ControlFlow::Break(()) {
                return Err(Error::new(ErrorKind::Engine, "the fake was stopped"));
            }
        }
        *self.request.lock().expect("no test panics while it holds it") = Some(request.clone());
        self.built.fetch_add(1, Ordering::SeqCst);
        let ranges: Vec<Value> = request
            .dimensions
            .iter()
            .map(|(name, range)| json!([name, range.min, range.optimal, range.max]))
            .collect();
        Ok(json!({ "onnx": onnx, "ranges": ranges }).to_string().into_bytes())
    }

    fn load(&self, engine: &Path, _: Option<ModelGraph>) -> Result<Box<dyn Engine>> {
        self.loaded.fetch_add(1, Ordering::SeqCst);
        let damaged = || {
            let message = format!("no engine, {}: the fake cannot read it", engine.display());
            Error::new(ErrorKind::InvalidData, message)
        };
        let bytes = std::fs::read(engine).map_err(|_| damaged())?;
        let plan: Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let onnx = PathBuf::from(plan["onnx"].as_str().ok_or_else(damaged)?);
        let inner = self.onnxruntime.load(&onnx)?;
        if let Some(options) = plan.get("dart") {
            return Ok(dart::engine(inner, options));
        }
        let ranges = plan["ranges"].as_array().cloned().unwrap_or_default();
        let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
        let ranges = ranges
            .iter()
            .filter_map(|one| {
                let range =
                    DimensionRange { min: number(&one[1]), optimal: number(&one[2]), max: number(&one[3]) };
                Some((one[0].as_str()?.to_owned(), range))
            })
            .collect();
        Ok(Box::new(FakeRun { inner, ranges, change: self.change }))
    }
}

/// ONNX Runtime that refuses sizes outside the profile, as TensorRT does.
struct FakeRun {
    inner: Box<dyn Engine>,
    ranges: Vec<(String, DimensionRange)>,
    change: Option<Change>,
}

impl Engine for FakeRun {
    fn spec(&self) -> &EngineSpec {
        self.inner.spec()
    }

    fn description(&self) -> &str {
        "fake TensorRT"
    }

    fn run(
        &mut self,
        inputs: &[(&str, &Tensor)],
        outputs: &mut [(&str, &mut Tensor)],
    ) -> ocelli_engines::Result<()> {
        for (name, tensor) in inputs {
            let dims = self.inner.spec().input(name).map(|spec| spec.shape.clone()).unwrap_or_default();
            for (dim, &size) in dims.iter().zip(tensor.shape()) {
                let Dim::Named(dim) = dim else { continue };
                let range = self.ranges.iter().find(|(name, _)| name == dim);
                if range.is_none_or(|(_, range)| !(range.min..=range.max).contains(&size)) {
                    let message = format!("input `{name}`: {dim} is {size}, the profile has {range:?}");
                    let kind = ocelli_engines::ErrorKind::InvalidArgument;
                    return Err(ocelli_engines::Error::new(kind, message));
                }
            }
        }
        self.inner.run(inputs, outputs)?;
        if let Some(change) = self.change {
            outputs.iter_mut().for_each(|(name, tensor)| change(name, tensor));
        }
        Ok(())
    }
}
