use std::time::Duration;

use ocelli::tracking::{Track, TrackState};

use super::*;

fn file(text: &str) -> Result<ZonesFile, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("zones.yaml");
    std::fs::write(&path, text).expect("it can be written to");
    ZonesFile::read(&path).map_err(|error| error.to_string())
}

fn outcome(size: (u32, u32), index: u64, bbox: [f32; 4]) -> FrameOutcome {
    let track = Track {
        id: 1,
        class_id: 0,
        score: 0.9,
        bbox: bbox.into(),
        age_frames: 0.0,
        hits: 1,
        state: TrackState::Tracked,
        velocity: [0.0; 2],
        frames_since_seen: 0.0,
        detection: None,
    };
    let mut outcome = FrameOutcome::default();
    (outcome.index, outcome.size, outcome.tracks) = (index, size, vec![track]);
    outcome.time = Duration::from_millis(100 * index);
    outcome
}

#[test]
fn entries_have_names_and_places() {
    let text = "lines: [{name: gate, from: [0, 1], to: [1, 0]}]\n\
                zones: [{name: yard, points: [[0, 0], [1, 0], [1, 1]]}]";
    let read = file(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!((&*read.lines[0].name, &*read.zones[0].name), ("gate", "yard"), "{text}");
    for (text, said) in [
        ("lines: [{from: [0, 1], to: [1, 0]}]", "name"),
        ("lines: 3", "expected YAML with `lines` (name, from, to)"),
        ("zones: [{name: yard, points: [[0.25, 0.5], [0.75, 0.5]]}]", "[[0.25, 0.5], [0.75, 0.5]]"),
    ] {
        let message = file(text).err().unwrap_or_default();
        assert!(message.contains(said), "{text}: {message}");
    }
}

#[test]
fn places_follow_the_size_of_the_frames() {
    let read = file("lines: [{name: middle, from: [0.5, 0], to: [0.5, 1]}]").expect("it is valid");
    let counting = Counting::new(read, &["camera".into()]).expect("no other source is named");
    // A camera that comes back with half the size: the object stays left of the line, then crosses it.
    let frames = [((640, 480), 100.0), ((640, 480), 200.0), ((320, 240), 100.0), ((320, 240), 280.0)];
    let count = |(index, (size, x)): (usize, ((u32, u32), f32))| {
        let outcome = outcome(size, index as u64, [x - 20.0, 60.0, x + 20.0, 100.0]);
        counting.with_counter(&outcome, |one| one.update(&outcome).len()).expect("the places are valid")
    };
    assert_eq!(frames.into_iter().enumerate().map(count).collect::<Vec<_>>(), [0, 0, 0, 1]);
}

#[test]
fn places_far_outside_are_refused() {
    let read =
        file("zones: [{name: yard, points: [[0, 0], [5000, 0], [500, 500]]}]").expect("frames are unknown");
    let counting = Counting::new(read, &["camera".into()]).expect("no other source is named");
    let outcome = outcome((960, 540), 0, [0.0, 0.0, 10.0, 10.0]);
    let error = counting.with_counter(&outcome, |_| ()).expect_err("5000 is far outside").to_string();
    for word in ["zone yard", "[5000.0, 0.0]", "960 × 540"] {
        assert!(error.contains(word), "{word}: {error}");
    }
}
