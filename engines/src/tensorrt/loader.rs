//! Loads plans as engines.

use super::TensorRt;
use super::calls::run::{Binding, LoadedPlan};
use super::description::{Description, DimensionNames, Remedy, meaning};
use super::engine::{Shared, TensorRtEngine};
use crate::cuda::CudaDevice;
use ocelli_error::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of loading a plan; from [`TensorRtEngine::loader`].
pub struct TensorRtLoader {
    tensorrt: TensorRt,
    device: Arc<CudaDevice>,
    names: DimensionNames,
    with_graphs: bool,
    remedy: Option<Remedy>,
}

impl TensorRtEngine {
    /// Configures how a plan is loaded.
    pub fn loader(tensorrt: &TensorRt, device: &Arc<CudaDevice>) -> TensorRtLoader {
        TensorRtLoader {
            tensorrt: tensorrt.clone(),
            device: Arc::clone(device),
            names: DimensionNames::new(),
            with_graphs: true,
            remedy: None,
        }
    }
}

impl TensorRtLoader {
    /// Names a dynamic dimension, which a plan does not: names say which sizes are equal. Without one it is `tensor.axis`. Names
    /// of fixed dimensions and of tensors that the plan does not have are ignored.
    pub fn with_dimension_name(mut self, tensor: &str, axis: usize, name: &str) -> Self {
        self.names.insert((tensor.to_owned(), axis), name.to_owned());
        self
    }

    /// Captures repeated runs with the same shapes and addresses as CUDA graphs; on by default.
    pub fn with_graphs(mut self, graphs: bool) -> Self {
        self.with_graphs = graphs;
        self
    }

    /// Sets the advice about a size that the plan was not built for, given the dimension's name and the size; it ends the error
    /// message.
    pub fn with_remedy(mut self, remedy: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
        self.remedy = Some(Box::new(remedy));
        self
    }

    /// Loads a plan from a file onto the device.
    ///
    /// TensorRT for RTX compiles kernels for this GPU: they are read from `.kernels` beside the plan and written after the
    /// first run, so that the next process compiles nothing. A file of another GPU, driver or version is ignored with a
    /// warning and replaced.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if the file cannot be read, and as [`load`](Self::load).
    pub fn load_file(self, path: &Path) -> Result<TensorRtEngine> {
        let what = format!("cannot load the plan {}", path.display());
        let plan = std::fs::read(path)
            .map_err(|error| Error::invalid_data(format!("{what}: {error}")).with_source(error))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".kernels");
        self.load_named(&plan, &what, Some(beside.into()))
    }

    /// Loads a plan onto the device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is corrupt, was built by another TensorRT or for another GPU, or has tensors that
    /// are unsupported or not expected; [`ErrorKind::Unavailable`] if TensorRT does not start;
    /// [`ErrorKind::Execution`] if the device has too little memory for it.
    pub fn load(self, plan: &[u8]) -> Result<TensorRtEngine> {
        self.load_named(plan, "cannot load the plan", None)
    }

    fn load_named(self, plan: &[u8], what: &str, kernel_cache: Option<PathBuf>) -> Result<TensorRtEngine> {
        let invalid = |why: String| Error::invalid_data(format!("{what}: {why}"));
        if plan.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        // TensorRT uses the context that is bound to the thread.
        self.device.bind_to_thread()?;
        let library = format!("{} {}", self.tensorrt.product(), self.tensorrt.version());
        let (device, (major, minor)) = (self.device.name(), self.device.compute_capability());
        let plan = LoadedPlan::deserialize(self.tensorrt.run_functions(), plan, self.binding()).map_err(|error| {
            match error.kind() {
                ErrorKind::InvalidData => {
                    let meaning = meaning(&error.to_string());
                    invalid(format!(
                        "{meaning}; a plan only runs with the {library} and the kind of GPU that it was built for; this is \
                         {device} with compute capability {major}.{minor}; TensorRT's reason: {error}"
                    ))
                }
                kind => Error::new(kind, format!("{library} does not start: {error}")),
            }
        })?;
        let tensors = plan.tensors().map_err(invalid)?;
        let description = Description::of(&tensors, &self.names);
        TensorRtEngine::of(Arc::new(Shared {
            text: format!("{library}, {device}"),
            plan: Arc::new(plan),
            description,
            tensors: tensors.len(),
            device: Arc::clone(&self.device),
            with_graphs: self.with_graphs,
            kernel_cache,
            remedy: self.remedy,
        }))
    }

    fn binding(&self) -> Binding {
        let device = Arc::clone(&self.device);
        Binding::new(move || {
            if let Err(error) = device.bind_to_thread() {
                tracing::debug!(%error, "a plan is freed without its device");
            }
        })
    }
}

debug_as!(TensorRtLoader, it => "TensorRtLoader({:?}, {})", it.tensorrt, it.device.name());
