//! Plans of TensorRT for RTX, which need no GPU to be built, show what it makes of the graphs: which attentions are one kernel,
//! the format of sums, and the memory between kernels. The model has the released widths and random weights, with two layers of
//! each kind: deeper plans repeat them.
//!
//! `cargo test -p ocelli-tests tensorrt_plan -- --include-ignored --nocapture` prints the table of
//! docs/engines.md. Needs TensorRT for RTX (`OCELLI_TENSORRT`).

#![allow(clippy::print_stdout, reason = "the table is interesting if the test passes, too")]

mod text;

use std::error::Error;
use std::path::Path;

use ocelli::engines::tensorrt::{ComputeCapability, DimensionRange, PlanRequest, TensorRt, TensorRtBuilder};
use ocelli::export::contract::{Precision, Target, dim, file};
use ocelli::export::{Calibration, Checkpoint, CheckpointOptions, ExportOptions, MixedPrecision, export};
use ocelli::{
    Image,
    calibration::calibrate,
    engine::{EngineFactory, EngineOptions},
};
use ocelli_tests::random_weights;
use tempfile::TempDir;

use text::PlanText;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Layers of each kind.
const LAYERS: usize = 2;
const AMPERE: ComputeCapability = ComputeCapability::new(8, 6);
const ADA: ComputeCapability = ComputeCapability::new(8, 9);
const BLACKWELL: ComputeCapability = ComputeCapability::new(12, 0);
/// The least size of a matrix of scores that is stored, in bytes: 16 or 8 heads, 5184² numbers in half precision.
const STORED_SCORES: u64 = 8 * 5184 * 5184 * 2;

/// The attentions of a graph, and how many of them are one kernel at best. In the encoder-decoder, queries that all classes
/// share attend to each class's prompt in the first layers of fusion encoder and decoder: with sums in 32 bits TensorRT
/// computes these two in several kernels, with 33 keys.
const GRAPHS: [(&str, usize, usize); 4] = [
    (file::BACKBONE, LAYERS + 3, LAYERS + 3),
    (file::ENCODER_DECODER, 5 * LAYERS - 1, 5 * LAYERS - 3),
    (file::EXEMPLAR_ENCODER, 6, 6),
    (file::TEXT_ENCODER, LAYERS, LAYERS),
];

/// The promise of a level for its plans.
struct Promise {
    precision: Precision,
    islands: MixedPrecision,
    /// The format of attention's sums, if attention is fused.
    attention: Option<&'static str>,
    /// Linear layers have no sums in half precision.
    linear_in_single: bool,
}

const fn promise(
    precision: Precision,
    islands: MixedPrecision,
    attention: Option<&'static str>,
    linear_in_single: bool,
) -> Promise {
    Promise { precision, islands, attention, linear_in_single }
}

const HALF_SUMS: Promise = promise(Precision::Fp16, MixedPrecision::None, Some("half"), false);
const DEFAULT: Promise = promise(Precision::Fp16, MixedPrecision::Accumulate, Some("single"), false);
const LINEAR: Promise = promise(Precision::Fp16, MixedPrecision::AccumulateLinear, Some("single"), true);
const FP8: Promise = promise(Precision::Fp8, MixedPrecision::Accumulate, Some("single"), false);
const INT8: Promise = promise(Precision::Int8Static, MixedPrecision::Accumulate, Some("single"), false);
const BF16: Promise = promise(Precision::Bf16, MixedPrecision::Accumulate, Some("single"), true);
const UNFUSED: Promise = promise(Precision::Fp16, MixedPrecision::Attention, None, true);
const BF16_ATTENTION: Promise =
    promise(Precision::Fp16, MixedPrecision::Bf16Attention, Some("single"), false);
const OTHERS: [Promise; 2] = [
    promise(Precision::Bf16, MixedPrecision::None, Some("single"), true),
    promise(Precision::Bf16, MixedPrecision::AccumulateLinear, Some("single"), true),
];

fn tensorrt() -> TensorRt {
    TensorRt::load(None).expect("OCELLI_TENSORRT names TensorRT for RTX")
}

fn checkpoint() -> Outcome<TempDir> {
    let folder = tempfile::tempdir()?;
    random_weights::write_shallow(folder.path(), LAYERS)?;
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/builtin/tokenizer.json");
    std::fs::copy(tokenizer, folder.path().join(file::TOKENIZER))?;
    Ok(folder)
}

/// The checkpoint, and TensorRT.
struct Bench {
    folder: TempDir,
    tensorrt: TensorRt,
}

impl Bench {
    fn new() -> Outcome<Self> {
        Ok(Self { folder: checkpoint()?, tensorrt: tensorrt() })
    }

    fn calibration(&self) -> Outcome<Calibration> {
        Ok(calibrate(
            &Checkpoint::open(self.folder.path())?,
            // The ranges have the same names at every size.
            &ExportOptions { imgsz: Some(336), ..ExportOptions::default() },
            &EngineFactory::start(&EngineOptions::default())?,
            self.folder.path(),
            [Image::open("../demos/scenes/park.png")],
            &["dog"],
        )?)
    }

    /// Builds graphs for GPUs, prints a row for each plan, and collects broken promises.
    fn check(
        &self,
        promise: &Promise,
        graphs: &[(&str, usize, usize)],
        targets: &[ComputeCapability],
        problems: &mut Vec<String>,
    ) -> Outcome<()> {
        let Promise { precision, islands, .. } = promise;
        let mut options =
            ExportOptions { target: Target::TensorRt, precision: *precision, ..ExportOptions::default() };
        if precision.is_calibrated() {
            options = ExportOptions { calibration: Some(self.calibration()?), ..options };
        }
        let exported = tempfile::tempdir()?;
        let folder = exported.path().join("model");
        export(
            &Checkpoint::open(self.folder.path())?,
            &ExportOptions { mixed_precision: Some(*islands), ..options },
            &folder,
            |_| Ok(()),
        )?;
        for &(graph, all, fused) in graphs {
            for &target in targets {
                let plan = PlanText::read(&self.build(&folder.join(graph), target)?);
                let place = format!("{precision} {islands} | {graph} | {target}");
                let sums = |formats: Vec<String>| formats.join(", ");
                println!(
                    "| {place} | {} of {all} | {} | {} | {:.0} MB |",
                    plan.fused(),
                    sums(plan.attentions.iter().map(|(format, n)| format!("{n} {format}")).collect()),
                    sums(plan.linear.iter().map(|(format, n)| format!("{n} {format}")).collect()),
                    plan.largest.0 as f64 / 1e6,
                );
                let wrong = broken(promise, &plan, (all, fused), graph);
                problems.extend(wrong.into_iter().map(|what| format!("{place}: {what}: {plan:?}")));
            }
        }
        Ok(())
    }

    fn build(&self, graph: &Path, target: ComputeCapability) -> Outcome<Vec<u8>> {
        let range = |min, optimal, max| DimensionRange { min, optimal, max };
        let dimensions = [
            (dim::CLASSES, range(1, 4, 4)),
            (dim::PROMPT_TOKENS, range(1, 33, 33)),
            (dim::EXEMPLARS, range(1, 2, 8)),
        ];
        let dimensions = dimensions.map(|(name, range)| (name.to_owned(), range)).into();
        let request = PlanRequest { targets: vec![target], dimensions, ..PlanRequest::default() };
        Ok(TensorRtBuilder::new(&self.tensorrt, request).build(graph)?.bytes)
    }
}

/// The parts of a promise that a plan does not keep.
fn broken(
    promise: &Promise,
    plan: &PlanText,
    (all, fused): (usize, usize),
    graph: &str,
) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    let has_scores = plan.largest.0 >= STORED_SCORES;
    match promise.attention {
        Some(format) => {
            let expected = if promise.islands == MixedPrecision::None { all } else { fused };
            // One of the two products of a kernel with sums in half precision may have them in 32 bits.
            let kept = |found: &String| match format {
                "half" => found.contains(format),
                _ => found == format,
            };
            let other = plan.attentions.keys().any(|found| found != "scalar" && !kept(found));
            wrong.extend((plan.fused() != expected).then_some("not every attention is one kernel"));
            wrong.extend(other.then_some("attention has other sums"));
            wrong.extend(has_scores.then_some("scores are stored"));
        }
        None => {
            let matrix = plan.attentions.keys().any(|found| found != "scalar");
            wrong.extend(matrix.then_some("attention is fused, which this level is there to avoid"));
            let stores = matches!(graph, file::BACKBONE | file::ENCODER_DECODER);
            wrong.extend((stores && !has_scores).then_some("no scores are stored"));
        }
    }
    let count = |kind| plan.linear.get(kind).copied().unwrap_or(0);
    // Backbone: queries, keys, values, output, two of the feed-forward network; the fusion encoder has two more, the queries
    // and the output of the attention to the prompt.
    let in_8_bits = match (promise.precision.is_calibrated(), graph) {
        (true, file::BACKBONE) => 6 * LAYERS,
        (true, file::ENCODER_DECODER) => 8 * LAYERS,
        _ => 0,
    };
    let formats = match promise.precision {
        Precision::Fp8 => (in_8_bits, 0),
        _ => (0, in_8_bits),
    };
    wrong.extend(((count("fp8"), count("int8")) != formats).then_some("linear layers have other formats"));
    let half = count("half") > 0;
    // What 8 bits leave of the backbone is the CLS token's.
    let other =
        half == promise.linear_in_single && !(promise.precision.is_calibrated() && graph == file::BACKBONE);
    wrong.extend(other.then_some("linear layers have other sums"));
    wrong
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// The two graphs that run for every frame.
#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn default_plans_fuse_attention_and_sum_in_32_bits() -> Outcome<()> {
    let (bench, mut problems) = (Bench::new()?, Vec::new());
    bench.check(&DEFAULT, &GRAPHS[..2], &[AMPERE, ADA, BLACKWELL], &mut problems)?;
    report(&problems);
    Ok(())
}

/// The image backbones of DART's students at the released sizes. Every exact GELU is computed in the kernel of the
/// convolution or product before it; EfficientViT's are approximate.
#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn default_plans_of_students_compute_gelu_with_the_product_before_it() -> Outcome<()> {
    let (base, tensorrt) = (checkpoint()?, tensorrt());
    for (name, gelus) in [("rep_vit_m2_3", 51), ("tiny_vit_21m", 19), ("efficient_vit_l2", 0)] {
        let student = base.path().join("student.safetensors");
        random_weights::write_student(&student, name)?;
        let base = Some(base.path().to_owned());
        let checkpoint = CheckpointOptions { base, ..Default::default() }.open(&student)?;
        let options = ExportOptions {
            target: Target::TensorRt,
            precision: Precision::Fp16,
            ..ExportOptions::default()
        };
        let exported = tempfile::tempdir()?;
        let folder = exported.path().join("model");
        export(&checkpoint, &options, &folder, |_| Ok(()))?;
        let request = PlanRequest { targets: vec![ADA], ..PlanRequest::default() };
        let builder = TensorRtBuilder::new(&tensorrt, request);
        let plan = PlanText::read(&builder.build(&folder.join(file::BACKBONE))?.bytes);
        println!("| {name} | {} GELUs in the kernel of a product |", plan.gelus);
        assert_eq!(plan.gelus, gelus, "{name}");
    }
    Ok(())
}

/// Every level and graph, for every GPU.
#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT) and minutes"]
fn every_plan_keeps_the_promise_of_its_level() -> Outcome<()> {
    let (bench, mut problems) = (Bench::new()?, Vec::new());
    for promise in [HALF_SUMS, DEFAULT, BF16_ATTENTION, LINEAR, BF16, UNFUSED, INT8].iter().chain(&OTHERS) {
        bench.check(promise, &GRAPHS, &[AMPERE, ADA, BLACKWELL], &mut problems)?;
    }
    // Ampere has no fp8.
    bench.check(&FP8, &GRAPHS, &[ADA, BLACKWELL], &mut problems)?;
    report(&problems);
    Ok(())
}
