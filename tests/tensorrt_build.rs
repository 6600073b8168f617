//! Builds every graph exported for TensorRT with the parser and builder of TensorRT for RTX, which need no GPU. The operators,
//! types and shapes must be supported, and the engine must have the inputs and outputs of the graph. What an engine
//! computes is not tested here. `cargo test -p ocelli-tests tensorrt_build -- --include-ignored
//! --nocapture` prints the build times.
//!
//! Needs TensorRT for RTX (`OCELLI_TENSORRT`).

#![allow(clippy::print_stdout, reason = "the figures are interesting if the test passes, too")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ocelli::engines::Dim;
use ocelli::engines::tensorrt::{
    ComputeCapability, DimensionRange, Plan, PlanRequest, TensorRt, TensorRtBuilder,
};
use ocelli::export::contract::{
    FREE_DIMENSIONS, FreeDimension, Manifest, Precision, Prompting, Target, dim, file,
};
use ocelli::export::{
    Branch, Checkpoint, CheckpointOptions, ExportOptions, MaskedBranch, MixedPrecision, Pruning, export,
};
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The largest number of classes of the engines.
const MAX_CLASSES: usize = 80;
/// Ampere for servers and for desktops, Ada, Blackwell.
const GENERATIONS: [ComputeCapability; 4] = [
    ComputeCapability::new(8, 0),
    ComputeCapability::new(8, 6),
    ComputeCapability::new(8, 9),
    ComputeCapability::new(12, 0),
];

/// The name of the built-in model; the other checkpoints are goldens.
const BUILT_IN: &str = "built-in";

/// The exports to build: the built-in model in each precision; with `OCELLI_TEST_PRODUCT`, each checkpoint as well, and in each
/// precision every option that changes the nodes.
fn exports() -> Vec<(&'static str, &'static str, ExportOptions)> {
    let plain = || ExportOptions { target: Target::TensorRt, ..ExportOptions::default() };
    let half = || ExportOptions { precision: Precision::Fp16, ..plain() };
    let brain = || ExportOptions { precision: Precision::Bf16, ..plain() };
    let masked =
        [(0, Branch::Mlp), (1, Branch::Attention)].map(|(block, branch)| MaskedBranch { block, branch });
    let mut exports = vec![
        (BUILT_IN, "fp32", plain()),
        (BUILT_IN, "fp16", half()),
        (BUILT_IN, "bf16, detection only", ExportOptions { detection_only: true, ..brain() }),
    ];
    if std::env::var_os("OCELLI_TEST_PRODUCT").is_none() {
        return exports;
    }
    exports.extend([
        ("plain", "fp32, text prompts only", ExportOptions { prompting: Prompting::Text, ..plain() }),
        (
            "plain",
            "fp16, mixed precision accumulate-linear",
            ExportOptions { mixed_precision: Some(MixedPrecision::AccumulateLinear), ..half() },
        ),
        (
            "padded",
            "fp16, split",
            ExportOptions { pruning: Pruning { split_block: Some(1), ..Pruning::default() }, ..half() },
        ),
        (
            "tiled",
            "fp32, block 1 skipped",
            ExportOptions { pruning: Pruning { skip_blocks: [1].into(), ..Pruning::default() }, ..plain() },
        ),
        (
            "tiled",
            "fp16, branches of two blocks masked",
            ExportOptions { pruning: Pruning { mask_blocks: masked.into(), ..Pruning::default() }, ..half() },
        ),
        (
            "released",
            "fp16, mixed precision attention",
            ExportOptions { mixed_precision: Some(MixedPrecision::Attention), ..half() },
        ),
        (
            "patch16",
            "bf16, mixed precision attention",
            ExportOptions { mixed_precision: Some(MixedPrecision::Attention), ..brain() },
        ),
        (
            "small_grid",
            "fp32, detection only, split, text prompts only",
            ExportOptions {
                detection_only: true,
                prompting: Prompting::Text,
                pruning: Pruning { split_block: Some(1), ..Pruning::default() },
                ..plain()
            },
        ),
    ]);
    exports
}

fn tensorrt() -> TensorRt {
    TensorRt::load(None).expect("OCELLI_TENSORRT names TensorRT for RTX")
}

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder)
}

/// A checkpoint, exported into a temporary folder.
struct Exported {
    manifest: Manifest,
    folder: TempDir,
}

impl Exported {
    fn new(checkpoint: &str, options: &ExportOptions) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let source = if checkpoint == BUILT_IN {
            let source = folder.path().join("checkpoint");
            std::fs::create_dir(&source)?;
            ocelli::builtin::write_checkpoint(&source)?;
            source
        } else {
            golden("parity").join(checkpoint)
        };
        Self::of(&Checkpoint::open(&source)?, options, folder)
    }

    fn of(checkpoint: &Checkpoint, options: &ExportOptions, folder: TempDir) -> Outcome<Self> {
        let manifest = export(checkpoint, options, &folder.path().join("model"), |_| Ok(()))?;
        Ok(Self { manifest, folder })
    }

    fn path(&self, graph: &str) -> PathBuf {
        self.folder.path().join("model").join(graph)
    }

    fn graphs(&self) -> Vec<&str> {
        self.manifest.files.keys().map(String::as_str).filter(|name| name.ends_with(".onnx")).collect()
    }

    /// The ranges of the dynamic dimensions, in any graph.
    fn ranges(&self) -> [(&'static str, DimensionRange); 4] {
        let words = self.manifest.context_length;
        let range = |min, optimal, max| DimensionRange { min, optimal, max };
        [
            (dim::CLASSES, range(1, 4, MAX_CLASSES)),
            (dim::PROMPT_TOKENS, range(1, words + 1, words + 17)),
            (dim::EXEMPLARS, range(1, 2, 16)),
            (dim::MASKS, range(1, 8, self.manifest.num_queries)),
        ]
    }

    fn build(&self, tensorrt: &TensorRt, graph: &str, targets: &[ComputeCapability]) -> Outcome<Plan> {
        let dimensions = self.ranges().map(|(name, range)| (name.to_owned(), range)).into();
        let request = PlanRequest { targets: targets.to_vec(), dimensions, ..PlanRequest::default() };
        Ok(TensorRtBuilder::new(tensorrt, request).build(&self.path(graph))?)
    }
}

/// Builds a graph, prints the time, and checks the inputs and outputs of the engine.
fn build_and_check(
    tensorrt: &TensorRt,
    exported: &Exported,
    (model, graph): (&str, &str),
    targets: &[ComputeCapability],
    problems: &mut Vec<String>,
) {
    let start = Instant::now();
    let place = format!(
        "{model}: {graph} for {}",
        targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    match exported.build(tensorrt, graph, targets) {
        Ok(plan) => {
            let (seconds, bytes) = (start.elapsed().as_secs_f64(), plan.bytes.len());
            println!("{place}: {seconds:.1} s, {:.1} MB", bytes as f64 / 1e6);
            let tensors = plan.spec.inputs.iter().chain(&plan.spec.outputs);
            for tensor in tensors {
                for (axis, size) in tensor.shape.iter().enumerate() {
                    let is_it = |free: &FreeDimension| free.tensor == tensor.name && free.axis == axis;
                    if let Dim::Named(name) = size
                        && !FREE_DIMENSIONS.iter().any(|free| is_it(free) && free.name == name)
                    {
                        problems.push(format!("{place}: axis {axis} of {} is {name}", tensor.name));
                    }
                }
            }
        }
        Err(error) => problems.push(format!("{place}: {error}")),
    }
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn every_graph_is_built() -> Outcome<()> {
    let tensorrt = tensorrt();
    let mut problems = Vec::new();
    for (checkpoint, what, options) in exports() {
        let exported = Exported::new(checkpoint, &options)?;
        let model = format!("{checkpoint}, {what}");
        for graph in exported.graphs() {
            // One build for all generations, which takes no longer than for one.
            build_and_check(&tensorrt, &exported, (&model, graph), &GENERATIONS, &mut problems);
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// Their image backbones: the other graphs are those of the base.
#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn every_student_is_built() -> Outcome<()> {
    let tensorrt = tensorrt();
    let goldens = golden("checkpoints");
    let dart = CheckpointOptions { base: Some(goldens.join("sam3/sam3.pt")), ..Default::default() };
    let students = [
        ("students/rep_vit.pt", &dart, Precision::Fp16),
        ("students/rep_vit.pt", &dart, Precision::Fp32),
        ("students/efficient_vit.pt", &dart, Precision::Fp16),
        ("students/tiny_vit.pt", &dart, Precision::Fp16),
        ("students/tiny_vit.pt", &dart, Precision::Bf16),
        ("efficient_vit/efficient_vit.pt", &CheckpointOptions::default(), Precision::Fp16),
    ];
    let mut problems = Vec::new();
    for (name, options, precision) in students {
        let checkpoint = options.open(&goldens.join(name))?;
        let export = ExportOptions { target: Target::TensorRt, precision, ..ExportOptions::default() };
        let exported = Exported::of(&checkpoint, &export, tempfile::tempdir()?)?;
        let model = format!("{name}, {precision}");
        build_and_check(&tensorrt, &exported, (&model, file::BACKBONE), &GENERATIONS, &mut problems);
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

#[test]
#[ignore = "needs TensorRT for RTX (OCELLI_TENSORRT)"]
fn every_gpu_generation_can_be_built_separately() -> Outcome<()> {
    let tensorrt = tensorrt();
    let mut problems = Vec::new();
    let options =
        ExportOptions { target: Target::TensorRt, precision: Precision::Fp16, ..ExportOptions::default() };
    let exported = Exported::new("plain", &options)?;
    for target in GENERATIONS {
        for graph in exported.graphs() {
            build_and_check(&tensorrt, &exported, ("plain, fp16", graph), &[target], &mut problems);
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}
