//! `ocelli export`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::{LogArgs, Progress, interrupted, print, say, usage};
use clap::{Args, ValueEnum};
use ocelli::export::contract::{self, Prompting, Target, file};
use ocelli::export::{
    Block, Checkpoint, Error, ErrorKind, ExportOptions, MaskedBranch, MixedPrecision, export,
};

/// `--target`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TargetArg {
    /// Fused operators of ONNX Runtime
    Onnxruntime,
    /// Standard operators only, attention written out
    Tensorrt,
}

/// `--prompt`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PromptArg {
    /// Words and an image-conditioned token, as Meta's detector runs
    Official,
    /// Words alone
    Text,
}

/// `--precision`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PrecisionArg {
    /// 32-bit floating point
    Fp32,
    /// IEEE half precision, for GPUs: half the size; a processor runs it too, no faster than fp32
    Fp16,
    /// bfloat16, for GPUs: less exact than fp16, but no number is too large; nothing runs it on a processor
    Bf16,
    /// 8-bit integers in the large matrix products: several times as fast on a processor, a little less exact
    Int8,
}

/// `--mixed-precision`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MixedPrecisionArg {
    /// Nothing but boxes, positions and scores
    None,
    /// Norms, and attention scores between the two products: scale, mask, softmax
    NormSoftmax,
    /// These, and the products of attention with the rotary embedding
    Attention,
    /// Everything but the products with weights
    All,
}

/// Arguments of `ocelli export`.
#[derive(Args, Debug)]
#[command(after_help = "\
Half precision: inputs and outputs of the files stay in 32 bits, and so do boxes, positions and the last steps to a \
score. Every node has one format, with a cast where two meet, so that TensorRT takes the formats from the file. Blocks \
are vit.N, text.N, fusion.N, decoder.N, a name without its number for all of them, and patches, neck, exemplars, words, \
scoring, masks.

Examples:
  ocelli export --checkpoint sam3/ --output sam3-672/ --imgsz 672
  demo-image --model sam3-672/ --image street.jpg --classes person car -o found.png
  ocelli export --checkpoint sam3/ --output sam3-trt/ --target tensorrt --precision fp16 --mixed-precision norm-softmax")]
pub struct ExportArgs {
    /// A Hugging Face folder: config.json, model.safetensors or its shards, tokenizer.json
    #[arg(long, alias = "model", alias = "weights", value_name = "PATH")]
    checkpoint: PathBuf,
    /// The folder to write; it appears whole or not at all
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Side of the square input in pixels, a multiple of the patch size [default: the checkpoint's]
    #[arg(long, alias = "img-size", allow_negative_numbers = true, value_name = "PIXELS")]
    imgsz: Option<usize>,
    /// Number format of the weights and the large matrix products
    #[arg(long, value_enum, default_value = "fp32")]
    precision: PrecisionArg,
    /// What stays in 32 bits with fp16 and bf16; each holds what those before it hold
    #[arg(long, value_enum, default_value = "none")]
    mixed_precision: MixedPrecisionArg,
    /// Blocks that stay in 32 bits with fp16 and bf16, as vit.7,fusion,decoder.0; `bench-precision --bisect` finds them
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', num_args = 1..)]
    keep_fp32: Vec<Block>,
    /// What attention is written as
    #[arg(long, value_enum, default_value = "onnxruntime")]
    target: TargetArg,
    /// What a text prompt consists of
    #[arg(long, value_enum, default_value = "official")]
    prompt: PromptArg,
    /// Leave out what only masks need
    #[arg(long)]
    detection_only: bool,
    /// ViT blocks to drop whole, as 5,10
    #[arg(long, allow_negative_numbers = true, value_name = "BLOCKS", value_delimiter = ',')]
    skip_blocks: Vec<usize>,
    /// Branches of ViT blocks to drop, as 25:attn,28:mlp
    #[arg(long, value_name = "BRANCHES", value_delimiter = ',')]
    mask_blocks: Vec<MaskedBranch>,
    /// Cut the backbone in two before this block
    #[arg(long, allow_negative_numbers = true, value_name = "BLOCK")]
    split_block: Option<usize>,
    /// Replace an exported folder that is there already
    #[arg(long)]
    force: bool,
}

/// Exports a checkpoint.
pub fn run(args: &ExportArgs, log: &LogArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut options = ExportOptions::default()
        .with_target(match args.target {
            TargetArg::Onnxruntime => Target::OnnxRuntime,
            TargetArg::Tensorrt => Target::TensorRt,
        })
        .with_prompting(match args.prompt {
            PromptArg::Official => Prompting::Official,
            PromptArg::Text => Prompting::Text,
        })
        .with_precision(match args.precision {
            PrecisionArg::Fp32 => contract::Precision::Fp32,
            PrecisionArg::Fp16 => contract::Precision::Fp16,
            PrecisionArg::Bf16 => contract::Precision::Bf16,
            PrecisionArg::Int8 => contract::Precision::Int8,
        })
        .with_mixed_precision(match args.mixed_precision {
            MixedPrecisionArg::None => MixedPrecision::None,
            MixedPrecisionArg::NormSoftmax => MixedPrecision::NormSoftmax,
            MixedPrecisionArg::Attention => MixedPrecision::Attention,
            MixedPrecisionArg::All => MixedPrecision::All,
        })
        .with_keep_fp32(args.keep_fp32.iter().copied())
        .with_detection_only(args.detection_only)
        .with_skip_blocks(args.skip_blocks.iter().copied())
        .with_mask_blocks(args.mask_blocks.iter().copied())
        .with_split_block(args.split_block)
        .with_force(args.force);
    if let Some(imgsz) = args.imgsz {
        options = options.with_imgsz(imgsz);
    }
    check_is_checkpoint(&args.checkpoint)?;
    let checkpoint = Checkpoint::open(&args.checkpoint)?;
    let progress = Progress::waiting(log);
    let manifest = export(&checkpoint, &options, &args.output, |step| {
        progress.announce(&format!("writing {} ({} of {})", step.file, step.done + 1, step.total));
        interrupted().map_err(|stop| Error::new(ErrorKind::Cancelled, stop.to_string()))
    });
    drop(progress);
    interrupted()?;
    let manifest = manifest?;
    print(|out| {
        for (name, entry) in &manifest.files {
            writeln!(out, "{:<28} {:>10}", name, size(entry.bytes))?;
        }
        let total: u64 = manifest.files.values().map(|entry| entry.bytes).sum();
        writeln!(
            out,
            "{} for {} px, {} in {:.1} s",
            args.output.display(),
            manifest.imgsz,
            size(total),
            start.elapsed().as_secs_f64()
        )
    })?;
    say(log, &format!("use it with: demo-image --model {}", args.output.display()));
    Ok(())
}

/// Says what is wrong with a path that holds no checkpoint at all.
fn check_is_checkpoint(path: &Path) -> anyhow::Result<()> {
    let why = if !path.exists() {
        "no such folder"
    } else if path.is_dir() && path.join(file::MANIFEST).is_file() {
        "it is an exported model already; --checkpoint names what it was exported from"
    } else if path.is_dir() && !path.join("config.json").exists() {
        "it holds no config.json; name the Hugging Face folder with config.json, model.safetensors and tokenizer.json"
    } else {
        return Ok(());
    };
    Err(usage(format!("no checkpoint, {}: {why}", path.display())))
}

fn size(bytes: u64) -> String {
    match bytes as f64 {
        few if few < 1e5 => format!("{:.1} kB", few / 1e3),
        many => format!("{:.1} MB", many / 1e6),
    }
}
