//! `ocelli prune`.

use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::atomic_file::write_atomically;
use ocelli::engine::{EngineFactory, EngineOptions};
use ocelli::export::{Checkpoint, ExportOptions, Pruning};
use ocelli::{Model, ModelSource, Prompts};
use ocelli_verify::prune::{PruneInput, PruneOptions, PruneReport, PruneStep, Unit, search};

use super::export::{export_files, local_checkpoint};
use crate::args::{DETECTION, INPUT, MODEL, OUTPUT, PERFORMANCE, check_confidence, folder_of};
use crate::interrupt::unless_interrupted;
use crate::loading::resolved;
use crate::output::write_pretty_json;
use crate::{Progress, check_output_file, class_names, expand_images, interrupted, print, status};

/// Heading of options of the search.
const SEARCH: &str = "Search";

/// Arguments of `ocelli prune`.
#[derive(Args, Debug)]
#[command(override_usage = "ocelli prune --model <PATH> --images <DIR> --classes <PHRASE> [OPTIONS]")]
#[command(after_help = include_str!("../help/prune.txt"))]
pub struct PruneArgs {
    /// Checkpoint: a Hugging Face folder, a file such as sam3.pt, or built-in
    #[arg(long, alias = "checkpoint", alias = "weights", value_name = "PATH", help_heading = INPUT)]
    model: PathBuf,
    /// Folder of images like those that the model is for; files and patterns work as well
    #[arg(long, required = true, num_args = 1.., value_name = "DIR", help_heading = INPUT)]
    images: Vec<PathBuf>,
    /// Use at most N images, evenly spaced in the sorted folder
    #[arg(long, default_value_t = 32, value_name = "N", help_heading = INPUT)]
    max_images: usize,
    /// What is searched for in every image: phrases or files that list them
    #[arg(
        long,
        alias = "class",
        alias = "prompt",
        num_args = 1..,
        required = true,
        value_name = "PHRASE",
        help_heading = DETECTION
    )]
    classes: Vec<String>,
    /// Count detections with a higher score, 0 to 1 [default: the model's]
    #[arg(long, alias = "conf", value_name = "SCORE", help_heading = DETECTION)]
    confidence: Option<f32>,
    /// How many branches, or blocks, are removed
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = SEARCH)]
    num_prune: usize,
    /// Remove whole blocks instead of branches
    #[arg(long, help_heading = SEARCH)]
    whole_blocks: bool,
    /// Blocks and branches that stay, e.g. 0,31 or 3:attn [default: those with attention over the whole image, which always
    /// stay]
    #[arg(long, num_args = 1.., value_delimiter = ',', value_name = "BLOCKS", help_heading = SEARCH)]
    protect: Vec<Unit>,
    /// Measure candidates as if nothing were known from fewer removals: slower, seldom with another result
    #[arg(long, help_heading = SEARCH)]
    exhaustive: bool,
    /// Report as JSON; the measurements are written beside it
    #[arg(long, short, default_value = "prune.json", value_name = "FILE", help_heading = OUTPUT)]
    output: PathBuf,
    /// Export the pruned model to this folder
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    export: Option<PathBuf>,
    /// Memory for tokens of images that are kept, in GiB: with less, more is computed
    #[arg(long, default_value_t = 4.0, value_name = "GIB", help_heading = PERFORMANCE)]
    memory: f64,
    /// Engine: auto, embedded, openvino, onnxruntime, cuda or webgpu
    #[arg(long, alias = "device", default_value = "auto", value_name = "NAME", help_heading = MODEL)]
    engine: String,
    /// Side of the model's square input in pixels [default: the model's]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = MODEL)]
    imgsz: Option<usize>,
    /// ONNX Runtime library [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    onnxruntime: Option<PathBuf>,
    /// OpenVINO library or its folder [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    openvino: Option<PathBuf>,
    /// CPU threads [default: one per physical core]
    #[arg(long, value_name = "N", help_heading = MODEL)]
    threads: Option<usize>,
}

/// Searches, and writes what was found.
pub fn run(args: &PruneArgs) -> anyhow::Result<()> {
    check(args)?;
    let builtin = tempfile::tempdir()?;
    let source = ModelSource::named(&args.model);
    let local = local_checkpoint(&args.model, builtin.path())?;
    let prompts = Prompts::new(class_names(&args.classes)?)?;
    let images = evenly(expand_images(&args.images)?, args.max_images);
    let checkpoint = local.opening().open(&local.path)?;
    let PruneArgs { whole_blocks, num_prune, confidence, exhaustive, threads, .. } = *args;
    let memory_bytes = (args.memory * f64::from(1 << 30)) as u64;
    let protect = args.protect.clone();
    let options = PruneOptions { whole_blocks, num_prune, protect, confidence, exhaustive, memory_bytes };
    options.check(&checkpoint)?;
    let engine = EngineOptions {
        kind: args.engine.parse()?,
        threads,
        onnxruntime: args.onnxruntime.clone(),
        openvino: args.openvino.clone(),
        ..EngineOptions::default()
    };
    let factory = EngineFactory::start_for_model(&engine, &source)?;
    status(format!("engine: {}", factory.description()));
    let model = resolved(source, args.imgsz, &factory, &Progress::waiting())?;

    let journal = args.output.with_extension("measurements.jsonl");
    let input = PruneInput {
        checkpoint: &checkpoint,
        model: &model,
        factory: &factory,
        images: &images,
        prompts: &prompts,
        journal: &journal,
        scratch: folder_of(&args.output),
    };
    let mut progress = None;
    let report = search(input, &options, &mut |step| {
        let progress = progress.get_or_insert_with(|| Progress::new(step.total));
        progress.at(&step.stage, step.done, step.total);
        interrupted()
    });
    drop(progress);
    if interrupted().is_err() {
        let kept = journal.display();
        status(format!("finished measurements are in {kept}: the same command continues the search"));
    }
    let report = unless_interrupted(report)?;
    write(args, &report)?;
    match &args.export {
        Some(folder) => export_pruned(&checkpoint, &model, last(&report), folder),
        None => Ok(()),
    }
}

fn check(args: &PruneArgs) -> anyhow::Result<()> {
    if args.max_images == 0 {
        refuse!("no image to search with: expected --max-images of at least 1");
    }
    if !(args.memory >= 0.0 && args.memory <= 1e6) {
        refuse!("--memory is {}: expected a number of GiB from 0 on", args.memory);
    }
    check_confidence(args.confidence)?;
    check_output_file("--output", &args.output)?;
    if let Some(folder) = args.export.as_ref().filter(|folder| folder.exists()) {
        let is_empty = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty {
            refuse!("--export, {}: it exists; choose another folder", folder.display());
        }
    }
    Ok(())
}

/// At most `most` of the files, evenly spaced.
fn evenly(files: Vec<PathBuf>, most: usize) -> Vec<PathBuf> {
    let count = files.len().min(most);
    (0..count).map(|number| files[number * files.len() / count].clone()).collect()
}

/// The step with all removals.
fn last(report: &PruneReport) -> &PruneStep {
    report.steps.last().expect("the whole backbone is a step")
}

fn write(args: &PruneArgs, report: &PruneReport) -> anyhow::Result<()> {
    write_atomically(&args.output, |file| write_pretty_json(file, report))?;
    let step = last(report);
    let blocks: Vec<String> = step.skip_blocks.iter().map(ToString::to_string).collect();
    let flags = [("--skip-blocks", blocks.join(",")), ("--mask-blocks", step.mask_blocks.join(","))];
    let flags =
        flags.iter().filter(|(_, list)| !list.is_empty()).map(|(flag, list)| format!("{flag} {list}"));
    print(|out| {
        report.write_table(&mut *out)?;
        writeln!(out, "\n{}", flags.collect::<Vec<_>>().join(" "))
    })?;
    if report.steps[0].effect.kept_share.is_none() {
        status("warning: the model finds none of the classes in the images; only the features were compared");
    }
    status(format!("→ {}", args.output.display()));
    Ok(())
}

fn export_pruned(
    checkpoint: &Checkpoint,
    model: &Model,
    step: &PruneStep,
    folder: &Path,
) -> anyhow::Result<()> {
    let mask_blocks = step.mask_blocks.iter().map(|branch| branch.parse()).collect::<Result<_, _>>()?;
    let options = ExportOptions {
        target: model.manifest().target,
        imgsz: Some(model.manifest().imgsz),
        pruning: Pruning {
            skip_blocks: step.skip_blocks.iter().copied().collect(),
            mask_blocks,
            ..Pruning::default()
        },
        ..ExportOptions::default()
    };
    export_files(checkpoint, &options, folder)?;
    status(format!("→ {}", folder.display()));
    Ok(())
}
