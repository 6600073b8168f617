//! The memory trackers' graphs: every output of every graph, in both targets and on three engines, on small random models.
//! SAM 3's against `transformers`, SAM 3.1's against an implementation that equals Meta's modules within 1.1e-6.
//!
//! `tests/golden/parity/make_tracker.py` and `tests/golden/checkpoints/make_multiplex.py` make the goldens.

use std::collections::BTreeSet;

use crate::parity::each_case;
use crate::parity::exported::{Exported, Outcome, Runner};
use crate::parity::golden::{Golden, f32s};
use crate::parity::report::Report;
use ocelli::engines::Tensor;
use ocelli::export::contract::{Target, file, tensor};
use ocelli::export::{Checkpoint, ExportOptions};
use ocelli::tracking::masklets::{LogitMask, prompted_masks};

const NAMES: [&str; 2] = ["tracker", "tracker_odd"];
/// Each graph, its name in the goldens, and how many cases they have.
const GRAPHS: [(&str, &str, usize); 7] = [
    (file::BACKBONE, "backbone", 1),
    (file::TRACK_FEATURES, "track_features", 1),
    (file::TRACK_STEP, "track_step", 6),
    (file::TRACK_INIT, "track_init", 1),
    (file::TRACK_POINTS, "track_points", 6),
    (file::MEMORY_ENCODER, "memory_encoder", 1),
    (file::MASK_IOU, "mask_iou", 1),
];

/// The same of SAM 3.1's tracker.
const MULTIPLEX: [(&str, &str, usize); 9] = [
    (file::MUX_FEATURES, "mux_features", 1),
    (file::MUX_INTERACTIVE, "mux_interactive", 1),
    (file::MUX_STEP, "mux_step", 5),
    (file::MUX_PLANES, "mux_planes", 3),
    (file::MUX_PLANES_STORED, "mux_planes_stored", 2),
    (file::MUX_MEMORY, "mux_memory", 3),
    (file::MUX_INIT, "mux_init", 1),
    (file::MUX_POINTS, "mux_points", 6),
    (file::MUX_MASK_IOU, "mask_iou", 1),
];

fn goldens() -> impl Iterator<Item = Golden> {
    NAMES.into_iter().map(Golden::of_tracker)
}

/// Compares every case of a graph, and returns how many there are.
fn compare_cases(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    graph: &str,
    name: &str,
) -> Outcome<usize> {
    let all = format!("{name}.");
    let cases: BTreeSet<&str> =
        golden.with_prefix(&all).filter_map(|(rest, _)| Some(rest.split_once('.')?.0)).collect();
    for case in &cases {
        let [input, output] = ["in", "out"].map(|way| format!("{name}.{case}.{way}."));
        let mut inputs: Vec<(&str, &Tensor)> = golden.with_prefix(&input).collect();
        let prompts = if graph == file::MEMORY_ENCODER { Some(prompts(golden, &inputs)?) } else { None };
        inputs.extend(prompts.iter().map(|prompts| (tensor::PROMPTS, prompts)));
        let outputs = model.run(graph, &inputs)?;
        for (tensor, reference) in golden.with_prefix(&output) {
            match outputs.get(tensor) {
                Some(ours) => {
                    report.compare(format!("{name}.{case}.{tensor}"), &numbers(ours)?, &numbers(reference)?);
                }
                None => report.problem(format!("{name}.{case}.{tensor}"), "is no output"),
            }
        }
    }
    Ok(cases.len())
}

/// The values as f32; those of absent objects' masks are 0, since they would hide the errors of the others.
fn numbers(tensor: &Tensor) -> Outcome<Tensor> {
    let values = if let Ok(values) = tensor.as_slice::<f32>() {
        values.iter().map(|value| if *value == -1024.0 { 0.0 } else { *value }).collect()
    } else if let Ok(values) = tensor.as_slice::<i64>() {
        values.iter().map(|value| *value as f32).collect()
    } else {
        let values = tensor.as_slice::<bool>()?;
        values.iter().map(|value| f32::from(u8::from(*value))).collect()
    };
    Ok(Tensor::f32(tensor.shape(), values)?)
}

/// All masks as the memory encoder reads those of prompts, each without the others.
fn prompts(golden: &Golden, inputs: &[(&str, &Tensor)]) -> Outcome<Tensor> {
    let (_, masks) = inputs.iter().find(|(name, _)| *name == tensor::MASKS).ok_or("there are no masks")?;
    let (side, grid) = (masks.shape()[1], golden.number("grid"));
    let mut prompts = Vec::new();
    for logits in f32s(masks).chunks_exact(side * side) {
        let mask = LogitMask::new(side, side, logits.to_vec())?;
        prompts
            .extend_from_slice(prompted_masks(&[&mask], golden.number("image_size"), 16 * grid)[0].values());
    }
    Ok(Tensor::f32(&[masks.shape()[0], 16 * grid, 16 * grid], prompts)?)
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_output_of_the_tracker() {
    let mut report = Report::default();
    for golden in goldens() {
        report.expect(
            "objects are present in some cases and absent in others",
            has_both_signs(&golden, "track_step."),
        );
        for (case, runner, options) in each_case(&golden) {
            compare_graphs(&mut report, &golden, &case, runner, &options);
        }
    }
    report.finish("every output of the tracker");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_output_of_the_tracker_of_buckets() {
    let mut report = Report::default();
    let golden = Golden::of_checkpoint("multiplex");
    report.expect(
        "objects are present in some cases and absent in others",
        has_both_signs(&golden, "mux_step."),
    );
    for (case, runner, options) in each_case(&golden) {
        let options = ExportOptions { imgsz: Some(golden.number("image_size")), ..options };
        report.check(case, |report| {
            let checkpoint = Checkpoint::open(&golden.checkpoint.join("sam3.1.safetensors"))?;
            let mut model = Exported::on(runner, &checkpoint, &options)?;
            report.expect("model.json has its sizes", model.manifest.multiplex.is_some());
            for (graph, name, count) in MULTIPLEX {
                let found = compare_cases(report, &golden, &mut model, graph, name)?;
                report.expect(format!("{name} has {count} cases"), found == count);
            }
            Ok(())
        });
    }
    report.finish("every output of the tracker of buckets");
}

fn compare_graphs(report: &mut Report, golden: &Golden, case: &str, runner: Runner, options: &ExportOptions) {
    for (graph, name, count) in GRAPHS {
        report.check(format!("{case}, {name}"), |report| {
            let mut model = Exported::on(runner, &golden.open_checkpoint()?, options)?;
            let found = compare_cases(report, golden, &mut model, graph, name)?;
            report.expect(format!("{name} has {count} cases"), found == count);
            Ok(())
        });
    }
}

#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn every_output_of_the_tracker_on_webgpu() {
    let mut report = Report::with_tolerance(1.0 / 2048.0);
    let options = ExportOptions { target: Target::TensorRt, ..ExportOptions::default() };
    for golden in goldens() {
        compare_graphs(&mut report, &golden, &format!("{} on webgpu", golden.name), Runner::WebGpu, &options);
    }
    report.finish("every output of the tracker on WebGPU");
}

#[test]
#[ignore = "needs an NVIDIA GPU and ONNX Runtime for CUDA"]
fn every_output_of_the_tracker_on_cuda() {
    let mut report = Report::with_tolerance(1e-5);
    for golden in goldens() {
        for target in Runner::Cuda.targets() {
            let options = ExportOptions { target: *target, ..ExportOptions::default() };
            compare_graphs(
                &mut report,
                &golden,
                &format!("{}, {target:?}", golden.name),
                Runner::Cuda,
                &options,
            );
        }
    }
    report.finish("every output of the tracker on CUDA");
}

fn has_both_signs(golden: &Golden, graph: &str) -> bool {
    let scores = golden.with_prefix(graph).filter(|(name, _)| name.ends_with(tensor::OBJECT_SCORE));
    let scores: Vec<f32> = scores.flat_map(|(_, scores)| f32s(scores).to_vec()).collect();
    scores.iter().any(|score| *score > 0.0) && scores.iter().any(|score| *score < 0.0)
}
