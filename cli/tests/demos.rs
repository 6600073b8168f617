//! `demo-image` and `demo-video`, links to `ocelli`: that they start, under their own names. What they do is that of
//! `ocelli detect` and `ocelli video`, which have tests of their own.

use serde_json::Value;

use crate::run::{Place, refusal};

const IMAGE: &str = "demo-image";
const VIDEO: &str = "demo-video";
const PARK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demos/scenes/park.png");

/// A folder with the program under this name, and the path of that.
fn linked(place: Place, name: &str) -> (Place, String) {
    let (program, link) = (env!("CARGO_BIN_EXE_ocelli"), place.path(name));
    #[cfg(unix)]
    std::os::unix::fs::symlink(program, &link).expect("a link can be made");
    #[cfg(not(unix))]
    std::fs::copy(program, &link).map(drop).expect("a program can be copied");
    (place, link.to_str().expect("a path of the tests").to_owned())
}

/// The detections of the only image of a report.
fn detections(report: &str) -> Value {
    let report: Value = serde_json::from_str(report).expect("nothing but JSON on stdout");
    report["images"][0]["detections"].clone()
}

#[test]
fn an_image_is_detected_and_drawn() {
    let (place, image) = linked(Place::new(), IMAGE);
    let report =
        place.succeed(&*image, &["--image", PARK, "--classes", "dog", "-o", "found.png", "--json", "-"]);
    assert_eq!(detections(&report)[0]["label"], "dog", "{report}");
    assert!(place.read("found.png").starts_with(b"\x89PNG"));
}

#[test]
fn aliases_of_flags_mean_the_same() {
    let (place, image) = linked(Place::new(), IMAGE);
    let run =
        |arguments: &[&str]| detections(&place.succeed(&*image, &[arguments, &["--json", "-"]].concat()));
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
    let (place, video) = linked(Place::new(), VIDEO);
    let scene = "--classes dog car --track --scene-size 160x120 --max-frames 4 --jsonl - --mot tracks.txt";
    let lines = place.succeed(&*video, &scene.split(' ').collect::<Vec<_>>());
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(lines.contains("\"id\":1"), "{lines}");
    assert!(!place.read("tracks.txt").is_empty());
}

#[test]
fn spellings_of_dart_are_accepted() {
    let (place, video) = linked(Place::new(), VIDEO);
    let scene = "--classes dog --scene-size 64x64 --max-frames 2 --vid_stride 1 --conf 0.2 --trt-max-classes 4 --fast";
    let said = place.run(&*video, &scene.split(' ').collect::<Vec<_>>());
    assert_eq!(said.status, Some(0), "{said:?}");
    for flag in ["--trt-max-classes", "--fast"] {
        assert!(said.stderr.contains(&format!("{flag} is not needed")), "{said:?}");
    }
}

#[test]
fn wrong_usage_names_the_flag() {
    let (place, image) = linked(Place::new(), IMAGE);
    place.refuses(
        &*image,
        &[
            refusal("--image|none.png|--classes|dog", 2, &["none.png", "no such file"]),
            refusal(&format!("--image|{PARK}|--classes|dog|--confidence|7"), 2, &["--confidence is 7"]),
            refusal("--classes|dog", 2, &["no image", "--image"]),
        ],
    );
    let (place, video) = linked(place, VIDEO);
    place.refuses(
        &*video,
        &[
            refusal("--video|none.mp4|--classes|dog", 2, &["none.mp4", "no such file"]),
            refusal("--classes|dog|--detect-every|0", 2, &["--detect-every is 0"]),
            refusal("--classes|dog|--clases|cat", 2, &["--clases", "similar", "--class"]),
        ],
    );
}

#[test]
fn help_has_the_name_of_the_program() {
    for name in [IMAGE, VIDEO] {
        let (place, program) = linked(Place::new(), name);
        let text = place.succeed(&*program, &["--help"]);
        for words in [format!("Usage: {name} "), format!("\n  {name} --")] {
            assert!(text.contains(&words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(place.succeed(&*program, &["--version"]).starts_with(name));
        assert_eq!(place.run(&*program, &[]).status, Some(2));
    }
}

fn without_a_gpu_the_driver_is_named(place: Place) {
    let (place, video) = linked(place, VIDEO);
    place.write("x.engine", "a plan");
    let words = ["--trt", "x.engine: cannot use an NVIDIA GPU"];
    place.without_gpu().refuses(
        &*video,
        &[
            refusal("--trt|x.engine|--classes|person|car", 1, &words),
            refusal("--trt-enc-dec|x.engine|--classes|person|car", 1, &words),
        ],
    );
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs Ocelli's parts for TensorRT: make setup")]
#[cfg_attr(without_tensorrt, ignore = "needs Ocelli's parts for TensorRT: make tensorrt")]
fn without_a_gpu_the_driver_is_named_with_the_parts() {
    let parts = ocelli::engines::tensorrt::Product::ALL.map(ocelli::engines::tensorrt::Product::part);
    assert!(parts.iter().all(Option::is_some), "{parts:?}");
    without_a_gpu_the_driver_is_named(Place::with_libraries());
}

#[test]
fn without_a_gpu_the_driver_is_named_without_the_parts() {
    without_a_gpu_the_driver_is_named(Place::without_libraries());
}
