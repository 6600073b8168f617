//! `ocelli verify`.

use std::path::PathBuf;

use clap::Args;
use ocelli::{ModelSource, engine::EngineOptions, model::ModelGraph};
use ocelli_verify::{VerificationOptions, VerificationRequest};

use crate::args::{INPUT, MODEL, OUTPUT};
use crate::output::{check_outputs, conclude};
use crate::{Progress, VerificationArgs, cancel_on_interrupt, interrupted};

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
pub fn run(args: &VerifyArgs) -> anyhow::Result<()> {
    let options = VerificationOptions {
        max_classes: args.max_classes,
        graphs: args.graphs.clone(),
        ..args.verification.options()?
    };
    check_outputs([("--json", args.json.as_deref())])?;
    let engine = EngineOptions {
        kind: args.engine.parse()?,
        threads: args.threads,
        onnxruntime: args.onnxruntime.clone(),
        openvino: args.openvino.clone(),
        webgpu: args.webgpu.clone(),
        allow_inexact: args.allow_inexact,
        ..EngineOptions::default()
    };
    let request = VerificationRequest {
        model: args.model.as_ref().map_or(ModelSource::Builtin, ModelSource::named),
        candidate: args.candidate.as_ref().map(ModelSource::named),
        engine,
        options,
    };
    let cancellation = cancel_on_interrupt();
    let progress = Progress::new(100);
    let report =
        request.run(&cancellation, &|line| progress.announce(line), &mut |step| progress.compare(step));
    drop(progress);
    interrupted()?;
    let compared = args.candidate.as_ref().or(args.model.as_ref());
    let name = compared.map_or("built-in".into(), |path| path.display().to_string());
    conclude(&report?, args.json.as_deref(), &format!("candidate {name}"), "")
}
