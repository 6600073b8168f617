//! An engine that has started, and loads graphs.

use std::path::Path;
use std::sync::Arc;

use ocelli_engines::Engine;
use ocelli_engines::embedded::{self, EmbeddedEngine, SharedThreads};
use ocelli_export::contract::{Precision, Target};

use super::EngineKind;
use ocelli_error::{Error, Result};

/// The loader for a number format, if another one, and the format in which a model is exported for it.
pub(super) type Computing = (Option<Arc<dyn Loader>>, Option<Precision>);

/// Loads graphs, and says what the engine needs of a model.
pub(super) trait Loader: Send + Sync {
    /// Loads a graph. Some engines need the number of tokens of its model's phrases, and the number of classes that are decoded at once.
    fn load(&self, graph: &Path, context_length: Option<usize>, classes: usize) -> Result<Box<dyn Engine>>;

    /// Loads a graph with the files of its weights, by name.
    fn load_from_memory(&self, name: &str, _: &[u8], _: Vec<(String, Vec<u8>)>) -> Result<Box<dyn Engine>> {
        Err(Error::unavailable(format!(
            "cannot load {name} from memory with {}: only the engine {} loads a model without files",
            self.description(),
            EngineKind::Embedded
        )))
    }

    /// The library and the hardware.
    fn description(&self) -> String;

    /// The target that a model of this precision is exported for.
    fn target(&self, _: Option<Precision>) -> Target {
        Target::OnnxRuntime
    }

    /// The engine's way of computing in a number format; `None` is its default.
    fn computing_in(&self, precision: Option<Precision>) -> Result<Computing> {
        Ok((None, precision))
    }

    /// The fastest number format in which detections stay close to those in fp32; `None` for the default.
    fn fast_precision(&self) -> Option<Precision> {
        None
    }

    /// `true` if it runs graphs of a [calibrated](Precision::is_calibrated) precision.
    fn runs_calibrated(&self) -> bool {
        false
    }

    /// `true` if graphs may be loaded on several threads at once.
    fn loads_in_parallel(&self) -> bool {
        false
    }

    /// Refuses a side of the model's input, in patches.
    fn check_patches(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// The engine inside the program: all graphs of a model compute on the same threads.
pub(super) struct Embedded(pub(super) SharedThreads);

impl Loader for Embedded {
    fn load(&self, graph: &Path, _: Option<usize>, _: usize) -> Result<Box<dyn Engine>> {
        let builder = EmbeddedEngine::builder().with_shared_threads(self.0.clone());
        Ok(Box::new(builder.build_from_file(graph)?))
    }

    fn load_from_memory(
        &self,
        name: &str,
        graph: &[u8],
        weights: Vec<(String, Vec<u8>)>,
    ) -> Result<Box<dyn Engine>> {
        let builder = EmbeddedEngine::builder().with_shared_threads(self.0.clone());
        Ok(Box::new(builder.build_from_parts(name, graph, weights)?))
    }

    fn description(&self) -> String {
        embedded::description(self.0.count())
    }

    /// It has ONNX Runtime's operators for attention, but not those for 8-bit weights.
    fn target(&self, precision: Option<Precision>) -> Target {
        if precision == Some(Precision::Int8) { Target::TensorRt } else { Target::OnnxRuntime }
    }

    fn loads_in_parallel(&self) -> bool {
        true
    }
}

/// An engine of the caller.
pub(super) struct Custom<F> {
    pub(super) description: Arc<str>,
    pub(super) make: F,
}

impl<F: Fn(&Path) -> Result<Box<dyn Engine>> + Send + Sync> Loader for Custom<F> {
    fn load(&self, graph: &Path, _: Option<usize>, _: usize) -> Result<Box<dyn Engine>> {
        (self.make)(graph)
    }

    fn description(&self) -> String {
        self.description.to_string()
    }

    fn runs_calibrated(&self) -> bool {
        true
    }
}
