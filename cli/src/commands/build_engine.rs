//! `ocelli build-engine`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use ocelli::ModelSource;
use ocelli::engines::tensorrt::ComputeCapability;
use ocelli::export::contract::Precision;
use ocelli::model::ModelGraph;
use ocelli::tensorrt::PlanRequest;
use ocelli_verify::tensorrt::{BuildEvent, BuildOptions, BuiltEngine, EngineRequest};

use crate::args::{INPUT, MODEL, OUTPUT};
use crate::output::{check_outputs, conclude, write_report};
use crate::{Progress, VerificationArgs, cancel_on_interrupt, interrupted, print, status};

/// Heading of options that change the engines.
const ENGINES: &str = "Engines";

/// Arguments of `ocelli build-engine`.
#[derive(Args, Debug)]
#[command(override_usage = "\
ocelli build-engine --output <DIR> [OPTIONS]
       ocelli build-engine --verify <ENGINE> [OPTIONS]")]
#[command(after_help = include_str!("../help/build_engine.txt"))]
pub struct BuildEngineArgs {
    /// Model exported with `--target tensorrt`, or a checkpoint, which is exported into the cache [default: the built-in
    /// model]
    #[arg(long, alias = "weights", value_name = "DIR", help_heading = INPUT)]
    model: Option<PathBuf>,
    /// Verify this engine on this GPU and record the result in its sidecar, instead of building
    #[arg(long, value_name = "ENGINE", conflicts_with = "output", help_heading = INPUT)]
    verify: Option<PathBuf>,
    /// Input side in pixels, for a checkpoint or the built-in model
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = INPUT)]
    imgsz: Option<usize>,
    /// Number format, for a checkpoint or the built-in model
    #[arg(long, value_name = "FORMAT", help_heading = INPUT)]
    precision: Option<Precision>,
    /// Export what masks need, of a checkpoint or the built-in model
    #[arg(long, help_heading = INPUT)]
    masks: bool,
    /// Folder to write engines and their sidecars to
    #[arg(long, short, value_name = "DIR", required_unless_present = "verify", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Replace existing engines
    #[arg(long, help_heading = OUTPUT)]
    force: bool,
    /// Write the report of the last comparison as JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// Graphs to build: backbone, encoder_decoder, text_encoder, exemplar_encoder, mask_head [default: backbone and
    /// encoder_decoder]
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "GRAPH", help_heading = ENGINES)]
    graphs: Vec<ModelGraph>,
    /// Maximum number of classes decoded at once; fewer is faster
    #[arg(long, default_value_t = 4, value_name = "N", help_heading = ENGINES)]
    max_classes: usize,
    /// Maximum number of exemplars per class
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = ENGINES)]
    max_exemplars: usize,
    /// Compute capabilities to build for, e.g. 8.9 [default: this GPU's]
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "SM", help_heading = ENGINES)]
    target_sm: Vec<ComputeCapability>,
    /// TensorRT timing cache, read and written, for faster builds
    #[arg(long, value_name = "FILE", help_heading = ENGINES)]
    timing_cache: Option<PathBuf>,
    /// Maximum GPU memory of one layer [default: all]
    #[arg(long, value_name = "GB", help_heading = ENGINES)]
    workspace: Option<f64>,
    /// Build engines that later TensorRT versions run
    #[arg(long, help_heading = ENGINES)]
    version_compatible: bool,
    /// Build engines that later GPU generations run; slower
    #[arg(long, help_heading = ENGINES)]
    hardware_compatible: bool,
    /// Exported fp32 model to compare the engines with [default: the graphs they are built from]
    #[arg(long, value_name = "DIR", help_heading = "Comparison")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    verification: VerificationArgs,
    /// TensorRT library or its folder [default: searched]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    tensorrt: Option<PathBuf>,
    /// ONNX Runtime library, for the reference [default: searched]
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    onnxruntime: Option<PathBuf>,
    /// CPU threads of the reference [default: one per physical core]
    #[arg(long, value_name = "N", help_heading = MODEL)]
    threads: Option<usize>,
}

/// Builds engines, or verifies one.
pub fn run(args: &BuildEngineArgs) -> anyhow::Result<()> {
    let mut verification = args.verification.options()?;
    verification.max_classes = args.max_classes;
    check_outputs([("--json", args.json.as_deref())])?;
    let cancellation = cancel_on_interrupt();
    let progress = Progress::new(100);
    let request = EngineRequest {
        source: args.model.as_ref().map(ModelSource::named),
        imgsz: args.imgsz,
        precision: args.precision,
        masks: args.masks,
        reference: args.reference.clone(),
        tensorrt: args.tensorrt.clone(),
        onnxruntime: args.onnxruntime.clone(),
        threads: args.threads,
        build: BuildOptions {
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
        },
    };
    let announce = |line: &str| progress.announce(line);
    if let Some(engine) = &args.verify {
        let report = request.verify(engine, &cancellation, &announce, &mut |step| progress.compare(step));
        drop(progress);
        interrupted()?;
        let what = format!("engine {}", engine.display());
        return conclude(&report?, args.json.as_deref(), &what, "; it does not run");
    }
    let Some(output) = &args.output else {
        refuse!("--output is missing: expected a folder for the engines");
    };
    let start = Instant::now();
    let mut last_report = None;
    let built = request.build(output, &cancellation, &announce, &mut |event| {
        if let BuildEvent::Verified { report, .. } = event {
            last_report = Some((*report).clone());
        }
        show(&progress, event);
    });
    drop(progress);
    interrupted()?;
    if let (Some(path), Some(report)) = (&args.json, &last_report) {
        write_report(path, report)?;
    }
    let built = built?;
    print(|out| {
        for engine in &built {
            let BuiltEngine { path, sidecar, report, .. } = engine;
            let verdict = report
                .as_ref()
                .map_or("not verified on a GPU".into(), ocelli_verify::VerificationReport::verdict);
            writeln!(out, "{}  {:.1} MB  {verdict}", path.display(), sidecar.engine.bytes as f64 / 1e6)?;
        }
        let unverified = built.iter().find(|engine| engine.report.is_none());
        if let Some(BuiltEngine { path, sidecar, .. }) = unverified {
            writeln!(
                out,
                "built for compute capability {}, which this machine lacks: run `ocelli build-engine --verify {}` on that \
                 GPU before use",
                sidecar.compute_capability.join(", "),
                path.display()
            )?;
        }
        writeln!(out, "{} in {:.1} s", output.display(), start.elapsed().as_secs_f64())
    })?;
    if built.iter().all(|engine| engine.report.is_some()) {
        status(format!("use them with: {}", usage_example(&built)));
    }
    Ok(())
}

/// A command that runs the engines.
fn usage_example(built: &[BuiltEngine]) -> String {
    let mut command = String::from("ocelli detect");
    for engine in built {
        let flag = match engine.graph {
            ModelGraph::Backbone | ModelGraph::BackboneFirst => "--trt",
            ModelGraph::EncoderDecoder => "--trt-enc-dec",
            _ => continue,
        };
        command.push_str(&format!(" {flag} {}", engine.path.display()));
    }
    command
}

fn workspace_bytes(gigabytes: f64) -> anyhow::Result<u64> {
    if !(gigabytes > 0.0 && gigabytes <= 1e6) {
        refuse!("--workspace is {gigabytes}: expected a positive number of gigabytes");
    }
    Ok((gigabytes * 1e9) as u64)
}

fn show(progress: &Progress, event: &BuildEvent<'_>) {
    match event {
        // Phases are nested; the outermost ones measure the whole build.
        BuildEvent::Building { graph, step } if step.depth == 0 => {
            progress.at(&format!("building {graph}: {}", step.phase), step.step as u64, step.steps as u64);
        }
        BuildEvent::Built { graph, bytes, seconds } => {
            progress.status(&format!("{graph}: built in {seconds:.1} s, {:.1} MB", *bytes as f64 / 1e6));
        }
        BuildEvent::Verifying { graph, progress: step } => {
            let message = match graph {
                None => "running the model on the CPU".into(),
                Some(graph) => format!("comparing engine {graph}"),
            };
            progress.at(&message, step.done as u64, step.total as u64);
        }
        BuildEvent::Verified { graph, report } if !report.accepted() => {
            progress.suspend(|| {
                let printed = print(|out| {
                    writeln!(out, "{graph}")?;
                    report.write_table(out)
                });
                // The error repeats the verdict if the table cannot be printed.
                drop(printed);
            });
        }
        _ => {}
    }
}
