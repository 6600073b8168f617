//! Both programs detect, refuse and explain themselves.

use serde_json::Value;

use crate::run::{Place, refusal};

const IMAGE: &str = env!("CARGO_BIN_EXE_demo-image");
const VIDEO: &str = env!("CARGO_BIN_EXE_demo-video");
const PARK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenes/park.png");

/// The detections of the only image of a report.
fn detections(report: &str) -> Value {
    let report: Value = serde_json::from_str(report).expect("nothing but JSON on stdout");
    report["images"][0]["detections"].clone()
}

#[test]
fn an_image_is_detected_and_drawn() {
    let place = Place::new();
    let report =
        place.succeed(IMAGE, &["--image", PARK, "--classes", "dog", "-o", "found.png", "--json", "-"]);
    assert_eq!(detections(&report)[0]["label"], "dog", "{report}");
    assert!(place.read("found.png").starts_with(b"\x89PNG"));
}

#[test]
fn aliases_of_flags_mean_the_same() {
    let place = Place::new();
    let run = |arguments: &[&str]| detections(&place.succeed(IMAGE, &[arguments, &["--json", "-"]].concat()));
    let ours = run(&[
        "--image",
        PARK,
        "--classes",
        "dog",
        "--confidence",
        "0.2",
        "--nms",
        "0.5",
        "--engine",
        "embedded",
    ]);
    let theirs =
        run(&["--source", PARK, "--class", "dog", "--conf", "0.2", "--iou", "0.5", "--device", "embedded"]);
    assert_eq!(ours, theirs);
}

#[test]
fn a_drawn_video_is_detected_and_tracked() {
    let place = Place::new();
    let scene = "--classes dog car --track --scene-size 160x120 --max-frames 4 --jsonl - --mot tracks.txt";
    let lines = place.succeed(VIDEO, &scene.split(' ').collect::<Vec<_>>());
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(lines.contains("\"id\":1"), "{lines}");
    assert!(!place.read("tracks.txt").is_empty());
}

#[test]
fn spellings_of_dart_are_accepted() {
    let place = Place::new();
    let scene = "--classes dog --scene-size 64x64 --max-frames 2 --vid_stride 1 --conf 0.2 --trt-max-classes 4 --fast";
    let said = place.run(VIDEO, &scene.split(' ').collect::<Vec<_>>());
    assert_eq!(said.status, Some(0), "{said:?}");
    for flag in ["--trt-max-classes", "--fast"] {
        assert!(said.stderr.contains(&format!("{flag} is not needed")), "{said:?}");
    }
}

#[test]
fn wrong_usage_names_the_flag() {
    let place = Place::new();
    place.refuses(
        IMAGE,
        &[
            refusal("--image|none.png|--classes|dog", 2, &["none.png", "no such file"]),
            refusal(&format!("--image|{PARK}|--classes|dog|--confidence|7"), 2, &["--confidence is 7"]),
            refusal("--classes|dog", 2, &["no image", "--image"]),
        ],
    );
    place.refuses(
        VIDEO,
        &[
            refusal("--video|none.mp4|--classes|dog", 2, &["none.mp4", "no such file"]),
            refusal("--classes|dog|--detect-every|0", 2, &["--detect-every is 0"]),
            refusal("--classes|dog|--clases|cat", 2, &["--clases", "similar", "--class"]),
        ],
    );
}

#[test]
fn help_has_the_name_of_the_program() {
    let place = Place::new();
    for (program, name) in [(IMAGE, "demo-image"), (VIDEO, "demo-video")] {
        let text = place.succeed(program, &["--help"]);
        for words in [format!("Usage: {name} "), format!("\n  {name} --")] {
            assert!(text.contains(&words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(place.succeed(program, &["--version"]).starts_with(name));
        assert_eq!(place.run(program, &[]).status, Some(2));
    }
}
