//! `--engine`: the embedded engine detects what ONNX Runtime detects, and `auto` needs no library.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{Outcome, Place, outcome};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

const SCENES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes");

/// Variables that lead to a library, and the program's own.
const VARIABLES: [&str; 8] = [
    "HOME",
    "XDG_DATA_HOME",
    "OCELLI_HOME",
    "OCELLI_ONNXRUNTIME",
    "ORT_DYLIB_PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
];

/// Runs a copy of the program that has no library beside it, with an empty home and these variables.
fn run_bare(place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    std::fs::copy(OCELLI, place.path("ocelli")).expect("the program can be copied");
    let mut command = place.command(&*place.path("ocelli").to_string_lossy(), arguments);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    outcome(command.env("HOME", place.path("home")).envs(variables.iter().copied()))
}

/// Label, score and box of every detection, by image.
fn detections(place: &Place, file: &str) -> Vec<(String, f64, Vec<f64>)> {
    let json = place.json(file);
    let images = json["images"].as_array().expect("a list").iter();
    let items = images.flat_map(|image| image["detections"].as_array().expect("a list"));
    let number = |value: &Value| value.as_f64().expect("a number");
    items
        .map(|item| {
            let sides = item["box"].as_array().expect("a list").iter().map(number).collect();
            (item["label"].as_str().expect("a text").to_owned(), number(&item["score"]), sides)
        })
        .collect()
}

/// ONNX Runtime collects events and keeps them in the user's cache folder unless it is told not to.
#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn onnx_runtime_leaves_nothing_in_the_home() {
    let place = Place::with_libraries();
    place.folder("home");
    let library = ocelli::engines::onnxruntime::LIBRARY.find(None).expect("`make setup` was run").path;
    let image = format!("{SCENES}/park.png");
    let home = place.path("home");
    for engine in ["onnxruntime", "auto"] {
        let arguments = ["detect", "--engine", engine, "--image", &image, "--classes", "dog"];
        let found = outcome(
            place
                .command(OCELLI, &arguments)
                .env("HOME", &home)
                .env("XDG_CACHE_HOME", home.join("cache"))
                .env("OCELLI_ONNXRUNTIME", &library)
                .env_remove("ORT_DISABLE_TELEMETRY"),
        );
        assert_eq!(found.status, Some(0), "{found:?}");
        let left =
            place.paths().into_iter().filter(|path| path.starts_with("home") && path != Path::new("home"));
        assert_eq!(left.collect::<Vec<_>>(), Vec::<PathBuf>::new(), "{engine}");
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn the_embedded_engine_detects_what_onnx_runtime_detects() {
    let place = Place::with_libraries();
    for engine in ["onnxruntime", "embedded"] {
        let json = format!("{engine}.json");
        let arguments = ["detect", "--image", SCENES, "--engine", engine, "--json", &json, "--classes"];
        let classes = ["person", "dog", "car", "bird", "kite", "cup", "clock", "star", "moon"];
        place.succeed(OCELLI, &[&arguments[..], &classes].concat());
    }
    let [expected, found] = ["onnxruntime.json", "embedded.json"].map(|file| detections(&place, file));
    assert!(expected.len() >= 6, "{expected:?}");
    assert_eq!(expected.len(), found.len(), "{expected:?}\n{found:?}");
    for (a, b) in expected.iter().zip(&found) {
        let edge = a.2.iter().zip(&b.2).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-4 && edge < 0.05, "{a:?}, {b:?}");
    }
    // 8-bit weights have other operators, which are exported for it.
    let arguments = ["detect", "--image", SCENES, "--engine", "embedded", "--precision", "int8", "--json"];
    let classes =
        ["int8.json", "--classes", "person", "dog", "car", "bird", "kite", "cup", "clock", "star", "moon"];
    place.succeed(OCELLI, &[&arguments[..], &classes].concat());
    let found = detections(&place, "int8.json");
    assert!(found.len().abs_diff(expected.len()) <= 1, "{expected:?}\n{found:?}");
}

#[test]
fn auto_needs_no_library_and_a_named_engine_does() {
    let place = Place::with_libraries();
    let image = format!("{SCENES}/park.png");
    let detect = |engine: &str, variables: &[(&str, &str)]| {
        let level: &[&str] = if engine == "auto" { &["-v"] } else { &[] };
        let arguments = ["detect", "--engine", engine, "--image", &image, "--classes", "dog"];
        run_bare(&place, &[&arguments[..], level].concat(), variables)
    };
    // A library in the folders of the system is found even so: what must hold is then what `doctor` reports.
    let doctor = run_bare(&place, &["doctor"], &[]);
    assert_eq!(doctor.status, Some(0), "{doctor:?}");
    let is_bare = doctor.stdout.contains("onnxruntime     not installed");
    assert!(doctor.stdout.contains("embedded        works"), "{doctor:?}");
    assert_ne!(is_bare, doctor.stdout.contains("onnxruntime     works"), "{doctor:?}");
    let automatic = detect("auto", &[]);
    assert_eq!(automatic.status, Some(0), "{automatic:?}");
    assert!(automatic.stdout.contains("dog"), "{automatic:?}");
    let chosen = if is_bare { "engine auto: embedded" } else { "engine auto: ONNX Runtime" };
    assert!(automatic.stderr.contains(chosen), "{automatic:?}");
    assert!(!automatic.stderr.contains("warning: engine"), "{automatic:?}");

    // A library that does not load is a warning with the reason, and an error if the engine or the library is named.
    place.write("text", "not a library");
    let text = place.path("text").to_string_lossy().into_owned();
    for (library, reason) in [("nowhere", "no such file"), (&text, "text")] {
        let variable = [("OCELLI_ONNXRUNTIME", library)];
        let automatic = detect("auto", &variable);
        assert_eq!(automatic.status, Some(0), "{library}: {automatic:?}");
        let warnings = ["warning: engine auto: using embedded", "onnxruntime does not start", reason];
        for words in warnings {
            assert!(automatic.stderr.contains(words), "{library}, {words}: {automatic:?}");
        }
        let named = detect("onnxruntime", &variable);
        named.is_refusal(1, &["OCELLI_ONNXRUNTIME", reason]).unwrap_or_else(|e| panic!("{library}: {e}"));
    }
    let arguments = ["detect", "--onnxruntime", "nowhere", "--image", &image, "--classes", "dog"];
    let named = run_bare(&place, &arguments, &[]);
    named.is_refusal(1, &["nowhere", "no such file"]).unwrap_or_else(|e| panic!("{e}"));
}
