//! Several sources through one model.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocelli::source::{Feed, Several, SeveralStates};
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{
    Cancellation, Frame, Pipeline, Result, Sink, Source,
    pipeline::{FrameOutcome, RunSummary},
    source::SourceInfo,
};

use super::fakes::{Fakes, Keep, Levels, detector, level_found, level_of, prompts};

const MS: Duration = Duration::from_millis(1);

fn feed(name: usize, source: Levels) -> Feed {
    Feed { name: format!("camera {name}"), weight: 1, source: Box::new(source) as Box<dyn Source> }
}

/// What leaves the pipeline and when, how the sources did, and how the run ended.
struct Seen {
    outcomes: Vec<FrameOutcome>,
    moments: Vec<Instant>,
    states: SeveralStates,
    end: Result<RunSummary>,
}

fn run(feeds: Vec<Feed>, fakes: &Fakes) -> Seen {
    let several = Several::start(feeds, None, Cancellation::new()).expect("they have names");
    let (states, keep) = (several.states(), Keep::default());
    let kept = keep.kept.clone();
    let moments = Arc::new(Mutex::new(Vec::new()));
    let left = moments.clone();
    let end = Pipeline::builder(detector(fakes), prompts(2))
        .with_tracker(ByteTrackerOptions::default())
        .with_observer(move |_| left.lock().expect("no observer panics").push(Instant::now()))
        .run(several, &mut [Box::new(keep) as Box<dyn Sink>]);
    let outcomes = std::mem::take(&mut kept.lock().expect("no sink panics").outcomes);
    let moments = std::mem::take(&mut *moments.lock().expect("no observer panics"));
    Seen { outcomes, moments, states, end }
}

fn number(outcome: &FrameOutcome) -> usize {
    outcome.origin.as_ref().expect("it is one of several").number
}

/// The backbone takes 24 ms and the encoder-decoder 8, so that the model's rate is 42 frames a second. Each source alone
/// delivers more. Other work on the machine may slow some runs down, but not all.
#[test]
fn the_models_rate_is_shared_and_no_source_starves() {
    let model_rate = 1000.0 / 24.0;
    for sources in [1, 4, 16] {
        let mut seen = Vec::new();
        let passed = (0..6).any(|_| {
            let feeds = (0..sources).map(|name| {
                let mut source = Levels::new(150, 64, 48).live();
                source.delay = 20 * MS;
                feed(name, source)
            });
            let fakes = Fakes { backbone: 24 * MS, decode: 8 * MS, ..Fakes::default() };
            let Seen { outcomes, moments, states, end } = run(feeds.collect(), &fakes);
            end.expect("no source fails");
            // At the end the sources run dry one after the other.
            let (from, to) = (15, moments.len() - 20);
            let rate = (to - from) as f64 / (moments[to] - moments[from]).as_secs_f64();
            let mut counts = vec![0; sources];
            outcomes.iter().for_each(|outcome| counts[number(outcome)] += 1);
            let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
            let fair = least.zip(most).is_some_and(|(least, most)| least * 10 >= most * 8);
            for state in states.snapshot() {
                assert_eq!(state.frames + state.dropped, 150, "{state:?}");
            }
            seen.push(format!(
                "{rate:.1} frames a second of {model_rate:.1}, {least:?} to {most:?} of a source"
            ));
            rate >= 0.95 * model_rate && fair
        });
        assert!(passed, "{sources} sources:\n{}", seen.join("\n"));
    }
}

/// Of sources that are not live, every frame is processed, with its own results, index, time and tracks.
#[test]
fn each_source_keeps_its_frames_and_its_tracks() {
    let feeds = [40, 25, 1].into_iter().enumerate();
    let feeds = feeds.map(|(name, frames)| {
        let mut source = Levels::new(frames, 64, 48);
        source.step = name as u64;
        feed(name, source)
    });
    let Seen { outcomes, end, .. } = run(feeds.collect(), &Fakes::default());
    assert_eq!(end.expect("no source fails").stats.frames_out, 66);
    for (source, frames) in [40, 25, 1].into_iter().enumerate() {
        let own: Vec<&FrameOutcome> = outcomes.iter().filter(|outcome| number(outcome) == source).collect();
        let indices: Vec<u64> = own.iter().map(|outcome| outcome.index).collect();
        assert_eq!(indices, (0..frames).collect::<Vec<_>>(), "source {source}");
        for outcome in own {
            let level = (outcome.index * source as u64 % 256) as u8;
            assert_eq!(level_found(&outcome.detections[0], 64).abs_diff(level) / 2, 0, "source {source}");
            assert_eq!(outcome.time, Duration::from_millis(40 * outcome.index));
            let ids: Vec<u64> = outcome.tracks.iter().map(|track| track.id).collect();
            assert_eq!(ids, [1, 2], "source {source}, frame {}: it has a tracker of its own", outcome.index);
        }
    }
    assert_eq!(level_of(0), 0);
}

#[test]
fn a_source_that_fails_harms_no_other() {
    let feeds = |failing: &[usize]| -> Vec<Feed> {
        (0..3)
            .map(|name| {
                let mut source = Levels::new(30, 32, 24);
                source.fails_at = failing.contains(&name).then_some(5);
                feed(name, source)
            })
            .collect()
    };
    let Seen { outcomes, states, end, .. } = run(feeds(&[1]), &Fakes::default());
    assert_eq!(end.expect("the others go on").stats.frames_out, 65);
    assert_eq!(outcomes.iter().filter(|outcome| number(outcome) == 1).count(), 5);
    let errors: Vec<Option<String>> = states.snapshot().into_iter().map(|state| state.error).collect();
    assert_eq!(errors, [None, Some("levels: cut short".into()), None]);

    let Seen { outcomes, end, .. } = run(feeds(&[0, 1, 2]), &Fakes::default());
    assert_eq!(outcomes.len(), 15);
    let message = end.expect_err("none is left").to_string();
    assert!(message.contains("all 3 sources failed") && message.contains("cut short"), "{message}");
}

/// A panic in one source is its failure; without the others it is that of the run, and never a wait without an end.
#[test]
fn a_source_that_panics_harms_no_other() {
    let feeds = |panicking: &[usize]| -> Vec<Feed> {
        (0..2)
            .map(|name| {
                let mut source = Levels::new(20, 32, 24);
                source.panics_at = panicking.contains(&name).then_some(5);
                feed(name, source)
            })
            .collect()
    };
    let Seen { states, end, .. } = run(feeds(&[0]), &Fakes::default());
    assert_eq!(end.expect("the other goes on").stats.frames_out, 25);
    let states = states.snapshot();
    let error = states[0].error.as_deref().unwrap_or_default();
    assert!(states[0].ended && error.contains("was to panic"), "{states:?}");
    let Seen { end, .. } = run(feeds(&[0, 1]), &Fakes::default());
    let message = end.expect_err("none is left").to_string();
    assert!(message.contains("all 2 sources failed") && message.contains("was to panic"), "{message}");
}

/// A camera that takes a while to close, and may wait for a frame that never comes.
struct SlowToClose {
    frames: Levels,
    silence: Option<Receiver<()>>,
    closed: Arc<AtomicUsize>,
}

impl Source for SlowToClose {
    fn info(&self) -> &SourceInfo {
        self.frames.info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if let Some(silence) = &self.silence {
            silence.recv().ok();
        }
        self.frames.read_into(frame)
    }
}

impl Drop for SlowToClose {
    fn drop(&mut self) {
        std::thread::sleep(100 * MS);
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// When the stream is dropped, its sources are closed and their threads have ended; only one that is silent is left behind.
#[test]
fn sources_are_closed_with_the_stream() {
    for silent in [0, 1] {
        let closed = Arc::new(AtomicUsize::new(0));
        let (over, silences): (Vec<_>, Vec<_>) = (0..silent).map(|_| channel()).unzip();
        let mut silences = silences.into_iter();
        let feeds = (0..4).map(|name| {
            let mut frames = Levels::new(u64::MAX, 16, 8).live();
            frames.delay = MS;
            let source = SlowToClose { frames, silence: silences.next(), closed: closed.clone() };
            Feed { name: format!("camera {name}"), weight: 1, source: Box::new(source) as Box<dyn Source> }
        });
        let mut several =
            Several::start(feeds.collect(), None, Cancellation::new()).expect("they have names");
        let mut frame = Frame::default();
        assert!(several.read_into(&mut frame).expect("three of them have frames"));
        let began = Instant::now();
        drop(several);
        assert_eq!(closed.load(Ordering::SeqCst), 4 - silent, "{silent} silent");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        drop(over);
    }
}

/// Recorded sources of 25 and 100 frames a second, the second slower to read and with three times the weight, end together.
#[test]
fn recorded_sources_play_side_by_side() {
    let feeds = [(40, 25), (10, 100)].into_iter().enumerate().map(|(name, (interval, frames))| {
        let mut source = Levels::new(frames, 32, 24);
        source.interval = interval * MS;
        source.delay = if name == 1 { MS } else { Duration::ZERO };
        Feed { weight: 1 + 2 * name as u32, ..feed(name, source) }
    });
    let Seen { outcomes, end, .. } = run(feeds.collect(), &Fakes::default());
    assert_eq!(end.expect("no source fails").stats.frames_out, 125);
    let order: Vec<(u128, usize)> =
        outcomes.iter().map(|outcome| (outcome.time.as_millis(), number(outcome))).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn weights_are_turns() {
    let feeds = [3, 1].into_iter().enumerate().map(|(name, weight)| {
        let mut source = Levels::new(600, 32, 24).live();
        source.delay = 2 * MS;
        Feed { weight, ..feed(name, source) }
    });
    let fakes = Fakes { backbone: 8 * MS, ..Fakes::default() };
    let Seen { outcomes, .. } = run(feeds.collect(), &fakes);
    let half = &outcomes[..outcomes.len() / 2];
    let first = half.iter().filter(|outcome| number(outcome) == 0).count();
    let share = first as f64 / half.len() as f64;
    assert!((0.65..=0.85).contains(&share), "{share}: expected three of four");
}

#[test]
fn invalid_sources_are_refused() {
    let same = || Feed { name: "door".into(), ..feed(0, Levels::new(1, 8, 8)) };
    let cases = [
        (Vec::new(), "0 sources"),
        (vec![same(), same()], "two sources are named door"),
        (vec![Feed { weight: 0, ..same() }], "the weight of source door is 0"),
    ];
    for (feeds, expected) in cases {
        let error = Several::start(feeds, None, Cancellation::new()).expect_err("it is refused");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
