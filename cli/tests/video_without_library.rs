//! `ocelli video` where the video library is not installed: reads images, raw frames and drawn scenes; writes lines, images and
//! raw frames. Anything else is an error.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::run::{Place, refusal};
use ocelli::tracking::read_mot;

const VIDEO: [&str; 2] = [env!("CARGO_BIN_EXE_ocelli"), "video"];

#[test]
fn images_raw_frames_and_scenes_need_no_video_library() {
    let place = Place::without_libraries();
    let arguments =
        ["--classes", "dog", "car", "--track", "--scene-size", "160x120", "--max-frames", "4", "--fps", "30"];
    let results = ["-o", "out/%02d.png", "--jsonl", "a.jsonl", "--mot", "out.txt", "--crops", "crops"];
    place.succeed(VIDEO, &[&arguments[..], &results].concat());
    read_mot("out.txt", place.read("out.txt").as_slice()).expect("it is a MOTChallenge file");
    assert!(place.path("out/03.png").exists() && place.path("crops").is_dir());

    // Images without annotations, from a folder and from a pipe, are the same video.
    let clean = [&arguments[..], &["--confidence", "1"]].concat();
    place.succeed(VIDEO, &[&clean[..], &["-o", "in/%02d.png"]].concat());
    let raw = place.command(VIDEO, &[&clean[..], &["-o", "-", "--raw-out", "rgb"]].concat()).output();
    let raw = raw.expect("the program starts").stdout;
    let classes = ["--classes", "dog", "car", "--track"];
    place.succeed(VIDEO, &[&["--video", "in"], &classes[..], &["--jsonl", "b.jsonl"]].concat());
    let piped = [&["--video", "-", "--raw", "160x120:rgb"], &classes[..], &["--jsonl", "c.jsonl"]].concat();
    let mut child = place.command(VIDEO, &piped).stdin(Stdio::piped()).spawn().expect("the program starts");
    child.stdin.take().expect("it is piped").write_all(&raw).expect("it is read");
    assert!(child.wait().expect("it ends").success());
    let text = |name| String::from_utf8(place.read(name)).expect("lines are UTF-8");
    let lines = text("a.jsonl");
    assert_eq!(lines.lines().count(), 4);
    assert_eq!(text("c.jsonl"), lines);
    // A folder's lines name the image of each frame as well.
    let named: Vec<_> = text("b.jsonl").lines().map(str::to_owned).collect();
    assert_eq!(named.len(), 4);
    for (frame, (line, named)) in lines.lines().zip(&named).enumerate() {
        let file = format!("\"file\":\"in/{frame:02}.png\",");
        assert!(named.contains(&file), "{file} is not in {named}");
        assert_eq!(named.replace(&file, ""), line);
    }
}

#[test]
fn videos_cameras_and_windows_are_errors() {
    let place = Place::without_libraries();
    place.write("in.mp4", "hello");
    place.succeed(VIDEO, &["--classes", "dog", "--scene-size", "64x64", "--max-frames", "1"]);
    place.refuses(
        VIDEO,
        &[
            refusal(
                "--video|in.mp4|--classes|dog",
                1,
                &["in.mp4", "the video library not found", "make opencv"],
            ),
            refusal("--video|0|--classes|dog", 1, &["camera 0", "make opencv"]),
            refusal("--video|rtsp://127.0.0.1/x|--classes|dog", 1, &["rtsp://127.0.0.1/x", "make opencv"]),
            refusal("--classes|dog|-o|out.mp4", 1, &["out.mp4", "make opencv", "raw frames"]),
            refusal("--classes|dog|--display", 1, &["a window"]),
        ],
    );
}

#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn windows_alone_need_opencv() {
    let mut place = Place::new();
    let named = place.variables.iter_mut().find(|(name, _)| *name == "OCELLI_VIDEO");
    let (_, folder) = named.expect("the video library is found");
    let alone = tempfile::tempdir().expect("a temporary folder can be created");
    for name in ["libocelli_video.so", "libocelli_video.dylib"].map(Path::new) {
        if folder.join(name).is_file() {
            std::fs::copy(folder.join(name), alone.path().join(name)).expect("it can be copied");
        }
    }
    alone.path().clone_into(folder);
    let drawn = ["--classes", "dog", "--scene-size", "64x64", "--max-frames", "3", "-o", "out.mp4"];
    place.succeed(VIDEO, &drawn);
    place.succeed(VIDEO, &["--classes", "dog", "--video", "out.mp4"]);
    let report = place.succeed(VIDEO[0], &["doctor"]);
    let lines: Vec<&str> = report.lines().filter(|line| line.starts_with("  windows  ")).collect();
    let words = ["not usable: ", "libocelli_window", "no such file", "make opencv", "all but windows works"];
    assert!(lines.len() == 1 && words.iter().all(|word| lines[0].contains(word)), "{report}");
}
