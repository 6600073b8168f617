//! `--low-memory` of `ocelli detect` and `ocelli video`.

use std::path::Path;

use serde_json::Value;

use crate::run::Place;

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const CLASSES: &str = "cake,house,wine glass,bottle,tv,bicycle";

/// A place with three images.
fn place() -> Place {
    let place = Place::new();
    let scenes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/scenes");
    for name in ["01.png", "02.png", "03.png"] {
        place.write(&format!("images/{name}"), std::fs::read(scenes.join(name)).expect("it is there"));
    }
    place
}

#[test]
fn images_have_the_same_detections() {
    let place = place();
    place.write("images/bad.png", "hello");
    let whole = ["detect", "--image", "images", "--classes", CLASSES, "--masks", "-o"];
    let detect = |output: &str, more: &[&str]| {
        let json = format!("{output}.json");
        let ended = place.run(OCELLI, &[&whole[..], &[output, "--json", &json], more].concat());
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("1 of 4 images failed"), "{ended:?}");
        let mut found = place.json(&json);
        for image in found["images"].as_array_mut().expect("a list") {
            assert!(image["timing_ms"]["backbone"].as_f64() > Some(0.0), "{image}");
            image["timing_ms"] = Value::Null;
        }
        (found, place.read(&format!("{output}/02.png")), ended.stderr)
    };
    let (expected, drawn, _) = detect("plain", &[]);
    let (found, drawn_too, log) = detect("low", &["--low-memory", "--verbose"]);
    assert!(found["images"][2]["detections"].as_array().is_some_and(|all| all.len() > 2), "{found}");
    assert!(found == expected && drawn == drawn_too);
    if cfg!(target_os = "linux") {
        let after = |line: &str| {
            line.split_once("memory after ")?.1.split_once(": ").map(|(stage, _)| stage.to_owned())
        };
        let stages: Vec<String> = log.lines().filter_map(after).collect();
        let halves = [
            "loading the backbone",
            "the backbone's first image",
            "dropping the backbone",
            "loading the decoder",
            "the decoder's first image",
        ];
        assert_eq!(stages, halves, "{log}");
    }
    // One image, with an example in it.
    let example =
        ["detect", "--image", "images/03.png", "--exemplar", "20,20,120,120", "--confidence", "0.05"];
    let detect = |more: &[&str]| {
        let text = place.succeed(OCELLI, &[&example[..], &["--json", "-"], more].concat());
        let found: Value = serde_json::from_str(&text).expect("it is JSON");
        found["images"][0]["detections"].clone()
    };
    assert_eq!(detect(&["--low-memory"]), detect(&[]));
}

#[test]
fn frames_have_the_same_detections_and_tracks() {
    let place = place();
    let whole = ["video", "--video", "images", "--classes", CLASSES, "--track", "--masks", "--jsonl"];
    let frames = |file: &str, more: &[&str]| {
        place.succeed(OCELLI, &[&whole[..], &[file], more].concat());
        String::from_utf8(place.read(file)).expect("JSON is text")
    };
    let found = frames("low.jsonl", &["--low-memory"]);
    assert!(found.lines().count() == 3 && found.contains("\"id\":1"), "{found}");
    assert_eq!(found, frames("plain.jsonl", &[]));
}
