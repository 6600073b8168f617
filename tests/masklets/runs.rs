//! Runs through a video in any order, clicks, and images.

use std::sync::Arc;

use ocelli::Image;
use ocelli::masklets::{Click, RunDirection, TrackedFrame, VideoSession, VideoSessionOptions};

use super::replay::{MaskDetector, Tracker, compare_shown, eager, embedded};
use crate::parity::exported::Outcome;
use crate::parity::golden::Golden;
use crate::parity::report::Report;

/// All frames of a run.
pub fn frames(
    session: &mut VideoSession,
    direction: RunDirection,
    start: Option<usize>,
    most: Option<usize>,
) -> Outcome<Vec<TrackedFrame>> {
    Ok(session.propagate(direction, start, most)?.collect::<ocelli::Result<_>>()?)
}

#[test]
fn a_session_runs_clicks_removes_and_starts_over() {
    let mut report = Report::default();
    report.check("tracker", |report| {
        let golden = Golden::of_session("tracker");
        let replay = embedded(&golden)?;
        let detector = replay.detector()?;
        let mut options = VideoSessionOptions::new(&detector);
        options.masklets = replay.options();
        let mut session = VideoSession::new(detector, replay.source(&Arc::default())?, options)?;
        let refused = session.propagate(RunDirection::Forward, None, None).is_err();
        report.expect("a run needs a prompt", refused);
        let first = session.add_text(0, "dog")?;
        report.expect("the prompt shows its objects", first.objects.len() == 2);
        let shown = frames(&mut session, RunDirection::Forward, None, None)?;
        compare_shown(report, &golden, &shown);

        // A click changes its object alone, on its frame and in the run that follows.
        let before = &shown[2];
        let click = |x, y, is_foreground| Click { x, y, is_foreground };
        let clicked = session.add_points(1, 2, &[click(0.2, 0.8, true), click(0.7, 0.7, false)])?;
        let area = |frame: &TrackedFrame, id: u64| {
            frame.objects.iter().find(|object| object.id == id).map(|object| object.mask.area())
        };
        report.expect("the click changed the mask", area(&clicked, 1) != area(before, 1));
        report.expect("the click kept the others", clicked.objects.iter().any(|object| object.id == 0));
        let partial = frames(&mut session, RunDirection::Forward, Some(2), Some(2))?;
        let numbers: Vec<usize> = partial.iter().map(|frame| frame.frame).collect();
        report.expect(format!("the partial run has 3 frames: {numbers:?}"), numbers == [2, 3, 4]);
        let areas = (area(&partial[0], 1), area(&clicked, 1));
        report.expect(format!("the run shows the clicked mask: {areas:?}"), partial[0] == clicked);

        // Refined again, on a later frame, and with a click on the background: each run shows what the last click showed.
        let corrections: [(usize, &[Click]); 4] = [
            (2, &[click(0.5, 0.5, true)]),
            (4, &[click(0.2, 0.8, true), click(0.9, 0.1, false)]),
            (4, &[click(0.5, 0.5, true), click(0.1, 0.1, false)]),
            (4, &[click(0.1, 0.1, false)]),
        ];
        for (frame, clicks) in corrections {
            let refined = session.add_points(1, frame, clicks)?;
            let run = frames(&mut session, RunDirection::Forward, Some(2), Some(2))?;
            let areas = (area(&run[frame - 2], 1), area(&refined, 1));
            let text = format!("frame {frame}, {clicks:?}: the run shows the refined mask: {areas:?}");
            report.expect(text, run[frame - 2] == refined && areas.0 > Some(0));
        }

        report.expect("there is no object 9", session.remove(9).is_err());
        session.remove(0)?;
        report.expect("object 0 is removed", !session.objects().contains(&0));
        session.reset()?;
        report.expect("nothing is left", session.objects().is_empty());
        session.add_text(3, "dog")?;
        let both = frames(&mut session, RunDirection::Both, None, None)?;
        let numbers: Vec<usize> = both.iter().map(|frame| frame.frame).collect();
        report.expect(format!("both directions: {numbers:?}"), numbers == [3, 4, 5, 6, 7, 8, 9, 2, 1, 0]);
        session.add_text(0, "dog")?;
        compare_shown(report, &golden, &frames(&mut session, RunDirection::Forward, None, None)?);
        Ok(())
    });
    report.finish("a session");
}

/// Detections for the tracker are those of the detector.
#[test]
fn images_become_frames() {
    let mut report = Report::default();
    report.check("tracker", |report| {
        let golden = Golden::of_session("tracker");
        let replay = embedded(&golden)?;
        let options = eager(&replay);
        let mut masks = MaskDetector::new(&replay, &["dog", "tree"], &options)?;
        let mut tracker = Tracker::new(&replay.detector()?, Some(2), replay.video(), options)?;
        let mut plain = replay.detector()?;
        plain.set_confidence(0.0)?;
        let prompts = ocelli::Prompts::new(["dog", "tree"])?;
        let mut shown = Vec::new();
        for number in 0..3 {
            let pixel =
                |index: usize| (index * 37 % 251) as u8 ^ ((index / 96 / 3) as u8).wrapping_add(number * 40);
            let image = Image::from_rgb8(96, 72, (0..96 * 72 * 3).map(pixel).collect())?;
            let frame = masks.detect(&image)?;
            let found = plain.detect(&image, &prompts)?;
            report.expect("two classes", frame.detections().len() == 2);
            for (class, detections) in frame.detections().enumerate() {
                // The detector suppresses overlapping boxes, the tracker masks.
                for of_plain in found.items.iter().filter(|found| found.class_id == class) {
                    let same = detections.iter().find(|found| found.score == of_plain.score);
                    let Some(same) = same else {
                        report.problem(format!("class {class}"), "a detection is missing");
                        continue;
                    };
                    let bits = same.mask.resized_positive(96, 72);
                    let pixels: Vec<u8> =
                        (0..96 * 72).map(|i| u8::from(bits.contains(i % 96, i / 96))).collect();
                    let mask = of_plain.mask.as_ref().ok_or("it has masks")?.to_bitmap();
                    let different = pixels.iter().zip(&mask).filter(|(a, b)| a != b).count();
                    // The tracker resizes logits, the detector probabilities: borders of speckled masks differ by a pixel.
                    let same = different <= 96 * 72 / 50;
                    report.expect(format!("class {class}: {different} pixels differ"), same);
                }
                report.expect("detections of every query", detections.len() == 5);
            }
            shown.extend(tracker.push(frame, &[])?);
        }
        report.expect("hotstart holds frames back", shown.is_empty());
        shown.extend(tracker.finish()?);
        report.expect("every frame leaves", shown.iter().map(|frame| frame.frame).eq(0..3));
        report.expect("the stages were timed", masks.times.backbone > 0.0 && masks.times.masks > 0.0);
        Ok(())
    });
    report.finish("images");
}
