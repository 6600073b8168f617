//! Several sources through one model.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
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
    Feed { name: format!("camera {name}"), source: Box::new(source) as Box<dyn Source> }
}

/// Results of the pipeline, states of the sources, and the end of the run.
struct Seen {
    outcomes: Vec<FrameOutcome>,
    states: SeveralStates,
    end: Result<RunSummary>,
}

fn run(feeds: Vec<Feed>, fakes: &Fakes) -> Seen {
    let several = Several::start(feeds, None, Cancellation::new()).expect("they have names");
    let (states, keep) = (several.states(), Keep::default());
    let kept = keep.kept.clone();
    let end = Pipeline::builder(detector(fakes), prompts(2))
        .with_tracker(ByteTrackerOptions::default())
        .run(several, &mut [Box::new(keep) as Box<dyn Sink>]);
    let outcomes = std::mem::take(&mut kept.lock().expect("no sink panics").outcomes);
    Seen { outcomes, states, end }
}

fn number(outcome: &FrameOutcome) -> usize {
    outcome.origin.as_ref().expect("it is one of several").number
}

/// The progress of sources and stages. They wait for each other, and not for a time: the speed of the machine changes nothing.
#[derive(Default)]
struct Progress {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Number of frames that each source was asked for, and that number when the last of its frames was taken.
    asked: Vec<u64>,
    taken: Vec<u64>,
    backbones: usize,
    decodes: usize,
    over: bool,
}

impl Progress {
    /// Changes the counts, and waits until they are `ready` or the run is over. Returns whether the run goes on.
    fn step(&self, change: impl FnOnce(&mut Counts), ready: impl Fn(&Counts) -> bool) -> bool {
        let mut counts = self.counts.lock().expect("no thread panics while it holds the lock");
        change(&mut counts);
        self.changed.notify_all();
        let waiting = |counts: &mut Counts| !counts.over && !ready(counts);
        let waited = self.changed.wait_timeout_while(counts, Duration::from_secs(60), waiting);
        let (counts, late) = waited.expect("no thread panics while it holds the lock");
        assert!(!late.timed_out(), "sources and stages wait for each other without an end");
        !counts.over
    }
}

/// A camera without an end, which is ahead of the model: frames are dropped.
struct Camera {
    number: usize,
    frames: Levels,
    progress: Arc<Progress>,
}

impl Source for Camera {
    fn info(&self) -> &SourceInfo {
        self.frames.info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let number = self.number;
        let goes_on = self.progress.step(
            |counts| counts.asked[number] += 1,
            |counts| counts.asked[number] <= counts.taken[number] + 3,
        );
        if goes_on { self.frames.read_into(frame) } else { Ok(false) }
    }
}

/// Several cameras, each of which has a frame that waits whenever one is taken.
struct Busy {
    several: Several,
    progress: Arc<Progress>,
    /// The frames until the cameras end.
    left: usize,
}

impl Source for Busy {
    fn info(&self) -> &SourceInfo {
        self.several.info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        // The frame of a call that had begun when the last one was taken may be that one; the frame of the next is not.
        let has_next = |(asked, taken): (&u64, &u64)| *asked >= taken + 2;
        self.progress.step(|_| (), |counts| counts.asked.iter().zip(&counts.taken).all(has_next));
        if !self.several.read_into(frame)? {
            return Ok(false);
        }
        let number = frame.origin.as_ref().expect("it is one of several").number;
        self.left = self.left.saturating_sub(1);
        self.progress.step(
            |counts| {
                counts.taken[number] = counts.asked[number];
                counts.over |= self.left == 0;
            },
            |_| true,
        );
        Ok(true)
    }
}

/// The numbers of the sources of `frames` frames, in the order of the results. Sources are always ahead, and the
/// encoder-decoder ends with a frame when the backbone has begun with the next: the model is never idle.
fn turns(sources: usize, frames: usize) -> Vec<usize> {
    let progress = Arc::new(Progress::default());
    let none = vec![0; sources];
    *progress.counts.lock().expect("nothing has begun") =
        Counts { asked: none.clone(), taken: none, ..Counts::default() };
    let feeds = (0..sources).map(|number| {
        let frames = Levels::new(u64::MAX, 64, 48).live();
        let source = Box::new(Camera { number, frames, progress: progress.clone() });
        Feed { name: format!("camera {number}"), source }
    });
    let several = Several::start(feeds.collect(), None, Cancellation::new()).expect("they have names");
    let states = several.states();
    let stages = progress.clone();
    let on_run = move |graph: &str| {
        match graph {
            "backbone" => stages.step(|counts| counts.backbones += 1, |_| true),
            _ => stages.step(|counts| counts.decodes += 1, |counts| counts.backbones > counts.decodes),
        };
    };
    let fakes = Fakes { on_run: Some(Arc::new(on_run)), ..Fakes::default() };
    let keep = Keep::default();
    let kept = keep.kept.clone();
    Pipeline::builder(detector(&fakes), prompts(2))
        .run(
            Busy { several, progress: progress.clone(), left: frames },
            &mut [Box::new(keep) as Box<dyn Sink>],
        )
        .expect("no source fails");
    let outcomes = std::mem::take(&mut kept.lock().expect("no sink panics").outcomes);
    for state in states.snapshot() {
        assert!(state.frames > 0 && (sources == 1 || state.dropped > 0), "{state:?}");
    }
    assert!(outcomes.len() >= frames, "{} of {frames}", outcomes.len());
    outcomes[..frames].iter().map(number).collect()
}

#[test]
fn the_models_rate_is_shared_and_no_source_starves() {
    for sources in [1, 4, 16] {
        let turns = turns(sources, 6 * sources);
        for round in turns.windows(sources) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, (0..sources).collect::<Vec<_>>(), "{turns:?}");
        }
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

/// Dropping the stream closes its sources and ends their threads; only one that is silent is left behind.
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
            Feed { name: format!("camera {name}"), source: Box::new(source) as Box<dyn Source> }
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

/// Recorded sources of 25 and 100 frames a second, the second slower to read, end together.
#[test]
fn recorded_sources_play_side_by_side() {
    let feeds = [(40, 25), (10, 100)].into_iter().enumerate().map(|(name, (interval, frames))| {
        let mut source = Levels::new(frames, 32, 24);
        source.interval = interval * MS;
        source.delay = if name == 1 { MS } else { Duration::ZERO };
        feed(name, source)
    });
    let Seen { outcomes, end, .. } = run(feeds.collect(), &Fakes::default());
    assert_eq!(end.expect("no source fails").stats.frames_out, 125);
    let order: Vec<(u128, usize)> =
        outcomes.iter().map(|outcome| (outcome.time.as_millis(), number(outcome))).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn invalid_sources_are_refused() {
    let same = || Feed { name: "door".into(), ..feed(0, Levels::new(1, 8, 8)) };
    let cases = [(Vec::new(), "0 sources"), (vec![same(), same()], "two sources are named door")];
    for (feeds, expected) in cases {
        let error = Several::start(feeds, None, Cancellation::new()).expect_err("it is refused");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
