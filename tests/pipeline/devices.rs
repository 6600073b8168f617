//! A pipeline on several devices.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocelli::sink::Images;
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{
    Cancellation, ErrorKind, Pipeline, PipelineBuilder, Result, Sink,
    pipeline::{FramePolicy, Latency, MotionGate, RunSummary},
};
use ocelli_tests::devices::{StageMs, simulate};

use super::fakes::{Fakes, Keep, Levels, detector, facts, prompts};

const MS: Duration = Duration::from_millis(1);

/// A pipeline on devices that behave like this.
fn on(devices: &[Fakes]) -> PipelineBuilder {
    let (first, more) = devices.split_first().expect("there is a device");
    Pipeline::builder(detector(first), prompts(3)).with_more_devices(more.iter().map(detector))
}

/// The results that leave it, and its end.
fn facts_of(builder: PipelineBuilder, source: Levels) -> (Vec<String>, Result<RunSummary>) {
    let sink = Keep { wants: Images::CLEAN, ..Keep::default() };
    let kept = sink.kept.clone();
    let ended = builder.run(source, &mut [Box::new(sink) as Box<dyn Sink>]);
    let kept = kept.lock().expect("no sink panics");
    assert_eq!(kept.finished, 1);
    (kept.outcomes.iter().map(facts).collect(), ended)
}

fn levels(frames: u64, step: u64) -> Levels {
    let mut source = Levels::new(frames, 64, 32);
    source.step = step;
    source
}

/// The first device is the slowest: without the order of the others its frames would come late.
fn uneven(count: usize) -> Vec<Fakes> {
    let delays = [(9, 1), (1, 4), (2, 2)];
    let delays = delays.iter().take(count);
    delays
        .map(|&(backbone, decode)| Fakes { backbone: backbone * MS, decode: decode * MS, ..Fakes::default() })
        .collect()
}

#[test]
fn results_are_those_of_one_device_in_the_same_order() {
    type Options = fn(PipelineBuilder) -> PipelineBuilder;
    let gate = || MotionGate::new(Duration::from_millis(200));
    let cases: [(&str, Options, u64); 4] = [
        ("tracks", |builder| builder.with_tracker(ByteTrackerOptions::default()), 5),
        ("no tracker", |builder| builder.with_options(|options| options.queue_depth = Some(1)), 37),
        (
            "every second",
            |builder| {
                builder
                    .with_tracker(ByteTrackerOptions::default())
                    .with_options(|options| options.detect_every = Some(2))
            },
            3,
        ),
        ("balanced", |builder| builder.with_options(|options| options.latency = Some(Latency::Balanced)), 37),
    ];
    for (name, options, step) in cases {
        let source = || levels(60, step);
        let (expected, _) = facts_of(options(on(&uneven(1))), source());
        assert_eq!(expected.len(), 60, "{name}");
        for count in [2, 3] {
            let (found, ended) = facts_of(options(on(&uneven(count))), source());
            assert!(ended.is_ok_and(|run| !run.cancelled), "{name}, {count} devices");
            assert_eq!(found, expected, "{name}, {count} devices");
        }
    }
    // Frames without motion have the detections of another device.
    let still = |count| {
        facts_of(on(&uneven(count)).with_options(|options| options.motion_gate = Some(gate())), levels(40, 0))
            .0
    };
    assert_eq!(still(3), still(1));
}

#[test]
fn frames_of_a_live_source_leave_in_order() {
    let mut source = Levels::new(100, 64, 32).live();
    source.delay = MS;
    let sink = Keep::default();
    let kept = sink.kept.clone();
    let run = on(&uneven(3))
        .with_policy(FramePolicy::Latest)
        .run(source, &mut [Box::new(sink) as Box<dyn Sink>])
        .expect("it runs");
    let kept = kept.lock().expect("no sink panics");
    assert!(kept.outcomes.is_sorted_by(|a, b| a.index < b.index), "{:?}", kept.outcomes);
    assert_eq!(run.stats.frames_in, run.stats.frames_out + run.stats.frames_dropped);
    assert!(run.stats.frames_dropped > 0, "{:?}", run.stats);
}

/// Whatever ends a run, what left before is complete.
#[test]
fn a_failure_on_one_device_ends_the_run() {
    let (expected, _) = facts_of(on(&uneven(1)), Levels::new(200, 64, 32));
    let cases = [
        Fakes { backbone_fails: 4, ..Fakes::default() },
        Fakes { decode_fails: 4, ..Fakes::default() },
        Fakes { backbone_panics: 4, ..Fakes::default() },
        Fakes { decode_panics: 4, ..Fakes::default() },
    ];
    for (number, broken) in cases.into_iter().enumerate() {
        let mut devices = uneven(3);
        devices[1] = broken;
        let (found, ended) = facts_of(on(&devices), Levels::new(200, 64, 32));
        assert_eq!(ended.map_err(|error| error.kind()).map(drop), Err(ErrorKind::Execution), "case {number}");
        // The fourth frame of the second device is the eleventh of all.
        assert!(found.len() <= 10 && found == expected[..found.len()], "case {number}: {found:?}");
    }
}

#[test]
fn cancellation_ends_the_run_with_complete_results() {
    let (expected, _) = facts_of(on(&uneven(1)), Levels::new(40, 64, 32));
    let cancellation = Cancellation::new();
    let stop = cancellation.clone();
    let builder = on(&uneven(3)).with_cancellation(cancellation).with_observer(move |outcome| {
        if outcome.index == 9 {
            stop.cancel();
        }
    });
    let (found, ended) = facts_of(builder, Levels::new(u64::MAX, 64, 32));
    assert!(ended.is_ok_and(|run| run.cancelled));
    assert!((10..40).contains(&found.len()) && found == expected[..found.len()], "{found:?}");
}

#[test]
fn what_runs_on_one_device_is_refused() {
    type Options = fn(PipelineBuilder) -> PipelineBuilder;
    let cases: [(&str, Options); 3] = [
        ("class_budget", |builder| builder.with_options(|options| options.class_budget = Some(2))),
        ("sequential", |builder| builder.with_sequential(true)),
        ("latency low", |builder| builder.with_options(|options| options.latency = Some(Latency::Low))),
    ];
    let refused = |error: ocelli::Error, word: &str| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word), "{error}");
    };
    for (word, options) in cases {
        let ended = options(on(&uneven(2))).run(Levels::new(5, 64, 32), &mut []);
        refused(ended.expect_err(word), word);
    }
    refused(
        on(&uneven(2))
            .with_options(|options| options.class_budget = Some(2))
            .build()
            .expect_err("as pulled ones"),
        "class_budget",
    );
}

/// Frames per second after the warm-up: reading takes 3 ms, the backbone 24, the encoder-decoder 12, the sink 5.
fn rate(devices: usize) -> f64 {
    const WARM_UP: usize = 20;
    let fakes = Fakes { backbone: 24 * MS, decode: 12 * MS, ..Fakes::default() };
    let mut source = Levels::new(100, 64, 32);
    source.delay = 3 * MS;
    let moments = Arc::new(Mutex::new(Vec::new()));
    let left = moments.clone();
    on(&vec![fakes; devices])
        .with_observer(move |_| left.lock().expect("no observer panics").push(Instant::now()))
        .run(source, &mut [Box::new(Keep { delay: 5 * MS, ..Keep::default() }) as Box<dyn Sink>])
        .expect("it runs");
    let moments = moments.lock().expect("no observer panics");
    let steady = moments[moments.len() - 1] - moments[WARM_UP];
    (moments.len() - 1 - WARM_UP) as f64 / steady.as_secs_f64()
}

/// Other work on the machine may slow some of the runs down, but not all.
#[test]
fn the_simulation_predicts_the_rate() {
    let times: StageMs = "source=3,backbone=24,decode=12,sinks=5".parse().expect("it is valid");
    for devices in [1, 2, 3] {
        let simulated = simulate(&times, devices, 2).fps;
        let mut seen = Vec::new();
        while seen.len() < 4 && !seen.iter().any(|rate: &f64| (rate / simulated - 1.0).abs() < 0.1) {
            seen.push(rate(devices));
        }
        let best = seen.iter().copied().fold(0.0, f64::max);
        assert!(
            (best / simulated - 1.0).abs() < 0.1,
            "{devices} devices: simulated {simulated}, seen {seen:?}"
        );
    }
}
