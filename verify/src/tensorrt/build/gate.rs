//! The numeric gate that engines pass before they run.

use std::path::{Path, PathBuf};

use ocelli_engines::tensorrt::DimensionRange;
use ocelli_export::contract::{Prompting, dim, tensor};

use super::describe;
use crate::{Candidate, ReportProgress, Verification, VerificationOptions, VerificationReport};
use ocelli::engine::EngineFactory;
use ocelli::model::ModelGraph;
use ocelli::tensorrt::dart::name;
use ocelli::tensorrt::fit::fit;
use ocelli::tensorrt::{EngineLayout, NativeTensorRt, Sidecar, check};
use ocelli::{Error, Model, Result};

/// Compares engines with the reference.
pub(super) fn judge(
    verification: &Verification,
    model: &Model,
    tensorrt: &NativeTensorRt,
    engines: Vec<(ModelGraph, PathBuf)>,
    progress: &mut ReportProgress<'_>,
) -> Result<VerificationReport> {
    let graphs: Vec<ModelGraph> = engines.iter().map(|(graph, _)| *graph).collect();
    let rest = EngineFactory::custom("nothing", |graph| {
        Err(Error::mismatch("the candidate has no engine for it").at(graph))
    });
    let factory = tensorrt.factory(model, engines, rest)?;
    verification.check(&Candidate { model, factory: &factory, graphs }, progress)
}

/// The error for an engine that was refused.
pub(super) fn refusal(path: &Path, report: &VerificationReport, consequence: &str) -> Error {
    Error::mismatch(format!(
        "engine {}: {}; {consequence}, because its results differ from those of the ONNX file; in half precision, keep more of \
         the model in 32 bits (mixed_precision) and build again",
        path.display(),
        report.verdict()
    ))
}

/// The graph of an engine without a sidecar.
fn graph_of(spec: &ocelli_engines::EngineSpec) -> ModelGraph {
    let decodes = [name::TEXT, tensor::PROMPT_FEATURES].iter().any(|name| spec.input(name).is_some());
    if decodes { ModelGraph::EncoderDecoder } else { ModelGraph::Backbone }
}

/// Compares an existing engine with the model that it was built from, or the same model in another precision, and writes the
/// verdict into its sidecar, which is created if it is missing. A refused engine does not run any more.
///
/// # Errors
/// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if the engine does not belong to the model, to this GPU or to this
/// TensorRT;
/// [`ErrorKind::Unavailable`](ocelli::ErrorKind::Unavailable) without TensorRT or a GPU. A refusal is not an error; the
/// report has it.
pub fn verify_engine(
    path: &Path,
    model: &Model,
    tensorrt: &NativeTensorRt,
    (reference_model, reference): (&Model, &EngineFactory),
    mut options: VerificationOptions,
    progress: &mut ReportProgress<'_>,
) -> Result<VerificationReport> {
    check::check_file(path, None)?;
    let sidecar = Sidecar::read(path)?;
    check::check_file(path, sidecar.as_ref())?;
    if let Some(sidecar) = &sidecar {
        check::check_model(path, sidecar, model)?;
    }
    let library = tensorrt.library()?;
    if let Some(sidecar) = &sidecar {
        check::check_library(path, sidecar, &library)?;
    }
    let gpu = tensorrt.gpu()?;
    let mut sidecar = match sidecar {
        Some(sidecar) => {
            check::check_gpu(path, &sidecar, &gpu)?;
            sidecar
        }
        None => {
            let engine = tensorrt.load(path, None)?;
            let graph = graph_of(engine.spec());
            let fitted = fit(engine, graph, model.manifest(), path)?;
            let entry = Sidecar::entry_of(path)?;
            let dimensions = fitted
                .max_classes
                .map(|max| (dim::CLASSES.to_owned(), DimensionRange { min: 1, optimal: max, max }));
            let mut sidecar = describe(model, graph, entry, &library, dimensions.into_iter().collect())?;
            sidecar.layout = if fitted.of_dart { EngineLayout::Dart } else { EngineLayout::Ocelli };
            sidecar.compute_capability = vec![gpu.compute_capability.to_string()];
            sidecar
        }
    };
    let graph = sidecar.graph;
    let as_engine = |model: &Model| {
        let model = model.clone();
        match sidecar.layout {
            EngineLayout::Ocelli => model,
            // Text prompts only, and nothing for masks.
            EngineLayout::Dart => model.with_manifest(|manifest| {
                manifest.prompting = Prompting::Text;
                manifest.detection_only = true;
            }),
        }
    };
    let reference_model = as_engine(reference_model);
    let mut model = as_engine(model);
    if sidecar.layout == EngineLayout::Dart && graph == ModelGraph::Backbone {
        model = model.with_manifest(|manifest| manifest.split_block = None);
    }
    if let Some(max) = sidecar.max_classes() {
        options.max_classes = options.max_classes.min(max);
    }
    let other = match graph {
        ModelGraph::BackboneFirst => Some(ModelGraph::BackboneSecond),
        ModelGraph::BackboneSecond => Some(ModelGraph::BackboneFirst),
        _ => None,
    };
    // Half a backbone runs with the ONNX file of the other half.
    options.graphs = if sidecar.layout == EngineLayout::Dart { Vec::new() } else { vec![graph] };
    options.graphs.extend(other);
    let verification = Verification::of_reference(&reference_model, reference, options, progress)?;
    let report = judge(&verification, &model, tensorrt, vec![(graph, path.to_owned())], progress)?;
    sidecar.gpu = Some(gpu.name);
    sidecar.verified = report.accepted().then(|| report.summary());
    sidecar.write(path)?;
    Ok(report)
}
