//! Models and frames that a tracker refuses.

use ocelli::export::{Checkpoint, ExportOptions};
use ocelli::masklets::{
    MaskFrame, MaskletOptions, SessionSource, VideoSession, VideoSessionOptions, VideoShape,
};
use ocelli::options::PipelineOptions;
use ocelli::pipeline::MotionGate;
use ocelli::{
    Detector, EngineKind, Error, ErrorKind, Image, Model, Pipeline, Prompts, stages::TextCacheFile,
};

use super::replay::{Tracker, embedded};
use crate::parity::exported::{Exported, Outcome};
use crate::parity::golden::Golden;

const VIDEO: VideoShape = VideoShape { frames: Some(1), width: 64, height: 48 };

fn detector(exported: &Exported, masks: bool) -> Outcome<Detector> {
    let builder = Detector::builder().with_open_model(Model::open(&exported.path(""))?).with_masks(masks);
    Ok(builder.with_engine(EngineKind::Embedded).with_text_cache(TextCacheFile::None).build()?)
}

/// Why a pipeline with memory does not start.
fn pipeline_error(detector: Detector, options: MaskletOptions, text: &str) -> Outcome<Error> {
    let pipeline = Pipeline::builder(detector, Prompts::new(["dog"])?);
    Ok(pipeline.with_options(|all| all.memory = Some(options)).build().map(drop).expect_err(text))
}

#[test]
fn models_without_a_tracker_are_refused() -> Outcome<()> {
    let with_tracker = Golden::of_tracker("tracker");
    let plain = Golden::open("plain");
    let cases: [(&Golden, ExportOptions, &str); 3] = [
        (&plain, ExportOptions::default(), "export a checkpoint that has one"),
        (
            &with_tracker,
            ExportOptions { no_tracker: true, ..ExportOptions::default() },
            "do not leave it out",
        ),
        (
            &with_tracker,
            ExportOptions { detection_only: true, ..ExportOptions::default() },
            "for detection only",
        ),
    ];
    for (golden, options, text) in cases {
        let checkpoint: Checkpoint = golden.open_checkpoint()?;
        let masks = !text.contains("only");
        let exported = Exported::new(&checkpoint, &options)?;
        let detector = detector(&exported, masks)?;
        let options = detector.model().masklet_options();
        let error = Tracker::new(&detector, Some(1), VIDEO, options).map(|_| ()).expect_err(text);
        let session_options = VideoSessionOptions::new(&detector);
        let other = pipeline_error(detector, options, text)?;
        let detector = self::detector(&exported, masks)?;
        let source = SessionSource::pushed(Image::from_rgb8(2, 1, vec![0; 6])?);
        let session = VideoSession::new(detector, source, session_options).map(|_| ()).expect_err(text);
        for error in [error, other, session] {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            assert!(error.to_string().contains(text) && error.to_string().contains("model"), "{error}");
        }
    }
    Ok(())
}

/// Nothing is detected where objects are given.
#[test]
fn options_of_detections_are_refused_beside_objects() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let cases: [(&str, fn(&mut PipelineOptions)); 3] = [
        ("detect_every", |options| options.detect_every = Some(2)),
        ("motion_gate", |options| options.motion_gate = Some(MotionGate::default())),
        ("class_budget", |options| options.class_budget = Some(1)),
    ];
    for (name, set) in cases {
        let (detector, options) = (replay.detector()?, replay.options());
        let pipeline = Pipeline::builder_of_objects(detector, ["dog".into()], Vec::new(), options);
        let error = pipeline.with_options(set).build().map(drop).expect_err(name);
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidArgument, Some(name)), "{error}");
        assert!(error.to_string().contains("nothing is detected"), "{error}");
    }
    Ok(())
}

#[test]
fn wrong_use_is_an_error() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let detector = replay.detector()?;
    let options = replay.options();
    let mut other = options;
    other.patch_grid = 9;
    let error = Tracker::new(&detector, Some(1), VIDEO, other).map(|_| ()).expect_err("another grid");
    assert!(error.to_string().contains("patch_grid is 9: expected 8"), "{error}");

    let mut tracker = Tracker::new(&detector, Some(1), VIDEO, options)?;
    let error = tracker.push(&MaskFrame::default(), &[]).expect_err("an empty frame");
    assert!(error.to_string().contains("has no features"), "{error}");
    tracker.push(&replay.frame(0)?, &[])?;
    let error = tracker.push(&replay.frame(1)?, &[]).expect_err("the video has one frame");
    assert!(error.to_string().contains("frame 1 is not in the video"), "{error}");

    let exported =
        Exported::new(&Golden::of_tracker("tracker").open_checkpoint()?, &ExportOptions::default())?;
    let without_masks = self::detector(&exported, false)?;
    let options = without_masks.model().masklet_options();
    let error = pipeline_error(without_masks, options, "no masks")?;
    assert!(error.to_string().contains("build the detector with masks"), "{error}");
    Ok(())
}
