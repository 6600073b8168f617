//! `bench precision`: time, size and accuracy of number formats, and which blocks have to stay in 32 bits.

mod blocks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ocelli::export::contract::{Precision, Target, file};
use ocelli::export::{Calibration, Checkpoint, ExportOptions, MixedPrecision, export};
use ocelli::options::PrecisionChoice;
use ocelli::{
    EngineKind, StageTimes,
    calibration::calibrate,
    engine::{EngineFactory, EngineOptions},
};
use ocelli_benchmarks::machine::Machine;
use ocelli_benchmarks::precision::{Detected, Least, Reference, Scenes, Strategy, detect, graph_bytes, time};
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, ModelArgs, interrupted, status};
use ocelli_tests::outliers::{self, Outliers};
use ocelli_verify::scenes::vocabulary;
use serde::Serialize;

use super::lines::Lines;

/// `--target`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TargetArg {
    /// Fused operators, for ONNX Runtime
    Onnxruntime,
    /// Standard operators only, for TensorRT and others
    Tensorrt,
}

/// Compares number formats: time, size, cosine similarity of every output with fp32, and average precision on drawn
/// scenes. With --bisect, finds the blocks that have to stay in 32 bits.
#[derive(clap::Args)]
#[command(after_help = "\
Writes JSON lines, one per format, and a table on stderr. Each graph is compared alone, with the inputs of the fp32 \
model, on the first scenes; average precision is that of the whole model. A cosine of 0 means a number is not finite.

CPU engines do not compute in half precision: they run fp16 in 32 bits, and no bf16. What half precision costs is measured \
with an engine on a GPU.

Bisection starts with everything in --precision and ends with a minimal set of blocks to keep in 32 bits: without any \
one of them the target is missed. --per-block shows the error of each block if it alone is in --precision.

Examples:
  bench precision
  bench precision --model sam3/ --scenes 4 --strategies fp16 fp16:attention bf16
  bench precision --target tensorrt --outliers norms:100 keys:100
  bench precision --model sam3/ --per-block --precision int8 --compared 1
  bench precision --model sam3/ --bisect --precision fp16 --least-cosine 0.999")]
pub struct Arguments {
    /// Formats: fp32, fp16, bf16, int8, with --target tensorrt also fp8 and int8-static, or with what stays in 32 bits:
    /// fp16:attention [default: all but fp8 and int8-static]
    #[arg(long, num_args = 1.., value_name = "FORMAT")]
    strategies: Vec<Strategy>,
    /// Operators for attention [default: depends on the engine]
    #[arg(long, value_enum)]
    target: Option<TargetArg>,
    /// Drawn scenes for average precision
    #[arg(long, default_value_t = 10, value_name = "N")]
    scenes: usize,
    /// Scenes for the comparison of outputs
    #[arg(long, default_value_t = 2, value_name = "N")]
    compared: usize,
    /// Number of classes, the most frequent ones in the scenes
    #[arg(long, default_value_t = 8, value_name = "N")]
    class_count: usize,
    /// Drawn images, other than the scenes, on which the scales of fp8 and int8-static are measured
    #[arg(long, default_value_t = 32, value_name = "N")]
    calibrated_on: usize,
    /// Measured runs per format
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Find the blocks that have to stay in 32 bits for --precision fp16, bf16, int8, fp8 or int8-static
    #[arg(long, conflicts_with = "strategies")]
    bisect: bool,
    /// Compare the model with fp32 once for each block: that block in --precision, and everything else in 32 bits
    #[arg(long, conflicts_with_all = ["strategies", "bisect"])]
    per_block: bool,
    /// What stays in 32 bits in every trial: a value of `ocelli export --mixed-precision`
    #[arg(long, default_value = "none", value_name = "ISLANDS", requires = "bisect")]
    mixed_precision: MixedPrecision,
    /// Minimum cosine similarity of any output in a bisection
    #[arg(long, default_value_t = 0.999, value_name = "COSINE", requires = "bisect")]
    least_cosine: f64,
    /// Maximum loss of average precision in a bisection, 0 to 1 [default: ignored]
    #[arg(long, value_name = "AP", requires = "bisect")]
    most_ap_loss: Option<f64>,
    /// Outlier channels that leave the outputs in fp32 as they are: norms, keys or values, and a multiple of the other
    /// channels' spread, e.g. keys:100
    #[arg(long, num_args = 1.., value_name = "PLACE:FACTOR")]
    outliers: Vec<Outliers>,
    /// Side of the model's square input in pixels [default: the model's]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = "Model and engine")]
    imgsz: Option<usize>,
    /// Append the lines to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    strategy: String,
    precision: Precision,
    mixed_precision: MixedPrecision,
    keep_fp32: Vec<String>,
    target: Target,
    engine: String,
    imgsz: usize,
    classes: usize,
    scenes: usize,
    bytes: u64,
    total_ms: Quantiles,
    backbone_ms: Quantiles,
    decode_ms: Quantiles,
    least_cosine: Option<Least>,
    cosines: BTreeMap<String, f64>,
    ap: Option<f64>,
    ap50: Option<f64>,
    detections: usize,
    /// Detections of fp32 that are missing, and others that are new.
    lost: usize,
    added: usize,
    failed_scenes: usize,
    outliers: Vec<String>,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    for (flag, count) in [
        ("--scenes", args.scenes),
        ("--compared", args.compared),
        ("--class-count", args.class_count),
        ("--runs", args.runs),
        ("--calibrated-on", args.calibrated_on),
    ] {
        if count == 0 {
            return Err(cli::usage(format!("{flag} is 0: expected at least 1")));
        }
    }
    if args.model.trt.is_some() || args.model.trt_enc_dec.is_some() {
        return Err(cli::usage("--trt, --trt-enc-dec: a built engine has one format; remove them"));
    }
    let of_blocks = args.bisect || args.per_block;
    if args.model.precision.is_some() && !of_blocks {
        let message = "--precision goes with --bisect and --per-block; to compare formats use --strategies";
        return Err(cli::usage(message));
    }
    let precision = match args.model.precision {
        None => Precision::Fp16,
        Some(PrecisionChoice::Of(precision)) => precision,
        Some(PrecisionChoice::Auto) => {
            return Err(cli::usage("--precision auto: expected fp16, bf16, int8, fp8 or int8-static"));
        }
    };
    if of_blocks && precision == Precision::Fp32 {
        return Err(cli::usage("--precision fp32: expected fp16, bf16, int8, fp8 or int8-static"));
    }
    let bench = Bench::new(args, of_blocks.then_some(precision))?;
    match (args.bisect, args.per_block) {
        (true, _) => bench.bisect(precision),
        (_, true) => bench.per_block(precision),
        _ => bench.compare(),
    }
}

/// The fp32 model and the reference for other formats.
struct Bench<'a> {
    args: &'a Arguments,
    /// Exports, and the checkpoint of the built-in model.
    work: tempfile::TempDir,
    checkpoint: Checkpoint,
    factory: EngineFactory,
    scenes: Scenes,
    reference: Reference,
    /// Detections in fp32.
    expected: Detected,
    target: Target,
    /// Whether the engine runs bfloat16, which those on a CPU do not.
    has_bf16: bool,
    lines: Lines,
}

impl<'a> Bench<'a> {
    /// `precision` is the one whose blocks are looked at, if any.
    fn new(args: &'a Arguments, precision: Option<Precision>) -> anyhow::Result<Self> {
        let kind: EngineKind = args.model.engine.parse()?;
        let work = tempfile::tempdir()?;
        let checkpoint = match &args.model.model {
            Some(folder) if folder.join(file::MANIFEST).is_file() => {
                let message = "it is an exported model, which has one format; expected a checkpoint";
                return Err(cli::usage(format!("--model, {}: {message}", folder.display())));
            }
            Some(folder) => open(folder, args, work.path())?,
            None => {
                let folder = work.path().join("checkpoint");
                std::fs::create_dir(&folder)?;
                ocelli::builtin::write_checkpoint(&folder)?;
                open(&folder, args, work.path())?
            }
        };
        let start = |kind| {
            EngineFactory::start(&EngineOptions {
                kind,
                threads: args.model.threads,
                onnxruntime: args.model.onnxruntime.clone(),
                openvino: args.model.openvino.clone(),
                webgpu: args.model.webgpu.clone(),
                allow_inexact: args.model.allow_inexact,
                cpu_fallback: args.model.allow_partial,
                tf32: args.model.tf32,
                ..EngineOptions::default()
            })
        };
        let factory = start(kind)?;
        let mut named: Vec<Precision> = args.strategies.iter().map(|strategy| strategy.precision).collect();
        named.extend(precision);
        let target = match args.target {
            Some(TargetArg::Tensorrt) => Target::TensorRt,
            Some(TargetArg::Onnxruntime) => Target::OnnxRuntime,
            None if precision.is_some_and(Precision::is_calibrated) => Target::TensorRt,
            None => factory.target(named.contains(&Precision::Int8).then_some(Precision::Int8)),
        };
        let has_bf16 = !factory.description().contains("CPU");
        status(format!("engine: {}", factory.description()));
        let scenes = Scenes::draw(args.scenes, args.class_count)?;
        let options = options(args, target);
        let full = work.path().join("fp32");
        export(&checkpoint, &options, &full, |_| Ok(()))?;
        let reference = Reference::new(&factory, &full, &scenes, args.compared)?;
        let expected = detect(&factory, &full, &scenes)?;
        let lines = Lines::new("precision", args.output.as_deref())?;
        Ok(Self { args, work, checkpoint, factory, scenes, reference, expected, target, has_bf16, lines })
    }

    /// Exports into the folder `name`, replacing its contents.
    fn export(&self, name: &str, options: &ExportOptions) -> ocelli::export::Result<PathBuf> {
        let folder = self.work.path().join(name);
        export(&self.checkpoint, &ExportOptions { force: true, ..options.clone() }, &folder, |_| Ok(()))?;
        Ok(folder)
    }

    fn compare(&self) -> anyhow::Result<()> {
        let mut every = Strategy::every();
        if self.target != Target::TensorRt || !self.has_bf16 {
            every.retain(|one| one.islands != MixedPrecision::Bf16Attention);
        }
        if !self.has_bf16 {
            every.retain(|one| one.precision != Precision::Bf16);
        }
        let strategies = if self.args.strategies.is_empty() { every } else { self.args.strategies.clone() };
        let mut lines = Vec::new();
        for strategy in strategies {
            interrupted()?;
            let line = self.line(strategy)?;
            self.lines.write(&line)?;
            lines.push(line);
        }
        for row in table(&lines) {
            status(&row);
        }
        Ok(())
    }

    fn line(&self, strategy: Strategy) -> anyhow::Result<Line<'_>> {
        let options = ExportOptions {
            precision: strategy.precision,
            mixed_precision: Some(strategy.islands),
            ..options(self.args, self.target)
        };
        let options = match strategy.precision.is_calibrated() {
            true => ExportOptions { calibration: Some(self.calibration(&options)?), ..options },
            false => options,
        };
        let folder = self.export("measured", &options)?;
        let times = time(&self.factory, &folder, &self.scenes, self.args.runs)?;
        let quantiles = |stage: fn(&StageTimes) -> f64| Quantiles::of(times.iter().map(stage).collect());
        let cosines = self.reference.cosines(&self.factory, &folder)?;
        let detected = detect(&self.factory, &folder, &self.scenes)?;
        Ok(Line {
            program: "bench precision",
            strategy: strategy.to_string(),
            precision: strategy.precision,
            mixed_precision: strategy.islands,
            keep_fp32: Vec::new(),
            target: self.target,
            engine: self.factory.description(),
            imgsz: self.imgsz(),
            classes: self.args.class_count,
            scenes: self.scenes.len(),
            bytes: graph_bytes(&folder)?,
            total_ms: quantiles(|t| t.total),
            backbone_ms: quantiles(|t| t.backbone),
            decode_ms: quantiles(|t| t.decode),
            least_cosine: Least::of(&cosines),
            cosines,
            ap: detected.accuracy.ap,
            ap50: detected.accuracy.ap50,
            detections: detected.detections(),
            lost: self.expected.missing_in(&detected),
            added: detected.missing_in(&self.expected),
            failed_scenes: detected.failed,
            outliers: self.args.outliers.iter().map(ToString::to_string).collect(),
            machine: &self.lines.machine,
        })
    }

    /// The ranges of layers' inputs on images that are not among the scenes.
    fn calibration(&self, options: &ExportOptions) -> anyhow::Result<Calibration> {
        let images = Scenes::others(self.args.calibrated_on)?.into_iter().map(Ok);
        let work = self.work.path();
        Ok(calibrate(&self.checkpoint, options, &self.factory, work, images, vocabulary())?)
    }

    fn imgsz(&self) -> usize {
        self.args.imgsz.unwrap_or(self.checkpoint.config().vision.image_size)
    }
}

/// The checkpoint, or a copy in `work` with outliers.
fn open(folder: &Path, args: &Arguments, work: &Path) -> anyhow::Result<Checkpoint> {
    if args.outliers.is_empty() {
        return Ok(Checkpoint::open(folder)?);
    }
    let copy = work.join("outliers");
    std::fs::create_dir(&copy)?;
    let layers = outliers::copy_with(folder, &args.outliers, &copy)?;
    status(format!("outlier channels in {layers} layers"));
    Ok(Checkpoint::open(&copy)?)
}

fn options(args: &Arguments, target: Target) -> ExportOptions {
    ExportOptions { target, imgsz: args.imgsz, ..ExportOptions::default() }
}

/// The table.
fn table(lines: &[Line<'_>]) -> Vec<String> {
    let mut rows = vec![format!(
        "{:<18} {:>8} {:>4} {:>8} {:>11} {:>6} {:>6} {:>5} {:>5}  {}",
        "strategy", "p50 ms", "n", "MB", "least cos", "AP", "found", "lost", "new", "least in"
    )];
    for line in lines {
        let Quantiles { p50, n, .. } = line.total_ms;
        let (cosine, output) =
            line.least_cosine.as_ref().map_or((0.0, ""), |least| (least.cosine, least.output.as_str()));
        let ap = line.ap.map_or_else(|| "–".into(), |ap| format!("{ap:.3}"));
        rows.push(format!(
            "{:<18} {p50:>8.1} {n:>4} {:>8.1} {cosine:>11.7} {ap:>6} {:>6} {:>5} {:>5}  {output}",
            line.strategy,
            line.bytes as f64 / 1e6,
            line.detections,
            line.lost,
            line.added,
        ));
    }
    rows
}
