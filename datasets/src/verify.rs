//! Whether two ways of running a model say the same: the gate that every TensorRT engine passes before it is used.
//!
//! A [`Verification`] runs a reference, most often ONNX Runtime on the processor, over random pixels and drawn scenes,
//! and remembers what it said. Then it [checks](Verification::check) candidates: other engines, other precisions, other
//! exports. A candidate is accepted where
//!
//! - every number it returns is one (no infinity, no NaN);
//! - features and logits point where the reference's do: their cosine is at least [`Limits::min_cosine`] for each input;
//! - boxes and scores of queries that matter are near the reference's: [`Limits::max_box_difference`],
//!   [`Limits::max_score_difference`]. A query matters where either side's score is above the threshold or within the
//!   score limit of it; where none does, as with random weights, the ten surest count;
//! - the same things are kept in the drawn scenes: for each detection of one side there is one of the same class on the
//!   other whose box overlaps it by at least [`Limits::min_iou`]. What has no partner is *borderline*, and allowed, where
//!   its score is within the score limit of the threshold, or where its overlap with a detection that both sides keep is
//!   within 0.05 of the suppression threshold: there a rounding decides.
//!
//! Graphs that the candidate does not replace are run by the reference, behind the candidate's outputs: what is compared
//! is what a user would see.
//!
//! ```
//! use ocelli_datasets::verify::{Candidate, Verification, VerificationOptions};
//! use ocelli::{Cancellation, EngineFactory, EngineOptions, Model, ModelRequest};
//!
//! # fn main() -> ocelli::Result<()> {
//! let model = Model::resolve(&ModelRequest::default(), &|_| (), &Cancellation::new())?;
//! let factory = EngineFactory::start(&EngineOptions::default())?;
//! let options = VerificationOptions { scenes: 2, random_inputs: 1, ..VerificationOptions::default() };
//! let verification = Verification::of_reference(&model, &factory, options, &mut |_| Ok(()))?;
//! let report = verification.check(&Candidate::of_model(&model, &factory), &mut |_| Ok(()))?;
//! assert!(report.accepted(), "a model agrees with itself");
//! # Ok(())
//! # }
//! ```

mod compare;
mod inputs;
mod kept;
mod passes;
mod report;
#[cfg(test)]
mod tests;

use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::Manifest;

pub use ocelli::tensorrt::{Limits, VerificationSummary};
pub use report::{DetectionReport, Failure, OutputReport, VerificationReport};

use crate::scenes::vocabulary;
use compare::OutputComparison;
use inputs::{Input, Words};
use ocelli::EngineFactory;
use ocelli::Model;
use ocelli::ModelGraph;
use ocelli::postprocess::{PostProcessOptions, PostProcessor};
use ocelli::{Error, ErrorKind, Result};
use passes::Pass;

/// What is compared, and how strictly.
#[derive(Clone, Debug, PartialEq)]
pub struct VerificationOptions {
    /// The graphs to look at besides the backbone and the encoder-decoder, which are always run.
    pub graphs: Vec<ModelGraph>,
    /// How many inputs of random pixels (2).
    pub random_inputs: usize,
    /// How many drawn scenes (8).
    pub scenes: usize,
    /// Of the random numbers and the scenes (0).
    pub seed: u64,
    /// Classes that candidates decode at once at most (4). One input asks for so many, the others for fewer as well.
    pub max_classes: usize,
    /// Detections above this score are kept; the model's own threshold where it is `None`.
    pub score_threshold: Option<f32>,
    /// How far a candidate may be from the reference.
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
            score_threshold: None,
            limits: Limits::default(),
        }
    }
}

/// How far a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationProgress {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// Whether the reference runs, or the candidate.
    pub reference: bool,
}

/// What is told how far a verification is, before each run; an error ends it.
pub type ReportProgress<'r> = dyn FnMut(&VerificationProgress) -> Result<()> + 'r;

/// What is compared with the reference.
#[derive(Clone, Debug)]
pub struct Candidate<'c> {
    /// Where its graphs lie.
    pub model: &'c Model,
    /// What runs them.
    pub factory: &'c EngineFactory,
    /// Which graphs are its own; the reference runs the others.
    pub graphs: Vec<ModelGraph>,
}

impl<'c> Candidate<'c> {
    /// All graphs of a model.
    pub fn of_model(model: &'c Model, factory: &'c EngineFactory) -> Self {
        Self { model, factory, graphs: ModelGraph::all_of(model.manifest()) }
    }

    /// Some graphs of a model.
    pub fn of_graphs(model: &'c Model, factory: &'c EngineFactory, graphs: &[ModelGraph]) -> Self {
        Self { model, factory, graphs: graphs.to_vec() }
    }
}

/// What a reference said of random and drawn inputs, to compare candidates with.
pub struct Verification {
    options: VerificationOptions,
    model: Model,
    factory: EngineFactory,
    inputs: Vec<Input>,
    words: Words,
    passes: Vec<Pass>,
}

impl Verification {
    /// Runs the reference, one graph after the other, so that only one is in memory at a time.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that make no sense, [`ErrorKind::Engine`] where the reference fails
    /// itself or returns numbers that are none; what `progress` returns.
    pub fn of_reference(
        model: &Model,
        factory: &EngineFactory,
        options: VerificationOptions,
        progress: &mut ReportProgress<'_>,
    ) -> Result<Self> {
        options.limits.check()?;
        if options.scenes + options.random_inputs == 0 || options.max_classes == 0 {
            let message = "verification: there is nothing to compare; name at least one scene or random input, and one \
                           class";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let graphs = ModelGraph::all_of(model.manifest());
        if let Some(graph) = options.graphs.iter().find(|graph| !graphs.contains(graph)) {
            let message = format!(
                "verification of {graph}, {}: this model has no such graph",
                model.folder().display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let inputs = inputs::make(model.manifest(), &options)?;
        let phrases: Vec<&str> = vocabulary().to_vec();
        let used = inputs.iter().flat_map(|input| &input.phrases).max().map_or(0, |last| last + 1);
        let load = |graph: ModelGraph| model.load_graph(factory, graph.file());
        let words = inputs::tokenize(model, &phrases[..used])?;
        let words = passes::encode_words(&mut *load(ModelGraph::TextEncoder)?, model.manifest(), words)?;
        let (model, factory) = (model.clone(), factory.clone());
        let mut verification = Self { options, model, factory, inputs, words, passes: Vec::new() };
        let model = &verification.model;
        let loader = Loader { manifest: model.manifest(), load: &load };
        let passes = verification.run(&loader, &verification.words, true, progress)?;
        for (input, pass) in verification.inputs.iter().zip(&passes) {
            if let Some(output) = pass.outputs().find(|output| !compare::is_finite(output.tensor)) {
                let message = format!(
                    "{}, {}, {}: the reference itself returns numbers that are none; the model is damaged",
                    model.folder().display(),
                    output.name,
                    input.name
                );
                return Err(Error::new(ErrorKind::Engine, message));
            }
        }
        verification.passes = passes;
        Ok(verification)
    }

    /// Runs a candidate over the same inputs and compares.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] where the candidate's model has other sizes, [`ErrorKind::Engine`] where it fails to run;
    /// what `progress` returns. That it differs is no error: the report says so.
    pub fn check(
        &self,
        candidate: &Candidate<'_>,
        progress: &mut ReportProgress<'_>,
    ) -> Result<VerificationReport> {
        let (ours, theirs) = (self.model.manifest(), candidate.model.manifest());
        check_sizes(ours, theirs, &self.model, candidate.model)?;
        let load = |graph: ModelGraph| match candidate.graphs.contains(&graph) {
            true => candidate.model.load_graph(candidate.factory, graph.file()),
            false => self.model.load_graph(&self.factory, graph.file()),
        };
        let own_backbone = ModelGraph::backbone_of(theirs).iter().any(|part| candidate.graphs.contains(part));
        let manifest = if own_backbone { theirs } else { ours };
        let mut comparison = OutputComparison::new(self.options.limits);
        let mut words = self.words.clone();
        if self.options.graphs.contains(&ModelGraph::TextEncoder) {
            words = passes::encode_words(&mut *load(ModelGraph::TextEncoder)?, ours, words)?;
            comparison.add("the words", &self.words.output(), &words.output());
        }
        let passes = self.run(&Loader { manifest, load: &load }, &words, false, progress)?;
        let threshold = self.options.score_threshold.unwrap_or(ours.thresholds.confidence);
        let post = PostProcessOptions { score_threshold: threshold, ..PostProcessOptions::default() };
        let mut detections = kept::KeptComparison::new(PostProcessor::new(post)?, self.options.limits);
        for (input, (expected, found)) in self.inputs.iter().zip(self.passes.iter().zip(&passes)) {
            let mut finite = true;
            for (expected, found) in expected.outputs().zip(found.outputs()) {
                finite &= comparison.add(&input.name, &expected, &found);
            }
            if finite {
                detections.add(input, &expected.heads, &found.heads)?;
            }
        }
        let (outputs, mut failures) = comparison.finish();
        let (detections, more) = detections.finish();
        failures.extend(more);
        Ok(VerificationReport {
            reference: self.factory.description(),
            candidate: candidate.factory.description(),
            graphs: candidate.graphs.clone(),
            limits: self.options.limits,
            seed: self.options.seed,
            random_inputs: self.options.random_inputs,
            scenes: self.options.scenes,
            outputs,
            detections,
            failures,
        })
    }

    /// What the reference was asked.
    pub fn options(&self) -> &VerificationOptions {
        &self.options
    }

    /// Runs all graphs over all inputs, graph by graph.
    fn run(
        &self,
        loader: &Loader<'_>,
        words: &Words,
        reference: bool,
        progress: &mut ReportProgress<'_>,
    ) -> Result<Vec<Pass>> {
        let manifest = self.model.manifest();
        let total = 2 * self.inputs.len();
        let mut done = 0;
        let mut step = || {
            let told = progress(&VerificationProgress { done, total, reference });
            done += 1;
            told
        };
        // A candidate is given its classes in chunks of several sizes; the reference in small ones, which need little
        // memory. The result does not depend on it, or the candidate is wrong.
        let chunk = |input: &Input| if reference { input.chunk.min(2) } else { input.chunk };
        let with_masks = self.options.graphs.contains(&ModelGraph::MaskHead);
        let fine = with_masks || !manifest.detection_only;
        let mut passes = Vec::new();
        {
            let parts = ModelGraph::backbone_of(loader.manifest);
            let mut engines = parts.into_iter().map(loader.load).collect::<Result<Vec<_>>>()?;
            for input in &self.inputs {
                step()?;
                let features = passes::encode(&mut engines, manifest, input, fine)?;
                passes.push(Pass { features, ..Pass::default() });
            }
        }
        if self.options.graphs.contains(&ModelGraph::ExemplarEncoder) {
            let mut engine = (loader.load)(ModelGraph::ExemplarEncoder)?;
            for pass in &mut passes {
                pass.exemplars = Some(passes::encode_exemplars(&mut *engine, &pass.features)?);
            }
        }
        {
            let mut engine = (loader.load)(ModelGraph::EncoderDecoder)?;
            for (input, pass) in self.inputs.iter().zip(&mut passes) {
                step()?;
                pass.heads =
                    passes::decode(&mut *engine, manifest, words, input, &pass.features, chunk(input))?;
            }
        }
        if with_masks {
            let mut engine = (loader.load)(ModelGraph::MaskHead)?;
            for (input, pass) in self.inputs.iter().zip(&mut passes) {
                passes::draw_masks(&mut *engine, manifest, words, input, pass)?;
            }
        }
        Ok(passes)
    }
}

/// Where the engines of a run come from.
struct Loader<'l> {
    /// Of the model whose backbone runs: it says in how many parts.
    manifest: &'l Manifest,
    load: &'l dyn Fn(ModelGraph) -> Result<Box<dyn Engine>>,
}

/// What a graph returned, by name.
struct Output<'o> {
    graph: ModelGraph,
    name: &'static str,
    tensor: &'o Tensor,
}

fn check_sizes(ours: &Manifest, theirs: &Manifest, reference: &Model, candidate: &Model) -> Result<()> {
    let sizes = |m: &Manifest| {
        [
            ("imgsz", m.imgsz),
            ("patch size", m.patch_size),
            ("width", m.model_width),
            ("queries", m.num_queries),
            ("context length", m.context_length),
        ]
    };
    for ((name, our), (_, their)) in sizes(ours).into_iter().zip(sizes(theirs)) {
        if our != their {
            let message = format!(
                "cannot compare, {} and {}: {name} is {our} in the one and {their} in the other",
                reference.folder().display(),
                candidate.folder().display()
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
    }
    if ours.prompting != theirs.prompting {
        let message = format!(
            "cannot compare, {} and {}: they were exported with different --prompt",
            reference.folder().display(),
            candidate.folder().display()
        );
        return Err(Error::new(ErrorKind::Mismatch, message));
    }
    Ok(())
}
