//! Checkpoints in other layouts than that of `transformers`: every output of every graph against the reference.
//!
//! The files, the script that makes them and the reference outputs are in `tests/golden/checkpoints`.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use std::path::Path;

use ocelli::engines::Tensor;
use ocelli::export::contract::{Precision, Prompting, TextPadding, file, tensor};
use ocelli::export::{Checkpoint, CheckpointOptions, ExportOptions};
use ocelli::{BoundingBox, Detector, Image, ModelSource, Prompt, Prompts, stages::TextCacheFile};
use safetensors::SafeTensors;

use crate::parity::exported::{Exported, Outcome};
use crate::parity::golden::Golden;
use crate::parity::report::Report;
use crate::parity::{
    KINDS, TARGETS, compare_all, compare_backbone, compare_chain, compare_encoder_decoder, compare_exemplars,
    compare_masks, compare_pruned, compare_text, each_case,
};

/// Compares every graph of a checkpoint with its golden, in both targets.
fn compare(report: &mut Report, golden: &Golden, what: &str, checkpoint: &Checkpoint) {
    for target in TARGETS {
        report.check(format!("{what}, {target:?}").to_lowercase(), |report| {
            let options = ExportOptions {
                target,
                imgsz: Some(golden.number("image_size")),
                ..ExportOptions::default()
            };
            let mut model = Exported::new(checkpoint, &options)?;
            compare_backbone(report, golden, &mut model, "")?;
            compare_text(report, golden, &mut model)?;
            compare_exemplars(report, golden, &mut model)?;
            compare_encoder_decoder(report, golden, &mut model, &KINDS)?;
            compare_masks(report, golden, &mut model, &KINDS)?;
            compare_chain(report, golden, &mut model)
        });
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn metas_files_equal_transformers() {
    let mut report = Report::default();
    for (name, file) in [("sam3", "sam3.pt"), ("sam31", "sam3.1.safetensors")] {
        let golden = Golden::of_checkpoint(name);
        let checkpoint = Checkpoint::open(&golden.checkpoint.join(file)).expect("the golden is whole");
        compare(&mut report, &golden, file, &checkpoint);
    }
    report.finish("Meta's files");
}

/// The text encoder of MobileCLIP in both conventions of padding, in the names of transformers and of EfficientSAM3.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn lite_text_equals_transformers() {
    let mut report = Report::default();
    for (name, file) in [("lite_s0", ""), ("lite_s0", "efficient_sam3.pt"), ("lite_s1", "")] {
        let golden = Golden::of_checkpoint(name);
        let path = if file.is_empty() { golden.checkpoint.clone() } else { golden.checkpoint.join(file) };
        let what = format!("{name} {file}");
        let checkpoint = Checkpoint::open(&path).expect("the golden is whole");
        compare(&mut report, &golden, &what, &checkpoint);
        let text_padding = TextPadding::Transformers;
        let options = CheckpointOptions { text_padding, ..Default::default() };
        let other = options.open(&path).expect("the golden is whole");
        for target in TARGETS {
            report.check(format!("{what}, padded as in transformers, {target:?}"), |report| {
                let mut model = Exported::new(&other, &ExportOptions { target, ..ExportOptions::default() })?;
                report.expect("the context is 32", model.manifest.context_length == 32);
                let padding = model.manifest.text_padding;
                report.expect("model.json names the padding", padding == Some(TextPadding::Transformers));
                let [ids, mask, reference] = ["input_ids", "attention_mask", "text_features"]
                    .map(|part| golden.tensor(&format!("transformers.{part}")));
                let inputs = [(tensor::INPUT_IDS, ids), (tensor::ATTENTION_MASK, mask)];
                let outputs = model.run(file::TEXT_ENCODER, &inputs)?;
                report.compare("transformers.text_features", &outputs[tensor::TEXT_FEATURES], reference);
                Ok(())
            });
        }
    }
    report.finish("MobileCLIP's text encoder");
}

/// Copies a file of Meta's names without the prefix `detector.` and without what is outside it, as fine-tuning writes it.
fn as_fine_tune(source: &Path, target: &Path) -> Outcome<()> {
    let bytes = std::fs::read(source)?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    let named = tensors.tensors().into_iter();
    let inside = named.filter_map(|(name, view)| Some((name.strip_prefix("detector.")?.to_owned(), view)));
    Ok(std::fs::write(target, safetensors::serialize(inside, None)?)?)
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_fine_tuned_detector_has_no_prefix() {
    let golden = Golden::of_checkpoint("sam31");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint.safetensors");
    as_fine_tune(&golden.checkpoint.join("sam3.1.safetensors"), &path).expect("it can be written");
    let tokenizer = Some(golden.checkpoint.join("tokenizer.json"));
    let options = CheckpointOptions { tokenizer, ..Default::default() };
    let checkpoint = options.open(&path).expect("the names are those of Meta");
    let mut report = Report::default();
    compare(&mut report, &golden, "fine-tune", &checkpoint);
    report.finish("a fine-tuned detector");
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_pruned_backbone_with_its_base() {
    let golden = Golden::of_checkpoint("sam3");
    let base = Some(golden.checkpoint.join("sam3.pt"));
    let options = CheckpointOptions { base, ..Default::default() };
    let checkpoint = options.open(&golden.checkpoint.join("pruned.pt")).expect("the lists fit the tensors");
    let mut report = Report::default();
    for target in TARGETS {
        report.check(format!("pruned, {target:?}").to_lowercase(), |report| {
            let options = ExportOptions { target, ..ExportOptions::default() };
            let mut model = Exported::new(&checkpoint, &options)?;
            compare_pruned(report, &golden, 0, &mut model, "from the file")?;
            compare_text(report, &golden, &mut model)?;
            compare_encoder_decoder(report, &golden, &mut model, &KINDS)?;
            let variant = &golden.pruned[0];
            report.expect("model.json has the skipped blocks", model.manifest.skip_blocks == [0]);
            report.expect("model.json has the masked branches", model.manifest.mask_blocks == ["2:attn"]);
            let whole = Checkpoint::open(&golden.checkpoint.join("sam3.pt"))?;
            let mut same = Exported::new(&whole, &variant.apply(options)?)?;
            compare_pruned(report, &golden, 0, &mut same, "from options")
        });
    }
    report.finish("a pruned backbone");
}

/// The same weights make the same graphs, whatever file they come from, in every number format.
#[test]
fn number_formats_are_those_of_the_same_weights() {
    let golden = Golden::of_checkpoint("sam3");
    let checkpoint = Checkpoint::open(&golden.checkpoint.join("sam3.pt")).expect("the golden is whole");
    let folder = tempfile::tempdir().expect("a folder");
    let parity = Golden::open("plain");
    let other = Checkpoint::open(&parity.checkpoint).expect("the golden is whole");
    for precision in [Precision::Fp16, Precision::Bf16, Precision::Int8] {
        let options = ExportOptions { precision, detection_only: true, ..ExportOptions::default() };
        let [ours, reference] = [&checkpoint, &other].map(|checkpoint| {
            let target = folder.path().join(format!("{precision}-{}", checkpoint.config().vision.hidden));
            ocelli::export::export(checkpoint, &options, &target, |_| Ok(())).expect("it can be exported")
        });
        assert_eq!(ours.precision, precision);
        let names = |manifest: &ocelli::export::contract::Manifest| {
            manifest.files.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(names(&ours), names(&reference), "{precision}");
        assert!(ours.files[file::BACKBONE].bytes > 50_000, "{precision}");
    }
}

/// A student backbone of the goldens, with SAM 3 as its base.
fn student(file: &str) -> Checkpoint {
    let base = Golden::of_checkpoint("sam3").checkpoint.join("sam3.pt");
    let path = Golden::of_checkpoint("students").checkpoint.join(format!("{file}.pt"));
    let options = CheckpointOptions { base: Some(base), ..Default::default() };
    options.open(&path).expect("the golden is whole")
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn student_backbones_equal_timm() {
    let golden = Golden::of_checkpoint("students");
    let base = Golden::of_checkpoint("sam3");
    let mut report = Report::default();
    for name in ["rep_vit", "efficient_vit", "tiny_vit", "rep_vit_low_rank", "tiny_vit_low_rank"] {
        let checkpoint = student(name);
        // The goldens of changes of low rank have the coarsest level only.
        let is_changed = name.ends_with("low_rank");
        for (case, runner, options) in each_case(&golden) {
            report.check(format!("{name}, {case}"), |report| {
                let options = ExportOptions { detection_only: is_changed, ..options };
                let mut model = Exported::on(runner, &checkpoint, &options)?;
                let outputs = model.backbone(golden.tensor("pixel_values"))?;
                report.expect("its outputs", outputs.len() == if is_changed { 2 } else { 4 });
                compare_all(report, &golden, name, &outputs, "");
                Ok(())
            });
        }
    }
    report.check("rep_vit, the rest, from the base", |report| {
        let mut model = Exported::new(&student("rep_vit"), &ExportOptions::default())?;
        compare_text(report, &base, &mut model)?;
        compare_exemplars(report, &base, &mut model)?;
        compare_encoder_decoder(report, &base, &mut model, &KINDS)?;
        compare_masks(report, &base, &mut model, &KINDS)
    });
    report.finish("student backbones");
}

/// EfficientSAM3: a detector with a convolutional backbone, a head, and SAM 3's neck.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn efficient_sam3_equals_timm() {
    let mut report = Report::default();
    for name in ["efficient_rep_vit", "efficient_vit", "efficient_tiny_vit"] {
        let golden = Golden::of_checkpoint(name);
        let checkpoint =
            Checkpoint::open(&golden.checkpoint.join(format!("{name}.pt"))).expect("the golden is whole");
        let has_exemplars = name != "efficient_rep_vit";
        for (case, runner, options) in each_case(&golden) {
            report.check(case, |report| {
                let options = ExportOptions { imgsz: Some(golden.number("image_size")), ..options };
                let mut model = Exported::on(runner, &checkpoint, &options)?;
                compare_backbone(report, &golden, &mut model, "")?;
                report.expect(
                    "an encoder of exemplars, and the official prompt, as in the file",
                    model.manifest.files.contains_key(file::EXEMPLAR_ENCODER) == has_exemplars
                        && (model.manifest.prompting == Prompting::Official) == has_exemplars,
                );
                if !has_exemplars {
                    compare_text(report, &golden, &mut model)?;
                    compare_encoder_decoder(report, &golden, &mut model, &["text"])?;
                    compare_masks(report, &golden, &mut model, &["text"])?;
                }
                Ok(())
            });
        }
    }
    report.finish("EfficientSAM3");
}

/// Text alone works without an encoder of exemplars, and an exemplar is an error that says so.
#[test]
fn a_detector_without_exemplars_says_so() {
    let golden = Golden::of_checkpoint("efficient_rep_vit");
    let path = golden.checkpoint.join("efficient_rep_vit.pt");
    let checkpoint = Checkpoint::open(&path).expect("the golden is whole");
    let options = ExportOptions { imgsz: Some(112), ..ExportOptions::default() };
    let model = Exported::new(&checkpoint, &options).expect("it can be exported");
    let mut detector = Detector::builder()
        .with_model(ModelSource::named(model.path("")))
        .with_text_cache(TextCacheFile::None)
        .build()
        .expect("the model runs");
    let image = Image::from_rgb8(64, 48, vec![90; 64 * 48 * 3]).expect("the size fits");
    let text = Prompts::new(["person"]).expect("a phrase");
    assert!(detector.detect(&image, &text).is_ok());
    let exemplar = Prompt::visual("thing").with_exemplar(BoundingBox::new(1.0, 1.0, 9.0, 9.0), true);
    let error = detector.detect(&image, &Prompts::new([exemplar]).expect("a prompt")).err();
    let message = error.map(|e| e.to_string()).unwrap_or_default();
    assert!(message.contains("no encoder of exemplar boxes"), "{message}");
}

/// A student's grid follows the image, as the vision transformer's does, also where windows need padding.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn students_take_other_image_sizes_and_number_formats() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut report = Report::with_tolerance(0.05);
    for (name, grid) in [("rep_vit", 5), ("efficient_vit", 9), ("tiny_vit", 11)] {
        let checkpoint = student(name);
        let side = 14 * grid;
        let options = ExportOptions { imgsz: Some(side), ..ExportOptions::default() };
        let mut model = Exported::new(&checkpoint, &options).expect("it can be exported");
        let pixels = vec![0.25; 3 * side * side];
        let pixels = Tensor::f32(&[1, 3, side, side], pixels).expect("the shape fits");
        let outputs = model.backbone(&pixels).expect("the graph runs");
        for (level, sides) in [4 * grid, 2 * grid, grid].into_iter().enumerate() {
            assert_eq!(outputs[tensor::FPN[level]].shape()[2..], [sides, sides], "{name}");
        }
        for precision in [Precision::Fp16, Precision::Bf16, Precision::Int8] {
            for target in TARGETS {
                let options = ExportOptions { precision, target, ..options.clone() };
                let output = folder.path().join(format!("{name}-{precision}-{target:?}"));
                let manifest = ocelli::export::export(&checkpoint, &options, &output, |_| Ok(()));
                assert_eq!(manifest.expect("it can be exported").precision, precision, "{name}");
            }
        }
        let options = ExportOptions { precision: Precision::Int8, ..ExportOptions::default() };
        let mut model = Exported::new(&checkpoint, &options).expect("it can be exported");
        let golden = Golden::of_checkpoint("students");
        let outputs = model.backbone(golden.tensor("pixel_values")).expect("the graph runs");
        compare_all(&mut report, &golden, name, &outputs, ", 8 bits");
    }
    report.finish("students in 8 bits");
}
