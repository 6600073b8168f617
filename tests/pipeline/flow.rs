//! Stages work on several frames at a time; still the right results leave, in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ocelli::sink::Images;
use ocelli::tracking::{ByteTrackerOptions, TrackState};
use ocelli::{
    Pipeline, PipelineBuilder, Sink,
    pipeline::{FrameOutcome, FramePolicy, RunSummary},
};

use super::fakes::{Fakes, Keep, Kept, Levels, detector, facts, level_found, level_of, prompts};

const MS: Duration = Duration::from_millis(1);

/// Runs the pipeline with a sink that keeps everything.
fn outcomes(builder: PipelineBuilder, source: Levels, sink: Keep) -> (Vec<FrameOutcome>, RunSummary) {
    let kept: Arc<Mutex<Kept>> = sink.kept.clone();
    let summary = builder.run(source, &mut [Box::new(sink) as Box<dyn Sink>]).expect("it runs");
    let kept = std::mem::take(&mut *kept.lock().expect("no sink panics"));
    assert_eq!(kept.finished, 1);
    (kept.outcomes, summary)
}

/// Frames share a few reused buffers; each must leave with the results of its own pixels.
#[test]
fn frames_leave_in_order_each_with_its_own_results() {
    let mut failures = Vec::new();
    for depth in [1, 2, 7] {
        let wants = Images::CLEAN | Images::ANNOTATED;
        let (outcomes, summary) = outcomes(
            Pipeline::builder(detector(&Fakes::default()), prompts(3))
                .with_options(|options| options.queue_depth = Some(depth))
                .with_drawing(|image, outcome| {
                    image.put_pixel(0, 0, image::Rgb([outcome.index as u8; 3]));
                    Ok(())
                }),
            Levels::new(500, 16, 8),
            Keep { wants, ..Keep::default() },
        );
        assert_eq!((outcomes.len(), summary.cancelled), (500, false));
        for (place, outcome) in (0..).zip(&outcomes) {
            let level = level_of(place);
            let found: Vec<_> = outcome.detections.iter().map(|d| (d.class_id, level_found(d, 16))).collect();
            let clean = outcome.clean.as_ref().map(|image| image.as_rgb8() == [level; 16 * 8 * 3]);
            let mut drawn = [level; 16 * 8 * 3];
            drawn[..3].fill(place as u8);
            let annotated = outcome.annotated.as_ref().map(|image| image.as_rgb8() == drawn);
            let whole = found == [(0, level), (1, level), (2, level)]
                && outcome.labels.len() == 3
                && outcome.time == Duration::from_millis(40 * place);
            if outcome.index != place || !whole || (clean, annotated) != (Some(true), Some(true)) {
                failures.push(format!(
                    "depth {depth}, frame {place}: {clean:?} {annotated:?} {}",
                    facts(outcome)
                ));
            }
        }
        let stats = summary.stats;
        assert_eq!((stats.frames_in, stats.frames_out, stats.frames_dropped), (500, 500, 0));
        assert_eq!((stats.frames_detected, stats.detections), (500, 1500));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn only_requested_images_are_drawn() {
    for wants in [Images::default(), Images::CLEAN, Images::ANNOTATED] {
        let (outcomes, _) = outcomes(
            Pipeline::builder(detector(&Fakes::default()), prompts(1)),
            Levels::new(20, 16, 8),
            Keep { wants, ..Keep::default() },
        );
        for outcome in outcomes {
            assert_eq!(
                (outcome.clean.is_some(), outcome.annotated.is_some()),
                (wants.clean, wants.annotated)
            );
        }
    }
}

#[test]
fn sequential_and_pipelined_runs_are_bit_identical() {
    type Set = fn(PipelineBuilder) -> PipelineBuilder;
    let cases: [(&str, Set); 4] = [
        ("plain", |b| b),
        ("tracker", |b| b.with_tracker(ByteTrackerOptions::default())),
        ("every third", |b| {
            b.with_tracker(ByteTrackerOptions::default())
                .with_options(|options| options.detect_every = Some(3))
        }),
        ("class budget", |b| {
            b.with_tracker(ByteTrackerOptions::default())
                .with_options(|options| options.class_budget = Some(3))
        }),
    ];
    for (name, set) in cases {
        let run = |sequential: bool| -> Vec<String> {
            let builder =
                Pipeline::builder(detector(&Fakes::default()), prompts(9)).with_sequential(sequential);
            let (outcomes, _) = outcomes(set(builder), Levels::new(120, 32, 32), Keep::default());
            outcomes.iter().map(facts).collect()
        };
        assert_eq!(run(true), run(false), "{name}");
    }
}

#[test]
fn the_tracker_predicts_frames_without_detection() {
    let mut slow = Levels::new(40, 32, 32);
    slow.step = 1;
    let (outcomes, summary) = outcomes(
        Pipeline::builder(detector(&Fakes::default()), prompts(1))
            .with_tracker(ByteTrackerOptions::default())
            .with_options(|options| options.detect_every = Some(4)),
        slow,
        Keep::default(),
    );
    assert_eq!(summary.stats.frames_detected, 10);
    for outcome in outcomes {
        let detected = outcome.index % 4 == 0;
        assert_eq!(
            (outcome.detected, outcome.detections.is_empty()),
            (detected, !detected),
            "{}",
            facts(&outcome)
        );
        if !detected {
            assert!(outcome.tracks.iter().all(|track| track.detection.is_none()), "{}", facts(&outcome));
        }
        assert!(!outcome.tracks.is_empty(), "expected tracks to continue: {}", facts(&outcome));
    }
}

/// Nine classes are visible and three are decoded per frame: no track may be lost because of that.
#[test]
fn classes_that_are_not_decoded_keep_their_tracks() {
    let mut still = Levels::new(60, 32, 32);
    still.step = 0;
    let (outcomes, _) = outcomes(
        Pipeline::builder(detector(&Fakes::default()), prompts(9))
            .with_tracker(ByteTrackerOptions::default())
            .with_options(|options| options.class_budget = Some(3)),
        still,
        Keep::default(),
    );
    for outcome in &outcomes {
        assert_eq!(outcome.detections.len(), 3, "expected three classes per frame: {}", facts(outcome));
    }
    for outcome in &outcomes[10..] {
        let tracked = outcome.tracks.iter().filter(|track| track.state == TrackState::Tracked).count();
        assert_eq!(tracked, 9, "{}", facts(outcome));
    }
}

/// The detector takes as long as ten frames: either all frames wait for it, or only the newest.
#[test]
fn live_sources_process_the_newest_frame() {
    let fakes = Fakes { backbone: 20 * MS, ..Fakes::default() };
    let run = |policy: Option<FramePolicy>, live: bool| {
        let mut source = Levels::new(100, 16, 8);
        source.delay = 2 * MS;
        let source = if live { source.live() } else { source };
        let builder = Pipeline::builder(detector(&fakes), prompts(1));
        let builder = match policy {
            Some(policy) => builder.with_policy(policy),
            None => builder,
        };
        let (outcomes, summary) = outcomes(builder, source, Keep::default());
        let (stats, numbers) = (summary.stats, outcomes.iter().map(|o| o.index).collect::<Vec<_>>());
        assert!(numbers.is_sorted_by(|a, b| a < b), "in order: {numbers:?}");
        assert_eq!(stats.frames_in, stats.frames_out + stats.frames_dropped, "{numbers:?}");
        for outcome in outcomes {
            let level = level_found(&outcome.detections[0], 16);
            assert_eq!(level, level_of(outcome.index), "frame {}", outcome.index);
        }
        (stats, numbers)
    };
    for (policy, live) in [(None, true), (Some(FramePolicy::Latest), false)] {
        let (stats, numbers) = run(policy, live);
        assert!(stats.frames_dropped > 50, "{policy:?}: {numbers:?}");
        assert_eq!(numbers.last(), Some(&99), "the newest frame is never dropped: {numbers:?}");
        // One frame in the backbone, one preprocessed, one in preprocessing, and a margin for the machine.
        assert!(stats.latency_ms.p50 < 80.0, "{:?}", stats.latency_ms);
    }
    for (policy, live) in [(None, false), (Some(FramePolicy::All), true)] {
        assert_eq!(run(policy, live).0.frames_dropped, 0, "{policy:?}");
    }
}
