//! `ocelli video --memory` on a small random model, whose objects are as random.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use image::{GrayImage, Luma, Rgb, RgbImage};
use ocelli::Mask;
use ocelli::draw::track_color;
use ocelli::mask::read_mask_png;
use serde_json::{Value, json};

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
    let table = run(&["--jsonl", "tracks.jsonl", "-o", "images/%06d.png", "--mot", "tracks.txt"]);
    assert!(table.contains("tracks"), "{table}");
    let all = frames(&place, "tracks.jsonl");
    // The tracker of random weights does not follow what the detector finds: after eight frames its objects would be removed.
    let numbers: Vec<u64> = all.iter().filter_map(|frame| frame["frame"].as_u64()).collect();
    assert_eq!(numbers, (0..7).collect::<Vec<_>>());
    assert!(place.path("images/000006.png").is_file());

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

    for how in [&["--sequential"][..], &["--latency", "low", "--policy", "all"], &["--latency", "balanced"]] {
        run(&[&["--jsonl", "again.jsonl"], how].concat());
        assert_eq!(place.read("again.jsonl"), place.read("tracks.jsonl"), "{how:?}: threads change nothing");
    }
}

/// Detections that were held back are written, and the source is left behind.
#[cfg(unix)]
#[test]
fn a_silent_source_does_not_hold_up_the_end() {
    let place = place();
    let start = RUN.iter().take_while(|word| **word != "--scene-size").copied();
    let more = ["--memory", "--video", "-", "--raw", "96x72:rgb", "--jsonl", "t.jsonl", "-v"];
    let arguments: Vec<&str> = start.chain(more).collect();
    let mut command = place.command(OCELLI, &arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(&[90; 3 * 3 * 96 * 72]).expect("three frames are read");
    let mut said = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    let decoded = said.by_ref().filter(|line| line.contains("ocelli::stage: class 1 ")).take(3).count();
    assert_eq!(decoded, 3);
    let signal =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("there is kill");
    assert!(signal.success());
    let rest = std::thread::spawn(move || said.collect::<Vec<_>>());
    let end = Instant::now() + Duration::from_secs(20);
    let status = loop {
        match child.try_wait().expect("it can be waited for") {
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            status => break status,
        }
    };
    let _ = child.kill();
    let rest = rest.join().expect("it reads");
    assert_eq!(status.and_then(|status| status.code()), Some(130), "{rest:?}");
    assert_eq!(frames(&place, "t.jsonl").len(), 3, "{rest:?}");
    drop(stdin);
}

#[test]
fn several_sources_have_objects_of_their_own() {
    let place = place_with_objects();
    place.write("sources.txt", "one=images\ntwo=images\n");
    let start: Vec<&str> = RUN.iter().take_while(|word| **word != "--scene-size").copied().collect();
    let run = |source: [&str; 2]| {
        place.succeed(OCELLI, &[&start[..], &source, &["--memory", "--jsonl", "t.jsonl"]].concat());
        frames(&place, "t.jsonl")
    };
    let alone = run(["--video", "images"]);
    assert!(alone.iter().any(|frame| !list(frame, "tracks").is_empty()), "{alone:?}");
    let both = run(["--sources", "sources.txt"]);
    for name in ["one", "two"] {
        let of_source = both.iter().filter(|frame| frame["source"] == name);
        let found: Vec<_> =
            of_source.map(|frame| (&frame["frame"], &frame["detections"], &frame["tracks"])).collect();
        let expected = alone.iter().map(|frame| (&frame["frame"], &frame["detections"], &frame["tracks"]));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{name}: as if it were alone");
    }
    let given = "video|--model|model|--sources|sources.txt|--memory|--init-masks|masks";
    place.refuses(OCELLI, &[refusal(given, 2, &["--init-masks", "one source"])]);
}

/// Frames go to the devices in turn, and objects to the one with the fewest.
#[test]
fn objects_are_those_of_one_device() {
    let place = place_with_objects();
    let scene = [&RUN[..], &["--max-frames", "7"]].concat();
    for run in [
        &scene[..],
        &[&scene[..], &["--no-hotstart"]].concat(),
        &[&OBJECTS[..], &["--init-masks", "masks"]].concat(),
    ] {
        let lines =
            |engine: &str| place.succeed(OCELLI, &[run, &["--jsonl", "-", "--engine", engine]].concat());
        let (one, three) = (lines("embedded"), lines("embedded,embedded,embedded"));
        assert!(one.lines().count() >= 6 && one.contains("\"mask\""), "{run:?}: {one}");
        assert_eq!(three, one, "{run:?}");
    }
}

/// A folder of six images and one of masks, in which objects 1 and 3 are blocks.
fn place_with_objects() -> Place {
    let place = place();
    for number in 0..6u32 {
        let pixel = |x: u32, y: u32| Rgb([(x * 37 % 251) as u8, (y * 3 + number * 20) as u8, (x ^ y) as u8]);
        place.folder("images");
        let image = RgbImage::from_fn(96, 72, pixel);
        image.save(place.path(&format!("images/{number:05}.png"))).expect("it can be written to");
    }
    place.folder("masks");
    let block = |x: u32, y: u32| match (x, y) {
        (8..40, 10..60) => 1,
        (56..90, 20..50) => 3,
        _ => 0,
    };
    let masks = GrayImage::from_fn(96, 72, |x, y| Luma([block(x, y)]));
    masks.save(place.path("masks/00000.png")).expect("it can be written to");
    // Annotations of later frames do not count.
    masks.save(place.path("masks/00003.png")).expect("it can be written to");
    place
}

const OBJECTS: [&str; 7] = ["video", "--model", "model", "--video", "images", "--memory", "--fps=10"];

/// The masks of the tracks of a frame, by id.
fn masks(frame: &Value) -> BTreeMap<u64, Mask> {
    let mask = |track: &Value| {
        let detection = &frame["detections"][track["detection"].as_u64()? as usize];
        let mask: Mask = serde_json::from_value(detection["mask"].clone()).expect("COCO's run lengths");
        Some((track["id"].as_u64()?, mask))
    };
    let masks = list(frame, "tracks").iter().filter_map(mask);
    masks.filter(|(_, mask)| mask.area() > 0).collect()
}

/// Two objects of the user are followed, and every output has the masks of the JSON lines.
#[test]
fn every_output_has_the_same_masks() {
    let place = place_with_objects();
    let outputs = "--init-masks masks --jsonl t.jsonl --mots mots.txt --youtube-vis vis.json --davis davis \
                   -o drawn/%06d.png";
    let outputs: Vec<&str> = outputs.split_whitespace().collect();
    let table = place.succeed(OCELLI, &[&OBJECTS[..], &outputs].concat());
    assert!(table.contains("object"), "{table}");
    let frames: Vec<BTreeMap<u64, Mask>> = frames(&place, "t.jsonl").iter().map(masks).collect();
    assert_eq!(frames.len(), 6);
    let given: BTreeMap<u64, Mask> = read_mask_png(&place.path("masks/00000.png"))
        .expect("it is a PNG")
        .into_iter()
        .map(|(id, mask)| (u64::from(id), mask))
        .collect();
    assert_eq!(frames[0], given, "the first frame shows what was given");
    assert!(frames.iter().all(|frame| frame.keys().all(|id| [1, 3].contains(id))));

    let mots = String::from_utf8(place.read("mots.txt")).expect("text");
    let mut lines = mots.lines();
    for (index, frame) in frames.iter().enumerate() {
        for (id, mask) in frame {
            let line = format!("{} {id} 1 72 96 {}", index + 1, mask.counts());
            assert_eq!(lines.next(), Some(line.as_str()));
        }
        let davis: BTreeMap<u64, Mask> = read_mask_png(&place.path(&format!("davis/{index:05}.png")))
            .expect("it was written")
            .into_iter()
            .map(|(id, mask)| (u64::from(id), mask))
            .collect();
        assert_eq!(&davis, frame, "frame {index} of davis");
    }
    assert_eq!(lines.next(), None);

    let vis = place.json("vis.json");
    assert_eq!(vis["videos"][0]["file_names"][5], "00005.png");
    for annotation in list(&vis, "annotations") {
        let id = annotation["id"].as_u64().expect("an id");
        let read: Vec<Option<Mask>> =
            serde_json::from_value(annotation["segmentations"].clone()).expect("run lengths or null");
        let expected: Vec<Option<Mask>> = frames.iter().map(|frame| frame.get(&id).cloned()).collect();
        assert_eq!(read, expected, "object {id}");
    }

    // What the evaluation reads equals itself.
    for (output, figure) in [("vis.json", "/segm/ap"), ("davis", "/semi_supervised/j_and_f")] {
        let arguments = ["eval", "--video", "--truth", output, "--predictions", output, "--json", "-"];
        let report: Value = serde_json::from_str(&place.succeed(OCELLI, &arguments)).expect("JSON");
        let value = report.pointer(figure).and_then(Value::as_f64);
        assert!(value.is_some_and(|value| (value - 1.0).abs() < 1e-9), "{output}: {report}");
    }

    // Masks are drawn in the colours of the objects.
    let source = image::open(place.path("images/00000.png")).expect("an image").to_rgb8();
    let drawn = image::open(place.path("drawn/000000.png")).expect("an image").to_rgb8();
    let distance =
        |a: [u8; 3], b: [u8; 3]| -> u32 { a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(b))).sum() };
    for (id, (x, y)) in [(1, (24, 45)), (3, (72, 44))] {
        let (before, after) = (source.get_pixel(x, y).0, drawn.get_pixel(x, y).0);
        let color = track_color(id);
        assert!(distance(after, color) < distance(before, color), "object {id}: {before:?} became {after:?}");
    }
    assert_eq!(drawn.get_pixel(48, 68), source.get_pixel(48, 68), "the background is as it was");
}

#[test]
fn objects_are_clicked_in_a_file() {
    let place = place_with_objects();
    let clicks = |frame: u64, object: u64, class: &str| {
        let points = [[30 + 9 * object, 36], [90, 70 - object]];
        json!({"frame": frame, "object": object, "points": points, "labels": [1, 0], "class": class})
            .to_string()
    };
    let lines: Vec<String> = [(0, 1, "dog"), (0, 2, "red car"), (3, 4, "dog"), (4, 1, "dog")]
        .map(|(frame, object, class)| clicks(frame, object, class))
        .into();
    place.write("points.jsonl", lines.join("\n"));
    let run = |more: &[&str]| {
        place.succeed(
            OCELLI,
            &[&OBJECTS[..], &["--points", "points.jsonl", "--jsonl", "t.jsonl"], more].concat(),
        )
    };
    run(&[]);
    let all = frames(&place, "t.jsonl");
    assert_eq!(all.len(), 6);
    let mut labels: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for frame in &all {
        let number = frame["frame"].as_u64().expect("a number");
        for track in list(frame, "tracks") {
            let id = track["id"].as_u64().expect("an id");
            assert!(number >= 3 || id != 4, "object 4 comes with frame 3: {frame}");
            labels.entry(id).or_default().insert(track["label"].as_str().expect("a label").to_owned());
        }
    }
    for (id, label) in [(1, "dog"), (2, "red car"), (4, "dog")] {
        if let Some(found) = labels.get(&id) {
            assert_eq!(found.iter().collect::<Vec<_>>(), [label], "object {id}");
        }
    }
    assert!(labels.len() >= 2, "random weights show too few of the objects to mean something: {labels:?}");
    let first = place.read("t.jsonl");
    run(&["--sequential"]);
    assert_eq!(place.read("t.jsonl"), first, "threads change nothing");
}

/// Without hotstart frames leave at once, and what turns out to be false is retracted: what is left is what a run with hotstart
/// shows.
#[test]
fn false_objects_are_retracted_in_the_lines() {
    let place = place();
    let run = |more: &[&str]| {
        place.succeed(OCELLI, &[&RUN[..], &["--max-frames", "12", "--jsonl", "t.jsonl"], more].concat());
        frames(&place, "t.jsonl")
    };
    let ids = |frames: &[Value], key: &str| -> BTreeSet<u64> {
        let lists = frames.iter().filter_map(|frame| frame[key].as_array()).flatten();
        lists.filter_map(|one| one["id"].as_u64().or(one.as_u64())).collect()
    };
    let held = run(&[]);
    assert!(held.iter().all(|frame| frame.get("retracted").is_none()), "nothing false was shown");
    let live = run(&["--no-hotstart"]);
    assert_eq!(live.len(), 12);
    let (shown, retracted) = (ids(&live, "tracks"), ids(&live, "retracted"));
    assert!(!retracted.is_empty() && retracted.is_subset(&shown), "{retracted:?} of {shown:?}");
    assert_eq!(&shown - &retracted, ids(&held, "tracks"));
    for (number, frame) in live.iter().enumerate() {
        for id in frame["retracted"].as_array().into_iter().flatten() {
            let later = &live[number..];
            assert!(!ids(later, "tracks").contains(&id.as_u64().expect("an id")), "{id} is shown again");
        }
    }
}

/// Between looks objects are followed by memory alone, and are not missed: what is removed in a run that looks at every frame stays.
#[test]
fn frames_that_are_not_searched_are_followed_by_memory() {
    let place = place();
    let run = |more: &[&str]| {
        let live = ["--max-frames", "12", "--no-hotstart", "--jsonl", "t.jsonl", "-v"];
        let outcome = place.run(OCELLI, &[&RUN[..], &live, more].concat());
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        (frames(&place, "t.jsonl"), outcome.stderr)
    };
    let has_retracted = |frames: &[Value]| frames.iter().any(|frame| frame.get("retracted").is_some());
    assert!(has_retracted(&run(&[]).0));
    for (more, looks, line) in [
        (["--detect-every", "4"], 3, "class 1 of 2"),
        // One class a frame, in turn.
        (["--class-budget", "1"], 12, "class 1 of 1"),
    ] {
        let (found, log) = run(&more);
        assert!(!has_retracted(&found), "{more:?}: at most six looks at a class");
        let searched = log.lines().filter(|said| said.contains("ocelli::stage: class 1 ")).count();
        assert_eq!((searched, log.matches(line).count()), (looks, looks), "{more:?}: {log}");
        let mut lasting: BTreeMap<u64, usize> = BTreeMap::new();
        for (number, frame) in found.iter().enumerate() {
            let is_searched = looks == 12 || number % 4 == 0;
            assert_eq!(frame.get("detected"), (!is_searched).then_some(&json!(false)), "{more:?}: {frame}");
            for track in list(frame, "tracks") {
                *lasting.entry(track["id"].as_u64().expect("an id")).or_default() += 1;
                assert!(
                    looks == 3 || number > 0 || track["class_id"] == 0,
                    "only dogs were looked for: {frame}"
                );
            }
        }
        assert!(lasting.values().any(|frames| *frames >= 5), "{more:?}: no object lasts: {lasting:?}");
        assert_eq!(
            run(&[&more[..], &["--sequential"]].concat()).0,
            found,
            "{more:?}: threads change nothing"
        );
    }
}

/// A frame without motion has the objects of the frame before, and the others what they have without it; nothing is computed.
#[test]
fn frames_without_motion_keep_their_objects() {
    let place = place_with_objects();
    let images = [0, 0, 0, 3, 3, 0, 0];
    for (folder, numbers) in [("gated", &images[..]), ("moving", &[0, 3, 0])] {
        for (number, image) in numbers.iter().enumerate() {
            let image = place.read(&format!("images/{image:05}.png"));
            place.write(&format!("{folder}/{number}.png"), image);
        }
    }
    let start: Vec<&str> = RUN.iter().take_while(|word| **word != "--scene-size").copied().collect();
    let run = |more: &[&str]| {
        let outputs = ["--memory", "--fps=10", "--jsonl", "t.jsonl", "--stats", "stats.json"];
        place.succeed(OCELLI, &[&start[..], &outputs, more].concat());
        frames(&place, "t.jsonl")
    };
    let moving = run(&["--video", "moving"]);
    assert!(moving.iter().any(|frame| !list(frame, "tracks").is_empty()), "{moving:?}");
    let ways: [&[&str]; 3] = [&[], &["--no-hotstart"], &["--sequential"]];
    for more in ways {
        let gated = run(&[&["--video", "gated", "--when-moving"][..], more].concat());
        assert_eq!(gated.len(), images.len(), "{more:?}");
        for (number, (frame, same)) in gated.iter().zip([0, 0, 0, 1, 1, 2, 2]).enumerate() {
            let is_still = number > 0 && images[number] == images[number - 1];
            assert_eq!(frame.get("detected"), is_still.then_some(&json!(false)), "{more:?}: {frame}");
            let objects = |frame: &Value| [frame["detections"].clone(), frame["tracks"].clone()];
            assert_eq!(objects(frame), objects(&moving[same]), "{more:?}: frame {number}");
        }
        let stats = place.json("stats.json");
        let backbone = list(&stats, "stages").iter().find(|stage| stage["stage"] == "backbone");
        assert_eq!(backbone.expect("it ran")["n"], 3, "{more:?}: {stats}");
        assert_eq!((&stats["frames_without_motion"], &stats["frames_detected"]), (&json!(4), &json!(3)));
    }
}

/// Something enters on a frame on which no look is due, and stands still: the next look that is due finds it.
#[test]
fn what_stands_still_before_a_look_is_found() {
    let place = place_with_objects();
    for (number, image) in [0, 3, 3, 3].into_iter().enumerate() {
        let image = place.read(&format!("images/{image:05}.png"));
        place.write(&format!("still/{number}.png"), image);
    }
    let start: Vec<&str> = RUN.iter().take_while(|word| **word != "--scene-size").copied().collect();
    let more = [
        "--memory",
        "--fps=10",
        "--jsonl",
        "t.jsonl",
        "--video",
        "still",
        "--when-moving",
        "--detect-every",
        "3",
    ];
    place.succeed(OCELLI, &[&start[..], &more].concat());
    let searched: Vec<bool> =
        frames(&place, "t.jsonl").iter().map(|frame| frame.get("detected").is_none()).collect();
    assert_eq!(searched, [true, false, false, true]);
}

/// The random model finds one object of a class: of two that are given the second is one too many. Whom the limit drops is tested
/// where it is decided, in `tracking`.
#[test]
fn objects_are_limited() {
    let place = place_with_objects();
    let object =
        |object: u32, x: u32| json!({"frame": 0, "object": object, "points": [[x, 30]], "class": "dog"});
    place.write("two.json", json!([object(1, 20), object(2, 70)]).to_string());
    let objects = [&OBJECTS[..], &["--points", "two.json", "--max-objects"]].concat();
    place.succeed(OCELLI, &[&objects[..], &["2"]].concat());
    let case = |limit: &str| format!("{}|{limit}", objects.join("|"));
    place.refuses(
        OCELLI,
        &[
            refusal(&case("1"), 2, &["max_objects is 1: no object can be added"]),
            refusal(&case("0"), 2, &["--max-objects"]),
        ],
    );
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
            refusal("video|--classes|dog|--memory", 1, &["--memory, the built-in model: it has no tracker"]),
            refusal(
                "video|--classes|dog|--memory|--appearance",
                2,
                &["--appearance beside --memory", "leave one of them out"],
            ),
            refusal("video|--classes|dog|--memory|--tile|auto", 2, &["--tile", "whole frames"]),
            refusal(
                "video|--classes|dog|--memory|--track-thresh|0.4",
                2,
                &["--track-thresh", "in place of --memory"],
            ),
            refusal(
                "video|--classes|dog|--memory|--track",
                2,
                &["--track beside --memory", "compare two runs"],
            ),
        ],
    );
}

#[test]
fn objects_that_cannot_be_given_are_refused() {
    let place = place_with_objects();
    place.write("click.json", r#"{"frame": 0, "object": 1, "points": [[20, 30]]}"#);
    place.write("late.json", r#"{"frame": 9, "object": 2, "points": [[20, 30]]}"#);
    place.write("outside.json", r#"{"frame": 0, "object": 1, "points": [[20, 300]]}"#);
    place.folder("empty");
    place.folder("small");
    GrayImage::from_pixel(4, 4, Luma([1])).save(place.path("small/0.png")).expect("it can be written to");
    let objects = OBJECTS.join("|");
    let case = |more: &str| format!("{objects}|{more}");
    let cases = [
        ("video|--video|images|--points|click.json".to_owned(), 2, vec!["--memory"]),
        ("video|--classes|dog|--no-hotstart".to_owned(), 2, vec!["--memory"]),
        ("video|--classes|dog|--max-objects|3".to_owned(), 2, vec!["--memory"]),
        ("video|--classes|dog|--mots|m.txt".to_owned(), 2, vec!["--mots", "add --memory"]),
        ("video|--classes|dog|--track|--davis|d".to_owned(), 2, vec!["--davis", "--masks"]),
        (case("--classes|dog|--points|click.json"), 2, vec!["--points", "leave out --classes"]),
        (case("--track|--points|click.json"), 2, vec!["--track beside --memory", "leave one of them out"]),
        (case("--when-moving|--points|click.json"), 2, vec!["--when-moving beside objects", "nothing is"]),
        (case("--points|none.json"), 2, vec!["none.json"]),
        (case("--points|outside.json"), 2, vec!["object 1, frame 0", "20,300", "96×72"]),
        (case("--init-masks|empty"), 2, vec!["--init-masks, empty", "no PNG with an object"]),
        (case("--init-masks|small"), 2, vec!["frame 0", "4×4", "96×72"]),
        (case("--init-masks|masks|--davis|masks"), 2, vec!["--davis, masks", "input images"]),
    ];
    let cases: Vec<_> = cases.iter().map(|(line, status, words)| refusal(line, *status, words)).collect();
    place.refuses(OCELLI, &cases);

    // Known at the end of the video alone.
    let late = place.run(OCELLI, &[&OBJECTS[..], &["--points", "late.json"]].concat());
    let text = "frame 9, where object 2 is given, is not among the frames that were read";
    assert!(late.status == Some(2) && late.stderr.contains(text), "{late:?}");
}
