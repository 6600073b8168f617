//! Models and frames that a tracker refuses.

use ocelli::export::{Checkpoint, ExportOptions};
use ocelli::masklets::{
    MaskDetector, MaskFrame, MaskTracker, SessionSource, VideoSession, VideoSessionOptions, VideoShape,
};
use ocelli::{Detector, EngineKind, ErrorKind, Image, Model, Prompts, stages::TextCacheFile};

use super::replay::embedded;
use crate::parity::exported::{Exported, Outcome};
use crate::parity::golden::Golden;

const VIDEO: VideoShape = VideoShape { frames: Some(1), width: 64, height: 48 };

fn detector(exported: &Exported, masks: bool) -> Outcome<Detector> {
    let builder = Detector::builder().with_open_model(Model::open(&exported.path(""))?).with_masks(masks);
    Ok(builder.with_engine(EngineKind::Embedded).with_text_cache(TextCacheFile::None).build()?)
}

#[test]
fn models_without_a_tracker_are_refused() -> Outcome<()> {
    let with_tracker = Golden::of_tracker("tracker");
    let plain = Golden::open("plain");
    let cases: [(&Golden, ExportOptions, &str); 3] = [
        (&plain, ExportOptions::default(), "export a checkpoint that has one"),
        (&with_tracker, ExportOptions::default().with_tracker(false), "do not leave it out"),
        (&with_tracker, ExportOptions::default().with_detection_only(true), "for detection only"),
    ];
    for (golden, options, text) in cases {
        let checkpoint: Checkpoint = golden.open_checkpoint()?;
        let masks = !text.contains("only");
        let exported = Exported::new(&checkpoint, &options)?;
        let mut detector = detector(&exported, masks)?;
        let options = MaskTracker::options(detector.model());
        let error = MaskTracker::new(&detector, 1, VIDEO, options).map(|_| ()).expect_err(text);
        let prompts = detector.prepare(&Prompts::new(["dog"])?)?;
        let session_options = VideoSessionOptions::new(&detector);
        let other = MaskDetector::new(detector, prompts, &options).map(|_| ()).expect_err(text);
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

#[test]
fn wrong_use_is_an_error() -> Outcome<()> {
    let golden = Golden::of_session("tracker");
    let replay = embedded(&golden)?;
    let mut detector = replay.detector()?;
    let options = replay.options();
    let mut other = options;
    other.patch_grid = 9;
    let error = MaskTracker::new(&detector, 1, VIDEO, other).map(|_| ()).expect_err("another grid");
    assert!(error.to_string().contains("patch_grid is 9: expected 8"), "{error}");

    let mut tracker = MaskTracker::new(&detector, 1, VIDEO, options)?;
    let error = tracker.push(&MaskFrame::default()).expect_err("an empty frame");
    assert!(error.to_string().contains("has no features"), "{error}");
    tracker.push(&replay.frame(0)?)?;
    let error = tracker.push(&replay.frame(1)?).expect_err("the video has one frame");
    assert!(error.to_string().contains("frame 1 is not in the video"), "{error}");

    let prompts = detector.prepare(&Prompts::new(["dog"])?)?;
    let exported =
        Exported::new(&Golden::of_tracker("tracker").open_checkpoint()?, &ExportOptions::default())?;
    let without_masks = self::detector(&exported, false)?;
    let error = MaskDetector::new(without_masks, prompts, &options).map(|_| ()).expect_err("no masks");
    assert!(error.to_string().contains("build the detector with masks"), "{error}");
    Ok(())
}
