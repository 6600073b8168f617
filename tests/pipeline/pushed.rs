//! Pipelines that frames are pushed into.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use ocelli::tracking::ByteTrackerOptions;
use ocelli::{
    Cancellation, Error, ErrorKind, FrameView, Pipeline, PipelineBuilder, PixelFormat,
    pipeline::{FrameOutcome, FramePolicy, Latency},
};

use super::fakes::{Fakes, detector, facts, level_found, level_of, prompts};

const MS: Duration = Duration::from_millis(1);
/// Longer than any operation here takes; a pipeline that hangs fails the test.
const LONG: Duration = Duration::from_secs(60);

fn builder(fakes: &Fakes) -> PipelineBuilder {
    Pipeline::builder(detector(fakes), prompts(2))
}

/// On several devices, the first the slowest.
fn on_devices(fakes: &Fakes, devices: u32) -> PipelineBuilder {
    let slower = Fakes { decode: fakes.decode + MS * (devices - 1), ..fakes.clone() };
    builder(&slower).with_more_devices((1..devices).map(|_| detector(fakes)))
}

fn built(builder: PipelineBuilder) -> Pipeline {
    builder.build().expect("the pipeline starts")
}

/// 16 × 8 pixels of one grey level.
fn with_view<T>(index: u64, use_it: impl FnOnce(FrameView<'_>) -> T) -> T {
    let data = vec![level_of(index); 16 * 8 * 3];
    use_it(FrameView {
        data: &data,
        width: 16,
        height: 8,
        stride: 16 * 3,
        format: PixelFormat::Bgr8,
        timestamp: Duration::from_millis(7 * index),
    })
}

fn check(outcome: &FrameOutcome) {
    let level = level_found(&outcome.detections[0], 16);
    assert_eq!(level, level_of(outcome.index), "{}", facts(outcome));
    assert_eq!(outcome.time, Duration::from_millis(7 * outcome.index), "{}", facts(outcome));
}

#[test]
fn results_arrive_in_order_with_the_callers_time_stamps() {
    for (sequential, devices) in [(false, 1), (true, 1), (false, 2), (false, 3)] {
        let pipeline = built(on_devices(&Fakes::default(), devices).with_sequential(sequential));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in 0..300 {
                    assert_eq!(
                        with_view(index, |view| pipeline.push(view)).expect("the pipeline is open"),
                        index
                    );
                }
                pipeline.close();
            });
            let mut next = 0;
            while let Some(outcome) = pipeline.recv().expect("no stage fails") {
                assert_eq!(outcome.index, next);
                check(&outcome);
                pipeline.recycle(outcome);
                next += 1;
            }
            assert_eq!(next, 300);
        });
        assert!(pipeline.is_ended());
        let error = with_view(0, |view| pipeline.push(view)).expect_err("the pipeline was closed");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let stats = pipeline.stats();
        assert_eq!((stats.frames_in, stats.frames_out, stats.detections), (300, 300, 600));
    }
}

#[test]
fn a_full_pipeline_refuses_frames_and_loses_none() {
    for (sequential, devices, most) in [(false, 1, 9), (true, 1, 9), (false, 3, 25)] {
        let builder =
            on_devices(&Fakes::default(), devices).with_options(|options| options.queue_depth = Some(2));
        let pipeline = built(builder.with_sequential(sequential));
        let (mut pushed, mut refused) = (0, false);
        // As long as no results are received, only as many frames enter as queues and stages hold.
        let begun = Instant::now();
        while !(refused && pushed >= 2) && begun.elapsed() < LONG {
            match with_view(pushed, |view| pipeline.try_push(view)).expect("the pipeline is open") {
                Some(index) => {
                    assert_eq!(index, pushed);
                    pushed += 1;
                }
                None => refused = true,
            }
        }
        assert!(refused && pushed <= most, "{pushed} frames entered with {devices} devices");
        pipeline.close();
        for index in 0..pushed {
            let outcome = pipeline.recv_timeout(LONG).expect("no stage fails").expect("it was pushed");
            assert_eq!(outcome.index, index);
            check(&outcome);
        }
        assert!(pipeline.recv().expect("no stage fails").is_none());
    }
}

#[test]
fn the_latest_policy_never_waits_and_keeps_the_newest_frame() {
    for devices in [1, 3] {
        // A hundred frames a second, on all devices together.
        let fakes = Fakes { backbone: 10 * devices * MS, ..Fakes::default() };
        let pipeline = built(on_devices(&fakes, devices).with_policy(FramePolicy::Latest));
        let begun = Instant::now();
        for index in 0..200 {
            with_view(index, |view| pipeline.push(view)).expect("the pipeline is open");
        }
        let pushed = begun.elapsed();
        assert!(pushed < 200 * 10 * MS / 2, "pushing waited for the backbone: {pushed:?}");
        pipeline.close();
        let mut last = None;
        while let Some(outcome) = pipeline.recv().expect("no stage fails") {
            check(&outcome);
            assert!(last < Some(outcome.index), "in order");
            last = Some(outcome.index);
        }
        assert_eq!(last, Some(199), "the newest frame is never dropped");
        let stats = pipeline.stats();
        assert_eq!(stats.frames_in, stats.frames_out + stats.frames_dropped);
        assert!(stats.frames_dropped > 100, "{stats:?}");
    }
}

/// If the frame that the detector was going to run on is replaced, the detector runs on its replacement.
#[test]
fn dropped_frames_do_not_delay_the_next_detection() {
    let fakes = Fakes { backbone: 5 * MS, ..Fakes::default() };
    let tracker = ByteTrackerOptions::default();
    for devices in [1, 2] {
        let builder = on_devices(&fakes, devices).with_policy(FramePolicy::Latest);
        let pipeline =
            built(builder.with_options(|options| options.detect_every = Some(10)).with_tracker(tracker));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in 0..400 {
                    with_view(index, |view| pipeline.push(view)).expect("the pipeline is open");
                }
                pipeline.close();
            });
            let mut since = 0;
            while let Some(outcome) = pipeline.recv().expect("no stage fails") {
                since = if outcome.detected { 0 } else { since + 1 };
                assert!(since < 10, "ten frames without detection, {}", facts(&outcome));
            }
        });
    }
}

#[test]
fn receiving_times_out() {
    let pipeline = built(builder(&Fakes::default()));
    assert!(pipeline.try_recv().expect("no stage fails").is_none());
    assert!(pipeline.recv_timeout(10 * MS).expect("no stage fails").is_none());
    assert!(!pipeline.is_ended());
    pipeline.close();
    assert!(pipeline.recv_timeout(LONG).expect("no stage fails").is_none());
    assert!(pipeline.is_ended());
}

#[test]
fn invalid_frames_are_rejected_and_the_pipeline_continues() {
    let pipeline = built(builder(&Fakes::default()));
    let short = FrameView {
        data: &[1, 2, 3],
        width: 16,
        height: 8,
        stride: 48,
        format: PixelFormat::Bgr8,
        timestamp: Duration::ZERO,
    };
    let error = pipeline.push(short).expect_err("three bytes are too few");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let index = with_view(0, |view| pipeline.push(view)).expect("the next frame is valid");
    assert_eq!(index, 0, "rejected frames get no index");
    check(&pipeline.recv_timeout(LONG).expect("no stage fails").expect("it was pushed"));
}

/// The fourth run fails: three results can be received, then receiving and pushing return the error.
#[test]
fn errors_and_panics_are_returned_after_earlier_results() {
    let cases = [
        (Fakes { backbone_fails: 4, ..Fakes::default() }, "this run was to fail"),
        (Fakes { backbone_panics: 4, ..Fakes::default() }, "stage backbone panicked"),
        (Fakes { decode_fails: 4, ..Fakes::default() }, "this run was to fail"),
        (Fakes { decode_panics: 4, ..Fakes::default() }, "stage decode panicked"),
    ];
    for (fakes, words) in cases {
        for sequential in [false, true] {
            let pipeline = built(
                builder(&fakes)
                    .with_options(|options| options.queue_depth = Some(10))
                    .with_sequential(sequential),
            );
            let is_it =
                |error: &Error| error.kind() == ErrorKind::Execution && error.to_string().contains(words);
            let mut refused = 0;
            // The failure may happen while frames are still being pushed.
            for index in 0..8 {
                if let Err(error) = with_view(index, |view| pipeline.push(view)) {
                    assert!(is_it(&error), "{error}");
                    refused += 1;
                }
            }
            let mut results = 0;
            let error = loop {
                match pipeline.recv_timeout(LONG) {
                    Ok(Some(outcome)) => {
                        check(&outcome);
                        results += 1;
                    }
                    Ok(None) => panic!("{words}, {sequential}: no error was returned"),
                    Err(error) => break error,
                }
            };
            assert!(is_it(&error), "{error}");
            assert_eq!(results, 3, "{words}, {sequential}");
            assert!(!sequential || refused == 5, "each push from the fourth on returns the error");
            let error = with_view(9, |view| pipeline.push(view)).expect_err("the pipeline has failed");
            assert!(is_it(&error), "{error}");
        }
    }
}

#[test]
fn cancelling_wakes_waiting_threads() {
    let fakes = Fakes { backbone: 5 * MS, ..Fakes::default() };
    let cancellation = Cancellation::new();
    let pipeline = built(builder(&fakes).with_cancellation(cancellation.clone()));
    let (full, is_full) = mpsc::channel();
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            for index in 0.. {
                // No results are received, so this eventually waits for room.
                if with_view(index, |view| pipeline.try_push(view))?.is_none() {
                    full.send(()).expect("the test waits for it");
                    with_view(index, |view| pipeline.push(view))?;
                }
            }
            Ok(())
        });
        is_full.recv().expect("it gets full");
        cancellation.cancel();
        let error: Error = pushing.join().expect("it does not panic").expect_err("it was cancelled");
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        let error = loop {
            match pipeline.recv() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a cancelled pipeline has to return an error"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    });
}

#[test]
fn dropping_a_pipeline_at_any_time_ends_it() {
    for policy in [FramePolicy::All, FramePolicy::Latest] {
        for frames in [0, 1, 3, 100] {
            let fakes = Fakes { backbone: MS, decode: MS, ..Fakes::default() };
            let pipeline = built(builder(&fakes).with_policy(policy));
            let mut pushed = 0;
            while pushed < frames
                && with_view(pushed, |view| pipeline.try_push(view)).expect("the pipeline is open").is_some()
            {
                pushed += 1;
            }
            drop(pipeline);
        }
    }
}

#[test]
fn two_pipelines_in_one_process_are_independent() {
    let pipelines = [2, 5].map(|classes| {
        built(
            Pipeline::builder(detector(&Fakes::default()), prompts(classes)).with_tracker(Default::default()),
        )
    });
    for index in 0..20 {
        for (pipeline, classes) in pipelines.iter().zip([2, 5]) {
            with_view(0, |view| pipeline.push(view)).expect("the pipeline is open");
            let outcome = pipeline.recv_timeout(LONG).expect("no stage fails").expect("it was pushed");
            assert_eq!((outcome.index, outcome.detections.len()), (index, classes));
            let ids: Vec<u64> = outcome.tracks.iter().map(|track| track.id).collect();
            assert_eq!(
                ids,
                (1..=classes as u64).collect::<Vec<_>>(),
                "each pipeline counts track ids from 1"
            );
        }
    }
}

#[test]
fn low_latency_is_one_frame_at_a_time() {
    let pipeline =
        built(builder(&Fakes::default()).with_options(|options| options.latency = Some(Latency::Low)));
    for index in 0..20 {
        assert_eq!(with_view(index, |view| pipeline.push(view)).expect("the pipeline is open"), index);
        // It was processed by the time that it was pushed.
        check(&pipeline.try_recv().expect("no stage fails").expect("the result is ready"));
    }
    pipeline.close();
    assert!(pipeline.recv().expect("no stage fails").is_none());
}

#[test]
fn with_a_latency_goal_few_frames_are_inside_and_the_newest_comes_out() {
    let fakes = Fakes { backbone: 4 * MS, decode: 8 * MS, ..Fakes::default() };
    // One frame waits for its turn; one, or two of which the decoder is always busy, have theirs.
    for (latency, most) in [(Latency::Low, 2), (Latency::Balanced, 3)] {
        let pipeline = built(
            builder(&fakes)
                .with_policy(FramePolicy::Latest)
                .with_options(|options| options.latency = Some(latency)),
        );
        for index in 0..200 {
            with_view(index, |view| pipeline.push(view)).expect("the pipeline is open");
            let stats = pipeline.stats();
            let inside = stats.frames_in - stats.frames_out - stats.frames_dropped;
            assert!(inside <= most, "{latency:?}: {stats:?}");
            std::thread::sleep(MS / 2);
        }
        pipeline.close();
        let (mut last, deadline) = (None, Instant::now() + LONG);
        while !pipeline.is_ended() {
            assert!(Instant::now() < deadline, "{latency:?}: it does not end");
            if let Some(outcome) = pipeline.recv().expect("no stage fails") {
                check(&outcome);
                last = Some(outcome.index);
            }
        }
        assert_eq!(last, Some(199), "{latency:?}");
        assert!(pipeline.stats().frames_dropped > 50, "{latency:?}: {:?}", pipeline.stats());
    }
}
