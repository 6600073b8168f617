//! The built-in model on OpenVINO: the detections of ONNX Runtime in f32, and close to them in bf16.
//!
//! Needs ONNX Runtime and OpenVINO; `make setup` installs them. `cargo test -p ocelli-tests openvino -- --nocapture`
//! prints the largest differences.

#![allow(clippy::print_stdout, reason = "the largest differences are interesting if the test passes, too")]

use ocelli::engines::openvino::{InferencePrecision, OpenVino, OpenVinoDevice};
use ocelli::export::contract::{Precision, Target};
use ocelli::export::{ExportOptions, export};
use ocelli::{
    Detection, Detector, EngineKind, Error, ErrorKind, ModelSource, Prompt, Prompts,
    engine::{EngineFactory, EngineOptions},
    options::PrecisionChoice,
    stages::TextCacheFile,
};
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneOptions, vocabulary};

use crate::parity::golden::Golden;

const OPENVINO: EngineKind = EngineKind::OpenVino { device: OpenVinoDevice::Cpu };

/// The largest differences of a score, and of a box's edge in pixels, and the smallest IoU of two masks.
struct Bounds {
    score: f32,
    edge: f32,
    mask_iou: f64,
}

fn detector(kind: EngineKind, precision: Option<Precision>) -> ocelli::Result<Detector> {
    let builder = Detector::builder().with_engine(kind).with_masks(true).with_text_cache(TextCacheFile::None);
    match precision {
        Some(precision) => {
            builder.with_options(|options| options.precision = Some(PrecisionChoice::Of(precision)))
        }
        None => builder,
    }
    .build()
}

fn scenes(count: u64) -> Vec<Scene> {
    let generator = SceneGenerator::new(47, SceneOptions::default()).expect("the defaults");
    (0..count).map(|index| generator.scene(index)).collect()
}

/// The largest difference of the edges.
fn edge_distance(a: &Detection, b: &Detection) -> f32 {
    let corners = |found: &Detection| [found.bbox.x1, found.bbox.y1, found.bbox.x2, found.bbox.y2];
    corners(a).into_iter().zip(corners(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Compares the detections of two detectors, in any order, on drawn scenes with text prompts and exemplars. Where one has
/// a detection that the other lacks, its score must be within the bounds of the threshold.
fn compare(reference: &mut Detector, candidate: &mut Detector, bounds: &Bounds) {
    const THRESHOLD: f32 = 0.3;
    let (mut wrong, mut count) = (Vec::new(), 0);
    let (mut score, mut edge, mut least_iou) = (0.0_f32, 0.0_f32, 1.0_f64);
    for (index, scene) in scenes(6).iter().enumerate() {
        // One class, several, and more than are decoded at once; an exemplar among them.
        for classes in [1, 4, 9] {
            let names = scene.objects.iter().map(|object| object.label).chain(vocabulary().iter().copied());
            let mut names: Vec<_> = names.take(classes).collect();
            names.dedup();
            let text = names.into_iter().map(Prompt::new);
            let shown = scene.objects.first().expect("a scene has objects");
            let visual = Prompt::visual("shown").with_exemplar(shown.bbox, true);
            let prompts: Vec<_> = if classes == 4 { text.chain([visual]).collect() } else { text.collect() };
            let prompts = Prompts::new(prompts).expect("valid prompts");
            let [expected, mut found] = [&mut *reference, &mut *candidate]
                .map(|detector| detector.detect(&scene.image, &prompts).expect("it detects").items);
            count += expected.len();
            for a in &expected {
                let same = |b: &Detection| b.class_id == a.class_id;
                let nearest = found
                    .iter()
                    .enumerate()
                    .filter(|(_, b)| same(b))
                    .min_by(|(_, b), (_, c)| edge_distance(a, b).total_cmp(&edge_distance(a, c)));
                let Some((position, _)) = nearest.filter(|(_, b)| edge_distance(a, b) <= bounds.edge) else {
                    if a.score > THRESHOLD + bounds.score {
                        wrong.push(format!(
                            "scene {index}, {classes} classes: no {} {} {:?}",
                            a.label, a.score, a.bbox
                        ));
                    }
                    continue;
                };
                let b = found.remove(position);
                let iou = match (&a.mask, &b.mask) {
                    (Some(a), Some(b)) => a.iou(b).expect("masks of one image"),
                    _ => 0.0,
                };
                score = score.max((a.score - b.score).abs());
                edge = edge.max(edge_distance(a, &b));
                least_iou = least_iou.min(iou);
                if (a.score - b.score).abs() > bounds.score || iou < bounds.mask_iou {
                    wrong.push(format!(
                        "scene {index}, {classes} classes: {} {} {:?}, expected {} {:?}; masks' IoU {iou}",
                        b.label, b.score, b.bbox, a.score, a.bbox
                    ));
                }
            }
            let surplus = found.iter().filter(|b| b.score > THRESHOLD + bounds.score);
            wrong.extend(surplus.map(|b| {
                format!("scene {index}, {classes} classes: {} {} {:?} is new", b.label, b.score, b.bbox)
            }));
        }
    }
    println!(
        "{count} detections: score within {score}, edges within {edge} px, masks' IoU at least {least_iou}"
    );
    assert!(count >= 30, "only {count} detections were compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn unwrap(detector: ocelli::Result<Detector>) -> Detector {
    detector.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn detections_equal_those_of_onnx_runtime() {
    let mut reference = unwrap(detector(EngineKind::Cpu, None));
    let mut candidate = unwrap(detector(OPENVINO, None));
    compare(&mut reference, &mut candidate, &Bounds { score: 1e-4, edge: 0.05, mask_iou: 0.995 });
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn bf16_is_within_its_bounds_where_the_cpu_has_it() {
    let runtime = OpenVino::load(None).unwrap_or_else(|error| panic!("{error}"));
    let devices = runtime.devices().expect("a list");
    let has_bf16 =
        devices.iter().any(|device| device.name == "CPU" && device.computes_in(InferencePrecision::Bf16));
    let candidate = detector(OPENVINO, Some(Precision::Bf16));
    if has_bf16 {
        let mut candidate = unwrap(candidate);
        assert!(candidate.engine().ends_with(", bf16"), "{}", candidate.engine());
        // The model still has 32-bit weights.
        assert_eq!(candidate.model().manifest().precision, Precision::Fp32);
        let mut reference = unwrap(detector(EngineKind::Cpu, None));
        compare(&mut reference, &mut candidate, &Bounds { score: 0.05, edge: 4.0, mask_iou: 0.9 });
    } else {
        // Refused when the first graph is loaded, and named.
        let refused = candidate.and_then(|mut detector| {
            let scene = scenes(1).remove(0);
            detector.detect(&scene.image, &Prompts::new(["dog"]).expect("one class")).map(drop)
        });
        let error: Error = refused.expect_err("the CPU has no bf16");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("has no fast bf16 arithmetic"), "{error}");
        if error.to_string().contains("AMX") {
            // Without AMX it has.
            let name = "openvino::bf16_is_within_its_bounds_where_the_cpu_has_it";
            let program = std::env::current_exe().expect("a test program");
            let again = std::process::Command::new(program)
                .args(["--exact", name])
                .env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
                .output()
                .expect("it starts");
            let said = String::from_utf8_lossy(&again.stdout);
            assert!(again.status.success() && said.contains("1 passed"), "{said}");
        }
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn weights_of_8_bits_are_within_their_bounds() {
    let mut candidate = unwrap(detector(OPENVINO, Some(Precision::Int8)));
    let manifest = candidate.model().manifest();
    assert_eq!((manifest.precision, manifest.target), (Precision::Int8, Target::TensorRt));
    let mut reference = unwrap(detector(EngineKind::Cpu, None));
    compare(&mut reference, &mut candidate, &Bounds { score: 0.05, edge: 4.0, mask_iou: 0.9 });
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn models_are_exported_with_standard_operators() {
    let options = EngineOptions { kind: OPENVINO, ..EngineOptions::default() };
    let factory = EngineFactory::start(&options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(factory.target(None), Target::TensorRt);
}

/// OpenVINO computes ONNX Runtime's rotary embedding wrongly.
#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn models_exported_for_onnx_runtime_are_refused_and_auto_runs_them_elsewhere() {
    let golden = Golden::all().into_iter().next().expect("there are goldens");
    let checkpoint = golden.open_checkpoint().expect("the golden has a checkpoint");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("model");
    export(&checkpoint, &ExportOptions::default(), &model, |_| Ok(())).expect("it can be exported");
    let build = |engine| {
        Detector::builder()
            .with_model(ModelSource::Folder(model.clone()))
            .with_engine(engine)
            .with_text_cache(TextCacheFile::None)
            .build()
            .expect("graphs are loaded when they are needed")
    };
    let prompts = Prompts::new(["dog"]).expect("a phrase");
    let error = build(OPENVINO).prepare(&prompts).map(drop).expect_err("its operators are refused");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    for part in ["exported for ONNX Runtime", "target tensorrt", "com.microsoft.RotaryEmbedding"] {
        assert!(error.to_string().contains(part), "expected {part:?} in: {error}");
    }
    assert!(!build(EngineKind::Auto).engine().contains("OpenVINO"));
}

/// OpenVINO would end the process.
#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn models_of_two_patches_a_side_are_refused() {
    let golden = Golden::all().into_iter().next().expect("there are goldens");
    let checkpoint = golden.open_checkpoint().expect("the golden has a checkpoint");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("model");
    let patch = golden.number("patch");
    let options =
        ExportOptions { target: Target::TensorRt, imgsz: Some(2 * patch), ..ExportOptions::default() };
    export(&checkpoint, &options, &model, |_| Ok(())).expect("it can be exported");

    let built = Detector::builder()
        .with_model(ModelSource::Folder(model))
        .with_engine(OPENVINO)
        .with_text_cache(TextCacheFile::None)
        .build();
    let mut detector = built.expect("graphs are loaded when they are needed");
    let prompts = Prompts::new(["dog"]).expect("a phrase");
    let error = detector.prepare(&prompts).map(drop).expect_err("the text encoder is refused").to_string();
    assert!(error.contains("below three patches"), "{error}");
}
