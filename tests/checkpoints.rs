//! Checkpoints in other layouts than that of `transformers`: every output of every graph against the reference.
//!
//! The files, the script that makes them and the reference outputs are in `tests/golden/checkpoints`.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use std::path::Path;

use ocelli::export::contract::{Precision, TextPadding, file, tensor};
use ocelli::export::{Checkpoint, CheckpointOptions, ExportOptions};
use safetensors::SafeTensors;

use crate::parity::exported::{Exported, Outcome};
use crate::parity::golden::Golden;
use crate::parity::report::Report;
use crate::parity::{
    TARGETS, compare_backbone, compare_chain, compare_encoder_decoder, compare_exemplars, compare_masks,
    compare_pruned, compare_text,
};

/// Compares every graph of a checkpoint with its golden, in both targets.
fn compare(report: &mut Report, golden: &Golden, what: &str, checkpoint: &Checkpoint) {
    for target in TARGETS {
        report.check(format!("{what}, {target:?}").to_lowercase(), |report| {
            let options =
                ExportOptions::default().with_target(target).with_imgsz(golden.number("image_size"));
            let mut model = Exported::new(checkpoint, &options)?;
            compare_backbone(report, golden, &mut model, "")?;
            compare_text(report, golden, &mut model)?;
            compare_exemplars(report, golden, &mut model)?;
            compare_encoder_decoder(report, golden, &mut model)?;
            compare_masks(report, golden, &mut model)?;
            compare_chain(report, golden, &mut model)
        });
    }
}

#[test]
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
fn lite_text_equals_transformers() {
    let mut report = Report::default();
    for (name, file) in [("lite_s0", ""), ("lite_s0", "efficient_sam3.pt"), ("lite_s1", "")] {
        let golden = Golden::of_checkpoint(name);
        let path = if file.is_empty() { golden.checkpoint.clone() } else { golden.checkpoint.join(file) };
        let what = format!("{name} {file}");
        let checkpoint = Checkpoint::open(&path).expect("the golden is whole");
        compare(&mut report, &golden, &what, &checkpoint);
        let options = CheckpointOptions::default().with_text_padding(TextPadding::Transformers);
        let other = options.open(&path).expect("the golden is whole");
        for target in TARGETS {
            report.check(format!("{what}, padded as in transformers, {target:?}"), |report| {
                let mut model = Exported::new(&other, &ExportOptions::default().with_target(target))?;
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
fn a_fine_tuned_detector_has_no_prefix() {
    let golden = Golden::of_checkpoint("sam31");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint.safetensors");
    as_fine_tune(&golden.checkpoint.join("sam3.1.safetensors"), &path).expect("it can be written");
    let options = CheckpointOptions::default().with_tokenizer(golden.checkpoint.join("tokenizer.json"));
    let checkpoint = options.open(&path).expect("the names are those of Meta");
    let mut report = Report::default();
    compare(&mut report, &golden, "fine-tune", &checkpoint);
    report.finish("a fine-tuned detector");
}

#[test]
fn a_pruned_backbone_with_its_base() {
    let golden = Golden::of_checkpoint("sam3");
    let options = CheckpointOptions::default().with_base(golden.checkpoint.join("sam3.pt"));
    let checkpoint = options.open(&golden.checkpoint.join("pruned.pt")).expect("the lists fit the tensors");
    let mut report = Report::default();
    for target in TARGETS {
        report.check(format!("pruned, {target:?}").to_lowercase(), |report| {
            let options = ExportOptions::default().with_target(target);
            let mut model = Exported::new(&checkpoint, &options)?;
            compare_pruned(report, &golden, 0, &mut model, "from the file")?;
            compare_text(report, &golden, &mut model)?;
            compare_encoder_decoder(report, &golden, &mut model)?;
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
        let options = ExportOptions::default().with_precision(precision).with_detection_only(true);
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
