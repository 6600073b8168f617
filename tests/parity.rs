//! The exported graphs against `transformers`: every output of every graph, in both targets and on two engines, on small
//! random models.
//!
//! The goldens and the script that generates them are in `tests/golden/parity`. The error is max|a − b| / max|b|. Each
//! test runs all models and reports every difference in one table; `cargo test -p ocelli-tests parity -- --nocapture`
//! prints the largest error of each model as well.
//!
//! Needs ONNX Runtime and OpenVINO; `make setup` installs them.

#![allow(clippy::print_stdout, reason = "the worst errors are interesting if the test passes, too")]

pub mod altered;
pub mod exported;
pub mod golden;
pub mod report;

use std::collections::BTreeSet;

use self::exported::{Exported, Outcome, Outputs, Runner};
use self::golden::{Golden, append_padding, append_to_prompt, f32s, first, range};
use self::report::Report;
use ocelli::Mask;
use ocelli::engines::Tensor;
use ocelli::export::contract::{Prompting, Target, file, tensor};
use ocelli::export::{Checkpoint, ErrorKind, ExportOptions, Pruning, export};
use sha2::{Digest, Sha256};

pub const TARGETS: [Target; 2] = [Target::OnnxRuntime, Target::TensorRt];
pub const KINDS: [&str; 3] = ["text", "official", "exemplar"];
const CLASS_COUNTS: [usize; 3] = [1, 3, 17];
/// The minimum IoU of a mask and the reference.
const MASK_IOU: f64 = 0.99;
/// The class whose masks the goldens have, and how many.
const MASK_CLASS: usize = 1;
const MASK_COUNT: usize = 3;

/// Each engine with each target whose operators it knows: the name of the case, the engine, the options of the target.
pub fn each_case(golden: &Golden) -> impl Iterator<Item = (String, Runner, ExportOptions)> + use<'_> {
    let runners = [Runner::OnnxRuntime, Runner::Embedded, Runner::OpenVino].into_iter();
    let pairs = runners.flat_map(|runner| runner.targets().iter().map(move |target| (runner, *target)));
    pairs.map(|(runner, target)| {
        let case = format!("{}, for {target:?} on {runner:?}", golden.name).to_lowercase();
        (case, runner, ExportOptions { target, ..ExportOptions::default() })
    })
}

/// Of [`each_case`] one, another one for each golden: for what an option changes in the graphs, since
/// `every_output_of_every_graph` compares them in each case. All of them with `OCELLI_TEST_PRODUCT`.
fn a_case(golden: &Golden) -> impl Iterator<Item = (String, Runner, ExportOptions)> + use<'_> {
    let count = each_case(golden).count();
    let number = golden.name.bytes().map(usize::from).sum::<usize>() % count;
    let has_product = std::env::var_os("OCELLI_TEST_PRODUCT").is_some();
    each_case(golden).enumerate().filter(move |(at, _)| has_product || *at == number).map(|(_, case)| case)
}

/// From pixels to masks through every graph: a software GPU takes minutes for more.
///
/// The limit is the error of sine and cosine that WebGPU allows; they encode the positions of boxes.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh; minutes"]
fn every_graph_on_webgpu() {
    let mut report = Report::with_tolerance(1.0 / 2048.0);
    for golden in Golden::all() {
        let started = std::time::Instant::now();
        let case = format!("{}, for tensorrt on webgpu", golden.name);
        report.check(case, |report| {
            let options = ExportOptions { target: Target::TensorRt, ..ExportOptions::default() };
            let mut model = Exported::on(Runner::WebGpu, &golden.open_checkpoint()?, &options)?;
            compare_chain(report, &golden, &mut model)
        });
        println!("{}: {:.0} s", golden.name, started.elapsed().as_secs_f32());
    }
    report.finish("every graph on WebGPU");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn every_output_of_every_graph() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in each_case(&golden) {
            report.check(case, |report| {
                let mut model = Exported::on(runner, &golden.open_checkpoint()?, &options)?;
                expect_outputs(
                    report,
                    &mut model,
                    file::BACKBONE,
                    &["fpn_0", "fpn_1", "fpn_2", "image_prompt"],
                )?;
                expect_outputs(
                    report,
                    &mut model,
                    file::ENCODER_DECODER,
                    &["boxes", "encoded", "logits", "presence", "queries"],
                )?;
                compare_backbone(report, &golden, &mut model, "")?;
                compare_text(report, &golden, &mut model)?;
                compare_exemplars(report, &golden, &mut model)?;
                compare_encoder_decoder(report, &golden, &mut model, &KINDS)?;
                compare_masks(report, &golden, &mut model, &KINDS)?;
                compare_chain(report, &golden, &mut model)
            });
        }
    }
    report.finish("every output of every graph");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn pruned_backbones() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let checkpoint = golden.open_checkpoint()?;
                for (i, variant) in golden.pruned.iter().enumerate() {
                    let options = variant.apply(options.clone())?;
                    compare_pruned(
                        report,
                        &golden,
                        i,
                        &mut Exported::on(runner, &checkpoint, &options)?,
                        "whole",
                    )?;
                    for block in 1..golden.vision_blocks() {
                        let options = ExportOptions {
                            pruning: Pruning { split_block: Some(block), ..options.pruning.clone() },
                            ..options.clone()
                        };
                        let mut model = Exported::on(runner, &checkpoint, &options)?;
                        compare_pruned(report, &golden, i, &mut model, &format!("split at {block}"))?;
                    }
                }
                Ok(())
            });
        }
    }
    report.finish("pruned backbones");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn split_backbones_chain() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let checkpoint = golden.open_checkpoint()?;
                for block in 1..golden.vision_blocks() {
                    let options = ExportOptions {
                        pruning: Pruning { split_block: Some(block), ..Pruning::default() },
                        ..options.clone()
                    };
                    let mut model = Exported::on(runner, &checkpoint, &options)?;
                    expect_outputs(report, &mut model, file::BACKBONE_FIRST, &["tokens"])?;
                    report
                        .expect("no whole backbone beside the halves", !model.path(file::BACKBONE).exists());
                    compare_backbone(report, &golden, &mut model, &format!(", split at {block}"))?;
                }
                Ok(())
            });
        }
    }
    report.finish("split backbones");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn detection_only() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let mut model = Exported::on(
                    runner,
                    &golden.open_checkpoint()?,
                    &ExportOptions { detection_only: true, ..options },
                )?;
                expect_outputs(report, &mut model, file::BACKBONE, &["fpn_2", "image_prompt"])?;
                expect_outputs(report, &mut model, file::ENCODER_DECODER, &["boxes", "logits", "presence"])?;
                report.expect("no mask head", !model.path(file::MASK_HEAD).exists());
                compare_backbone(report, &golden, &mut model, "")?;
                compare_text(report, &golden, &mut model)?;
                compare_exemplars(report, &golden, &mut model)?;
                compare_encoder_decoder(report, &golden, &mut model, &KINDS)
            });
        }
    }
    report.finish("detection only");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn text_prompts_only() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let options = ExportOptions { prompting: Prompting::Text, ..options };
                let mut model = Exported::on(runner, &golden.open_checkpoint()?, &options)?;
                expect_outputs(report, &mut model, file::BACKBONE, &["fpn_0", "fpn_1", "fpn_2"])?;
                compare_backbone(report, &golden, &mut model, "")?;
                compare_exemplars(report, &golden, &mut model)?;
                compare_encoder_decoder(report, &golden, &mut model, &KINDS)
            });
        }
    }
    report.finish("text prompts only");
}

/// A checkpoint with another image size, exported with the golden's `imgsz`, equals the golden.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn imgsz_overrides_the_checkpoint() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let size = golden.number("image_size");
                let folder = tempfile::tempdir()?;
                altered::resize(&golden, size + 3 * golden.number("patch"), folder.path())?;
                let checkpoint = Checkpoint::open(folder.path())?;
                let mut model =
                    Exported::on(runner, &checkpoint, &ExportOptions { imgsz: Some(size), ..options })?;
                compare_backbone(report, &golden, &mut model, "")?;
                compare_exemplars(report, &golden, &mut model)?;
                compare_encoder_decoder(report, &golden, &mut model, &KINDS)?;
                compare_masks(report, &golden, &mut model, &KINDS)
            });
        }
    }
    report.finish("imgsz overrides the checkpoint");
}

/// Padding of a prompt, which its mask excludes, changes nothing in any graph.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn padding_does_not_matter() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let mut model = Exported::on(runner, &golden.open_checkpoint()?, &options)?;
                for kind in KINDS {
                    let prompt = append_padding(&golden.prompt(kind, 3));
                    let decoded = model.decode(golden.tensor("backbone.fpn_2"), &prompt)?;
                    compare_all(report, &golden, &format!("encdec.{kind}.3"), &decoded, ", padded");
                    let levels = ["backbone.fpn_0", "backbone.fpn_1"].map(|name| golden.tensor(name));
                    let [encoded, queries] =
                        ["encoded", "queries"].map(|name| golden.tensor(&format!("encdec.{kind}.3.{name}")));
                    let queries = some_queries(queries, MASK_CLASS, MASK_COUNT)?;
                    let encoded = range(encoded, MASK_CLASS, 1);
                    let masks = model.masks(levels, &encoded, &one_class(&prompt, MASK_CLASS), &queries)?;
                    let reference = golden.tensor(&format!("mask.{kind}.3.masks"));
                    report.compare(format!("mask.{kind}.3.masks, padded"), &masks[tensor::MASKS], reference);
                }
                Ok(())
            });
        }
    }
    report.finish("padding does not matter");
}

/// Random models do not reach the clamps. So a checkpoint whose last layers are scaled is compared with its golden,
/// scaled and clamped.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn logits_and_presence_are_clamped() {
    let mut report = Report::default();
    let golden = Golden::open("released");
    for (case, runner, options) in each_case(&golden) {
        report.check(case, |report| {
            const FACTOR: f32 = 16.0;
            let folder = tempfile::tempdir()?;
            let parts = ["dot_product_scoring.query_proj.", "detr_decoder.presence_head.layer3."];
            altered::strengthen(&golden, &parts, FACTOR, folder.path())?;
            let mut model = Exported::on(runner, &Checkpoint::open(folder.path())?, &options)?;
            let outputs = model.decode(golden.tensor("backbone.fpn_2"), &golden.prompt("official", 17))?;
            for (name, limit) in [(tensor::LOGITS, 12.0), (tensor::PRESENCE, 10.0)] {
                let reference = golden.tensor(&format!("encdec.official.17.{name}"));
                let strong: Vec<f32> = f32s(reference).iter().map(|v| v * FACTOR).collect();
                let inside = strong.iter().filter(|v| v.abs() < limit).count();
                let both = 0 < inside && inside < strong.len();
                report.expect(format!("some of {name} are clamped and some are not"), both);
                let clamped = strong.iter().map(|v| v.clamp(-limit, limit)).collect();
                report.compare(name, &outputs[name], &Tensor::f32(reference.shape(), clamped)?);
            }
            Ok(())
        });
    }
    report.finish("logits and presence are clamped");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn shapes_follow_the_image_size() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in a_case(&golden) {
            report.check(case, |report| {
                let checkpoint = golden.open_checkpoint()?;
                let (patch, own) = (golden.number("patch"), golden.number("grid"));
                // OpenVINO 2026.4.1 crashes while it compiles graphs of one or two patches a side; the detector refuses them.
                let least = if matches!(runner, Runner::OpenVino) { 3 } else { 1 };
                for grid in [least, (own - 1).max(least), own + 1, 2 * own] {
                    let options = ExportOptions { imgsz: Some(grid * patch), ..options.clone() };
                    expect_shapes(report, &golden, &mut Exported::on(runner, &checkpoint, &options)?, grid)?;
                }
                for imgsz in [0, patch - 1, patch * own + 1, patch * own + patch / 2] {
                    let folder = tempfile::tempdir()?;
                    let outcome = export(
                        &checkpoint,
                        &ExportOptions { imgsz: Some(imgsz), ..options.clone() },
                        &folder.path().join("m"),
                        |_| Ok(()),
                    );
                    let refused = outcome.is_err_and(|e| {
                        e.kind() == ErrorKind::InvalidArgument
                            && e.to_string().contains(&format!("size {patch}"))
                    });
                    report.expect(
                        format!("{imgsz} px is refused with an error that names the patch size"),
                        refused,
                    );
                    report.expect(
                        format!("{imgsz} px leaves no files"),
                        folder.path().read_dir()?.next().is_none(),
                    );
                }
                Ok(())
            });
        }
    }
    report.finish("shapes follow the image size");
}

#[test]
fn exports_are_reproducible() {
    let mut report = Report::default();
    for golden in Golden::all() {
        for (case, runner, options) in each_case(&golden) {
            report.check(case, |report| {
                let checkpoint = golden.open_checkpoint()?;
                let [a, b] = [
                    Exported::on(runner, &checkpoint, &options)?,
                    Exported::on(runner, &golden.open_checkpoint()?, &options)?,
                ];
                report.expect("the manifests are equal", a.manifest == b.manifest);
                report.expect(
                    "the manifest has the hash of the weights",
                    a.manifest.weights_sha256.len() == 64,
                );
                let mut on_disk = BTreeSet::new();
                for entry in a.path("").read_dir()? {
                    on_disk.insert(entry?.file_name().to_string_lossy().into_owned());
                }
                let stated = a.manifest.files.keys().cloned().chain([file::MANIFEST.to_owned()]).collect();
                report.expect("the manifest names every file", on_disk == stated);
                for name in on_disk {
                    let [ours, theirs] = [std::fs::read(a.path(&name))?, std::fs::read(b.path(&name))?];
                    report.expect(format!("{name} is the same twice"), ours == theirs);
                    if let Some(entry) = a.manifest.files.get(&name) {
                        let hash: String =
                            Sha256::digest(&ours).iter().map(|byte| format!("{byte:02x}")).collect();
                        let right = entry.sha256 == hash && entry.bytes == ours.len() as u64;
                        report.expect(format!("{name} has the hash and size of the manifest"), right);
                    }
                }
                Ok(())
            });
        }
    }
    report.finish("exports are reproducible");
}

/// Checks that a graph has exactly these outputs; `expected` is sorted.
fn expect_outputs(report: &mut Report, model: &mut Exported, file: &str, expected: &[&str]) -> Outcome<()> {
    let mut names = model.output_names(file)?;
    names.sort();
    report.expect(format!("{file} has the outputs {}", expected.join(", ")), names == expected);
    Ok(())
}

/// Compares outputs with the goldens of `prefix`. An output without a golden is a problem.
pub fn compare_all(report: &mut Report, golden: &Golden, prefix: &str, outputs: &Outputs, note: &str) {
    for (name, ours) in outputs {
        let key = format!("{prefix}.{name}");
        match (golden.find(&key), golden.find(&format!("{key}_last"))) {
            (Some(reference), _) => report.compare(key + note, ours, reference),
            // Large outputs of many classes: the goldens have the last class only.
            (None, Some(reference)) => {
                report.compare(key + note, &range(ours, ours.shape()[0] - 1, 1), reference);
            }
            (None, None) => report.problem(key, "has no golden"),
        }
    }
}

pub fn compare_backbone(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    note: &str,
) -> Outcome<()> {
    let outputs = model.backbone(golden.tensor("pixel_values"))?;
    compare_all(report, golden, "backbone", &outputs, note);
    Ok(())
}

pub fn compare_pruned(
    report: &mut Report,
    golden: &Golden,
    i: usize,
    model: &mut Exported,
    how: &str,
) -> Outcome<()> {
    let outputs = model.backbone(golden.tensor("pixel_values"))?;
    let reference = golden.tensor(&format!("pruned.{i}.fpn_2"));
    report.compare(format!("pruned.{i}.fpn_2, {how}"), &outputs[tensor::FPN[2]], reference);
    Ok(())
}

pub fn compare_text(report: &mut Report, golden: &Golden, model: &mut Exported) -> Outcome<()> {
    let reference = golden.tensor("text.text_features");
    for classes in CLASS_COUNTS {
        let [ids, mask] =
            ["text.input_ids", "text.attention_mask"].map(|name| first(golden.tensor(name), classes));
        let inputs = [(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)];
        let outputs = model.run(file::TEXT_ENCODER, &inputs)?;
        let ours = &outputs[tensor::TEXT_FEATURES];
        report.compare(format!("text.text_features of {classes}"), ours, &first(reference, classes));
    }
    Ok(())
}

pub fn compare_exemplars(report: &mut Report, golden: &Golden, model: &mut Exported) -> Outcome<()> {
    let fpn_2 = golden.tensor("backbone.fpn_2");
    let none = (Tensor::f32(&[1, 0, 4], vec![])?, Tensor::i64(&[1, 0], vec![])?);
    let outputs = model.exemplars(fpn_2, &none.0, &none.1)?;
    let cls = golden.tensor("backbone.image_prompt");
    report.compare("exemplar.0.features", &outputs[tensor::EXEMPLAR_FEATURES], cls);
    for count in [1, 3] {
        let [boxes, labels, reference] =
            ["boxes", "labels", "features"].map(|what| golden.tensor(&format!("exemplar.{count}.{what}")));
        let outputs = model.exemplars(fpn_2, boxes, labels)?;
        report.compare(format!("exemplar.{count}.features"), &outputs[tensor::EXEMPLAR_FEATURES], reference);
    }
    Ok(())
}

pub fn compare_encoder_decoder(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    kinds: &[&str],
) -> Outcome<()> {
    for kind in kinds {
        for classes in CLASS_COUNTS {
            let mut outputs = model.decode(golden.tensor("backbone.fpn_2"), &golden.prompt(kind, classes))?;
            if classes == 1 {
                // The goldens have these for three classes only.
                for (name, classes) in [("queries", 3), ("encoded", 3)] {
                    if let Some(ours) = outputs.remove(name) {
                        let reference = golden.tensor(&format!("encdec.{kind}.{classes}.{name}"));
                        report.compare(format!("encdec.{kind}.1.{name}"), &ours, &first(reference, 1));
                    }
                }
            }
            compare_all(report, golden, &format!("encdec.{kind}.{classes}"), &outputs, "");
        }
    }
    Ok(())
}

/// A class of some prompts, `[C, T, …]` → `[1, T, …]`.
fn one_class((features, mask): &(Tensor, Tensor), class: usize) -> (Tensor, Tensor) {
    (range(features, class, 1), range(mask, class, 1))
}

/// The first `count` queries of a class, `[C, Q, D]` → `[1, count, D]`.
fn some_queries(queries: &Tensor, class: usize, count: usize) -> Outcome<Tensor> {
    let width = queries.shape()[2];
    let values = f32s(&range(queries, class, 1))[..count * width].to_vec();
    Ok(Tensor::f32(&[1, count, width], values)?)
}

/// The lowest IoU of a mask and its reference, both `[1, K, side, side]` logits; 1 if both are empty.
fn least_mask_iou(ours: &Tensor, reference: &Tensor) -> Outcome<f64> {
    let side = reference.shape()[2];
    let masks = |tensor| {
        let bitmaps = f32s(tensor).chunks_exact(side * side);
        let bitmap = |logits: &[f32]| logits.iter().map(|&logit| u8::from(logit > 0.0)).collect::<Vec<_>>();
        bitmaps.map(|logits| Mask::from_bitmap(&bitmap(logits), side as u32, side as u32)).collect()
    };
    let (ours, reference): (ocelli::Result<Vec<Mask>>, ocelli::Result<Vec<Mask>>) =
        (masks(ours), masks(reference));
    let mut least = 1.0f64;
    for (ours, reference) in ours?.iter().zip(&reference?) {
        if ours.area() + reference.area() > 0 {
            least = least.min(ours.iou(reference)?);
        }
    }
    Ok(least)
}

pub fn compare_masks(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    kinds: &[&str],
) -> Outcome<()> {
    let levels = ["backbone.fpn_0", "backbone.fpn_1"].map(|name| golden.tensor(name));
    for kind in kinds {
        let [encoded, queries] =
            ["encoded", "queries"].map(|name| golden.tensor(&format!("encdec.{kind}.3.{name}")));
        let prompt = one_class(&golden.prompt(kind, MASK_CLASS + 1), MASK_CLASS);
        let encoded = range(encoded, MASK_CLASS, 1);
        let reference = golden.tensor(&format!("mask.{kind}.3.masks"));
        for count in [MASK_COUNT, 1] {
            let queries = some_queries(queries, MASK_CLASS, count)?;
            let outputs = model.masks(levels, &encoded, &prompt, &queries)?;
            let side = reference.shape()[2];
            let part = f32s(reference)[..count * side * side].to_vec();
            let part = Tensor::f32(&[1, count, side, side], part)?;
            report.compare(format!("mask.{kind}.{count}.masks"), &outputs[tensor::MASKS], &part);
            let semantic = golden.tensor(&format!("mask.{kind}.semantic"));
            report.compare(format!("mask.{kind}.{count}.semantic"), &outputs[tensor::SEMANTIC], semantic);
            for (name, reference) in [(tensor::MASKS, &part), (tensor::SEMANTIC, semantic)] {
                let iou = least_mask_iou(&outputs[name], reference)?;
                report.expect(format!("mask.{kind}.{count}.{name}: IoU {iou:.4}"), iou >= MASK_IOU);
            }
        }
    }
    Ok(())
}

/// From pixels, ids and boxes to logits and masks, each graph with the outputs of the one before: names, shapes and token
/// order match.
pub fn compare_chain(report: &mut Report, golden: &Golden, model: &mut Exported) -> Outcome<()> {
    let image = model.backbone(golden.tensor("pixel_values"))?;
    let [ids, mask] = ["text.input_ids", "text.attention_mask"].map(|name| first(golden.tensor(name), 3));
    let text =
        model.run(file::TEXT_ENCODER, &[(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)])?;
    let (boxes, labels) = (golden.tensor("exemplar.3.boxes"), golden.tensor("exemplar.3.labels"));
    let exemplars = model.exemplars(&image[tensor::FPN[2]], boxes, labels)?;
    for (kind, appended) in
        [("official", &image[tensor::IMAGE_PROMPT]), ("exemplar", &exemplars[tensor::EXEMPLAR_FEATURES])]
    {
        let prompt = append_to_prompt(&text[tensor::TEXT_FEATURES], &mask, appended);
        let decoded = model.decode(&image[tensor::FPN[2]], &prompt)?;
        compare_all(report, golden, &format!("encdec.{kind}.3"), &decoded, ", chained");
        let queries = some_queries(&decoded[tensor::QUERIES], MASK_CLASS, MASK_COUNT)?;
        let encoded = range(&decoded[tensor::ENCODED], MASK_CLASS, 1);
        let levels = [&image[tensor::FPN[0]], &image[tensor::FPN[1]]];
        let masks = model.masks(levels, &encoded, &one_class(&prompt, MASK_CLASS), &queries)?;
        let reference = golden.tensor(&format!("mask.{kind}.3.masks"));
        report.compare(format!("mask.{kind}.3.masks, chained"), &masks[tensor::MASKS], reference);
    }
    Ok(())
}

/// Runs all graphs at another image size: the shapes are those of the contract, and all values are finite.
fn expect_shapes(report: &mut Report, golden: &Golden, model: &mut Exported, grid: usize) -> Outcome<()> {
    let (side, width) = (grid * golden.number("patch"), golden.number("model_width"));
    let (queries, length) = (golden.number("queries"), golden.number("context"));
    report.expect(format!("model.json has imgsz {side}"), model.manifest.imgsz == side);
    let pixels: Vec<f32> = (0..3 * side * side).map(|i| (i % 23) as f32 / 11.0 - 1.0).collect();
    let image = model.backbone(&Tensor::f32(&[1, 3, side, side], pixels)?)?;
    let fpn_2 = &image[tensor::FPN[2]];
    let decoded = model.decode(fpn_2, &golden.prompt("official", 3))?;
    let encoded = range(&decoded[tensor::ENCODED], MASK_CLASS, 1);
    let some = some_queries(&decoded[tensor::QUERIES], MASK_CLASS, 2)?;
    let prompt = one_class(&golden.prompt("official", 2), MASK_CLASS);
    let masks = model.masks([&image[tensor::FPN[0]], &image[tensor::FPN[1]]], &encoded, &prompt, &some)?;
    let exemplars =
        model.exemplars(fpn_2, golden.tensor("exemplar.3.boxes"), golden.tensor("exemplar.3.labels"))?;
    let expected: [(&Outputs, &str, &[usize]); 12] = [
        (&image, "fpn_0", &[1, width, 4 * grid, 4 * grid]),
        (&image, "fpn_1", &[1, width, 2 * grid, 2 * grid]),
        (&image, "fpn_2", &[1, width, grid, grid]),
        (&image, "image_prompt", &[1, 1, width]),
        (&exemplars, "exemplar_features", &[1, 4, width]),
        (&decoded, "logits", &[3, queries]),
        (&decoded, "boxes", &[3, queries, 4]),
        (&decoded, "presence", &[3, 1]),
        (&decoded, "queries", &[3, queries, width]),
        (&decoded, "encoded", &[3, grid * grid, width]),
        (&masks, "masks", &[1, 2, 4 * grid, 4 * grid]),
        (&masks, "semantic", &[1, 1, 4 * grid, 4 * grid]),
    ];
    for (outputs, name, shape) in expected {
        let tensor = &outputs[name];
        report.expect(format!("{name} at {side} px is {shape:?}"), tensor.shape() == shape);
        report.expect(format!("{name} at {side} px is finite"), f32s(tensor).iter().all(|v| v.is_finite()));
    }
    let text =
        model.engine(file::TEXT_ENCODER)?.spec().output(tensor::TEXT_FEATURES).map(ToString::to_string);
    let shape = format!("[classes, {length}, {width}]");
    report.expect(format!("text features are {shape}"), text.is_some_and(|text| text.ends_with(&shape)));
    Ok(())
}
