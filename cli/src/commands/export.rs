//! `ocelli export`.

mod calibrate;
mod inspect;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use ocelli::ModelSource;
use ocelli::builtin::write_checkpoint;
use ocelli::export::contract::{Manifest, Precision, Prompting, Target, TextPadding, file};
use ocelli::export::{
    Block, Checkpoint, CheckpointOptions, ExportOptions, MaskedBranch, MixedPrecision, NormEps, Pruning,
    export,
};
use ocelli::hub::LocalModel;

use self::calibrate::CalibrateArgs;
use super::models;
use crate::args::{INPUT, OUTPUT, one_of};
use crate::interrupt::unless_interrupted;
use crate::{Progress, interrupted, print, status, usage};

/// Heading of options that change the graphs.
const GRAPH: &str = "Graphs";
/// Heading of options that select number formats.
const PRECISION: &str = "Number format";

/// Arguments of `ocelli export`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/export.txt"))]
pub struct ExportArgs {
    /// Checkpoint: a Hugging Face folder (config.json, model.safetensors or shards, tokenizer.json), a .pt or .safetensors
    /// file in Meta's names, or `built-in` for the built-in model
    #[arg(long, alias = "model", alias = "weights", value_name = "PATH", help_heading = INPUT)]
    checkpoint: PathBuf,
    /// Tokeniser: tokenizer.json of a SAM3 folder or CLIP's bpe_simple_vocab_16e6.txt.gz [default: beside the checkpoint]
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    tokenizer: Option<PathBuf>,
    /// Checkpoint with the rest of the model, for a file that has an image backbone only
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    base: Option<PathBuf>,
    /// Epsilon of the image transformer's norms: as config.json says, or as the released weights were trained with
    /// [default: configured]
    #[arg(long, value_name = "configured|original", help_heading = GRAPH)]
    norm_eps: Option<NormEps>,
    /// What stands after a phrase, for a text encoder of MobileCLIP: as it was trained, or as in transformers
    /// [default: training]
    #[arg(long, value_name = "training|transformers", help_heading = GRAPH)]
    text_padding: Option<TextPadding>,
    /// Describe the checkpoint and write nothing
    #[arg(long, help_heading = OUTPUT)]
    inspect: bool,
    /// Folder to write the model to
    #[arg(long, short, value_name = "DIR", help_heading = OUTPUT, required_unless_present = "inspect")]
    output: Option<PathBuf>,
    /// Replace an exported model in the output folder
    #[arg(long, help_heading = OUTPUT)]
    force: bool,
    /// Side of the square input in pixels, a multiple of the patch size [default: the checkpoint's]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = GRAPH)]
    imgsz: Option<usize>,
    /// Format of weights and large matrix products; fp16 and bf16 are for GPUs, int8 is faster on CPUs. fp8, and int8 with
    /// --calibrate, multiply in 8 bits with --target tensorrt
    #[arg(
        long,
        value_parser = one_of::<Precision>(&["fp32", "fp16", "bf16", "int8", "fp8"]),
        default_value = "fp32",
        help_heading = PRECISION
    )]
    precision: Precision,
    #[command(flatten)]
    calibration: CalibrateArgs,
    /// What else stays in 32 bits with fp16 and bf16; each value includes those before it [default: accumulate]
    #[arg(
        long,
        value_parser = one_of::<MixedPrecision>(&[
            "none", "accumulate", "bf16-attention", "accumulate-linear", "attention",
        ]),
        value_name = "OPERATORS",
        help_heading = PRECISION
    )]
    mixed_precision: Option<MixedPrecision>,
    /// Blocks that stay in 32 bits with fp16, bf16 and int8, e.g. vit.7,fusion,decoder.0; `bench precision --bisect` finds
    /// them
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', num_args = 1.., help_heading = PRECISION)]
    keep_fp32: Vec<Block>,
    /// Operators: fused ones for ONNX Runtime, or standard ones for TensorRT and others
    #[arg(long, value_parser = one_of::<Target>(&["onnxruntime", "tensorrt"]), default_value = "onnxruntime", help_heading = GRAPH)]
    target: Target,
    /// Text prompts: with an image-conditioned token as in Meta's detector, or the text alone
    #[arg(long, value_parser = one_of::<Prompting>(&["official", "text"]), default_value = "official", help_heading = GRAPH)]
    prompt: Prompting,
    /// Leave out what only masks need, and the memory tracker, which follows masks
    #[arg(long, help_heading = GRAPH)]
    detection_only: bool,
    /// Leave out the memory tracker, which is exported by default where the checkpoint has one
    #[arg(long, help_heading = GRAPH)]
    no_tracker: bool,
    /// Add the graph of --screen, the coarse first pass over every class
    #[arg(long, help_heading = GRAPH)]
    screen: bool,
    /// ViT blocks to drop, e.g. 5,10
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', help_heading = GRAPH)]
    skip_blocks: Vec<usize>,
    /// Branches of ViT blocks to drop, e.g. 25:attn,28:mlp
    #[arg(long, value_name = "BRANCHES", value_delimiter = ',', help_heading = GRAPH)]
    mask_blocks: Vec<MaskedBranch>,
    /// Blocks or branches to drop that DART recommends for SAM 3: sbp-8, sbp-16 (branches) or blocks-16
    #[arg(
        long,
        value_name = "NAME",
        value_parser = Pruning::preset,
        conflicts_with_all = ["skip_blocks", "mask_blocks"],
        help_heading = GRAPH
    )]
    preset: Option<Pruning>,
    /// Split the backbone in two graphs before this block
    #[arg(long, value_name = "BLOCK", help_heading = GRAPH)]
    split_block: Option<usize>,
}

/// Exports a checkpoint.
pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let calibrates = args.calibration.is_wanted();
    let precision = ExportOptions::precision_for(args.precision, calibrates, args.target)?;
    let mut pruning = args.preset.clone().unwrap_or_default();
    pruning.skip_blocks.extend(&args.skip_blocks);
    pruning.mask_blocks.extend(&args.mask_blocks);
    pruning.split_block = args.split_block;
    let mut options = ExportOptions {
        imgsz: args.imgsz,
        target: args.target,
        precision,
        mixed_precision: args.mixed_precision,
        keep_fp32: args.keep_fp32.iter().copied().collect(),
        prompting: args.prompt,
        detection_only: args.detection_only,
        screen: args.screen,
        no_tracker: args.no_tracker,
        pruning,
        force: args.force,
        ..ExportOptions::default()
    };
    let builtin = tempfile::tempdir()?;
    let local = local_checkpoint(&args.checkpoint, builtin.path())?;
    options.license = local.license.map(str::to_owned);
    let path = local.path.as_path();
    let base = args.base.as_ref().map(|base| match ModelSource::named(base) {
        ModelSource::Hub(name) => models::fetch(&name, false).map(|local| local.path),
        _ => Ok(base.clone()),
    });
    let base = base.transpose()?;
    let opening = local.opening();
    let opening = CheckpointOptions {
        tokenizer: args.tokenizer.clone().or(opening.tokenizer),
        base: base.or(opening.base),
        norm_eps: args.norm_eps.unwrap_or_default(),
        text_padding: args.text_padding.unwrap_or_default(),
    };
    let Some(output) = args.output.as_ref().filter(|_| !args.inspect) else {
        return inspect::run(path, &opening);
    };
    let checkpoint = opening.open(path)?;
    if let Some(part) = checkpoint.left_out() {
        status(format!("left out: {part}"));
    }
    if precision.is_calibrated() {
        options.calibration = Some(args.calibration.measure(&checkpoint, &options, output)?);
    }
    let manifest = export_files(&checkpoint, &options, output)?;
    print(|out| {
        for (name, entry) in &manifest.files {
            writeln!(out, "{:<28} {:>10}", name, size(entry.bytes))?;
        }
        let total: u64 = manifest.files.values().map(|entry| entry.bytes).sum();
        writeln!(
            out,
            "{} for {} px, {} in {:.1} s",
            output.display(),
            manifest.imgsz,
            size(total),
            start.elapsed().as_secs_f64()
        )
    })?;
    if args.prompt == Prompting::Official && manifest.prompting == Prompting::Text {
        status("the checkpoint has no encoder of exemplars: prompts are text alone, as with --prompt text");
    }
    status(format!("use it with: ocelli detect --model {}", output.display()));
    Ok(())
}

/// Exports into a folder, unless Ctrl-C is pressed, and shows the progress.
pub(super) fn export_files(
    checkpoint: &Checkpoint,
    options: &ExportOptions,
    folder: &Path,
) -> anyhow::Result<Manifest> {
    let progress = Progress::waiting();
    let manifest = export(checkpoint, options, folder, |step| {
        progress.announce(&format!("writing {} ({} of {})", step.file, step.done + 1, step.total));
        interrupted()
    });
    drop(progress);
    unless_interrupted(manifest)
}

/// A checkpoint on this machine, if it looks like one. A named one is downloaded; the built-in model is written into the folder
/// `builtin`.
pub(super) fn local_checkpoint(path: &Path, builtin: &Path) -> anyhow::Result<LocalModel> {
    let source = ModelSource::named(path);
    source.check_exists()?;
    let at = |path: &Path| LocalModel { path: path.to_owned(), ..LocalModel::default() };
    let why = match source {
        ModelSource::Builtin => {
            write_checkpoint(builtin)?;
            return Ok(at(builtin));
        }
        ModelSource::Hub(name) => return models::fetch(&name, false),
        _ if path.is_dir() && path.join(file::MANIFEST).is_file() => {
            "it is an exported model already; expected the checkpoint it was exported from"
        }
        _ if path.is_dir() && !path.join("config.json").exists() => {
            "it contains no config.json; expected a Hugging Face folder with config.json, model.safetensors and tokenizer.json"
        }
        _ => return Ok(at(path)),
    };
    Err(usage(format!("no checkpoint, {}: {why}", path.display())))
}

fn size(bytes: u64) -> String {
    match bytes as f64 {
        few if few < 1e5 => format!("{:.1} kB", few / 1e3),
        many => format!("{:.1} MB", many / 1e6),
    }
}
