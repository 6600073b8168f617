//! Graphs whose large matrix products use 8-bit integers, against the same model in fp32: the cosine similarity of the
//! features, lost and moved detections. `cargo test -p ocelli-tests precision -- --nocapture` prints the figures.
//!
//! Needs ONNX Runtime; `make setup` installs it.

#![allow(clippy::print_stdout, reason = "the figures are interesting if the test passes, too")]

use std::path::Path;

use crate::parity::exported::{Exported, Outcome, Outputs};
use crate::parity::golden::{Golden, f32s};
use ocelli::engines::Tensor;
use ocelli::export::contract::{Precision, Target, file, tensor};
use ocelli::export::{Calibration, Checkpoint, ExportOptions, Pruning};
use ocelli::{
    Detection, Detector, EngineKind, ErrorKind, Image, Model, ModelSource, Prompts,
    calibration::calibrate,
    engine::{EngineFactory, EngineOptions},
    stages::TextCacheFile,
};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{ModelProto, NodeProto};
use serde_json::Value;

/// The minimum cosine similarity of features in int8 and in fp32. The lowest measured is 0.9998; a zero point that is
/// off by one, clipped negative numbers or a missing floor give less than 0.9993. With random weights, one scale for each
/// row makes no difference; a unit test of the exporter covers that.
const LEAST_COSINE: f64 = 0.9995;
/// Detections with at least this IoU are the same.
const SAME_IOU: f32 = 0.7;

fn int8() -> ExportOptions {
    ExportOptions { precision: Precision::Int8, ..ExportOptions::default() }
}

fn cosine(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let (a, b) = (f32s(a), f32s(b));
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Compares each output that the golden has under `prefix`; returns the lowest cosine similarity.
fn compare(golden: &Golden, prefix: &str, outputs: &Outputs, problems: &mut Vec<String>) -> f64 {
    let mut worst = 1.0_f64;
    for (name, ours) in outputs {
        let Some(reference) = golden.find(&format!("{prefix}.{name}")) else { continue };
        let cosine = cosine(ours, reference);
        worst = worst.min(cosine);
        // NaN is a mismatch, too.
        if cosine.is_nan() || cosine < LEAST_COSINE {
            problems.push(format!("{}: {prefix}.{name}: cosine {cosine:.6}", golden.name));
        }
    }
    worst
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn features_of_random_models_are_near_the_reference() -> Outcome<()> {
    let mut problems = Vec::new();
    for golden in Golden::all() {
        let checkpoint = golden.open_checkpoint()?;
        for options in [
            int8(),
            ExportOptions { pruning: Pruning { split_block: Some(1), ..Pruning::default() }, ..int8() },
            ExportOptions { target: Target::TensorRt, ..int8() },
        ] {
            let mut model = Exported::new(&checkpoint, &options)?;
            assert_eq!(model.manifest.precision, Precision::Int8);
            let image = model.backbone(golden.tensor("pixel_values"))?;
            let backbone = compare(&golden, "backbone", &image, &mut problems);
            let mut decoded = 1.0_f64;
            for kind in ["text", "official", "exemplar"] {
                let prompt = golden.prompt(kind, 3);
                let mut outputs = model.decode(golden.tensor("backbone.fpn_2"), &prompt)?;
                // Logits and presence have too few numbers for a cosine similarity to be meaningful.
                outputs.retain(|name, _| name == tensor::ENCODED || name == tensor::QUERIES);
                decoded = decoded.min(compare(&golden, &format!("encdec.{kind}.3"), &outputs, &mut problems));
            }
            println!(
                "{}: cosine of the backbone {backbone:.6}, of the encoder-decoder {decoded:.6}",
                golden.name
            );
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// Every matrix product of the vision transformer with a weight uses 8 bits. The text encoder does not change, so that both precisions
/// share text caches.
#[test]
fn the_large_products_use_8_bits() -> Outcome<()> {
    let mut problems = Vec::new();
    for golden in Golden::all() {
        let checkpoint = golden.open_checkpoint()?;
        let full = Exported::new(&checkpoint, &ExportOptions::default())?;
        let small = Exported::new(&checkpoint, &int8())?;
        let standard = Exported::new(&checkpoint, &ExportOptions { target: Target::TensorRt, ..int8() })?;
        let nodes = |model: &Exported, name: &str| -> Outcome<Vec<NodeProto>> {
            let model = ModelProto::decode(&*std::fs::read(model.path(name))?)?;
            Ok(model.graph.ok_or("no graph")?.node)
        };
        let vision = nodes(&small, file::BACKBONE)?;
        let blocks = vision.iter().filter(|node| node.name.contains("backbone.layers."));
        let (mut integer, mut float) = (0, 0);
        blocks.for_each(|node| match node.op_type.as_str() {
            "MatMulIntegerToFloat" => integer += 1,
            "MatMul" | "Gemm" => float += 1,
            _ => {}
        });
        // Query, key, value, output, and two of the feed-forward network.
        if (integer, float) != (6 * golden.vision_blocks(), 0) {
            problems.push(format!("{}: {integer} products in 8 bits and {float} others", golden.name));
        }
        let vision = nodes(&standard, file::BACKBONE)?;
        let decoded = vision.iter().filter(|node| node.op_type == "DequantizeLinear");
        let of_codes = |product: &&NodeProto| {
            decoded.clone().any(|weight| product.input.get(1) == weight.output.first())
        };
        let count = vision.iter().filter(|node| node.op_type == "MatMul").filter(of_codes).count();
        if count != 6 * golden.vision_blocks() {
            problems.push(format!("{}: {count} products with weights of 8 bits", golden.name));
        }
        if full.manifest.files[file::TEXT_ENCODER] != small.manifest.files[file::TEXT_ENCODER] {
            problems.push(format!("{}: the text encoder differs", golden.name));
        }
        for name in [file::BACKBONE, file::ENCODER_DECODER] {
            let [large, small, standard] =
                [&full, &small, &standard].map(|model| model.manifest.files[name].bytes);
            if small.max(standard) >= large {
                problems.push(format!(
                    "{}: {name} has {small} and {standard} bytes, and {large} in fp32",
                    golden.name
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Detections without a counterpart of their class in the other list.
fn alone<'a>(these: &'a [Detection], those: &[Detection]) -> Vec<&'a Detection> {
    let same = |a: &Detection, b: &Detection| a.class_id == b.class_id && a.bbox.iou(&b.bbox) >= SAME_IOU;
    these.iter().filter(|a| !those.iter().any(|b| same(a, b))).collect()
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
    let models =
        [Exported::new(&checkpoint, &ExportOptions::default())?, Exported::new(&checkpoint, &int8())?];
    let detector = |model: &Exported, masks| {
        let model = Model::open(model.path(file::MANIFEST).parent().expect("it is in a folder"))?;
        Detector::builder()
            .with_open_model(model)
            .with_text_cache(TextCacheFile::None)
            .with_masks(masks)
            .build()
    };
    let (mut full, mut small) = (detector(&models[0], false)?, detector(&models[1], true)?);

    let (mut found, mut lost, mut added, mut masks) = (0, 0, 0, 0);
    let (mut score, mut edge) = (Vec::new(), Vec::new());
    for scene in report["images"].as_array().ok_or("no images")? {
        let image = Image::open(scenes.join(scene["file"].as_str().ok_or("no file")?))?;
        let classes = scene["classes"].as_array().ok_or("no classes")?;
        let prompts = Prompts::new(classes.iter().filter_map(Value::as_str))?;
        let [expected, ours] = [&mut full, &mut small].map(|detector| detector.detect(&image, &prompts));
        let (expected, ours) = (expected?.items, ours?.items);
        found += expected.len();
        lost += alone(&expected, &ours).len();
        added += alone(&ours, &expected).len();
        masks += ours.iter().filter(|one| one.mask.is_some()).count();
        for a in &expected {
            let same = ours.iter().filter(|b| b.class_id == a.class_id && a.bbox.iou(&b.bbox) >= SAME_IOU);
            let Some(b) = same.max_by(|x, y| a.bbox.iou(&x.bbox).total_cmp(&a.bbox.iou(&y.bbox))) else {
                continue;
            };
            score.push((a.score - b.score).abs());
            let edges = |b: &ocelli::BoundingBox| [b.x1, b.y1, b.x2, b.y2];
            let moved = edges(&a.bbox).into_iter().zip(edges(&b.bbox)).map(|(a, b)| (a - b).abs());
            edge.push(moved.fold(0.0, f32::max));
        }
    }
    for values in [&mut score, &mut edge] {
        values.sort_by(f32::total_cmp);
    }
    let at = |values: &[f32], share: f32| values[((values.len() - 1) as f32 * share) as usize];
    println!(
        "{found} detections in 32 bits: {lost} lost, {added} added in 8; scores differ by {:.4} (median), {:.4} (90 %), \
         {:.4} (most); edges by {:.2}, {:.2}, {:.2} px",
        at(&score, 0.5),
        at(&score, 0.9),
        at(&score, 1.0),
        at(&edge, 0.5),
        at(&edge, 0.9),
        at(&edge, 1.0)
    );
    assert!(found >= 100, "only {found} detections to compare");
    assert!(masks > 0, "no mask was computed from 8-bit features");
    assert!(
        lost * 50 <= found && added * 50 <= found,
        "of {found} detections, {lost} lost and {added} added"
    );
    assert!(
        at(&score, 0.5) <= 0.01 && at(&score, 0.9) <= 0.05,
        "scores differ by {:?}",
        [at(&score, 0.5), at(&score, 0.9)]
    );
    assert!(
        at(&edge, 0.5) <= 0.5 && at(&edge, 0.9) <= 2.0,
        "edges differ by {:?}",
        [at(&edge, 0.5), at(&edge, 0.9)]
    );
    Ok(())
}

/// With scales measured on six images, the built-in model finds what it finds in fp32, with the graphs that TensorRT gets.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn calibrated_formats_find_the_same_instances() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    ocelli::builtin::write_checkpoint(folder.path())?;
    let checkpoint = Checkpoint::open(folder.path())?;
    let factory = EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..EngineOptions::default() })?;
    let scenes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/scenes");
    let mut images = Vec::new();
    for entry in std::fs::read_dir(&scenes)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "png") {
            images.push(Image::open(path)?);
        }
    }
    assert!(images.len() >= 6, "{} scenes", images.len());
    let prompts = Prompts::new(ocelli_verify::scenes::vocabulary().iter().copied())?;
    let detect = |options: &ExportOptions| -> Outcome<Vec<Vec<Detection>>> {
        let model = Exported::new(&checkpoint, options)?;
        let mut detector = Detector::builder()
            .with_open_model(Model::open(model.path(file::MANIFEST).parent().expect("it is in a folder"))?)
            .with_engine_factory(factory.clone())
            .with_text_cache(TextCacheFile::None)
            .build()?;
        images.iter().map(|image| Ok(detector.detect(image, &prompts)?.items)).collect()
    };
    let expected = detect(&ExportOptions::default())?;
    let found: usize = expected.iter().map(Vec::len).sum();
    assert!(found >= 12, "only {found} detections to compare");
    let mut problems = Vec::new();
    for precision in [Precision::Fp8, Precision::Int8Static] {
        let options = ExportOptions { target: Target::TensorRt, precision, ..ExportOptions::default() };
        let copies = images.iter().cloned().map(Ok);
        let vocabulary = ocelli_verify::scenes::vocabulary();
        let calibration = calibrate(&checkpoint, &options, &factory, folder.path(), copies, vocabulary)?;
        assert_eq!(calibration.images, images.len());
        let options = ExportOptions { calibration: Some(calibration), ..options };
        let ours = detect(&options)?;
        let (mut lost, mut added, mut score) = (0, 0, 0.0_f32);
        for (expected, ours) in expected.iter().zip(&ours) {
            lost += alone(expected, ours).len();
            added += alone(ours, expected).len();
            for a in expected {
                let same =
                    ours.iter().filter(|b| b.class_id == a.class_id && a.bbox.iou(&b.bbox) >= SAME_IOU);
                score = same.map(|b| (a.score - b.score).abs()).fold(score, f32::max);
            }
        }
        println!(
            "{precision}: of {found} detections {lost} lost, {added} added; scores differ by up to {score:.4}"
        );
        if lost > 1 || added > 1 || score > 0.15 {
            problems.push(format!("{precision}: {lost} lost, {added} added, scores by {score}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Formats without a calibration, for other engines, and calibrations without images.
#[test]
fn calibrations_that_do_not_fit_are_refused() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    ocelli::builtin::write_checkpoint(folder.path())?;
    let checkpoint = Checkpoint::open(folder.path())?;
    let tensorrt = || ExportOptions { target: Target::TensorRt, ..ExportOptions::default() };
    let ranges = |layer: &str| {
        let mut calibration = Calibration::default();
        calibration.observe(layer, 1.0)?;
        Ok::<_, ocelli::Error>(calibration)
    };
    let fp8 = || ExportOptions { precision: Precision::Fp8, ..tensorrt() };
    let cases = [
        (fp8(), "precision fp8: its scales are measured on images"),
        (
            ExportOptions { precision: Precision::Int8Static, ..tensorrt() },
            "precision int8-static: its scales",
        ),
        (
            ExportOptions { calibration: Some(ranges("a")?), ..tensorrt() },
            "precision fp32: a calibration is for 8-bit formats",
        ),
        (
            ExportOptions { calibration: Some(Calibration::default()), ..fp8() },
            "precision fp8: the calibration has no ranges",
        ),
        (
            ExportOptions { calibration: Some(ranges("a")?), ..fp8() },
            "the calibration has no range for vision_encoder",
        ),
        (
            ExportOptions { target: Target::OnnxRuntime, calibration: Some(ranges("a")?), ..fp8() },
            "precision fp8: only TensorRT multiplies in 8 bits",
        ),
    ];
    let mut wrong = Vec::new();
    for (options, words) in cases {
        match ocelli::export::export(&checkpoint, &options, &folder.path().join("out"), |_| Ok(())) {
            Err(e) if e.kind() == ErrorKind::InvalidArgument && e.to_string().contains(words) => {}
            other => wrong.push(format!("{words}: {other:?}")),
        }
    }
    let embedded =
        EngineFactory::start(&EngineOptions { kind: EngineKind::Embedded, ..EngineOptions::default() })?;
    let none = calibrate(&checkpoint, &fp8(), &embedded, folder.path(), [], &["dog"]);
    match none {
        Err(e) if e.to_string() == "cannot calibrate: there are no images; expected at least one" => {}
        other => wrong.push(format!("no images: {other:?}")),
    }
    // The embedded engine observes ranges, and does not run the result.
    let image = || [Image::open("../demos/scenes/park.png")];
    let calibration = calibrate(&checkpoint, &fp8(), &embedded, folder.path(), image(), &["dog", "tree"])?;
    let output = folder.path().join("fp8");
    ocelli::export::export(
        &checkpoint,
        &ExportOptions { calibration: Some(calibration), ..fp8() },
        &output,
        |_| Ok(()),
    )?;
    let detector =
        Detector::builder().with_model(ModelSource::Folder(output)).with_engine(EngineKind::Embedded).build();
    match detector.map(|_| ()) {
        Err(e) if e.kind() == ErrorKind::Unavailable && e.to_string().starts_with("precision fp8, ") => {}
        other => wrong.push(format!("embedded: {other:?}")),
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
