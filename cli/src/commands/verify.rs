//! `ocelli verify`.

use std::path::PathBuf;

use clap::Args;
use ocelli::{
    EngineKind, Model, ModelSource,
    engine::{EngineFactory, EngineOptions},
    model::{ModelGraph, ModelRequest},
};
use ocelli_verify::{Candidate, Verification, VerificationProgress};

use crate::args::{INPUT, MODEL, OUTPUT};
use crate::output::{check_outputs, conclude};
use crate::{LogArgs, Progress, VerificationArgs, cancel_on_interrupt, interrupted, usage};

/// Arguments of `ocelli verify`.
#[derive(Args, Debug)]
#[command(override_usage = "ocelli verify [--model <DIR>] [--candidate <DIR>] [OPTIONS]")]
#[command(after_help = include_str!("../help/verify.txt"))]
pub struct VerifyArgs {
    /// Reference: an exported model or a checkpoint [default: the built-in model]
    #[arg(long, alias = "reference", value_name = "DIR", help_heading = INPUT)]
    model: Option<PathBuf>,
    /// Exported model to compare with it, of the same sizes [default: the reference, to compare engines]
    #[arg(long, value_name = "DIR", help_heading = INPUT)]
    candidate: Option<PathBuf>,
    /// Engine of the candidate; the reference runs on cpu
    #[arg(long, alias = "device", default_value = "cpu", value_name = "NAME", help_heading = MODEL)]
    engine: String,
    /// Graphs of the candidate to run in place of the reference's [default: all that both have]
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "GRAPH", help_heading = INPUT)]
    graphs: Vec<ModelGraph>,
    /// Maximum number of classes the candidate decodes at once
    #[arg(long, default_value_t = 4, value_name = "N", help_heading = MODEL)]
    max_classes: usize,
    #[command(flatten)]
    verification: VerificationArgs,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// ONNX Runtime library [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    onnxruntime: Option<PathBuf>,
    /// OpenVINO library or its folder [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    openvino: Option<PathBuf>,
    /// Library of ONNX Runtime's WebGPU provider or its folder [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    webgpu: Option<PathBuf>,
    /// Use a WebGPU adapter that computes wrongly, with a warning [default: fail]
    #[arg(long, help_heading = MODEL)]
    allow_inexact: bool,
    /// CPU threads [default: one per physical core]
    #[arg(long, value_name = "N", help_heading = MODEL)]
    threads: Option<usize>,
}

/// Compares the models; fails if the candidate is refused.
pub fn run(args: &VerifyArgs, log: &LogArgs) -> anyhow::Result<()> {
    let mut options = args.verification.options()?;
    options.max_classes = args.max_classes;
    check_outputs([("--json", args.json.as_deref())])?;
    let kind: EngineKind = args.engine.parse()?;
    let cancellation = cancel_on_interrupt();
    let engine = |kind, source: &ModelSource| {
        let options = EngineOptions {
            kind,
            threads: args.threads,
            onnxruntime: args.onnxruntime.clone(),
            openvino: args.openvino.clone(),
            webgpu: args.webgpu.clone(),
            allow_inexact: args.allow_inexact,
            ..EngineOptions::default()
        };
        EngineFactory::start_for_model(&options, source)
    };
    let source = |folder: Option<&PathBuf>| folder.map_or(ModelSource::Builtin, ModelSource::named);
    let compared = args.candidate.as_ref().or(args.model.as_ref());
    let (reference, candidate) = (source(args.model.as_ref()), source(compared));
    let (reference_engine, candidate_engine) =
        (engine(EngineKind::Cpu, &reference)?, engine(kind, &candidate)?);
    let progress = Progress::new(log, 100);
    let resolve = |source, engine: &EngineFactory| {
        let request = ModelRequest { source, target: engine.target(None), ..ModelRequest::default() };
        Model::resolve(&request, &|line| progress.announce(line), &cancellation)
    };
    let reference = resolve(reference, &reference_engine)?;
    let candidate = resolve(candidate, &candidate_engine)?;
    let graphs = graphs(&args.graphs, &reference, &candidate)?;
    // Without inputs, the comparison says so.
    if options.scenes + options.random_inputs > 0
        && reference.manifest() == candidate.manifest()
        && reference_engine.description() == candidate_engine.description()
    {
        refuse!(
            "the candidate is the reference, on the same engine ({}): name another model with --candidate, or another \
             --engine",
            candidate_engine.description()
        );
    }
    options.graphs.clone_from(&graphs);
    let mut on_progress = |step: &VerificationProgress| progress.compare(step);
    let verification = Verification::of_reference(&reference, &reference_engine, options, &mut on_progress)?;
    let candidate = Candidate { model: &candidate, factory: &candidate_engine, graphs };
    let report = verification.check(&candidate, &mut on_progress);
    drop(progress);
    interrupted()?;
    let name = compared.map_or("built-in".into(), |path| path.display().to_string());
    conclude(&report?, args.json.as_deref(), &format!("candidate {name}"), "")
}

/// The graphs that both models have, or those of `--graphs`.
fn graphs(requested: &[ModelGraph], reference: &Model, candidate: &Model) -> anyhow::Result<Vec<ModelGraph>> {
    // A backbone may be one graph or two.
    let of = |model: &Model, graph: ModelGraph| {
        let parts = ModelGraph::backbone_of(model.manifest());
        if graph.is_backbone() { parts } else { vec![graph] }
    };
    let shared: Vec<ModelGraph> = ModelGraph::all_of(candidate.manifest())
        .into_iter()
        .filter(|graph| of(reference, *graph).iter().all(|part| reference.file(part.file()).is_file()))
        .collect();
    if requested.is_empty() {
        return Ok(shared);
    }
    let wanted: Vec<_> = requested.iter().flat_map(|graph| of(candidate, *graph)).collect();
    match wanted.iter().find(|graph| !shared.contains(graph)) {
        None => Ok(wanted),
        Some(graph) => {
            let names: Vec<_> = shared.iter().map(|graph| graph.name()).collect();
            Err(usage(format!("--graphs {graph}: not in both models; they share {}", names.join(", "))))
        }
    }
}
