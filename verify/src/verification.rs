//! Compares two ways of running a model: engines, precisions or exports. Every TensorRT engine has to pass this comparison
//! before it is used.
//!
//! A [`Verification`] runs a reference, usually ONNX Runtime on the CPU, on random pixels and drawn scenes and keeps its
//! outputs. [`Verification::check`] then runs a candidate on the same inputs and accepts it if
//!
//! - every value that it returns is finite;
//! - the cosine between its features and logits and the reference's is at least [`Limits::min_cosine`] for every input;
//! - boxes and scores of the queries that matter differ by at most [`Limits::max_box_difference`] and
//!   [`Limits::max_score_difference`]. A query matters if its score, on either side, is above the score threshold or at most
//!   the score limit below it. If there is none, as with random weights, the ten queries with the highest scores matter;
//! - the detections in the drawn scenes match: for each detection of one side, the other has one of the same class that
//!   overlaps it by at least [`Limits::min_iou`]. A detection without a match is *borderline*, and allowed, if its score is
//!   at most the score limit above the threshold, or if its overlap with a detection that both sides keep is within 0.05 of
//!   the suppression threshold: rounding decides there.
//!
//! Both sides run the stages of [`ocelli::Detector`], with masks if the model has them, so that users get what was compared.
//! Graphs that the candidate does not replace are run by the reference, on the candidate's outputs.

mod compare;
mod detections;
mod inputs;
mod recording;
mod report;
mod stages;
#[cfg(test)]
mod tests;

use ocelli::postprocess::PostProcessOptions;
use ocelli::{
    Error, Model, Prompts, Result, engine::EngineFactory, model::ModelGraph, stages::EmbeddedPrompts,
};
use ocelli_engines::Tensor;
use ocelli_export::contract::{Manifest, tensor};
use serde::Deserialize;

use crate::scenes::vocabulary;
pub(crate) use compare::cosine;
pub(crate) use detections::match_detections;

use compare::{Output, OutputComparison, Pass, is_finite};
use inputs::{Input, Pixels};
use stages::Side;

pub use ocelli::tensorrt::{Limits, VerificationSummary};
pub use report::{DetectionReport, Failure, OutputReport, VerificationReport};

/// The comparison and its limits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerificationOptions {
    /// The graphs to compare besides the backbone and the encoder-decoder, which are always compared (none).
    pub graphs: Vec<ModelGraph>,
    /// Number of inputs of random pixels (2).
    pub random_inputs: usize,
    /// Number of drawn scenes (8).
    pub scenes: usize,
    /// Seed of the random pixels and the scenes (0).
    pub seed: u64,
    /// The largest number of classes that a candidate decodes at a time (4). One input asks for that many, the others for
    /// fewer, too.
    pub max_classes: usize,
    /// Detections above this score are kept. The default, `None`, is the model's own threshold.
    pub confidence: Option<f32>,
    /// The limits of a candidate's differences from the reference.
    pub limits: Limits,
}

impl Default for VerificationOptions {
    fn default() -> Self {
        Self {
            graphs: Vec::new(),
            random_inputs: 2,
            scenes: 8,
            seed: 0,
            max_classes: 4,
            confidence: None,
            limits: Limits::default(),
        }
    }
}

/// The progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationProgress {
    /// Finished runs.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// `true` while the reference is running; otherwise the candidate is.
    pub reference: bool,
}

/// A callback that is called before each run. An error from it ends the verification.
pub type ReportProgress<'r> = dyn FnMut(&VerificationProgress) -> Result<()> + 'r;

/// The candidate of a comparison.
#[derive(Clone, Debug)]
pub struct Candidate<'c> {
    /// The model that has its graphs.
    pub model: &'c Model,
    /// Makes the engines for its graphs.
    pub factory: &'c EngineFactory,
    /// The graphs that it replaces. The reference runs the others.
    pub graphs: Vec<ModelGraph>,
}

impl<'c> Candidate<'c> {
    /// All graphs of a model.
    pub fn of_model(model: &'c Model, factory: &'c EngineFactory) -> Self {
        Self { model, factory, graphs: ModelGraph::all_of(model.manifest()) }
    }
}

/// A reference's outputs for random and drawn inputs, to compare candidates with.
pub struct Verification {
    options: VerificationOptions,
    model: Model,
    factory: EngineFactory,
    inputs: Vec<Input>,
    /// Of each input.
    prompts: Vec<EmbeddedPrompts>,
    text_features: Tensor,
    passes: Vec<Pass>,
}

impl Verification {
    /// Runs the reference. Each graph is dropped before the next one is loaded, except for the encoder-decoder and the mask
    /// head, which run together.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for options out of range,
    /// [`ErrorKind::Execution`](ocelli::ErrorKind::Execution) if the reference fails or returns
    /// values that are not finite, and the error that `progress` returns.
    pub fn of_reference(
        model: &Model,
        factory: &EngineFactory,
        options: VerificationOptions,
        progress: &mut ReportProgress<'_>,
    ) -> Result<Self> {
        options.limits.check()?;
        if options.scenes + options.random_inputs == 0 || options.max_classes == 0 {
            ocelli_error::refuse!(
                "verification: nothing to compare; expected scenes + random_inputs ≥ 1 and max_classes ≥ 1"
            );
        }
        let graphs = ModelGraph::all_of(model.manifest());
        if let Some(graph) = options.graphs.iter().find(|graph| !graphs.contains(graph)) {
            let folder = model.folder().display();
            ocelli_error::refuse!("verification of {graph}, {folder}: this model has no such graph");
        }
        let mut verification = Self {
            inputs: inputs::make(model.manifest(), &options)?,
            options,
            model: model.clone(),
            factory: factory.clone(),
            prompts: Vec::new(),
            text_features: Tensor::empty(),
            passes: Vec::new(),
        };
        let mut stages = verification.stages(None)?;
        (verification.prompts, verification.text_features) = verification.embed(&mut stages)?;
        verification.passes = verification.run(&mut stages, &verification.prompts, true, progress)?;
        for (input, pass) in verification.inputs.iter().zip(&verification.passes) {
            if let Some((_, name, _)) = pass.tensors().find(|(_, _, tensor)| !is_finite(tensor)) {
                return Err(Error::execution(format!(
                    "{}, {name}, {}: the reference returned values that are infinite or NaN; the model is corrupt",
                    model.folder().display(),
                    input.name
                )));
            }
        }
        Ok(verification)
    }

    /// Runs a candidate on the same inputs and compares.
    ///
    /// A candidate that differs is not an error: see [`VerificationReport::accepted`].
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if the candidate's model has other sizes,
    /// [`ErrorKind::Execution`](ocelli::ErrorKind::Execution) if it fails to run, and the
    /// error that `progress` returns.
    pub fn check(
        &self,
        candidate: &Candidate<'_>,
        progress: &mut ReportProgress<'_>,
    ) -> Result<VerificationReport> {
        self.check_sizes(candidate.model)?;
        let mut stages = self.stages(Some(candidate))?;
        let mut outputs = OutputComparison::new(self.options.limits);
        let mut own_prompts = None;
        if self.options.graphs.contains(&ModelGraph::TextEncoder) {
            let (prompts, features) = self.embed(&mut stages)?;
            let (graph, name) = (ModelGraph::TextEncoder, tensor::TEXT_FEATURES);
            outputs.add("the text prompts", graph, name, &self.text_features, &features);
            own_prompts = Some(prompts);
        }
        let prompts = own_prompts.as_ref().unwrap_or(&self.prompts);
        let passes = self.run(&mut stages, prompts, false, progress)?;
        let mut detections =
            detections::DetectionComparison::new(self.post_processing(), self.options.limits);
        for (input, (expected, found)) in self.inputs.iter().zip(self.passes.iter().zip(&passes)) {
            if outputs.add_pass(&input.name, expected, found) {
                detections.add(input, expected, found)?;
            }
        }
        Ok(VerificationReport {
            reference: self.factory.description(),
            candidate: candidate.factory.description(),
            graphs: candidate.graphs.clone(),
            limits: self.options.limits,
            seed: self.options.seed,
            random_inputs: self.options.random_inputs,
            scenes: self.options.scenes,
            outputs: outputs.outputs,
            detections: detections.report,
            failures: [outputs.failures, detections.failures].concat(),
        })
    }

    fn post_processing(&self) -> PostProcessOptions {
        let of_model = self.model.manifest().thresholds.confidence;
        let confidence = self.options.confidence.unwrap_or(of_model);
        PostProcessOptions { confidence, ..PostProcessOptions::default() }
    }

    /// The stages of a detector with the graphs of the candidate that are compared, and those of the reference otherwise.
    fn stages(&self, candidate: Option<&Candidate<'_>>) -> Result<Side> {
        let is_compared = |graph: &ModelGraph| {
            let always = graph.is_backbone() || *graph == ModelGraph::EncoderDecoder;
            always || self.options.graphs.contains(graph)
        };
        let replaced: Vec<ModelGraph> = candidate
            .map_or(&[][..], |candidate| &candidate.graphs)
            .iter()
            .copied()
            .filter(is_compared)
            .collect();
        let max_classes = self.options.max_classes;
        let side = |model: &Model, factory: &EngineFactory| {
            (model.clone(), factory.clone().with_class_chunk(max_classes))
        };
        let reference = side(&self.model, &self.factory);
        let candidate =
            candidate.map_or_else(|| reference.clone(), |candidate| side(candidate.model, candidate.factory));
        // The backbones of the two models may have different numbers of parts.
        let model =
            if replaced.iter().any(|graph| graph.is_backbone()) { &candidate.0 } else { &reference.0 };
        let (model, masks) = (model.clone(), !self.model.manifest().detection_only);
        Side::new(&model, masks, max_classes, self.post_processing(), move |graph| {
            let (model, factory) = if replaced.contains(&graph) { &candidate } else { &reference };
            model.load_graph(factory, graph.file())
        })
    }

    /// Encodes the text prompts of all inputs. Returns them by input, and the features of all phrases, `[phrase, L, D]`.
    fn embed(&self, stages: &mut Side) -> Result<(Vec<EmbeddedPrompts>, Tensor)> {
        let used = |phrase: &&&str| {
            self.inputs.iter().any(|input| input.prompts.iter().any(|prompt| prompt.phrase() == **phrase))
        };
        let all = stages.embed(&Prompts::new(vocabulary().iter().filter(used).copied())?)?;
        let Manifest { context_length, model_width, .. } = *self.model.manifest();
        let features: Vec<f32> = all.text_features().flatten().copied().collect();
        let features = Tensor::f32(&[all.len(), context_length, model_width], features)?;
        let prompts = self.inputs.iter().map(|input| stages.embed(&input.prompts)).collect::<Result<_>>()?;
        Ok((prompts, features))
    }

    /// Runs all graphs on all inputs, graph by graph.
    fn run(
        &self,
        stages: &mut Side,
        prompts: &[EmbeddedPrompts],
        reference: bool,
        progress: &mut ReportProgress<'_>,
    ) -> Result<Vec<Pass>> {
        let total = 2 * self.inputs.len();
        let mut done = 0;
        let mut step = || {
            let result = progress(&VerificationProgress { done, total, reference });
            done += 1;
            result
        };
        let compares = |graph| self.options.graphs.contains(&graph);
        let mut passes = stages.encode(&self.inputs, &mut step)?;
        if compares(ModelGraph::ExemplarEncoder) {
            stages.encode_exemplars(prompts, &mut passes)?;
        }
        for ((input, prompts), pass) in self.inputs.iter().zip(prompts).zip(&mut passes) {
            step()?;
            // A candidate decodes chunks of several sizes, the reference small ones, which need little memory. The result
            // must not depend on the size.
            let chunk = if reference { input.chunk.min(2) } else { input.chunk };
            stages.decode(input, prompts, chunk, pass)?;
            if compares(ModelGraph::MaskHead) {
                stages.draw_masks(prompts, pass)?;
            }
        }
        Ok(passes)
    }

    fn check_sizes(&self, candidate: &Model) -> Result<()> {
        let (ours, theirs) = (self.model.manifest(), candidate.manifest());
        let sizes = |m: &Manifest| {
            [
                ("imgsz", m.imgsz),
                ("patch size", m.patch_size),
                ("width", m.model_width),
                ("queries", m.num_queries),
                ("context length", m.context_length),
            ]
        };
        let refuse = |why: String| {
            let (reference, candidate) = (self.model.folder().display(), candidate.folder().display());
            Err(Error::mismatch(format!("cannot compare {reference} with {candidate}: {why}")))
        };
        for ((name, our), (_, their)) in sizes(ours).into_iter().zip(sizes(theirs)) {
            if our != their {
                return refuse(format!("{name} is {our} in the first and {their} in the second"));
            }
        }
        if ours.prompting != theirs.prompting {
            return refuse("they were exported with different prompting".into());
        }
        Ok(())
    }
}
