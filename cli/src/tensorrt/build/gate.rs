//! The numeric gate in front of engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::tensorrt::DimensionRange;
use ocelli_export::contract::{FileEntry, Prompting, dim, tensor};

use super::{describe, sha256_of};
use ocelli::EngineFactory;
use ocelli::Model;
use ocelli::ModelGraph;
use ocelli::tensorrt::TensorRtBackend;
use ocelli::tensorrt::check;
use ocelli::tensorrt::dart::name;
use ocelli::tensorrt::fit::fit;
use ocelli::tensorrt::{EngineLayout, Sidecar};
use ocelli::{Error, ErrorKind, Result};
use ocelli_datasets::verify::{
    Candidate, ReportProgress, Verification, VerificationOptions, VerificationReport,
};

/// Compares engines in files with what the reference said.
pub(super) fn judge(
    verification: &Verification,
    model: &Model,
    backend: &Arc<dyn TensorRtBackend>,
    engines: Vec<(ModelGraph, PathBuf)>,
    progress: &mut ReportProgress<'_>,
) -> Result<VerificationReport> {
    let graphs: Vec<ModelGraph> = engines.iter().map(|(graph, _)| *graph).collect();
    let description = match (backend.library(), backend.gpu()) {
        (Ok(library), Ok(gpu)) => format!("{library} on {}", gpu.name),
        _ => "TensorRT".into(),
    };
    let factory = {
        let (backend, model) = (Arc::clone(backend), model.clone());
        EngineFactory::custom(description, move |graph| {
            let file = graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let found = engines.iter().find(|(graph, _)| graph.file() == file);
            let (graph, path) = found.expect("only its own graphs are asked of a candidate");
            Ok(fit(backend.load(path, Some(*graph))?, *graph, model.manifest(), path)?.engine)
        })
    };
    verification.check(&Candidate { model, factory: &factory, graphs }, progress)
}

/// The error for an engine that was refused.
pub(super) fn refusal(path: &Path, report: &VerificationReport, consequence: &str) -> Error {
    let message = format!(
        "engine {}: {}; {consequence}: its numbers are not those of the ONNX file; with half precision, export more of the \
         model in 32 bits (--mixed-precision) and build again",
        path.display(),
        report.verdict()
    );
    Error::new(ErrorKind::Mismatch, message)
}

/// Which graph an engine without a sidecar is.
fn graph_of(spec: &ocelli_engines::EngineSpec) -> ModelGraph {
    let decodes = [name::TEXT, tensor::PROMPT_FEATURES].iter().any(|name| spec.input(name).is_some());
    if decodes { ModelGraph::EncoderDecoder } else { ModelGraph::Backbone }
}

/// Compares an engine that is there with the model that it was built from, or with the same in other numbers, and writes
/// what came of it into its sidecar, which is made where there is none. An engine that is refused does not run any more.
///
/// # Errors
/// [`ErrorKind::Mismatch`] where the engine does not belong to the model, to this GPU or to this TensorRT;
/// [`ErrorKind::Unavailable`] where there is no TensorRT or no GPU. A refusal is no error: the report says so.
pub fn verify_engine(
    path: &Path,
    model: &Model,
    backend: &Arc<dyn TensorRtBackend>,
    (reference_model, reference): (&Model, &EngineFactory),
    options: VerificationOptions,
    progress: &mut ReportProgress<'_>,
) -> Result<VerificationReport> {
    check::check_file(path, None)?;
    let sidecar = Sidecar::read(path)?;
    check::check_file(path, sidecar.as_ref())?;
    if let Some(sidecar) = &sidecar {
        check::check_model(path, sidecar, model)?;
    }
    let library = backend.library()?;
    if let Some(sidecar) = &sidecar {
        check::check_library(path, sidecar, &library)?;
    }
    let gpu = backend.gpu()?;
    let mut sidecar = match sidecar {
        Some(sidecar) => {
            check::check_gpu(path, &sidecar, &gpu)?;
            sidecar
        }
        None => {
            let engine = backend.load(path, None)?;
            let graph = graph_of(engine.spec());
            let fitted = fit(engine, graph, model.manifest(), path)?;
            let bytes = path.metadata().map_err(|e| Error::io("cannot read", path, e))?.len();
            let entry = FileEntry { sha256: sha256_of(path)?, bytes };
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
            // Words alone, and nothing for masks.
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
    let mut options = options;
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
    let report = judge(&verification, &model, backend, vec![(graph, path.to_owned())], progress)?;
    sidecar.gpu = Some(gpu.name);
    sidecar.verified = report.accepted().then(|| report.summary());
    sidecar.write(path)?;
    Ok(report)
}
