//! Graphs in half precision against the same graphs in fp32: the cosine similarity of every output, lost and moved
//! detections of the built-in model, and overflow in fp16. `cargo test -p ocelli-tests half_precision -- --nocapture`
//! prints the figures.
//!
//! ONNX Runtime has few 16-bit CPU kernels. It computes the rest in fp32 without intermediate rounding, so its outputs
//! show that a file is valid, but not how exact it is. That is measured with graphs that emulate half precision: fp32,
//! rounded after every operator.
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
use ocelli_tests::outliers;
use serde_json::Value;

const TARGETS: [Target; 2] = [Target::OnnxRuntime, Target::TensorRt];
/// The minimum cosine similarity of outputs in fp32 and in fp16; the lowest measured is 0.999977.
const LEAST_COSINE_FP16: f64 = 0.9999;
/// The same for bfloat16, which has an eighth of the precision; the lowest measured is 0.9970.
const LEAST_COSINE_BF16: f64 = 0.99;
/// The same for bfloat16 in attention and fp16 elsewhere; the lowest measured is 0.99989.
const LEAST_COSINE_BOTH: f64 = 0.9995;
/// Detections with at least this IoU are the same.
const SAME_IOU: f32 = 0.7;

fn half(precision: Precision, islands: MixedPrecision) -> ExportOptions {
    ExportOptions::default().with_precision(precision).with_mixed_precision(islands)
}

/// The levels that graphs for every engine have.
fn for_every_target() -> impl DoubleEndedIterator<Item = MixedPrecision> {
    MixedPrecision::EVERY.into_iter().filter(|islands| *islands != MixedPrecision::Bf16Attention)
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
    near_fp32(|golden, setting| {
        MixedPrecision::EVERY[setting] == MixedPrecision::Accumulate || setting % goldens == golden
    })
}

#[test]
#[ignore = "needs minutes; `make check-all`"]
fn outputs_of_every_setting_are_near_those_in_fp32() -> Outcome<()> {
    near_fp32(|_, _| true)
}

/// Compares the outputs of the settings of each golden that `takes` names by their numbers.
fn near_fp32(takes: impl Fn(usize, usize) -> bool) -> Outcome<()> {
    let mut problems = Vec::new();
    for (number, golden) in Golden::all().into_iter().enumerate() {
        let checkpoint = golden.open_checkpoint()?;
        let expected = every_output(&golden, &mut Exported::new(&checkpoint, &ExportOptions::default())?)?;
        let settings = MixedPrecision::EVERY.into_iter().enumerate();
        for (_, islands) in settings.filter(|(setting, _)| takes(number, *setting)) {
            let mut figures = Vec::new();
            let in_both = islands == MixedPrecision::Bf16Attention;
            let fp16 = (Precision::Fp16, if in_both { LEAST_COSINE_BOTH } else { LEAST_COSINE_FP16 });
            let bf16 = (!in_both).then_some((Precision::Bf16, LEAST_COSINE_BF16));
            for (precision, least) in [fp16].into_iter().chain(bf16) {
                let options = half(precision, islands).with_target(Target::TensorRt).with_emulated_half(true);
                let mut model = Exported::new(&checkpoint, &options)?;
                let case = format!("{}, {precision} emulated, {islands}", golden.name);
                let worst =
                    compare(&case, &expected, &every_output(&golden, &mut model)?, least, &mut problems);
                figures.push(format!("{precision} {worst:.6}"));
            }
            // No CPU engine runs bfloat16.
            for target in TARGETS.into_iter().filter(|_| !in_both) {
                let options = half(Precision::Fp16, islands).with_target(target);
                let mut model = Exported::new(&checkpoint, &options)?;
                assert_eq!(
                    (model.manifest.precision, model.manifest.mixed_precision),
                    (Precision::Fp16, islands)
                );
                let case = format!("{}, {target:?}, fp16, {islands}", golden.name);
                let ours = every_output(&golden, &mut model)?;
                compare(&case, &expected, &ours, LEAST_COSINE_FP16, &mut problems);
            }
            println!("{}, {islands}: worst cosine: {}", golden.name, figures.join(", "));
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
    for islands in for_every_target().rev() {
        sizes.push((format!("fp16, {islands}"), bytes(&half(Precision::Fp16, islands))?));
    }
    println!("{sizes:?}");
    assert!(sizes.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{sizes:?}");
    let share_of = |name: &str| {
        let found = sizes.iter().find(|(setting, _)| setting == name).expect("every setting was exported");
        found.1 * 100 / sizes[0].1
    };
    assert!(share_of("fp16, norm-softmax") < 52, "{sizes:?}");
    assert!(share_of("fp16, all") < 55, "{sizes:?}");
    let kept = half(Precision::Fp16, MixedPrecision::None).with_keep_fp32(["vit".parse()?]);
    let least = sizes[sizes.len() - 1].1;
    assert!(bytes(&kept)? > least * 11 / 10, "blocks kept in fp32 do not make the files larger");
    Ok(())
}

/// Graphs whose attention scores exceed 65504, the largest fp16 number, before they are scaled.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn mixed_precision_prevents_overflow() -> Outcome<()> {
    let golden = Golden::open("released");
    let folder = tempfile::tempdir()?;
    let layer = "detr_encoder.layers.0.self_attn";
    crate::parity::altered::strengthen(
        &golden,
        &[&format!("{layer}.q_proj"), &format!("{layer}.k_proj")],
        600.0,
        folder.path(),
    )?;
    let checkpoint = Checkpoint::open(folder.path())?;
    let prompt = golden.prompt("official", 3);
    let mut finite = Vec::new();
    let kept = half(Precision::Fp16, MixedPrecision::None).with_keep_fp32(["fusion.0".parse()?]);
    let settings = MixedPrecision::EVERY.map(|islands| (islands.to_string(), half(Precision::Fp16, islands)));
    let bf16 = ("bf16".to_owned(), half(Precision::Bf16, MixedPrecision::None));
    let full = ("fp32".to_owned(), ExportOptions::default());
    for (name, options) in [full].into_iter().chain(settings).chain([("keep fusion.0".into(), kept), bf16]) {
        let options = options.with_target(Target::TensorRt).with_emulated_half(true);
        let mut model = Exported::new(&checkpoint, &options)?;
        let outputs = model.decode(golden.tensor("backbone.fpn_2"), &prompt)?;
        let all = outputs.values().all(|output| f32s(output).iter().all(|value| value.is_finite()));
        finite.push((name, all));
    }
    println!("finite: {finite:?}");
    let expected = [true, false, false, true, false, false, true, true, true, true]
        .into_iter()
        .zip(&finite)
        .all(|(expected, (_, found))| expected == *found);
    assert!(expected, "{finite:?}");
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
            ExportOptions::default().with_mixed_precision(MixedPrecision::All),
            "mixed_precision, precision fp32",
        ),
        (ExportOptions::default().with_keep_fp32(["neck".parse()?]), "keep_fp32, precision fp32"),
        (half(Precision::Int8, MixedPrecision::Attention), "mixed_precision, precision int8"),
        (half(Precision::Fp16, MixedPrecision::Bf16Attention), "bf16-attention, target onnxruntime"),
        (
            half(Precision::Bf16, MixedPrecision::Bf16Attention).with_target(Target::TensorRt),
            "bf16-attention, precision bf16",
        ),
        (fp16().with_keep_fp32(["vit.99".parse()?]), "keep_fp32 has vit.99: the model has patches, vit.0"),
        (fp16().with_keep_fp32(["masks".parse()?]).with_detection_only(true), "keep_fp32 has masks"),
        (fp16().with_keep_fp32(["neck.1".parse()?]), "keep_fp32 has neck.1"),
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
    let kept = fp16().with_keep_fp32(["fusion.0".parse()?]);
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
    let emulated = |precision, islands| half(precision, islands).with_emulated_half(true);
    // Graphs for ONNX Runtime sum in 32 bits without `accumulate`, which they share with `none`.
    let settings = MixedPrecision::EVERY
        .into_iter()
        .filter(|islands| *islands != MixedPrecision::Accumulate)
        .map(|islands| {
            let target = match islands {
                MixedPrecision::Bf16Attention => Target::TensorRt,
                _ => Target::default(),
            };
            (format!("fp16, {islands}, emulated"), emulated(Precision::Fp16, islands).with_target(target))
        })
        .chain([
            ("bf16, none, emulated".into(), emulated(Precision::Bf16, MixedPrecision::None)),
            ("fp16, none".into(), half(Precision::Fp16, MixedPrecision::None)),
        ]);
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
        let (few, far, wide) = match name.as_str() {
            _ if name.starts_with("bf16") => (count / 50, 0.2, 8.0),
            _ if name.contains("bf16") => (0, 0.05, 2.0),
            _ => (0, 0.02, 2.0),
        };
        if lost > few || added > few || score > far || edge > wide {
            problems.push(format!("{name}: {lost} lost, {added} added, score {score}, edge {edge}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Constants that a few channels get and the next bias takes back: fp32 stays equal, half precision loses digits, and the
/// more the more of its sums are in half precision.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn outlier_channels_show_the_format_of_sums() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    ocelli::builtin::write_checkpoint(folder.path())?;
    let side = 224;
    let pixels =
        (0..3 * side * side).map(|at| ((at as f32) * 0.013).sin() + ((at % side) as f32 * 0.1).cos());
    let pixels = Tensor::f32(&[1, 3, side, side], pixels.collect())?;
    let backbone = |folder: &Path, options: &ExportOptions| -> Outcome<Outputs> {
        let options = options.clone().with_target(Target::TensorRt).with_emulated_half(true);
        Exported::new(&Checkpoint::open(folder)?, &options)?.backbone(&pixels)
    };
    let expected = backbone(folder.path(), &ExportOptions::default())?;
    // The worst output in fp32, and in fp16 at some levels.
    let worst = |outliers: &str| -> Outcome<[f64; 4]> {
        let changed = tempfile::tempdir()?;
        outliers::copy_with(folder.path(), &[outliers.parse()?], changed.path())?;
        let options = [MixedPrecision::None, MixedPrecision::Accumulate, MixedPrecision::AccumulateLinear];
        let options = options.map(|islands| half(Precision::Fp16, islands));
        let mut worst = [1.0; 4];
        for (worst, options) in worst.iter_mut().zip([ExportOptions::default()].iter().chain(&options)) {
            let found = backbone(changed.path(), options)?;
            let cosines = expected.iter().map(|(name, expected)| cosine(expected, &found[name]));
            *worst = cosines.fold(1.0, f64::min);
        }
        println!("outliers {outliers}: cosine in fp32, none, accumulate, accumulate-linear: {worst:.7?}");
        Ok(worst)
    };
    let [single, none, _, linear] = worst("norms:200")?;
    assert!(single > 0.999_999_9, "{single}");
    assert!(none < linear, "{none}, {linear}");
    assert!(none > 0.999, "{none}");
    // 256 keys: their sum exceeds 65504 before it is divided.
    let [single, none, accumulate, _] = worst("values:4000")?;
    assert!(single > 0.999_99, "{single}");
    assert_eq!(none, 0.0, "it does not overflow");
    assert!(accumulate > 0.9, "{accumulate}");
    Ok(())
}
