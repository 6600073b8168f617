//! Throughput: that of the slowest stage.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocelli::sink::Images;
use ocelli::{
    Pipeline, Sink,
    pipeline::{FramePolicy, Latency, RunSummary},
};

use super::fakes::{Fakes, Keep, Levels, detector, prompts};

const MS: Duration = Duration::from_millis(1);
/// The backbone is the slowest stage, with 20 ms.
const FULL_RATE: f64 = 50.0;
const FRAMES: u64 = 75;
/// After this many frames all queues are full.
const WARM_UP: usize = 15;

/// Reading takes 5 ms, preprocessing (not simulated) about 1, the backbone 20, the encoder-decoder 12, drawing 4, the sink
/// 6. Returns frames per second after the warm-up.
fn run(sequential: bool) -> (f64, RunSummary) {
    let fakes = Fakes { backbone: 20 * MS, decode: 12 * MS, ..Fakes::default() };
    let mut source = Levels::new(FRAMES, 640, 360);
    source.delay = 5 * MS;
    let wants = Images::ANNOTATED;
    let sink = Keep { wants, delay: 6 * MS, ..Keep::default() };
    let moments = Arc::new(Mutex::new(Vec::new()));
    let left = moments.clone();
    let summary = Pipeline::builder(detector(&fakes), prompts(2))
        .with_sequential(sequential)
        .with_drawing(|_, _| {
            std::thread::sleep(4 * MS);
            Ok(())
        })
        .with_observer(move |_| left.lock().expect("no observer panics").push(Instant::now()))
        .run(source, &mut [Box::new(sink) as Box<dyn Sink>])
        .expect("it runs");
    let moments = moments.lock().expect("no observer panics");
    assert_eq!(moments.len() as u64, FRAMES);
    let steady = moments[moments.len() - 1] - moments[WARM_UP];
    ((moments.len() - 1 - WARM_UP) as f64 / steady.as_secs_f64(), summary)
}

/// Other work on the machine may slow one of the four runs down, but not all.
#[test]
fn throughput_is_that_of_the_slowest_stage() {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (rate, summary) = run(false);
        // Frames in flight: two in each queue and one in each stage up to the slowest, then at most one per stage, each
        // waiting for the slowest stage.
        let most_ms = (2.0 * 2.0 + 3.0 + 4.0) * 20.0;
        let latency_ms = summary.stats.latency_ms.p99;
        seen.push(format!("{rate:.2} frames a second, p99 of latency {latency_ms:.0} ms"));
        if rate >= 0.95 * FULL_RATE && latency_ms <= most_ms {
            let stage = |name: &str| {
                let stages = &summary.stats.stages;
                stages.iter().find(|stage| stage.stage.to_string() == name).expect("the stage did some work")
            };
            let (backbone, sinks) = (stage("backbone"), stage("sinks"));
            // A stage's busy fraction agrees with its times.
            let expected = sinks.ms.mean * rate / 1000.0;
            assert!((sinks.busy - expected).abs() < 0.1, "{sinks:?}, expected {expected:.2}");
            assert!(backbone.busy > 0.8 && sinks.busy < 0.5, "{backbone:?}, {sinks:?}");
            assert!(
                backbone.queue.is_some_and(|queue| queue.max <= 2 && queue.capacity == 2),
                "{backbone:?}"
            );
            return;
        }
    }
    panic!("expected {} frames a second:\n{}", 0.95 * FULL_RATE, seen.join("\n"));
}

/// Run one after the other, the same stages take at least 47 ms; otherwise the test above would prove nothing.
#[test]
fn sequential_runs_take_the_sum_of_all_stages() {
    let (rate, summary) = run(true);
    assert!(rate <= 1000.0 / 47.0, "{rate:.2} frames a second");
    assert_eq!((summary.stats.frames_in, summary.stats.frames_out), (FRAMES, FRAMES));
}

/// A live source of 200 frames a second, a backbone of 12 ms, an encoder-decoder of 20: the frames per second, and the
/// median of the latency and of the time in queues, in ms.
fn live(latency: Latency) -> [f64; 3] {
    let fakes = Fakes { backbone: 12 * MS, decode: 20 * MS, ..Fakes::default() };
    let mut source = Levels::new(400, 320, 180).live();
    source.delay = 5 * MS;
    let moments = Arc::new(Mutex::new(Vec::new()));
    let left = moments.clone();
    let summary = Pipeline::builder(detector(&fakes), prompts(2))
        .with_options(|options| options.latency = Some(latency))
        .with_policy(FramePolicy::Latest)
        .with_observer(move |_| left.lock().expect("no observer panics").push(Instant::now()))
        .run(source, &mut [Box::new(Keep::default()) as Box<dyn Sink>])
        .expect("it runs");
    let moments = moments.lock().expect("no observer panics");
    let steady = moments[moments.len() - 1] - moments[WARM_UP];
    let rate = (moments.len() - 1 - WARM_UP) as f64 / steady.as_secs_f64();
    let stats = summary.stats;
    assert_eq!(stats.queued_ms.n, stats.frames_out);
    assert!(stats.queued_ms.p50 < stats.latency_ms.p50, "{stats:?}");
    [rate, stats.latency_ms.p50, stats.queued_ms.p50]
}

/// The best of a few runs of each: other work on the machine may slow some down.
#[test]
fn a_live_source_waits_no_longer_than_throughput_needs() {
    let mut best = [[0.0, f64::INFINITY, f64::INFINITY]; 3];
    for _ in 0..5 {
        for (best, latency) in best.iter_mut().zip([Latency::Low, Latency::Balanced, Latency::Throughput]) {
            let [rate, ms, queued_ms] = live(latency);
            *best = [rate.max(best[0]), ms.min(best[1]), queued_ms.min(best[2])];
        }
        let [low, balanced, full] = best;
        // One frame at a time takes 32 ms; with two the encoder-decoder is always busy, and with more they wait.
        let is_fast = low[0] >= 0.9 * 1000.0 / 32.0 && balanced[0] >= 0.95 * FULL_RATE;
        let is_soon = low[1] < 42.0 && balanced[1] < 52.0 && balanced[1] + 5.0 < full[1];
        if is_fast && is_soon && low[2] < 8.0 {
            return;
        }
    }
    panic!("frames a second, latency and time in queues in ms, low, balanced, throughput: {best:.1?}");
}
