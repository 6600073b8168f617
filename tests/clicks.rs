//! Clicks, boxes and masks on an image against `transformers`, with small random models.
//!
//! `tests/golden/parity/make_clicks.py` makes the goldens.

use std::collections::BTreeMap;

use ocelli::engine::{EngineFactory, EngineOptions};
use ocelli::engines::Tensor;
use ocelli::export::ExportOptions;
use ocelli::export::contract::{file, tensor};
use ocelli::stages::{ImageFeatures, Stages, TextCacheFile, Wanted};
use ocelli::tracking::masklets::LogitMask;
use ocelli::{
    BoundingBox, Detector, EngineKind, ErrorKind, Image, Model, ObjectMask, ObjectPrompt, StageTimes,
};

use crate::masklets::NAMES;
use crate::parity::each_case;
use crate::parity::exported::{Exported, Outcome, Runner};
use crate::parity::golden::{Golden, f32s};
use crate::parity::report::Report;

const CASES: [&str; 7] = ["click", "other", "clicks", "box", "box_and_click", "mask", "refined"];

/// The features that clicks need.
const HIDDEN: Wanted = Wanted { masks: true, hidden: true };

fn detector(exported: &Exported, runner: Runner) -> Outcome<Detector> {
    let kind = match runner {
        Runner::OnnxRuntime => EngineKind::Cpu,
        Runner::Embedded => EngineKind::Embedded,
        Runner::OpenVino => "openvino".parse()?,
        Runner::WebGpu | Runner::Cuda => return Err("clicks run on CPUs".into()),
    };
    let options = EngineOptions { kind, threads: Some(1), ..EngineOptions::default() };
    let builder = Detector::builder().with_open_model(Model::open(&exported.path(""))?);
    let builder = builder.with_engine_factory(EngineFactory::start(&options)?);
    Ok(builder.with_text_cache(TextCacheFile::None).build()?)
}

/// Width and height of the golden's image.
fn size(golden: &Golden) -> (u32, u32) {
    let side = |index: usize| golden.value("size")[index].as_u64().expect("two sides") as u32;
    (side(0), side(1))
}

fn logit_mask(tensor: &Tensor) -> LogitMask {
    let &[.., height, width] = tensor.shape() else { panic!("a mask has two sides") };
    let first = f32s(tensor)[..width * height].to_vec();
    LogitMask::new(width, height, first).expect("the shape is the mask's")
}

/// The prompt of a case, in pixels of the image.
fn prompt(golden: &Golden, case: &str) -> ObjectPrompt {
    let image = golden.tensor("pixel_values").shape()[3] as f32;
    let scale = [size(golden).0 as f32 / image, size(golden).1 as f32 / image];
    let mut object = ObjectPrompt::new(case);
    let find = |name: &str| golden.find(&format!("{case}.{name}"));
    if let (Some(points), Some(labels)) = (find("points"), find("labels")) {
        let labels = labels.as_slice::<i64>().expect("labels are i64");
        for (point, &label) in f32s(points).chunks_exact(2).zip(labels) {
            object = object.with_point(point[0] * scale[0], point[1] * scale[1], label == 1);
        }
    }
    if let Some(bbox) = find("box") {
        let edges: [f32; 4] = f32s(bbox).try_into().expect("a box has four edges");
        object = object.with_box(BoundingBox::from(edges).scaled(scale[0], scale[1]));
    }
    match find("mask_prompt") {
        Some(mask) => object.with_logits(logit_mask(mask)),
        None => object,
    }
}

fn compare(report: &mut Report, golden: &Golden, name: &str, found: &[ObjectMask]) -> Outcome<()> {
    let tensor = |kind: &str| golden.tensor(&format!("{name}.{kind}"));
    let (logits, masks) = (tensor("logits"), tensor("masks").as_slice::<bool>()?);
    let ours: Vec<f32> = found.iter().flat_map(|found| found.logits.values().iter().copied()).collect();
    report.compare(format!("{name}.logits"), &Tensor::f32(logits.shape(), ours)?, logits);
    let ours = found.iter().map(|found| found.predicted_iou).collect();
    report.compare(format!("{name}.iou"), &Tensor::f32(&[found.len()], ours)?, tensor("iou"));
    let case = name.split('.').next().unwrap_or(name);
    let score = golden.tensor(&format!("{case}.object_score"));
    let (width, height) = size(golden);
    for (found, reference) in found.iter().zip(masks.chunks_exact((width * height) as usize)) {
        let ours = Tensor::f32(&[1], vec![found.object_score])?;
        report.compare(format!("{name}.object_score"), &ours, score);
        let ours = found.mask.to_bitmap();
        let differ = ours.iter().zip(reference).filter(|(ours, inside)| (**ours == 1) != **inside).count();
        let same_size = (found.mask.width(), found.mask.height()) == (width, height);
        report.expect(format!("{name}.masks: {differ} pixels differ"), same_size && differ == 0);
    }
    Ok(())
}

/// Every prompt, all of them in one call, in both targets and on three engines.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn masks_are_those_of_transformers() {
    let mut report = Report::default();
    for golden in NAMES.map(Golden::of_clicks) {
        let objects = CASES.map(|case| prompt(&golden, case));
        for (case, runner, options) in each_case(&golden) {
            report.check(case, |report| {
                let exported = Exported::on(runner, &golden.open_checkpoint()?, &options)?;
                let Stages { mut encoder, mut segmenter, .. } = detector(&exported, runner)?.into_stages();
                let (mut features, mut times) = (ImageFeatures::default(), StageTimes::default());
                let pixels = golden.tensor("pixel_values");
                encoder.backbone.run_into(pixels, size(&golden), HIDDEN, &mut features, &mut times)?;
                let one = segmenter.segment_each(&features, &objects, false)?;
                let three = segmenter.segment_each(&features, &objects, true)?;
                report.expect("an answer for each object", (one.len(), three.len()) == (7, 7));
                for ((case, one), three) in CASES.iter().zip(&one).zip(&three) {
                    compare(report, &golden, &format!("{case}.one"), one)?;
                    compare(report, &golden, &format!("{case}.three"), three)?;
                }
                // The reference refines the best mask of the first click, and so does a caller.
                let refined = objects[6].clone().with_logits(one[0][0].logits.clone());
                let refined = segmenter.segment_each(&features, &[refined], false)?;
                compare(report, &golden, "refined.one", &refined[0])
            });
        }
    }
    report.finish("masks of clicks");
}

/// The mask for prompts that are not ambiguous, which the masks of random weights are too unstable for.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn the_first_mask_is_that_of_transformers() {
    let mut report = Report::default();
    for golden in NAMES.map(Golden::of_clicks) {
        for (case, runner, options) in each_case(&golden) {
            report.check(case, |report| {
                let mut model = Exported::on(runner, &golden.open_checkpoint()?, &options)?;
                let image =
                    model.run(file::BACKBONE, &[(tensor::PIXEL_VALUES, golden.tensor("pixel_values"))])?;
                let features =
                    model.run(file::TRACK_FEATURES, &[(tensor::HIDDEN, &image[tensor::HIDDEN])])?;
                for case in ["click", "clicks", "refined"] {
                    let input = |name: &str| golden.find(&format!("{case}.{name}"));
                    let (points, labels) =
                        (input("points").ok_or("points")?, input("labels").ok_or("labels")?);
                    let &[count, _] = points.shape() else { return Err("points are [K, 2]".into()) };
                    let points = Tensor::f32(&[1, count, 2], f32s(points).to_vec())?;
                    let labels = Tensor::i64(&[1, count], labels.as_slice::<i64>()?.to_vec())?;
                    let side = 4 * model.manifest.grid();
                    let mask =
                        input("mask_prompt").map_or(vec![0.0; side * side], |mask| f32s(mask).to_vec());
                    let mask = Tensor::f32(&[1, side, side], mask)?;
                    let has_mask = Tensor::new(&[], vec![input("mask_prompt").is_some()])?;
                    let found = model.run(
                        file::TRACK_POINTS,
                        &[
                            (tensor::PIXEL, &features[tensor::PIXEL]),
                            (tensor::HIGH_RES[0], &features[tensor::HIGH_RES[0]]),
                            (tensor::HIGH_RES[1], &features[tensor::HIGH_RES[1]]),
                            (tensor::POINTS, &points),
                            (tensor::LABELS, &labels),
                            (tensor::MASK_PROMPT, &mask),
                            (tensor::HAS_MASK, &has_mask),
                        ],
                    )?;
                    let first = f32s(&found[tensor::ALL_MASKS])[..side * side].to_vec();
                    let name = format!("{case}.first.logits");
                    report.compare(&name, &Tensor::f32(&[1, side, side], first)?, golden.tensor(&name));
                    let name = format!("{case}.first.iou");
                    let first = Tensor::f32(&[1], f32s(&found[tensor::ALL_IOU])[..1].to_vec())?;
                    report.compare(&name, &first, golden.tensor(&name));
                }
                Ok(())
            });
        }
    }
    report.finish("the first mask");
}

fn image(step: usize) -> Image {
    let pixels = (0..90 * 70 * 3).map(|index| (index * (37 + step) % 251) as u8).collect();
    Image::from_rgb8(90, 70, pixels).expect("as many bytes as 90 × 70 pixels have")
}

#[test]
fn features_are_kept_and_belong_to_their_image() -> Outcome<()> {
    let golden = Golden::of_clicks("tracker");
    let exported = Exported::on(Runner::Embedded, &golden.open_checkpoint()?, &ExportOptions::default())?;
    let mut detector = detector(&exported, Runner::Embedded)?;
    detector.prepare_segment()?;
    let object = [ObjectPrompt::new("it").with_point(30.0, 20.0, true)];
    let (first, second) = (detector.encode(&image(0))?, detector.encode(&image(1))?);
    let of_first = detector.segment(&first, &object)?;
    let of_second = detector.segment(&second, &object)?;
    assert_ne!(of_first, of_second);
    assert_eq!(detector.segment(&first, &object)?, of_first, "the same features");
    // Each object is answered as if it were alone, also if there are more than one run takes.
    let many: Vec<ObjectPrompt> = std::iter::repeat_n(object[0].clone(), 18).collect();
    let found = detector.segment(&first, &many)?;
    let differs = |found: &ObjectMask| found.mask != of_first[0].mask;
    assert!(found.len() == 18 && !found.iter().any(differs), "objects of a batch are independent");
    assert!(detector.segment(&first, &[])?.is_empty());

    // A detection between two clicks leaves them alone, and buffers that are used again are those of the new image.
    let Stages { mut encoder, mut segmenter, .. } = detector.into_stages();
    let (mut features, mut times) = (ImageFeatures::default(), StageTimes::default());
    let without = |failed: ocelli::Result<Vec<Vec<ObjectMask>>>| {
        let error = failed.map(|_| ()).expect_err("the features have no part for clicks");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("Detector::encode"), "{error}");
    };
    for (step, expected) in [(0, &of_first), (1, &of_second)] {
        encoder.encode_into(&image(step), HIDDEN, &mut features, &mut times)?;
        assert_eq!(&segmenter.segment_each(&features, &object, false)?.concat(), expected, "image {step}");
    }
    let mut file = Vec::new();
    features.write_to(&mut file)?;
    features.read_from(&mut file.as_slice())?;
    without(segmenter.segment_each(&features, &object, false));
    encoder.encode_into(&image(0), HIDDEN, &mut features, &mut times)?;
    encoder.encode_into(&image(1), Wanted::default(), &mut features, &mut times)?;
    without(segmenter.segment_each(&features, &object, false));
    Ok(())
}

#[test]
fn models_without_a_tracker_are_refused() -> Outcome<()> {
    let (with_tracker, plain) = (Golden::of_tracker("tracker"), Golden::open("plain"));
    let cases: BTreeMap<&str, (&Golden, ExportOptions)> = BTreeMap::from([
        ("export a checkpoint that has one", (&plain, ExportOptions::default())),
        (
            "do not leave it out",
            (&with_tracker, ExportOptions { no_tracker: true, ..ExportOptions::default() }),
        ),
        (
            "for detection only",
            (&with_tracker, ExportOptions { detection_only: true, ..ExportOptions::default() }),
        ),
    ]);
    for (text, (golden, options)) in cases {
        let exported = Exported::on(Runner::Embedded, &golden.open_checkpoint()?, &options)?;
        let mut detector = detector(&exported, Runner::Embedded)?;
        let object = [ObjectPrompt::new("it").with_point(30.0, 20.0, true)];
        let features = detector.encode(&image(0))?;
        let refused = [detector.segment(&features, &object).map(|_| ()), detector.prepare_segment()];
        for error in refused.map(|refused| refused.expect_err(text)) {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            assert!(error.to_string().starts_with("clicks, ") && error.to_string().contains(text), "{error}");
        }
    }
    Ok(())
}
