//! Detectors with one half of the model in memory at a time.

use std::sync::{Arc, Mutex};

use ocelli::options::DetectorOptions;
use ocelli::sink::Images;
use ocelli::tiles::Tiling;
use ocelli::tracking::ByteTrackerOptions;
use ocelli::{Cancellation, Error, ErrorKind, Image, Pipeline, PipelineBuilder, Result, Sink};

use super::fakes::{Fakes, Keep, Kept, Levels, detector, facts, prompts};

/// The log of loading each half once.
const ONCE: [&str; 4] = ["+backbone", "-backbone", "+decoder", "-decoder"];

fn fakes() -> Fakes {
    Fakes { low_memory: true, ..Fakes::default() }
}

fn take(events: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *events.lock().expect("no engine panics"))
}

/// Runs a pipeline; what the sink has, and the end.
fn run(builder: PipelineBuilder, source: Levels) -> (Vec<String>, Result<bool>) {
    let sink = Keep { wants: Images::ANNOTATED, ..Keep::default() };
    let kept: Arc<Mutex<Kept>> = sink.kept.clone();
    let end = builder.with_tracker(ByteTrackerOptions::default());
    let end = end.run(source, &mut [Box::new(sink) as Box<dyn Sink>]).map(|summary| summary.cancelled);
    let kept = kept.lock().expect("no sink panics");
    assert_eq!(kept.finished, 1);
    (kept.outcomes.iter().map(facts).collect(), end)
}

#[test]
fn groups_of_frames_load_each_half_once() {
    let whole = Pipeline::builder(detector(&Fakes::default()), prompts(2)).with_sequential(true);
    let (expected, _) = run(whole, Levels::new(150, 16, 8));
    let fakes = fakes();
    let pipeline = || Pipeline::builder(detector(&fakes), prompts(2));
    let (found, end) = run(pipeline(), Levels::new(150, 16, 8));
    assert!(matches!(end, Ok(false)), "{end:?}");
    assert!(found == expected && found.len() == 150, "{found:?}");
    assert_eq!(take(&fakes.events), [ONCE; 3].concat());

    let mut source = Levels::new(150, 16, 8);
    source.fails_at = Some(70);
    let (found, end) = run(pipeline(), source);
    assert_eq!(end.expect_err("the source fails").kind(), ErrorKind::InvalidData);
    assert!(found == expected[..70], "{found:?}");

    let token = Cancellation::new();
    let cancel = token.clone();
    let stopped = pipeline().with_cancellation(token).with_observer(move |outcome| {
        if outcome.index == 9 {
            cancel.cancel();
        }
    });
    let (found, end) = run(stopped, Levels::new(150, 16, 8));
    assert!(matches!(end, Ok(true)), "{end:?}");
    assert!(found == expected[..10], "{found:?}");
}

#[test]
fn groups_of_images_load_each_half_once() {
    let fakes = fakes();
    let (mut halves, mut whole) = (detector(&fakes), detector(&Fakes::default()));
    let prompts = halves.prepare(&prompts(3)).expect("it has a text encoder");
    assert_eq!(take(&fakes.events), [""; 0], "the halves are loaded when they are needed");
    let image = |number: usize| match number {
        7 => Err(Error::new(ErrorKind::InvalidData, "image 7")),
        _ => Ok(Image::from_rgb8(16, 8, vec![number as u8; 16 * 8 * 3]).expect("all pixels")),
    };
    let (mut images, mut number) = ((0..100).map(image), 0);
    for size in [64, 36, 0] {
        let found = halves.detect_group(&mut images, &prompts);
        assert_eq!(found.len(), size);
        for found in found {
            match (found, image(number).and_then(|image| whole.detect_embedded(&image, &prompts))) {
                (Ok(found), Ok(expected)) => assert_eq!(found.items, expected.items, "{number}"),
                (found, expected) => {
                    assert_eq!(found.expect_err("7").to_string(), expected.expect_err("7").to_string());
                }
            }
            number += 1;
        }
    }
    assert_eq!(take(&fakes.events), [&ONCE[..], &ONCE[..3]].concat());
    // The features of an image can be searched again, and then another image.
    let (grey, other) = (image(90).expect("grey"), image(10).expect("grey"));
    let features = halves.encode(&grey).expect("fakes run");
    for _ in 0..2 {
        let found = halves.detect_features(&features, &super::fakes::prompts(3)).expect("fakes run");
        assert_eq!(found.items, whole.detect_embedded(&grey, &prompts).expect("fakes run").items);
    }
    halves.detect_embedded(&other, &prompts).expect("fakes run");
    let again = ["+backbone", "-backbone", "+decoder"];
    assert_eq!(take(&fakes.events), [&["-decoder"][..], &again, &["-decoder"], &again].concat());
}

#[test]
fn what_needs_both_halves_is_refused() {
    let pushed = Pipeline::builder(detector(&fakes()), prompts(2)).build();
    let tiled =
        DetectorOptions { low_memory: true, tiling: Some(Tiling::default()), ..DetectorOptions::default() };
    for error in [pushed.map(|_| ()), tiled.check()].map(|end| end.expect_err("refused")) {
        assert_eq!(
            (error.kind(), error.parameter()),
            (ErrorKind::InvalidArgument, Some("low_memory")),
            "{error}"
        );
    }
}
