//! A run ends in one of three ways: at the end of the stream, cancelled, or with an error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ocelli::sink::Images;
use ocelli::source::{Selected, Selection};
use ocelli::{
    Cancellation, ErrorKind, Frame, Pipeline, PipelineBuilder, Sink, Source, pipeline::StatsRecorder,
    source::SourceInfo,
};

use super::fakes::{Fakes, Keep, Kept, Levels, detector, prompts};

fn frames_of(kept: &Mutex<Kept>) -> (Vec<u64>, usize) {
    let kept = kept.lock().expect("no sink panics while it holds the lock");
    (kept.outcomes.iter().map(|outcome| outcome.index).collect(), kept.finished)
}

/// The part that fails, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Source,
    SourcePanic,
    Backbone,
    BackbonePanic,
    Decode,
    DecodePanic,
    Draw,
    DrawPanic,
    Sink,
    SinkPanic,
    Finish,
}

/// Frame 10 of 100 fails. All frames before it are written, every sink is finished, and the error is returned.
#[test]
fn errors_and_panics_end_the_run_and_finish_the_sinks() {
    use Trouble::*;
    let cases = [
        (Source, ErrorKind::InvalidData, "levels: cut short"),
        (SourcePanic, ErrorKind::Execution, "stage source panicked: assertion"),
        (Backbone, ErrorKind::Execution, "this run was to fail"),
        (BackbonePanic, ErrorKind::Execution, "stage backbone panicked: assertion"),
        (Decode, ErrorKind::Execution, "this run was to fail"),
        (DecodePanic, ErrorKind::Execution, "stage decode panicked: assertion"),
        (Draw, ErrorKind::Mismatch, "a mask too large"),
        (DrawPanic, ErrorKind::Execution, "stage draw panicked: no pencil"),
        (Sink, ErrorKind::Io, "keep: no room"),
        (SinkPanic, ErrorKind::Execution, "stage sinks panicked: assertion"),
        (Finish, ErrorKind::Io, "keep: cannot finish"),
    ];
    let mut failures = Vec::new();
    for (trouble, kind, words) in cases {
        for sequential in [false, true] {
            let run_if = |when: Trouble| if trouble == when { 11 } else { 0 };
            let frame_if = |when: Trouble| (trouble == when).then_some(10);
            let fakes = Fakes {
                backbone_fails: run_if(Backbone),
                backbone_panics: run_if(BackbonePanic),
                decode_fails: run_if(Decode),
                decode_panics: run_if(DecodePanic),
                ..Fakes::default()
            };
            let mut source = Levels::new(100, 16, 8);
            (source.fails_at, source.panics_at) = (frame_if(Source), frame_if(SourcePanic));
            let first = Keep { wants: Images::ANNOTATED, ..Keep::default() };
            let second = Keep {
                fails_at: frame_if(Sink),
                panics_at: frame_if(SinkPanic),
                finish_fails: trouble == Finish,
                ..Keep::default()
            };
            let (one, two, stats) = (first.kept.clone(), second.kept.clone(), StatsRecorder::new());
            let ended = Pipeline::builder(detector(&fakes), prompts(2))
                .with_sequential(sequential)
                .with_stats(stats.clone())
                .with_drawing(move |_, outcome| match (trouble, outcome.index) {
                    (Draw, 10) => Err(ocelli::Error::new(ErrorKind::Mismatch, "a mask too large")),
                    (DrawPanic, 10) => panic!("no pencil"),
                    _ => Ok(()),
                })
                .run(source, &mut [Box::new(second) as Box<dyn ocelli::Sink>, Box::new(first)]);
            let mut wrong = |what: String| failures.push(format!("{trouble:?}, {sequential}: {what}"));
            match ended {
                Ok(summary) => wrong(format!("the run succeeded: {summary:?}")),
                Err(error) if error.kind() == kind && error.to_string().contains(words) => {}
                Err(error) => wrong(format!("{:?}: {error}", error.kind())),
            }
            let expected: Vec<u64> = if trouble == Finish { (0..100).collect() } else { (0..10).collect() };
            for kept in [one, two] {
                let written = frames_of(&kept);
                if written != (expected.clone(), 1) {
                    wrong(format!(
                        "frames {:?} were written, the sink finished {} times",
                        written.0, written.1
                    ));
                }
            }
            if stats.snapshot().frames_out != expected.len() as u64 {
                wrong(format!("{:?}", stats.snapshot()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Frame 10 cancels the run: all decoded frames are written, nothing hangs, and the run is not an error.
#[test]
fn cancelling_finishes_the_sinks() {
    let mut failures = Vec::new();
    for (place, sequential) in [("draw", false), ("observer", false), ("draw", true), ("observer", true)] {
        let cancellation = Cancellation::new();
        let (in_draw, in_observer) = (cancellation.clone(), cancellation.clone());
        let sink = Keep { wants: Images::ANNOTATED, ..Keep::default() };
        let kept = sink.kept.clone();
        let summary = Pipeline::builder(detector(&Fakes::default()), prompts(2))
            .with_sequential(sequential)
            .with_cancellation(cancellation)
            .with_drawing(move |_, outcome| {
                if place == "draw" && outcome.index == 10 {
                    in_draw.cancel();
                }
                Ok(())
            })
            .with_observer(move |outcome| {
                if place == "observer" && outcome.index == 10 {
                    in_observer.cancel();
                }
            })
            // The source never ends.
            .run(Levels::new(u64::MAX, 16, 8), &mut [Box::new(sink) as Box<dyn Sink>]);
        let (frames, finished) = frames_of(&kept);
        let is_prefix = frames.iter().copied().eq(0..frames.len() as u64);
        match summary {
            Ok(summary) if summary.cancelled && is_prefix && frames.len() >= 11 && finished == 1 => {}
            other => failures.push(format!("{place}, {sequential}: {frames:?}, {finished}, {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_run_cancelled_before_it_starts_writes_nothing_and_finishes_the_sinks() {
    let cancellation = Cancellation::new();
    cancellation.cancel();
    let sink = Keep::default();
    let kept = sink.kept.clone();
    let summary = Pipeline::builder(detector(&Fakes::default()), prompts(1))
        .with_cancellation(cancellation)
        .run(Levels::new(100, 16, 8), &mut [Box::new(sink) as Box<dyn Sink>])
        .expect("cancellation is not an error");
    assert!(summary.cancelled);
    assert_eq!(frames_of(&kept), (vec![], 1));
}

/// Frames 0 to 4, then silence until the test is over.
struct Silent {
    frames: Levels,
    silence: Receiver<()>,
}

impl Source for Silent {
    fn info(&self) -> &SourceInfo {
        self.frames.info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> ocelli::Result<bool> {
        if self.frames.read_into(frame)? {
            return Ok(true);
        }
        self.silence.recv().ok();
        Ok(false)
    }
}

/// A source waits for a frame that never comes while the run is cancelled, or while a sink fails.
#[test]
fn a_silent_source_does_not_hold_up_the_end() {
    let mut failures = Vec::new();
    for (sink_fails, sequential) in [(false, false), (true, false), (false, true)] {
        let (over, silence) = channel();
        let (done, finished) = channel();
        let cancellation = Cancellation::new();
        let token = cancellation.clone();
        let sink = Keep { fails_at: sink_fails.then_some(4), ..Keep::default() };
        let kept = sink.kept.clone();
        std::thread::spawn(move || {
            let ended = Pipeline::builder(detector(&Fakes::default()), prompts(2))
                .with_sequential(sequential)
                .with_cancellation(cancellation)
                .with_observer(move |outcome| {
                    if outcome.index == 4 {
                        token.cancel();
                    }
                })
                .run(
                    Silent { frames: Levels::new(5, 16, 8), silence },
                    &mut [Box::new(sink) as Box<dyn Sink>],
                );
            drop(done.send(ended.map(|summary| summary.cancelled).map_err(|error| error.to_string())));
        });
        let ended = finished.recv_timeout(Duration::from_secs(20));
        let expected = if sink_fails { Err("keep: no room".to_owned()) } else { Ok(true) };
        let frames: Vec<u64> = if sink_fails { (0..4).collect() } else { (0..5).collect() };
        if ended.as_ref() != Ok(&expected) || frames_of(&kept) != (frames, 1) {
            failures.push(format!("{sink_fails}, {sequential}: {ended:?}, {:?}", frames_of(&kept)));
        }
        drop(over);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_run_reads_the_selected_frames() {
    for (most, expected) in [(0, 0), (7, 7), (100, 20)] {
        let mut selection = Selection::default();
        selection.max_frames = Some(most);
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = seen.clone();
        let summary = Pipeline::builder(detector(&Fakes::default()), prompts(1))
            .with_observer(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
            })
            .run(Selected::new(Levels::new(20, 16, 8), selection).expect("the selection is valid"), &mut [])
            .expect("the run succeeds");
        assert_eq!((seen.load(Ordering::Relaxed), summary.stats.frames_out), (expected, expected as u64));
    }
}

#[test]
fn invalid_options_are_rejected() {
    type Set = fn(PipelineBuilder) -> PipelineBuilder;
    let cases: [(Set, &str); 9] = [
        (|b| b.with_options(|options| options.queue_depth = Some(0)), "queue_depth is 0"),
        (|b| b.with_options(|options| options.queue_depth = Some(1025)), "queue_depth is 1025"),
        (|b| b.with_options(|options| options.detect_every = Some(0)), "detect_every is 0"),
        (
            |b| b.with_options(|options| options.detect_every = Some(31)).with_tracker(Default::default()),
            "detect_every is 31",
        ),
        (|b| b.with_options(|options| options.class_budget = Some(0)), "class_budget is 0"),
        (
            |b| {
                b.with_options(|options| {
                    options.motion_gate.get_or_insert_default().interval = Duration::ZERO;
                })
            },
            "motion interval is 0",
        ),
        (
            |b| b.with_options(|options| options.tracker.get_or_insert_default().track_threshold = 1.5),
            "track_threshold is 1.5",
        ),
        (|b| b.with_frame_rate(f64::NAN), "frame_rate is NaN"),
        (|b| b.with_frame_rate(-25.0), "frame_rate is -25"),
    ];
    let mut failures = Vec::new();
    for (set, words) in cases {
        let builder = || set(Pipeline::builder(detector(&Fakes::default()), prompts(1)));
        let run = builder().run(Levels::new(1, 16, 8), &mut []).map(|_| ());
        for ended in [run, builder().build().map(|_| ())] {
            match ended {
                Err(error)
                    if error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(words) => {}
                other => failures.push(format!("{words}: {other:?}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
