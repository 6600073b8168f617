//! `ocelli video --memory` on a small random model, whose objects are as random.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::checkpoints::copy;
use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
/// The random model finds nothing that it is sure of.
const RUN: [&str; 11] = [
    "video",
    "--model",
    "model",
    "--classes",
    "dog",
    "car",
    "--confidence",
    "0.02",
    "--scene-size",
    "96x72",
    "--memory",
];

fn place() -> Place {
    let place = Place::new();
    copy(&place, "tracker", "model");
    place
}

/// The frames of a file of JSON lines.
fn frames(place: &Place, file: &str) -> Vec<Value> {
    let text = String::from_utf8(place.read(file)).expect("JSON is text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}"))
}

#[test]
fn objects_keep_their_identity_and_have_masks() {
    let place = place();
    let run = |more: &[&str]| place.succeed(OCELLI, &[&RUN[..], &["--max-frames", "7"], more].concat());
    let table = run(&["--jsonl", "tracks.jsonl", "-o", "pictures/%06d.png", "--mot", "tracks.txt"]);
    assert!(table.contains("tracks"), "{table}");
    let all = frames(&place, "tracks.jsonl");
    // The tracker of random weights does not follow what the detector finds: after eight frames its objects would be removed.
    let numbers: Vec<u64> = all.iter().filter_map(|frame| frame["frame"].as_u64()).collect();
    assert_eq!(numbers, (0..7).collect::<Vec<_>>());
    assert!(place.path("pictures/000006.png").is_file());

    let mut ids: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    for frame in &all {
        let detections = list(frame, "detections");
        assert_eq!(list(frame, "tracks").len(), detections.len(), "{frame}");
        for track in list(frame, "tracks") {
            let detection =
                &detections[track["detection"].as_u64().expect("every object has a mask") as usize];
            assert_eq!(detection["mask"]["size"], serde_json::json!([72, 96]), "{detection}");
            assert_eq!((&detection["box"], &detection["class_id"]), (&track["box"], &track["class_id"]));
            let id = track["id"].as_u64().expect("an id");
            let class = track["class_id"].as_u64().expect("a class");
            let known = ids.entry(id).or_insert((0, class));
            known.0 += 1;
            assert_eq!(known.1, class, "object {id} changed its class");
        }
    }
    assert!(ids.values().any(|(frames, _)| *frames >= 5), "no object lasts: {ids:?}");

    run(&["--jsonl", "again.jsonl", "--sequential"]);
    assert_eq!(place.read("again.jsonl"), place.read("tracks.jsonl"), "threads change nothing");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let place = place();
    copy(&place, "plain", "plain");
    let export = ["export", "--checkpoint", "model", "--detection-only", "--output", "boxes"];
    place.succeed(OCELLI, &export);
    place.refuses(
        OCELLI,
        &[
            refusal(
                "video|--model|plain|--classes|dog|--memory",
                1,
                &["memory tracker", "no tracker", "facebook/sam3"],
            ),
            refusal(
                "video|--model|boxes|--classes|dog|--memory",
                1,
                &["detection only", "export the checkpoint again"],
            ),
            refusal("video|--classes|dog|--memory", 1, &["memory tracker", "has no tracker"]),
            refusal("video|--classes|dog|--memory|--track", 2, &["--memory", "--track"]),
            refusal("video|--classes|dog|--memory|--detect-every|2", 2, &["--memory", "--detect-every"]),
            refusal("video|--classes|dog|--memory|--track-thresh|0.4", 2, &["--track-thresh", "add --track"]),
        ],
    );
}
