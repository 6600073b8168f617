//! Graphs in half precision against the same graphs in fp32: the cosine similarity of every output, and lost and moved
//! detections of the built-in model. `cargo test -p ocelli-tests half_precision -- --nocapture` prints the figures.
//!
//! ONNX Runtime has few 16-bit CPU kernels. It computes the rest in fp32 without intermediate rounding, so its outputs
//! show that a file is valid, but not how exact it is on a GPU.
//!
//! Needs ONNX Runtime; `make setup` installs it.

#![allow(clippy::print_stdout, reason = "the figures are interesting if the test passes, too")]

use std::path::Path;

use crate::parity::exported::{Exported, Outcome, Outputs};
use crate::parity::golden::{Golden, f32s, first};
use ocelli::engines::Tensor;
use ocelli::export::contract::{Precision, Target, file, tensor};
use ocelli::export::{Checkpoint, ErrorKind, ExportOptions, MixedPrecision};
use ocelli::{Detection, Detector, EngineKind, Image, Model, Prompts, stages::TextCacheFile};
use serde_json::Value;

const TARGETS: [Target; 2] = [Target::OnnxRuntime, Target::TensorRt];
/// The minimum cosine similarity of outputs in fp32 and in fp16; the lowest measured is 0.999977.
const LEAST_COSINE_FP16: f64 = 0.9999;
/// Detections with at least this IoU are the same.
const SAME_IOU: f32 = 0.7;

fn half(precision: Precision, islands: MixedPrecision) -> ExportOptions {
    ExportOptions { precision, mixed_precision: Some(islands), ..ExportOptions::default() }
}

/// The levels of graphs that CPU engines run, which have no bfloat16.
fn levels() -> impl DoubleEndedIterator<Item = MixedPrecision> {
    MixedPrecision::ALL.into_iter().filter(|islands| *islands != MixedPrecision::Bf16Attention)
}

/// The cosine similarity, or 0 if one of the two is not finite.
fn cosine(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let (a, b) = (f32s(a), f32s(b));
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    if cosine.is_finite() { cosine } else { 0.0 }
}

/// Every output of every graph for the golden's inputs.
fn every_output(golden: &Golden, model: &mut Exported) -> Outcome<Outputs> {
    let mut all = Outputs::new();
    let mut add = |graph: &str, outputs: Outputs| {
        all.extend(outputs.into_iter().map(|(name, value)| (format!("{graph} {name}"), value)));
    };
    add("backbone", model.backbone(golden.tensor("pixel_values"))?);
    let inputs = [("input_ids", tensor::INPUT_IDS), ("attention_mask", tensor::ATTENTION_MASK)];
    let inputs = inputs.map(|(name, input)| (input, golden.tensor(&format!("text.{name}"))));
    add("text", model.run(file::TEXT_ENCODER, &inputs)?);
    let fpn: Vec<&Tensor> =
        tensor::FPN.iter().map(|name| golden.tensor(&format!("backbone.{name}"))).collect();
    let [boxes, labels] = ["boxes", "labels"].map(|name| golden.tensor(&format!("exemplar.3.{name}")));
    add("exemplars", model.exemplars(fpn[2], boxes, labels)?);
    for kind in ["text", "official", "exemplar"] {
        let prompt = golden.prompt(kind, 3);
        let outputs = model.decode(fpn[2], &prompt)?;
        if kind == "official" {
            let queries = first(&outputs[tensor::QUERIES], 1);
            let encoded = first(&outputs[tensor::ENCODED], 1);
            let prompt = (first(&prompt.0, 1), first(&prompt.1, 1));
            add("masks", model.masks([fpn[0], fpn[1]], &encoded, &prompt, &queries)?);
        }
        add(kind, outputs);
    }
    Ok(all)
}

/// The lowest cosine similarity of any output, and a problem for each below `least`.
fn compare(case: &str, expected: &Outputs, ours: &Outputs, least: f64, problems: &mut Vec<String>) -> f64 {
    assert_eq!(expected.len(), ours.len(), "{case}");
    let mut worst = 1.0_f64;
    for (name, expected) in expected {
        let cosine = cosine(expected, &ours[name]);
        worst = worst.min(cosine);
        if cosine < least {
            problems.push(format!("{case}: {name}: cosine {cosine:.6}"));
        }
    }
    worst
}

/// The default on every golden, and every other setting on one of them.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn outputs_are_near_those_in_fp32() -> Outcome<()> {
    let goldens = Golden::all().len();
    near_fp32(|golden, setting, islands| islands == MixedPrecision::Accumulate || setting % goldens == golden)
}

#[test]
#[ignore = "needs minutes; `make check-all`"]
fn outputs_of_every_setting_are_near_those_in_fp32() -> Outcome<()> {
    near_fp32(|_, _, _| true)
}

/// Compares the outputs of the settings of each golden that `takes` names by their numbers.
fn near_fp32(takes: impl Fn(usize, usize, MixedPrecision) -> bool) -> Outcome<()> {
    let mut problems = Vec::new();
    for (number, golden) in Golden::all().into_iter().enumerate() {
        let checkpoint = golden.open_checkpoint()?;
        let expected = every_output(&golden, &mut Exported::new(&checkpoint, &ExportOptions::default())?)?;
        let settings = levels().enumerate();
        for (_, islands) in settings.filter(|(setting, islands)| takes(number, *setting, *islands)) {
            for target in TARGETS {
                let options = ExportOptions { target, ..half(Precision::Fp16, islands) };
                let mut model = Exported::new(&checkpoint, &options)?;
                assert_eq!(
                    (model.manifest.precision, model.manifest.mixed_precision),
                    (Precision::Fp16, islands)
                );
                let case = format!("{}, {target:?}, fp16, {islands}", golden.name);
                let ours = every_output(&golden, &mut model)?;
                let worst = compare(&case, &expected, &ours, LEAST_COSINE_FP16, &mut problems);
                println!("{case}: worst cosine: {worst:.6}");
            }
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// Files in half precision are about half as large; each setting that keeps more in fp32 makes them larger.
#[test]
fn weights_are_half_as_large() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    ocelli::builtin::write_checkpoint(folder.path())?;
    let checkpoint = Checkpoint::open(folder.path())?;
    let bytes = |options: &ExportOptions| -> Outcome<u64> {
        let model = Exported::new(&checkpoint, options)?;
        let graphs = model.manifest.files.iter().filter(|(name, _)| name.ends_with(".onnx"));
        Ok(graphs.map(|(_, entry)| entry.bytes).sum())
    };
    let mut sizes = vec![("fp32".to_owned(), bytes(&ExportOptions::default())?)];
    for islands in levels().rev() {
        sizes.push((format!("fp16, {islands}"), bytes(&half(Precision::Fp16, islands))?));
    }
    println!("{sizes:?}");
    assert!(sizes.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{sizes:?}");
    let share_of = |name: &str| {
        let found = sizes.iter().find(|(setting, _)| setting == name).expect("every setting was exported");
        found.1 * 100 / sizes[0].1
    };
    assert!(share_of("fp16, accumulate") < 52, "{sizes:?}");
    assert!(share_of("fp16, attention") < 55, "{sizes:?}");
    let kept =
        ExportOptions { keep_fp32: ["vit".parse()?].into(), ..half(Precision::Fp16, MixedPrecision::None) };
    let least = sizes[sizes.len() - 1].1;
    assert!(bytes(&kept)? > least * 11 / 10, "blocks kept in fp32 do not make the files larger");
    Ok(())
}

#[test]
fn invalid_options_are_rejected() -> Outcome<()> {
    let golden = Golden::open("released");
    let checkpoint = golden.open_checkpoint()?;
    let folder = tempfile::tempdir()?;
    let fp16 = || half(Precision::Fp16, MixedPrecision::None);
    let cases = [
        (
            ExportOptions { mixed_precision: Some(MixedPrecision::Attention), ..ExportOptions::default() },
            "mixed_precision, precision fp32",
        ),
        (
            ExportOptions { keep_fp32: ["neck".parse()?].into(), ..ExportOptions::default() },
            "keep_fp32, precision fp32",
        ),
        (half(Precision::Int8, MixedPrecision::Attention), "mixed_precision, precision int8"),
        (half(Precision::Fp16, MixedPrecision::Bf16Attention), "bf16-attention, target onnxruntime"),
        (
            ExportOptions {
                target: Target::TensorRt,
                ..half(Precision::Bf16, MixedPrecision::Bf16Attention)
            },
            "bf16-attention, precision bf16",
        ),
        (
            ExportOptions { keep_fp32: ["vit.99".parse()?].into(), ..fp16() },
            "keep_fp32 has vit.99: the model has patches, vit.0",
        ),
        (
            ExportOptions { keep_fp32: ["masks".parse()?].into(), detection_only: true, ..fp16() },
            "keep_fp32 has masks",
        ),
        (ExportOptions { keep_fp32: ["neck.1".parse()?].into(), ..fp16() }, "keep_fp32 has neck.1"),
    ];
    let mut wrong = Vec::new();
    for (options, words) in cases {
        let outcome = ocelli::export::export(&checkpoint, &options, &folder.path().join("out"), |_| Ok(()));
        match outcome {
            Err(e) if e.kind() == ErrorKind::InvalidArgument && e.to_string().contains(words) => {}
            other => wrong.push(format!("{words}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A weight beyond the range of fp16.
    let large = tempfile::tempdir()?;
    crate::parity::altered::strengthen(&golden, &["detr_encoder.layers.0.mlp.fc1"], 1e7, large.path())?;
    let checkpoint = Checkpoint::open(large.path())?;
    let output = folder.path().join("out");
    let error =
        ocelli::export::export(&checkpoint, &fp16(), &output, |_| Ok(())).expect_err("it is too large");
    for word in ["detr_encoder.layers.0.mlp.fc1", "precision bf16", "keep_fp32"] {
        assert!(error.to_string().contains(word), "expected {word:?} in: {error}");
    }
    let kept = ExportOptions { keep_fp32: ["fusion.0".parse()?].into(), ..fp16() };
    ocelli::export::export(&checkpoint, &kept, &output, |_| Ok(()))?;
    Ok(())
}

/// No CPU engine computes in bfloat16; the error names the remedy.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn bfloat16_on_the_cpu_is_an_error_with_the_remedy() -> Outcome<()> {
    let checkpoint = Golden::open("released").open_checkpoint()?;
    let exported = Exported::new(&checkpoint, &half(Precision::Bf16, MixedPrecision::None))?;
    let model = Model::open(exported.path(file::MANIFEST).parent().expect("it is in a folder"))?;
    let mut detector = Detector::builder()
        .with_open_model(model)
        .with_text_cache(TextCacheFile::None)
        .with_engine(EngineKind::Cpu)
        .build()?;
    let error = detector.prepare(&Prompts::new(["dog"])?).expect_err("the CPU has no such kernels");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for word in ["bfloat16", "in fp32 or fp16"] {
        assert!(error.to_string().contains(word), "expected {word:?} in: {error}");
    }
    assert!(!error.to_string().contains('\n'), "{error}");
    Ok(())
}

/// Detections without a counterpart of their class in the other list.
fn alone(these: &[Detection], those: &[Detection]) -> usize {
    let same = |a: &Detection, b: &Detection| a.class_id == b.class_id && a.bbox.iou(&b.bbox) >= SAME_IOU;
    these.iter().filter(|a| !those.iter().any(|b| same(a, b))).count()
}

/// On the scenes of the end-to-end test, the built-in model gives the same detections as in fp32.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn the_built_in_model_gives_the_same_detections() -> Outcome<()> {
    let scenes = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/scenes");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(scenes.join("detections.json"))?)?;
    let folder = tempfile::tempdir()?;
    ocelli::builtin::write_checkpoint(folder.path())?;
    let checkpoint = Checkpoint::open(folder.path())?;
    // Graphs for ONNX Runtime sum in 32 bits without `accumulate`, which they share with `none`.
    let settings = levels().filter(|islands| *islands != MixedPrecision::Accumulate);
    let settings = settings.map(|islands| (format!("fp16, {islands}"), half(Precision::Fp16, islands)));
    let exported = |options: &ExportOptions| -> Outcome<(Exported, Detector)> {
        let exported = Exported::new(&checkpoint, options)?;
        let model = Model::open(exported.path(file::MANIFEST).parent().expect("it is in a folder"))?;
        let builder = Detector::builder().with_open_model(model).with_text_cache(TextCacheFile::None);
        Ok((exported, builder.with_masks(true).build()?))
    };
    let mut images = Vec::new();
    for scene in report["images"].as_array().ok_or("no images")?.iter().step_by(3) {
        let image = Image::open(scenes.join(scene["file"].as_str().ok_or("no file")?))?;
        let classes = scene["classes"].as_array().ok_or("no classes")?;
        images.push((image, Prompts::new(classes.iter().filter_map(Value::as_str))?));
    }
    let detect = |detector: &mut Detector| -> Outcome<Vec<Vec<Detection>>> {
        images.iter().map(|(image, prompts)| Ok(detector.detect(image, prompts)?.items)).collect()
    };
    let expected = detect(&mut exported(&ExportOptions::default())?.1)?;
    let count: usize = expected.iter().map(Vec::len).sum();
    assert!(count >= 50, "only {count} detections to compare");
    let mut problems = Vec::new();
    for (name, options) in settings {
        let found = detect(&mut exported(&options)?.1)?;
        let (mut lost, mut added, mut score, mut edge) = (0, 0, 0.0_f32, 0.0_f32);
        for (expected, found) in expected.iter().zip(&found) {
            lost += alone(expected, found);
            added += alone(found, expected);
            for a in expected {
                let same =
                    found.iter().filter(|b| a.class_id == b.class_id && a.bbox.iou(&b.bbox) >= SAME_IOU);
                let Some(b) = same.max_by(|x, y| a.bbox.iou(&x.bbox).total_cmp(&a.bbox.iou(&y.bbox))) else {
                    continue;
                };
                score = score.max((a.score - b.score).abs());
                let edges = |b: &ocelli::BoundingBox| [b.x1, b.y1, b.x2, b.y2];
                let moved = edges(&a.bbox).into_iter().zip(edges(&b.bbox)).map(|(a, b)| (a - b).abs());
                edge = moved.fold(edge, f32::max);
            }
        }
        println!(
            "{name}: of {count} detections {lost} lost, {added} added; scores differ by {score:.4} at most, edges by \
             {edge:.2} px"
        );
        if lost > 0 || added > 0 || score > 0.02 || edge > 2.0 {
            problems.push(format!("{name}: {lost} lost, {added} added, score {score}, edge {edge}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}
