//! Speed: the slowest stage's.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocelli::sink::Pictures;
use ocelli::{Pipeline, RunSummary, Sink};

use super::fakes::{Fakes, Keep, Levels, detector, prompts};

const MS: Duration = Duration::from_millis(1);
/// The backbone's 20 ms are the longest of all stages.
const FULL_RATE: f64 = 50.0;
const FRAMES: u64 = 75;
/// Frames after which all queues have been filled.
const WARM_UP: usize = 15;

/// Decoding 5 ms, preprocessing (which is real) about 1, backbone 20, encoder-decoder 12, drawing 4, encoding 6. Gives
/// frames per second once it runs.
fn run(sequential: bool) -> (f64, RunSummary) {
    let fakes = Fakes { backbone: 20 * MS, decode: 12 * MS, ..Fakes::default() };
    let mut source = Levels::new(FRAMES, 640, 360);
    source.delay = 5 * MS;
    let wants = Pictures { annotated: true, clean: false };
    let sink = Keep { wants, delay: 6 * MS, ..Keep::default() };
    let moments = Arc::new(Mutex::new(Vec::new()));
    let left = moments.clone();
    let summary = Pipeline::builder(detector(&fakes), prompts(2))
        .with_sequential(sequential)
        .with_drawing(|_, _| {
            std::thread::sleep(4 * MS);
            Ok(())
        })
        .with_observer(move |_| left.lock().expect("nobody panics with it").push(Instant::now()))
        .run(source, &mut [Box::new(sink) as Box<dyn Sink>])
        .expect("it runs");
    let moments = moments.lock().expect("nobody panics with it");
    assert_eq!(moments.len() as u64, FRAMES);
    let steady = moments[moments.len() - 1] - moments[WARM_UP];
    ((moments.len() - 1 - WARM_UP) as f64 / steady.as_secs_f64(), summary)
}

/// A machine that is busy with something else may lose one race, not all of them.
#[test]
fn the_loop_runs_at_the_speed_of_its_slowest_stage() {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (rate, summary) = run(false);
        // Frames on their way at once: two in each queue and one in each stage up to the slowest, then at most one a
        // stage; each waits for the slowest.
        let most_ms = (2.0 * 2.0 + 3.0 + 4.0) * 20.0;
        let latency_ms = summary.stats.latency_ms.p99;
        seen.push(format!("{rate:.2} frames a second, p99 of latency {latency_ms:.0} ms"));
        if rate >= 0.95 * FULL_RATE && latency_ms <= most_ms {
            let stage = |name: &str| {
                let stages = &summary.stats.stages;
                stages.iter().find(|stage| stage.stage.name() == name).expect("it had something to do")
            };
            let (backbone, sinks) = (stage("backbone"), stage("sinks"));
            // What is said of a stage agrees with its times.
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

/// The same stages one after the other take 50 ms and more; the test above would see nothing if that were fast.
#[test]
fn one_thread_takes_the_sum_of_all_stages() {
    let (rate, summary) = run(true);
    assert!(rate <= 1000.0 / 47.0, "{rate:.2} frames a second");
    assert_eq!((summary.stats.frames_in, summary.stats.frames_out), (FRAMES, FRAMES));
}
