//! `--engine` with several devices: two instances on the CPU give what one gives, byte for byte.

use crate::label::data_set::{IMGSZ, differences, journal_lines, write_images};
use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const TWO: &str = "embedded,embedded";

/// The arguments of a run that labels `images`.
fn label<'a>(output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let whole = ["label", "--model", "built-in", "--imgsz", IMGSZ, "--images", "images", "-o", output];
    [&whole[..], &["--classes", "bowl,boat,dog"], more].concat()
}

#[test]
fn data_sets_are_those_of_one_device() {
    let place = Place::new();
    write_images(&place, "images", 9);
    place.write("images/000-bad.jpg", "hello");
    for (engine, set) in [("embedded", "one"), (TWO, "two")] {
        place.succeed(OCELLI, &label(set, &["--format", "yolo,coco", "--review", "4", "--engine", engine]));
    }
    assert_eq!(differences(&place.path("two"), &place.path("one")), [""; 0]);
    assert_eq!(journal_lines(&place.path("two")), 11, "10 images and the first line");
    // The tiles of an image stay on its device.
    write_images(&place, "few", 2);
    for (engine, set) in [("embedded", "tiles"), (TWO, "two-tiles")] {
        let few = ["label", "--model", "built-in", "--images", "few", "--classes", "house", "-o", set];
        let more = ["--imgsz", IMGSZ, "--tile", "128", "--engine", engine];
        place.succeed(OCELLI, &[&few[..], &more].concat());
    }
    assert_eq!(differences(&place.path("two-tiles"), &place.path("tiles")), [""; 0]);
    // Frames of a video, with tracks.
    let drawn = [
        "video",
        "-q",
        "--scene-size",
        "320x240",
        "--max-frames",
        "12",
        "--detect-every",
        "1000",
        "--confidence",
        "1",
        "-o",
        "drive/%03d.png",
        "--classes",
        "person",
    ];
    place.succeed(OCELLI, &drawn);
    for (engine, set) in [("embedded", "frames"), (TWO, "two-frames")] {
        let video = ["label", "--model", "built-in", "--video", "drive", "--every", "3", "--format", "coco"];
        let more = ["--imgsz", IMGSZ, "--classes", "person,car", "-o", set, "--engine", engine];
        place.succeed(OCELLI, &[&video[..], &more].concat());
    }
    assert_eq!(differences(&place.path("two-frames"), &place.path("frames")), [""; 0]);
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_a_run_which_continues_from_there() {
    let place = Place::new();
    write_images(&place, "images", 24);
    place.succeed(OCELLI, &label("whole", &["--engine", TWO]));
    let is_time = || journal_lines(&place.path("stopped")) >= 4;
    let ended =
        crate::label::stopped::stop_when(&place, &label("stopped", &["--engine", TWO]), "-INT", is_time);
    assert_eq!(ended.status, Some(130), "{ended:?}");
    assert!((4..25).contains(&journal_lines(&place.path("stopped"))), "{ended:?}");
    place.succeed(OCELLI, &label("stopped", &["--engine", "embedded"]));
    assert_eq!(differences(&place.path("stopped"), &place.path("whole")), [""; 0]);

    let endless = ["video", "--classes", "dog", "--engine", TWO, "--jsonl", "endless.jsonl"];
    let is_time = || std::fs::metadata(place.path("endless.jsonl")).is_ok_and(|file| file.len() > 0);
    let ended = crate::label::stopped::stop_when(&place, &endless, "-INT", is_time);
    assert_eq!(ended.status, Some(130), "{ended:?}");
}

#[test]
fn tracks_and_detections_are_those_of_one_device() {
    let place = Place::new();
    let video =
        ["video", "-q", "--imgsz", IMGSZ, "--classes", "dog", "car", "bird", "--scene-size", "320x240"];
    for more in [
        &["--track", "--detect-every", "2", "--appearance", "--camera-motion", "--max-frames", "16"][..],
        &["--masks", "--when-moving", "--max-frames", "8"],
        &["--tile", "128", "--max-frames", "2"],
        &["--track", "--latency", "balanced", "--max-frames", "9"],
    ] {
        let lines = |engine: &str| {
            place.succeed(OCELLI, &[&video[..], more, &["--engine", engine, "--jsonl", "-"]].concat())
        };
        let (one, three) = (lines("embedded"), lines("embedded,embedded,embedded"));
        assert!(one.lines().count() >= 2, "{more:?}: {one}");
        assert_eq!(three, one, "{more:?}");
    }
}

#[test]
fn what_runs_on_one_device_is_refused() {
    let place = Place::new().without_gpu();
    write_images(&place, "images", 1);
    let label = |more: &str| format!("label|--model|built-in|--images|images|--classes|dog|-o|set|{more}");
    let video = |more: &str| format!("video|--classes|dog|--max-frames|3|--jsonl|lines.jsonl|{more}");
    let detect = "detect|--image|images|--classes|dog|--json|out.json";
    let cases = [
        (
            label("--engine|embedded,onnxruntime"),
            2,
            &["--engine embedded,onnxruntime", "differ", "one engine"][..],
        ),
        (label("--engine|embedded,quick"), 2, &["quick", "no such engine"]),
        (label("--engine|embedded,embedded|--low-memory"), 2, &["--low-memory", "one device"]),
        (label("--engine|cuda:0,1"), 1, &["ONNX Runtime"]),
        (video("--engine|cuda:0,1"), 1, &["ONNX Runtime"]),
        (video("--engine|embedded,embedded|--class-budget|1"), 2, &["--class-budget", "one device"]),
        (video("--engine|embedded,embedded|--sequential"), 2, &["--sequential", "one device"]),
        (video("--engine|embedded,embedded|--latency|low"), 2, &["--latency low", "one device"]),
        (video("--engine|embedded,embedded|--trt|a.engine"), 2, &["--engine", "engine files"]),
        (format!("{detect}|--engine|cuda:0,1"), 2, &["--engine cuda:0,1", "list of devices", "expected one"]),
        ("embed|--classes|dog|-o|dog.safetensors|--engine|0,1".into(), 2, &["list of devices"]),
    ];
    let rows: Vec<_> = cases.iter().map(|(row, status, words)| refusal(row, *status, words)).collect();
    place.refuses(OCELLI, &rows);
}
