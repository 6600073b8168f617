//! From the names of two models to the comparison of them: what the program and the bindings ask for.

use serde::Deserialize;

use ocelli::engine::{EngineFactory, EngineOptions};
use ocelli::model::{ModelGraph, ModelRequest};
use ocelli::{Cancellation, EngineKind, Error, Model, ModelSource, Result};

use crate::verification::{Candidate, ReportProgress, Verification, VerificationOptions, VerificationReport};

/// Two ways of running a model, as plain data.
///
/// ```
/// let request: ocelli_verify::VerificationRequest = serde_json::from_str(
///     r#"{"engine": {"kind": "embedded"}, "options": {"scenes": 1, "random_inputs": 0}}"#,
/// )?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerificationRequest {
    /// The reference: the built-in model by default.
    pub model: ModelSource,
    /// The model to compare with it, of the same sizes; the reference by default, to compare engines.
    pub candidate: Option<ModelSource>,
    /// The engine of the candidate. The reference runs on the CPU, with the same libraries and threads.
    pub engine: EngineOptions,
    /// The comparison. Its graphs are those of the candidate that run in place of the reference's: all that both have, if none is
    /// named.
    pub options: VerificationOptions,
}

impl VerificationRequest {
    /// Opens the models, which are exported into the cache if necessary, runs both and compares them. `announce` gets a line about
    /// each step of an export.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if the two are one, and for a graph that one of them does
    /// not have; those of [`Model::resolve`], [`Verification::of_reference`] and [`Verification::check`].
    pub fn run(
        &self,
        cancellation: &Cancellation,
        announce: &dyn Fn(&str),
        progress: &mut ReportProgress<'_>,
    ) -> Result<VerificationReport> {
        let start = |source: &ModelSource, kind: EngineKind| {
            EngineFactory::start_for_model(&EngineOptions { kind, ..self.engine.clone() }, source)
        };
        let resolve = |source: &ModelSource, engine: &EngineFactory| {
            let target = engine.target(None);
            let request = ModelRequest { source: source.clone(), target, ..ModelRequest::default() };
            Model::resolve(&request, announce, cancellation)
        };
        let candidate = self.candidate.as_ref().unwrap_or(&self.model);
        // A missing engine is found before a model is exported.
        let (reference_engine, engine) =
            (start(&self.model, EngineKind::Cpu)?, start(candidate, self.engine.kind)?);
        let (reference, candidate) = (resolve(&self.model, &reference_engine)?, resolve(candidate, &engine)?);
        let graphs = self.graphs(&reference, &candidate)?;
        // Without inputs, the comparison says so.
        if self.options.scenes + self.options.random_inputs > 0
            && reference.manifest() == candidate.manifest()
            && reference_engine.description() == engine.description()
        {
            let message = format!(
                "candidate is the reference, on the same engine ({}): name another model, or another engine",
                engine.description()
            );
            return Err(Error::invalid_argument(message).about("candidate"));
        }
        let options = VerificationOptions { graphs: graphs.clone(), ..self.options.clone() };
        let verification = Verification::of_reference(&reference, &reference_engine, options, progress)?;
        verification.check(&Candidate { model: &candidate, factory: &engine, graphs }, progress)
    }

    /// The graphs that both models have, or those that were named.
    fn graphs(&self, reference: &Model, candidate: &Model) -> Result<Vec<ModelGraph>> {
        // A backbone may be one graph or two.
        let of = |model: &Model, graph: ModelGraph| {
            let parts = ModelGraph::backbone_of(model.manifest());
            if graph.is_backbone() { parts } else { vec![graph] }
        };
        let shared: Vec<ModelGraph> = ModelGraph::all_of(candidate.manifest())
            .into_iter()
            .filter(|graph| of(reference, *graph).iter().all(|part| reference.file(part.file()).is_file()))
            .collect();
        if self.options.graphs.is_empty() {
            return Ok(shared);
        }
        let wanted: Vec<_> = self.options.graphs.iter().flat_map(|graph| of(candidate, *graph)).collect();
        match wanted.iter().find(|graph| !shared.contains(graph)) {
            None => Ok(wanted),
            Some(graph) => {
                let names: Vec<_> = shared.iter().map(|graph| graph.name()).collect();
                let message = format!("graphs {graph}: not in both models; they share {}", names.join(", "));
                Err(Error::invalid_argument(message).about("graphs"))
            }
        }
    }
}
