//! Runs `ocelli video`: detections, tracks, outputs, errors, and the files that remain after each kind of end.

mod benchmark;
mod endings;
mod live;
mod motion;
mod refusals;
mod score;
mod secrets;
mod several;
mod sources;
mod times;
mod zones;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Outcome, Place, Program, outcome};
use ocelli::report::FrameReport;
use ocelli::sink::write_image;
use ocelli::source::open_video;
use ocelli::tracking::read_mot;
use ocelli::{Frame, Source};
use ocelli_verify::scenes::MovingScene;

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const VIDEO: [&str; 2] = [OCELLI, "video"];

/// A program with arguments between spaces.
fn command<'a>(place: &Place, program: impl Into<Program<'a>>, arguments: &str) -> Command {
    let arguments: Vec<&str> = arguments.split(' ').filter(|argument| !argument.is_empty()).collect();
    place.command(program, &arguments)
}

fn run_video(place: &Place, arguments: &str) -> Outcome {
    outcome(&mut command(place, VIDEO, arguments))
}

/// Runs a program that must succeed; returns stdout.
fn succeed(place: &Place, arguments: &str) -> String {
    let outcome = run_video(place, arguments);
    assert_eq!(outcome.status, Some(0), "{arguments}: {outcome:?}");
    outcome.stdout
}

fn lines_of(text: &[u8]) -> Vec<FrameReport> {
    let text = std::str::from_utf8(text).expect("JSON is text");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

fn numbers(lines: &[FrameReport]) -> Vec<u64> {
    lines.iter().map(|line| line.frame).collect()
}

/// All frames of a video, and its rate.
fn frames_of(path: &Path) -> (Vec<Frame>, f64) {
    let mut source = open_video(path).unwrap_or_else(|e| panic!("{e}"));
    let rate = source.info().frame_rate.unwrap_or(0.0);
    let mut frames = Vec::new();
    let mut frame = Frame::default();
    while source.read_into(&mut frame).unwrap_or_else(|e| panic!("{e}")) {
        frames.push(std::mem::take(&mut frame));
    }
    (frames, rate)
}

/// Names in a folder, sorted, without the cache of a place.
fn names(folder: PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "cache");
    names.sort();
    names
}

/// For runs whose detections do not matter: the detector sees one frame.
const ONE_DETECTION: &str = "--detect-every 1000 --confidence 1";

/// An MP4 file with its index behind the frames, as cameras write it.
fn index_last(bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut index, mut rest, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let size = number(at) as usize;
        let to = if &bytes[at + 4..at + 8] == b"moov" { &mut index } else { &mut rest };
        to.extend_from_slice(&bytes[at..at + size]);
        at += size;
    }
    let moved = index.len() as u32;
    let places = |table: &[u8]| table.windows(4).position(|window| window == b"stco");
    let table = places(&index).expect("chunks have places") + 8;
    let count = u32::from_be_bytes(index[table..table + 4].try_into().expect("four bytes")) as usize;
    for place in index[table + 4..].chunks_exact_mut(4).take(count) {
        let before = u32::from_be_bytes((&*place).try_into().expect("four bytes"));
        place.copy_from_slice(&(before - moved).to_be_bytes());
    }
    [rest, index].concat()
}

/// Writes the drawn scene of the program as a video.
fn draw_video(place: &Place, name: &str, frames: u64) {
    let scene = "--classes moon --scene-size 320x240";
    succeed(place, &format!("{scene} --max-frames {frames} -o {name} -q {ONE_DETECTION}"));
}

#[test]
fn a_drawn_video_is_detected_tracked_and_written() {
    let place = Place::new();
    let table = succeed(
        &place,
        "--classes dog car --track --trails 20 --scene-size 480x270 --max-frames 75 -o out.mp4 --jsonl out.jsonl --mot \
         out.txt --crops crops --stats stats.json --masks",
    );
    assert!(table.contains("dog") && table.contains("tracks"), "{table}");

    let lines = lines_of(&place.read("out.jsonl"));
    assert_eq!(numbers(&lines), (0..75).collect::<Vec<_>>());
    assert!(lines.iter().all(|line| (line.time_s - line.frame as f64 / 25.0).abs() < 1e-6));
    assert!(lines.iter().all(|line| (line.width, line.height) == (480, 270)));
    assert!(lines.iter().flat_map(|line| &line.detections).all(|detection| detection.mask.is_some()));
    let boxes = read_mot("out.txt", place.read("out.txt").as_slice()).expect("it is a MOTChallenge file");
    let in_lines: Vec<(u32, Option<u64>)> = lines
        .iter()
        .flat_map(|line| line.tracks.iter().map(|track| (line.frame as u32 + 1, Some(track.id))))
        .collect();
    assert_eq!(boxes.iter().map(|b| (b.frame, b.id)).collect::<Vec<_>>(), in_lines);

    let scene = MovingScene::new(5, &["dog", "car"], 480, 270, 75, 25.0).expect("these can be drawn");
    let score = score::score(&scene, &lines);
    assert!(score.mota > 0.85 && score.idf1 > 0.85, "{score:?}");

    let (frames, rate) = frames_of(&place.path("out.mp4"));
    assert_eq!((frames.len(), rate), (75, 25.0));
    assert_eq!((frames[0].image.width(), frames[0].image.height()), (480, 270));
    // Annotations change some pixels, but not most.
    let clean = scene.image(60);
    let drawn = frames[60].image.as_rgb8().chunks(3).zip(clean.as_rgb8().chunks(3));
    let differ = drawn.filter(|(a, b)| a.iter().zip(*b).any(|(a, b)| a.abs_diff(*b) > 60)).count();
    assert!((500..50_000).contains(&differ), "{differ} pixels differ");

    assert_eq!(names(place.path("crops")), ["car", "dog"]);
    assert!(names(place.path("crops/dog")).iter().all(|name| name.starts_with("track-000")));
    let stats = place.json("stats.json");
    assert_eq!((&stats["frames_out"], &stats["cancelled"]), (&75.into(), &false.into()), "{stats}");
    assert!(stats["stages"].as_array().is_some_and(|stages| stages.len() >= 6), "{stats}");
    let left: Vec<_> = names(place.path("")).into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_video_gives_the_same_detections_as_its_frames() {
    let place = Place::new();
    draw_video(&place, "in.mkv", 12);
    let arguments = "--classes moon --jsonl -";
    let of_video = lines_of(succeed(&place, &format!("--video in.mkv {arguments}")).as_bytes());
    place.folder("frames");
    // A name whose numeric and alphabetical orders differ.
    for (number, frame) in frames_of(&place.path("in.mkv")).0.iter().enumerate() {
        write_image(&place.path(&format!("frames/{number}.png")), &frame.image).expect("it can be written");
    }
    let mut of_folder = lines_of(succeed(&place, &format!("--video frames {arguments} --fps 25")).as_bytes());
    let of_pattern = lines_of(succeed(&place, &format!("--video frames/?.png {arguments}")).as_bytes());
    let files: Vec<String> = of_folder.iter_mut().filter_map(|line| line.file.take()).collect();
    assert_eq!((files.len(), files[11].as_str()), (12, "frames/11.png"));
    assert_eq!(of_video, of_folder);
    assert_eq!(numbers(&of_pattern), (0..10).collect::<Vec<_>>());
    let report =
        outcome(&mut command(&place, [OCELLI, "detect"], "--image frames --classes moon --json -")).stdout;
    let report: ocelli_cli::report::Report = serde_json::from_str(&report).expect("it is a report");
    let mut found = 0;
    for (number, line) in of_video.iter().enumerate() {
        let name = format!("frames/{number}.png");
        let image = report.images.iter().find(|image| image.file == name).expect("it was looked at");
        assert_eq!(line.detections, image.detections, "{name}");
        assert!(number >= 10 || line.detections == of_pattern[number].detections, "{name}");
        found += line.detections.len();
    }
    assert!(found > 12, "{found} detections are no comparison");
}

#[test]
fn pipelined_and_sequential_runs_agree() {
    let place = Place::new();
    let scene = "--imgsz 112 --classes dog car bird --scene-size 320x240 --max-frames 12";
    for options in [
        "--track",
        "--track --detect-every 3 --coast 5",
        "--track --class-budget 2",
        "--vid-stride 2 --match-classes any --track --max-frames 10",
        "",
    ] {
        let scene = if options.contains("--max-frames") {
            "--imgsz 112 --classes dog car bird --scene-size 320x240"
        } else {
            scene
        };
        let lines = |more: &str| succeed(&place, &format!("{scene} {options} --jsonl - {more}"));
        let (together, apart) = (lines(""), lines("--sequential"));
        assert!(together.lines().count() >= 10, "{options}: {together}");
        assert_eq!(together, apart, "{options}");
    }
}

#[test]
fn frames_between_detections_are_marked_as_predicted() {
    let place = Place::new();
    let lines = succeed(
        &place,
        "--classes dog --track --detect-every 4 --scene-size 320x240 --max-frames 12 --jsonl -",
    );
    let lines = lines_of(lines.as_bytes());
    let detected: Vec<bool> = lines.iter().map(|line| line.detected).collect();
    assert_eq!(detected, (0..12).map(|frame| frame % 4 == 0).collect::<Vec<_>>());
    assert!(lines.iter().filter(|line| !line.detected).all(|line| line.detections.is_empty()));
    assert!(lines[5..].iter().all(|line| !line.tracks.is_empty()), "tracks go on between");
}
