//! Plans on their way to a device.

use super::run::{Shared, TensorRtEngine};
use super::run_calls::{Refusal, RunCalls};
use super::run_plan::{Description, DimensionNames, Remedy, plain_words};
use crate::cuda::{CudaDevice, StreamPriority};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::EngineSpec;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// How a plan is to be loaded.
pub struct TensorRtLoader {
    calls: Arc<dyn RunCalls>,
    device: Arc<CudaDevice>,
    spec: Option<EngineSpec>,
    names: DimensionNames,
    priority: StreamPriority,
    with_graphs: bool,
    remedy: Option<Remedy>,
}

impl TensorRtLoader {
    pub(super) fn new(calls: Arc<dyn RunCalls>, device: &Arc<CudaDevice>) -> Self {
        Self {
            calls,
            device: Arc::clone(device),
            spec: None,
            names: DimensionNames::new(),
            priority: StreamPriority::Normal,
            with_graphs: true,
            remedy: None,
        }
    }

    /// What the plan is expected to take and give: a plan's dynamic dimensions have no names, and names are what ties
    /// the sizes of tensors together. Without it each has a name of its own, `input.axis`, if
    /// [`with_dimension_name`](Self::with_dimension_name) gives it no other.
    pub fn with_spec(mut self, spec: EngineSpec) -> Self {
        self.spec = Some(spec);
        self
    }

    /// The name of a tensor's dimension, where it is dynamic. Names of tensors that the plan does not have count for
    /// nothing.
    pub fn with_dimension_name(mut self, tensor: &str, axis: usize, name: &str) -> Self {
        self.names.insert((tensor.to_owned(), axis), name.to_owned());
        self
    }

    /// The priority of the engine's stream; normal unless set.
    pub fn with_priority(mut self, priority: StreamPriority) -> Self {
        self.priority = priority;
        self
    }

    /// Whether runs that come again with the same shapes and addresses are captured as CUDA graphs; they are unless this
    /// says no.
    pub fn with_graphs(mut self, yes: bool) -> Self {
        self.with_graphs = yes;
        self
    }

    /// What the error says to do about a size that the plan was not built for, given the dimension's name and the size.
    pub fn with_remedy(mut self, remedy: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
        self.remedy = Some(Arc::new(remedy));
        self
    }

    /// Reads a plan from a file and puts it on the device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] if the file cannot be read, and as [`load`](Self::load).
    pub fn load_file(self, path: &Path) -> Result<TensorRtEngine> {
        let plan = std::fs::read(path).map_err(|error| {
            let message = format!("cannot read the plan, {}: {error}", path.display());
            Error::new(ErrorKind::InvalidModel, message).with_source(error)
        })?;
        self.load_named(&plan, &format!("cannot load the plan, {}", path.display()))
    }

    /// Puts a plan on the device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] if it is damaged, of another TensorRT or for another GPU, if its tensors are of kinds
    /// that are not supported here, or not those that were expected; [`ErrorKind::Unavailable`] if TensorRT does not
    /// start; [`ErrorKind::Execution`] where the device has no room for it.
    pub fn load(self, plan: &[u8]) -> Result<TensorRtEngine> {
        self.load_named(plan, "cannot load the plan")
    }

    fn load_named(self, plan: &[u8], what: &str) -> Result<TensorRtEngine> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidModel, format!("{what}: {why}"));
        if plan.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        // TensorRT works in the context that is the thread's.
        self.device.bind_to_thread()?;
        let library = self.calls.library();
        let plan = self.calls.deserialize(plan).map_err(|refusal| match refusal {
            Refusal::Library(reason) => {
                let message = format!("{library} does not start: {reason}");
                Error::new(ErrorKind::Unavailable, message)
            }
            Refusal::Plan(reason) => {
                let (major, minor) = self.device.compute_capability();
                let device = self.device.name();
                let words = plain_words(&reason);
                invalid(format!(
                    "{words}; a plan runs with the {library} and on the kind of GPU that it was built for, and here is \
                     {device} of compute capability {major}.{minor}; TensorRT says: {reason}"
                ))
            }
        })?;
        let tensors = plan.tensors().map_err(invalid)?;
        let description = Description::of(&tensors, self.spec.as_ref(), &self.names).map_err(invalid)?;
        let shared = Shared {
            text: format!("{library}, {}", self.device.name()),
            plan,
            description,
            tensors: tensors.len(),
            device: self.device,
            priority: self.priority,
            with_graphs: self.with_graphs,
            remedy: self.remedy,
        };
        TensorRtEngine::of(Arc::new(shared))
    }
}

impl fmt::Debug for TensorRtLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorRtLoader({:?}, {})", self.calls, self.device.name())
    }
}
