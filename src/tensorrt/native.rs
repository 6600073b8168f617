//! TensorRT itself.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ocelli_engines::Engine;
#[cfg(not(target_family = "wasm"))]
use ocelli_engines::cuda::CudaDevice;
use ocelli_engines::tensorrt::{BuildProgress, ComputeCapability, Version};
#[cfg(not(target_family = "wasm"))]
use ocelli_engines::tensorrt::{PlanRequest, TensorRt, TensorRtBuilder, TensorRtEngine};
use ocelli_export::contract::{FREE_DIMENSIONS, dim};

use super::fit::fit;
use crate::engine::EngineFactory;
use crate::model::{Model, ModelGraph};
#[cfg(target_family = "wasm")]
use ocelli_error::Error;
use ocelli_error::{Result, display_as};

/// A loaded TensorRT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRtLibrary {
    /// `TensorRT` or `TensorRT for RTX`, which do not run each other's engines.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The file it was loaded from.
    pub path: PathBuf,
}

display_as!(TensorRtLibrary, it => "{} {}", it.name, it.version);

/// The GPU that engines run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The name that the driver reports.
    pub name: String,
    /// Its generation.
    pub compute_capability: ComputeCapability,
}

display_as!(Gpu, it => "{} (compute capability {})", it.name, it.compute_capability);

/// Called while an engine is built, possibly on another thread; [`ControlFlow::Break`] cancels the build.
pub type ReportStep<'r> = dyn FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'r;

/// TensorRT or TensorRT for RTX, whichever is installed. Its library is loaded when it is first needed.
#[derive(Clone, Debug)]
pub struct NativeTensorRt {
    library: Option<PathBuf>,
    ordinal: usize,
}

impl NativeTensorRt {
    /// TensorRT on the first GPU. `library` is its file or the folder with it; by default it is searched for.
    pub fn new(library: Option<&Path>) -> Self {
        Self { library: library.map(Path::to_owned), ordinal: 0 }
    }

    /// Uses another GPU than the first, by its CUDA ordinal.
    #[must_use]
    pub fn with_ordinal(mut self, ordinal: usize) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// Runs engine files in place of a model's graphs, and everything else with `rest`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) without a driver, a GPU or TensorRT.
    pub fn factory(
        &self,
        model: &Model,
        engines: Vec<(ModelGraph, PathBuf)>,
        rest: EngineFactory,
    ) -> Result<EngineFactory> {
        let (gpu, library) = (self.gpu()?, self.library()?);
        let names: Vec<_> = engines.iter().map(|(graph, _)| graph.name()).collect();
        let description = describe(&library, &gpu, &names, &rest);
        let (tensorrt, model) = (self.clone(), model.clone());
        Ok(EngineFactory::custom(description, move |graph| {
            let name = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match engines.iter().find(|(graph, _)| graph.file() == name) {
                Some((graph, path)) => {
                    Ok(fit(tensorrt.load(path, Some(*graph))?, *graph, model.manifest(), path)?.engine)
                }
                None => rest.load(graph),
            }
        }))
    }
}

/// Describes what a factory of engines runs, and on what.
pub(super) fn describe(
    library: &TensorRtLibrary,
    gpu: &Gpu,
    graphs: &[&str],
    rest: &EngineFactory,
) -> String {
    format!("{library} on {} ({}); {} for the rest", gpu.name, graphs.join(", "), rest.description())
}

#[cfg(not(target_family = "wasm"))]
impl NativeTensorRt {
    fn tensorrt(&self) -> Result<TensorRt> {
        TensorRt::load(self.library.as_deref())
    }

    /// The library.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if it cannot be loaded.
    pub fn library(&self) -> Result<TensorRtLibrary> {
        let tensorrt = self.tensorrt()?;
        let (name, path) = (tensorrt.product().name().into(), tensorrt.path().to_owned());
        Ok(TensorRtLibrary { name, version: tensorrt.version(), path })
    }

    /// The GPU.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) without a driver or a GPU.
    pub fn gpu(&self) -> Result<Gpu> {
        let device = CudaDevice::open(self.ordinal)?;
        let (major, minor) = device.compute_capability();
        let name = device.name().split(" (CUDA device").next().unwrap_or_default().to_owned();
        Ok(Gpu { name, compute_capability: ComputeCapability::new(major, minor) })
    }

    /// Builds an engine from an ONNX file, and returns the content of its file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) for a graph that TensorRT cannot build,
    /// [`ErrorKind::Cancelled`](ocelli_error::ErrorKind::Cancelled) if `report` cancelled it.
    pub fn build(&self, onnx: &Path, request: &PlanRequest, report: &mut ReportStep<'_>) -> Result<Vec<u8>> {
        let builder = TensorRtBuilder::new(&self.tensorrt()?, request.clone()).with_progress(report);
        Ok(builder.build(onnx)?.bytes)
    }

    /// Loads the file of an engine. `graph` names its dynamic dimensions.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the file is corrupt.
    pub fn load(&self, engine: &Path, graph: Option<ModelGraph>) -> Result<Box<dyn Engine>> {
        let device = CudaDevice::open(self.ordinal)?;
        let remedy = |dimension: &str, size: usize| match dimension {
            dim::CLASSES => format!("build the engine again with max_classes {size}"),
            dim::EXEMPLARS => format!("build the engine again with max_exemplars {size}"),
            _ => "build the engine again".to_owned(),
        };
        let mut loader = TensorRtEngine::loader(&self.tensorrt()?, &device).with_remedy(remedy);
        for free in FREE_DIMENSIONS.iter().filter(|_| graph.is_some()) {
            loader = loader.with_dimension_name(free.tensor, free.axis, free.name);
        }
        Ok(Box::new(loader.load_file(engine)?))
    }
}

/// WebAssembly loads no libraries.
#[cfg(target_family = "wasm")]
#[allow(missing_docs, clippy::missing_errors_doc)]
impl NativeTensorRt {
    pub fn library(&self) -> Result<TensorRtLibrary> {
        Err(unavailable())
    }

    pub fn gpu(&self) -> Result<Gpu> {
        Err(unavailable())
    }

    pub fn load(&self, _: &Path, _: Option<ModelGraph>) -> Result<Box<dyn Engine>> {
        Err(unavailable())
    }
}

#[cfg(target_family = "wasm")]
fn unavailable() -> Error {
    Error::unavailable("WebAssembly loads no libraries, and TensorRT is one")
}
