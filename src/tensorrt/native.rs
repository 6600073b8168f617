//! TensorRT itself.

use std::path::{Path, PathBuf};

use ocelli_engines::Engine;
use ocelli_engines::tensorrt::{BuildProgress, Product, TensorRt, TensorRtBuilder, TensorRtSearch};

use super::backend::{BuildStep, Gpu, PlanRequest, ReportStep, TensorRtBackend, TensorRtLibrary};
use crate::error::{Error, ErrorKind, Result};
use crate::model_graph::ModelGraph;

/// TensorRT, in the form that the program was built for; its library is loaded when it is first needed.
#[derive(Clone, Debug)]
pub struct NativeTensorRt {
    library: Option<PathBuf>,
    ordinal: usize,
}

impl NativeTensorRt {
    /// TensorRT for `purpose`, which an error names: `cannot run a TensorRT engine, x.engine`. `library` is its file or a
    /// folder that holds it; it is searched for where it is not named.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] in a program that was built without TensorRT.
    pub fn new(purpose: &str, library: Option<&Path>) -> Result<Self> {
        if Product::COMPILED.is_none() {
            let message = format!(
                "{purpose}: this program was built without TensorRT; build it with `cargo build --release --features \
                 tensorrt-rtx` (desktops) or `--features tensorrt` (servers)"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(Self { library: library.map(Path::to_owned), ordinal: 0 })
    }

    /// The GPU, as CUDA counts; the first unless set.
    #[must_use]
    pub fn with_ordinal(mut self, ordinal: usize) -> Self {
        self.ordinal = ordinal;
        self
    }

    fn tensorrt(&self) -> Result<TensorRt> {
        let mut search = TensorRtSearch::new();
        if let Some(path) = &self.library {
            search = search.with_path(path);
        }
        Ok(TensorRt::load(&search)?)
    }
}

impl TensorRtBackend for NativeTensorRt {
    fn library(&self) -> Result<TensorRtLibrary> {
        let tensorrt = self.tensorrt()?;
        Ok(TensorRtLibrary {
            name: tensorrt.name().into(),
            version: tensorrt.version(),
            path: tensorrt.path().to_owned(),
        })
    }

    fn gpu(&self) -> Result<Gpu> {
        device::gpu(self.ordinal)
    }

    fn build(&self, onnx: &Path, request: &PlanRequest, report: &mut ReportStep<'_>) -> Result<Vec<u8>> {
        let tensorrt = self.tensorrt()?;
        let mut builder = TensorRtBuilder::new(&tensorrt)
            .with_version_compatible(request.version_compatible)
            .with_hardware_compatible(request.hardware_compatible)
            .with_progress(|progress: &BuildProgress<'_>| {
                report(&BuildStep {
                    phase: progress.phase,
                    depth: progress.depth,
                    done: progress.step,
                    total: progress.steps,
                })
            });
        for target in &request.targets {
            builder = builder.with_target(*target);
        }
        for (name, range) in &request.dimensions {
            builder = builder.with_dimension(name, *range);
        }
        if let Some(bytes) = request.workspace_bytes {
            builder = builder.with_workspace_bytes(bytes);
        }
        if let Some(path) = &request.timing_cache {
            builder = builder.with_timing_cache(path);
        }
        Ok(builder.build(onnx)?.bytes().to_vec())
    }

    fn load(&self, engine: &Path, graph: Option<ModelGraph>) -> Result<Box<dyn Engine>> {
        device::load(&self.tensorrt()?, self.ordinal, engine, graph)
    }
}

/// What needs a GPU.
#[cfg(feature = "cuda")]
mod device {
    use std::path::Path;
    use std::sync::Arc;

    use ocelli_engines::Engine;
    use ocelli_engines::cuda::CudaDevice;
    use ocelli_engines::tensorrt::{ComputeCapability, TensorRt, TensorRtEngine};
    use ocelli_export::contract::{dim, free_dimensions};

    use super::super::backend::Gpu;
    use crate::error::Result;
    use crate::model_graph::ModelGraph;

    pub(super) fn gpu(ordinal: usize) -> Result<Gpu> {
        let device = CudaDevice::open(ordinal)?;
        let (major, minor) = device.compute_capability();
        let name = device.name().split(" (CUDA device").next().unwrap_or_default().to_owned();
        Ok(Gpu { name, compute_capability: ComputeCapability::new(major, minor) })
    }

    pub(super) fn load(
        tensorrt: &TensorRt,
        ordinal: usize,
        engine: &Path,
        graph: Option<ModelGraph>,
    ) -> Result<Box<dyn Engine>> {
        let device: Arc<CudaDevice> = CudaDevice::open(ordinal)?;
        let mut loader = TensorRtEngine::loader(tensorrt, &device)?.with_remedy(|dimension, size| {
            let option = match dimension {
                dim::CLASSES => format!(" --max-classes {size}"),
                dim::EXEMPLARS => format!(" --max-exemplars {size}"),
                _ => String::new(),
            };
            format!("build it again for that: `ocelli build-engine{option}`")
        });
        for free in graph.map(|graph| free_dimensions(graph.file())).unwrap_or_default() {
            loader = loader.with_dimension_name(free.tensor, free.axis, free.name);
        }
        Ok(Box::new(loader.load_file(engine)?))
    }
}

/// Without CUDA there is no GPU.
#[cfg(not(feature = "cuda"))]
mod device {
    use std::path::Path;

    use ocelli_engines::Engine;
    use ocelli_engines::tensorrt::TensorRt;

    use super::super::backend::Gpu;
    use crate::error::{Error, ErrorKind, Result};
    use crate::model_graph::ModelGraph;

    fn missing(what: &str) -> Error {
        let message = format!("{what}: this program was built without CUDA");
        Error::new(ErrorKind::Unavailable, message)
    }

    pub(super) fn gpu(_: usize) -> Result<Gpu> {
        Err(missing("no NVIDIA GPU"))
    }

    pub(super) fn load(
        _: &TensorRt,
        _: usize,
        engine: &Path,
        _: Option<ModelGraph>,
    ) -> Result<Box<dyn Engine>> {
        Err(missing(&format!("cannot run the engine, {}", engine.display())))
    }
}
