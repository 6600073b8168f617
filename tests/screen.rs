//! The first pass that rules out classes: its graph, the detections that it leaves, and its price.
//!
//! Needs ONNX Runtime and OpenVINO; `make setup` installs them. `cargo test -p ocelli-tests screen -- --nocapture`

#![allow(clippy::print_stdout, reason = "the figures are interesting if the test passes, too")]

use crate::parity::exported::{Exported, Outcome, Runner};
use crate::parity::golden::{Golden, f32s};
use ocelli::engines::Tensor;
use ocelli::export::contract::{file, tensor};
use ocelli::export::{ErrorKind, ExportOptions};
use ocelli::{
    Detection, Detector, DetectorBuilder, ModelSource, Prompt, Prompts, StageTimes,
    options::DetectorOptions,
    stages::{Screening, TextCacheFile},
};
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneOptions, vocabulary};

/// The means of 2 × 2 cells of features [1, D, P, P].
fn pooled(features: &Tensor) -> Tensor {
    let &[1, channels, rows, columns] = features.shape() else { panic!("{:?}", features.shape()) };
    let values = f32s(features);
    let mut means = Vec::with_capacity(values.len() / 4);
    for channel in 0..channels {
        for (y, x) in (0..rows / 2).flat_map(|y| (0..columns / 2).map(move |x| (y, x))) {
            let at = |dy, dx| values[(channel * rows + 2 * y + dy) * columns + 2 * x + dx];
            means.push((at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4.0);
        }
    }
    Tensor::f32(&[1, channels, rows / 2, columns / 2], means).expect("a quarter of the cells")
}

/// The graph equals the encoder-decoder that is exported for half the side, given features that were averaged here.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime and OpenVINO: make setup")]
fn the_graph_is_the_encoder_decoder_on_half_the_grid() -> Outcome<()> {
    let (mut compared, mut wrong) = (0, Vec::new());
    for golden in Golden::all() {
        let (side, patch) = (golden.tensor("pixel_values").shape()[3], golden.number("patch"));
        if !(side / patch).is_multiple_of(2) {
            continue;
        }
        let checkpoint = golden.open_checkpoint()?;
        for runner in [Runner::OnnxRuntime, Runner::Embedded, Runner::OpenVino] {
            // OpenVINO crashes on graphs of one or two patches a side; the detector refuses them.
            if matches!(runner, Runner::OpenVino) && side / patch < 6 {
                continue;
            }
            for &target in runner.targets() {
                let options = ExportOptions { target, detection_only: true, ..ExportOptions::default() };
                let mut full =
                    Exported::on(runner, &checkpoint, &ExportOptions { screen: true, ..options.clone() })?;
                let mut half =
                    Exported::on(runner, &checkpoint, &ExportOptions { imgsz: Some(side / 2), ..options })?;
                let (features, mask) = golden.prompt("official", 3);
                let image = golden.tensor("backbone.fpn_2");
                let inputs = |image| {
                    [
                        (tensor::FPN[2], image),
                        (tensor::PROMPT_FEATURES, &features),
                        (tensor::PROMPT_MASK, &mask),
                    ]
                };
                let found = full.run(file::SCREEN, &inputs(image))?;
                let expected = half.run(file::ENCODER_DECODER, &inputs(&pooled(image)))?;
                assert_eq!(found.keys().collect::<Vec<_>>(), [tensor::LOGITS, tensor::PRESENCE]);
                for (name, values) in &found {
                    let far = f32s(values).iter().zip(f32s(&expected[name])).map(|(a, b)| (a - b).abs());
                    let far = far.fold(0.0, f32::max);
                    compared += 1;
                    if far.is_nan() || far > 1e-4 {
                        wrong.push(format!("{}, {target:?} on {runner:?}, {name}: {far}", golden.name));
                    }
                }
            }
        }
    }
    assert!(compared >= 10, "only {compared} outputs were compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn an_odd_grid_and_a_folder_without_the_graph_are_refused() -> Outcome<()> {
    let golden = Golden::open("plain");
    let (checkpoint, patch) = (golden.open_checkpoint()?, golden.number("patch"));
    let folder = tempfile::tempdir()?;
    let odd = ExportOptions { screen: true, imgsz: Some(5 * patch), ..ExportOptions::default() };
    let outcome = ocelli::export::export(&checkpoint, &odd, &folder.path().join("odd"), |_| Ok(()));
    let error = outcome.expect_err("half of five patches");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let expected = format!("got 5; choose imgsz {} or {}", 4 * patch, 6 * patch);
    assert!(error.to_string().ends_with(&expected), "{error}");

    let without = folder.path().join("without");
    ocelli::export::export(&checkpoint, &ExportOptions::default(), &without, |_| Ok(()))?;
    let source = ModelSource::Folder(without);
    let built = screened(Screening::Calibrated).with_model(source).build();
    let error = built.map(drop).expect_err("it has no graph");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("exported without its graph"), "{error}");

    let with = folder.path().join("with");
    ocelli::export::export(&checkpoint, &ExportOptions { imgsz: Some(6 * patch), ..odd }, &with, |_| Ok(()))?;
    let build = |screening| {
        let source = ModelSource::Folder(with.clone());
        screened(screening).with_model(source).build().map(drop)
    };
    let error = build(Screening::Calibrated).expect_err("it has no calibration");
    assert!(error.to_string().contains("no calibrated threshold"), "{error}");
    assert!(build(Screening::At(0.1)).is_ok());
    let error = build(Screening::At(1.5)).expect_err("it is no score");
    assert_eq!(error.to_string(), "screen is 1.5: expected a number from 0 to 1");
    std::fs::write(with.join("screen.json"), "{\"threshold\": 0.1}")?;
    let error = build(Screening::Calibrated).expect_err("it is incomplete");
    assert!(error.to_string().contains("calibrate the screen again"), "{error}");
    Ok(())
}

fn screened(screening: Screening) -> DetectorBuilder {
    Detector::with(DetectorOptions { screening: Some(screening), ..DetectorOptions::default() })
}

fn build(builder: DetectorBuilder) -> Detector {
    let builder = builder.with_text_cache(TextCacheFile::None);
    builder.build().unwrap_or_else(|error| panic!("{error}"))
}

fn scenes(count: u64) -> impl Iterator<Item = Scene> {
    let generator = SceneGenerator::new(91, SceneOptions::default()).expect("the defaults");
    (0..count).map(move |index| generator.scene(index))
}

/// Name, score and box of the detections, by score.
fn of(found: &[Detection]) -> Vec<(usize, u32, [i32; 2])> {
    let rounded = |value: f32| (value * 10.0).round() as i32;
    found
        .iter()
        .map(|one| {
            (one.class_id, (one.score * 1e4).round() as u32, [rounded(one.bbox.x1), rounded(one.bbox.y1)])
        })
        .collect()
}

/// With all eighty names, the calibrated screen keeps nearly all detections and rules out most classes; those that it keeps
/// are unchanged.
#[test]
fn most_classes_are_ruled_out_and_detections_stay() {
    let prompts = Prompts::new(vocabulary().iter().copied()).expect("valid names");
    let mut plain = build(Detector::builder().with_masks(true));
    let open = build(screened(Screening::At(0.0)).with_masks(true));
    let embedded = { open }.prepare(&prompts).expect("it loads");
    let mut screened = build(screened(Screening::Calibrated).with_masks(true));
    let (mut all, mut kept) = (0, 0);
    for scene in scenes(12) {
        let expected = plain.detect_embedded(&scene.image, &embedded).expect("it detects").items;
        let found = screened.detect_embedded(&scene.image, &embedded).expect("it detects").items;
        assert!(found.iter().all(|one| one.mask.is_some()), "masks");
        let (expected, found) = (of(&expected), of(&found));
        assert!(found.iter().all(|one| expected.contains(one)), "{found:?}, expected of {expected:?}");
        all += expected.len();
        kept += found.len();
    }
    let mut passed = 0;
    let features: Vec<_> = scenes(12).map(|scene| screened.encode(&scene.image).expect("it runs")).collect();
    let mut decoder = screened.into_stages().decoder;
    for features in features {
        let times = &mut StageTimes::default();
        passed += decoder.screen(&features, &embedded, times).expect("it runs").expect("it is on").len();
    }
    println!(
        "{kept} of {all} detections are kept, {passed} of {} classes are decoded",
        12 * vocabulary().len()
    );
    assert!(passed < 12 * 20, "{passed} classes of 12 scenes are decoded");
    assert!(all >= 40, "{all} detections");
    assert!(100 * kept >= 97 * all, "{kept} of {all} detections are kept");
}

/// A threshold of 1 rules out every name, and none of the classes with example boxes.
#[test]
fn classes_with_exemplars_are_always_decoded() {
    let mut detector = build(screened(Screening::At(1.0)));
    let mut plain = build(Detector::builder());
    for scene in scenes(3) {
        let object = scene.objects.first().expect("a scene has objects");
        let shown = Prompt::visual("shown").with_exemplar(object.bbox, true);
        let both = Prompts::new([Prompt::new(object.label), shown]).expect("valid prompts");
        let expected = plain.detect(&scene.image, &both).expect("it detects").items;
        let found = detector.detect(&scene.image, &both).expect("it detects").items;
        let expected: Vec<_> = expected.into_iter().filter(|one| one.class_id == 1).collect();
        assert!(!expected.is_empty(), "the example itself is found");
        assert_eq!(of(&found), of(&expected));
    }
}

/// The scores of the first pass do not depend on how many classes are looked at together.
#[test]
fn scores_do_not_depend_on_the_chunk() {
    let prompts = Prompts::new(vocabulary()[..20].iter().copied()).expect("valid names");
    let scene = scenes(1).next().expect("one");
    let scores = |chunk: usize| {
        let builder = screened(Screening::At(0.0)).with_class_chunk(chunk);
        let mut detector = build(builder);
        let prompts = detector.prepare(&prompts).expect("it loads");
        let features = detector.encode(&scene.image).expect("it runs");
        let mut decoder = detector.into_stages().decoder;
        decoder.screen_scores(&features, &prompts, &mut StageTimes::default()).expect("it runs")
    };
    let (one, many) = (scores(1), scores(7));
    assert_eq!(one.len(), 20);
    for (a, b) in one.iter().zip(&many) {
        let (a, b) = (a.expect("a score"), b.expect("a score"));
        assert!((a - b).abs() < 1e-4, "{a} and {b}");
    }
}
