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
mod compare;
pub mod exported;
pub mod golden;
pub mod report;

use std::collections::BTreeSet;

pub use self::compare::{
    compare_all, compare_backbone, compare_chain, compare_encoder_decoder, compare_exemplars, compare_masks,
    compare_pruned, compare_text,
};
use self::compare::{expect_shapes, one_class, some_queries};

use self::exported::{Exported, Outcome, Runner};
use self::golden::{Golden, append_padding, f32s, range};
use self::report::Report;
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
