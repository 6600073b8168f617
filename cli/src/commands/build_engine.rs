//! `ocelli build-engine`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::tensorrt::{BuildEvent, BuildOptions, BuiltEngine, EngineBuild, verify_engine};
use crate::{
    LogArgs, Progress, VerificationArgs, cancel_on_interrupt, check_output_file, interrupted, print, say,
    usage,
};
use clap::Args;
use ocelli::engines::tensorrt::ComputeCapability;
use ocelli::export::contract::{Precision, Target};
use ocelli::tensorrt::{NativeTensorRt, PlanRequest, Sidecar};
use ocelli::{
    Cancellation, EngineFactory, EngineKind, EngineOptions, Error, ErrorKind, Model, ModelGraph,
    ModelRequest, ModelSource,
};

use super::verify::{tell, write_json};

/// Arguments of `ocelli build-engine`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  ocelli export --checkpoint sam3/ --target tensorrt --precision fp16 --output sam3-trt/\n  \
                        ocelli build-engine --model sam3-trt/ --output engines/ --max-classes 8\n  \
                        demo-video --trt engines/backbone.engine --trt-enc-dec engines/encoder_decoder.engine \
                        --video street.mp4 --classes person car"
)]
pub struct BuildEngineArgs {
    /// A model exported with `--target tensorrt`, or a checkpoint, which is exported so into the cache [default: the
    /// built-in model]
    #[arg(long, alias = "weights", value_name = "DIR")]
    model: Option<PathBuf>,
    /// The folder that engines and their sidecars are written to
    #[arg(long, short, value_name = "DIR", required_unless_present = "verify")]
    output: Option<PathBuf>,
    /// Build nothing: compare this engine with its model on the GPU that is here, and say so in its sidecar
    #[arg(long, value_name = "ENGINE", conflicts_with = "output")]
    verify: Option<PathBuf>,
    /// Graphs to build: backbone, encoder_decoder, text_encoder, exemplar_encoder, mask_head [default: backbone and
    /// encoder_decoder]
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "GRAPH")]
    graphs: Vec<ModelGraph>,
    /// Classes that are decoded at once at most; fewer cost less
    #[arg(long, default_value_t = 4, allow_negative_numbers = true, value_name = "N")]
    max_classes: usize,
    /// Examples of one class at most
    #[arg(long, default_value_t = 8, allow_negative_numbers = true, value_name = "N")]
    max_exemplars: usize,
    /// Generations of GPUs to build for, as 8.9; they need not be here [default: the GPU that is here]
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "SM")]
    target_sm: Vec<ComputeCapability>,
    /// A file of measured times, read and written: the next build is quicker
    #[arg(long, value_name = "FILE")]
    timing_cache: Option<PathBuf>,
    /// Memory of the GPU that one layer may use [default: all of it]
    #[arg(long, allow_negative_numbers = true, value_name = "GB")]
    workspace: Option<f64>,
    /// Let later versions of TensorRT run the engines
    #[arg(long)]
    version_compatible: bool,
    /// Let later generations of GPUs run the engines; slower
    #[arg(long)]
    hardware_compatible: bool,
    /// Replace engines that are there already
    #[arg(long)]
    force: bool,
    /// Side of the square input in pixels, for a checkpoint or the built-in model
    #[arg(long, alias = "img-size", allow_negative_numbers = true, value_name = "PIXELS")]
    imgsz: Option<usize>,
    /// Number format of the large matrix products, for a checkpoint or the built-in model
    #[arg(long, value_name = "FORMAT")]
    precision: Option<Precision>,
    /// Keep what masks need, of a checkpoint or the built-in model
    #[arg(long)]
    masks: bool,
    /// The exported model that engines are compared with: the same in 32 bits, for number formats that the processor does
    /// not compute in [default: the ONNX files that they are built from]
    #[arg(long, value_name = "DIR")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    verification: VerificationArgs,
    /// Write what the last comparison found as JSON to this file, a refusal as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// TensorRT's library, or the folder that it is in [default: searched for]
    #[arg(long, value_name = "PATH")]
    tensorrt: Option<PathBuf>,
    /// ONNX Runtime's library, which runs the reference [default: searched for]
    #[arg(long, value_name = "FILE")]
    onnxruntime: Option<PathBuf>,
    /// Threads that run the reference [default: one for each physical core]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    threads: Option<usize>,
}

/// Builds engines, or verifies one.
pub fn run(args: &BuildEngineArgs, log: &LogArgs) -> anyhow::Result<()> {
    let mut verification = args.verification.options()?;
    verification.max_classes = args.max_classes;
    if let Some(path) = &args.json {
        check_output_file("--json", path)?;
    }
    let purpose = match &args.verify {
        Some(engine) => format!("cannot verify the engine, {}", engine.display()),
        None => "cannot build engines".into(),
    };
    let tensorrt = NativeTensorRt::new(&purpose, args.tensorrt.as_deref())?;
    let reference = EngineFactory::start(&EngineOptions {
        kind: EngineKind::Cpu,
        threads: args.threads,
        onnxruntime: args.onnxruntime.clone(),
        ..EngineOptions::default()
    })?;
    let cancellation = Cancellation::new();
    cancel_on_interrupt(&cancellation);
    let progress = Progress::new(log, 100);
    let source = model_source(args)?;
    let request = ModelRequest {
        source,
        imgsz: args.imgsz,
        precision: args.precision,
        target: Target::TensorRt,
        masks: args.masks,
    };
    let model = Model::resolve(&request, &|line| progress.announce(line), &cancellation)?;
    let reference_model = match (&args.reference, request.precision) {
        (Some(folder), _) => Model::open(folder)?,
        // The processor does not compute in bfloat16.
        (None, Some(Precision::Bf16)) if model.folder() != args.model.as_deref().unwrap_or(Path::new("")) => {
            let request = ModelRequest { precision: Some(Precision::Fp32), ..request };
            Model::resolve(&request, &|line| progress.announce(line), &cancellation)?
        }
        _ => model.clone(),
    };
    if let Some(engine) = &args.verify {
        let reference = (&reference_model, &reference);
        let report = verify_engine(engine, &model, &tensorrt, reference, verification, &mut |step| {
            tell(&progress, step, &cancellation)
        });
        drop(progress);
        interrupted()?;
        let report = report?;
        print(|out| report.write_table(out))?;
        if let Some(path) = &args.json {
            write_json(path, &report)?;
        }
        if report.accepted() {
            return Ok(());
        }
        let message = format!("engine {}: {}; it does not run", engine.display(), report.verdict());
        return Err(Error::new(ErrorKind::Mismatch, message).into());
    }
    let options = BuildOptions {
        graphs: args.graphs.clone(),
        max_classes: args.max_classes,
        max_exemplars: args.max_exemplars,
        plan: PlanRequest {
            targets: args.target_sm.clone(),
            workspace_bytes: args.workspace.map(workspace_bytes).transpose()?,
            timing_cache: args.timing_cache.clone(),
            version_compatible: args.version_compatible,
            hardware_compatible: args.hardware_compatible,
            ..PlanRequest::default()
        },
        force: args.force,
        verification,
    };
    let output = args.output.as_deref().ok_or_else(|| usage("--output: name the folder for the engines"))?;
    let start = Instant::now();
    let build = EngineBuild::new(&model, &tensorrt, &reference, options)
        .with_reference_model(&reference_model)
        .with_cancellation(cancellation);
    let mut judged = None;
    let built = build.run(output, &mut |event| {
        if let BuildEvent::Verified { report, .. } = event {
            judged = Some((*report).clone());
        }
        show(&progress, event);
    });
    drop(progress);
    interrupted()?;
    if let (Some(path), Some(report)) = (&args.json, &judged) {
        write_json(path, report)?;
    }
    let built = built?;
    print(|out| {
        for engine in &built {
            let BuiltEngine { path, sidecar, report, .. } = engine;
            let verdict = report
                .as_ref()
                .map_or("not verified on a GPU".into(), ocelli_datasets::verify::VerificationReport::verdict);
            writeln!(out, "{}  {:.1} MB  {verdict}", path.display(), sidecar.engine.bytes as f64 / 1e6)?;
        }
        let elsewhere = built.iter().find(|engine| engine.report.is_none());
        if let Some(BuiltEngine { path, sidecar, .. }) = elsewhere {
            writeln!(
                out,
                "for compute capability {}, which is not here: before they run there, `ocelli build-engine --verify {}` \
                 has to accept them",
                sidecar.compute_capability.join(", "),
                path.display()
            )?;
        }
        writeln!(out, "{} in {:.1} s", output.display(), start.elapsed().as_secs_f64())
    })?;
    if built.iter().all(|engine| engine.report.is_some()) {
        say(log, &format!("use them with:{}", flags(&built)));
    }
    Ok(())
}

/// The arguments that run the engines.
fn flags(built: &[BuiltEngine]) -> String {
    let mut flags = String::from(" demo-image");
    for engine in built {
        let flag = match engine.graph {
            ModelGraph::Backbone | ModelGraph::BackboneFirst => "--trt",
            ModelGraph::EncoderDecoder => "--trt-enc-dec",
            _ => continue,
        };
        flags.push_str(&format!(" {flag} {}", engine.path.display()));
    }
    flags
}

/// The model: the one that is named, or that of the engine's sidecar.
fn model_source(args: &BuildEngineArgs) -> anyhow::Result<ModelSource> {
    if let Some(folder) = &args.model {
        return Ok(ModelSource::Folder(folder.clone()));
    }
    let Some(engine) = &args.verify else { return Ok(ModelSource::Builtin) };
    if !engine.is_file() {
        let message = format!("no engine, {}: no such file", engine.display());
        return Err(Error::new(ErrorKind::Io, message).into());
    }
    match Sidecar::read(engine)? {
        Some(sidecar) => Ok(ModelSource::Folder(sidecar.model)),
        None => Err(usage(format!(
            "--verify {}: it has no sidecar ({}) that says which model it is of; name it with --model",
            engine.display(),
            Sidecar::path_of(engine).display()
        ))),
    }
}

fn workspace_bytes(gigabytes: f64) -> anyhow::Result<u64> {
    if !(gigabytes > 0.0 && gigabytes <= 1e6) {
        return Err(usage(format!("--workspace is {gigabytes}: expected gigabytes, above 0")));
    }
    Ok((gigabytes * 1e9) as u64)
}

fn show(progress: &Progress, event: &BuildEvent<'_>) {
    match event {
        // Phases lie within each other; the outermost tell how far the whole is.
        BuildEvent::Building { graph, step } if step.depth == 0 => {
            progress.at(&format!("building {graph}: {}", step.phase), step.step as u64, step.steps as u64);
        }
        BuildEvent::Built { graph, bytes, seconds } => {
            progress.say(&format!("{graph}: built in {seconds:.1} s, {:.1} MB", *bytes as f64 / 1e6));
        }
        BuildEvent::Verifying { graph, progress: step } => {
            let message = match graph {
                None => "running the model on the processor".into(),
                Some(graph) => format!("comparing the engine of {graph}"),
            };
            progress.at(&message, step.done as u64, step.total as u64);
        }
        BuildEvent::Verified { graph, report } if !report.accepted() => {
            progress.suspend(|| {
                let told = print(|out| {
                    writeln!(out, "{graph}")?;
                    report.write_table(out)
                });
                // That the table cannot be written is nothing beside what it says, which the error repeats.
                drop(told);
            });
        }
        _ => {}
    }
}
