//! `ocelli label --video`: frames of videos as images, with objects that are followed.

use std::collections::BTreeMap;
use std::path::Path;

use ocelli::Mask;
use serde_json::{Value, json};

use super::OCELLI;
use super::data_set::{IMGSZ, differences, journal_lines, tree};
use super::stopped::stop_when;
use crate::checkpoints::copy;
use crate::run::{Place, refusal};

/// Draws a video as a folder of images.
fn frames(place: &Place, folder: &str, size: &str, count: usize) {
    let output = format!("{folder}/%06d.png");
    let (count, classes) = (count.to_string(), ["person", "car"]);
    // Nothing is detected in them: the detector sees the first, and nothing is that certain.
    let plain = ["--detect-every", "1000", "--confidence", "1", "--classes"];
    let drawn = ["video", "-q", "--scene-size", size, "--max-frames", &count, "-o", &output];
    place.succeed(OCELLI, &[&drawn[..], &plain, &classes].concat());
}

/// The arguments of a run over `video`, followed by others.
fn arguments<'a>(video: &'a str, output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let whole =
        ["label", "--model", "built-in", "--imgsz", IMGSZ, "--video", video, "--classes", "person,car"];
    [&whole[..], &["-o", output], more].concat()
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}")).clone()
}

/// The annotations of a COCO file by the index of the frame.
fn by_frame(coco: &Value) -> BTreeMap<u64, Vec<Value>> {
    let annotations = list(coco, "annotations");
    let of =
        |image: &Value| annotations.iter().filter(|one| one["image_id"] == image["id"]).cloned().collect();
    let images = list(coco, "images").into_iter();
    images.map(|image| (image["frame_index"].as_u64().expect("an index"), of(&image))).collect()
}

/// The lines of JSON of `ocelli video`, as (track, class, score) of each frame.
fn tracks(place: &Place, file: &str) -> Vec<Vec<(u64, u64, f64)>> {
    let text = String::from_utf8(place.read(file)).expect("JSON is text");
    let of = |line: &str| {
        let frame: Value = serde_json::from_str(line).expect("a line is JSON");
        let shown = |track: &Value| {
            let detection = &frame["detections"][track["detection"].as_u64()? as usize];
            Some((track["id"].as_u64()?, track["class_id"].as_u64()?, detection["score"].as_f64()?))
        };
        let mut shown: Vec<_> = list(&frame, "tracks").iter().filter_map(shown).collect();
        shown.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        shown
    };
    text.lines().map(of).collect()
}

/// The same of annotations.
fn tracks_of(annotations: &[Value]) -> Vec<(u64, u64, f64)> {
    let shown = |one: &Value| {
        Some((one["track_id"].as_u64()?, one["category_id"].as_u64()? - 1, one["score"].as_f64()?))
    };
    let mut shown: Vec<_> = annotations.iter().filter_map(shown).collect();
    shown.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    shown
}

#[test]
fn labels_are_those_of_images_and_tracks_those_of_the_whole_video() {
    let place = Place::new();
    frames(&place, "drive", "480x360", 33);
    place.succeed(OCELLI, &arguments("drive", "set", &["--format", "yolo,coco,youtube-vis", "--every", "8"]));
    let coco = place.json("set/annotations.json");
    let found = by_frame(&coco);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 8, 16, 24, 32]);
    let (images, annotations) = (list(&coco, "images"), list(&coco, "annotations"));
    assert_eq!(list(&coco, "videos"), [json!({"id": 1, "name": "drive", "width": 480, "height": 360})]);
    for (number, image) in images.iter().enumerate() {
        // The end of the only video is for validation.
        let split = if number == 4 { "val" } else { "train" };
        let name = format!("{split}/drive_{:06}.png", 8 * number);
        assert_eq!((&image["file_name"], &image["video_id"]), (&json!(name), &json!(1)));
        assert_eq!(image["frame_id"], number, "CocoVID counts the images of a video");
        let source = place.read(&format!("drive/{:06}.png", 8 * number));
        assert_eq!(place.read(&format!("set/images/{name}")), source);
        // YOLO's training files have no place for tracks.
        let label = String::from_utf8(place.read(&format!("set/labels/{}", name.replace(".png", ".txt"))));
        let label = label.expect("labels are text");
        assert!(label.lines().all(|line| line.split(' ').count() == 5), "{label}");
        assert_eq!(label.lines().count(), found[&(8 * number as u64)].len(), "{name}");
    }

    // The same frames as images.
    for index in found.keys() {
        place.write(&format!("images/drive_{index:06}.png"), place.read(&format!("drive/{index:06}.png")));
    }
    let alone =
        "label --model built-in --imgsz 112 --classes person,car --images images -o alone --format coco";
    place.succeed(OCELLI, &alone.split(' ').collect::<Vec<_>>());
    let alone = list(&place.json("alone/annotations.json"), "annotations");
    assert!(alone.len() > 10, "too few instances to mean something: {alone:?}");
    let same = |one: &Value| {
        ["image_id", "category_id", "bbox", "area", "segmentation", "score"].map(|key| one[key].clone())
    };
    assert!(annotations.iter().map(same).eq(alone.iter().map(same)), "{annotations:?}, {alone:?}");

    // Every frame was followed, and not those alone that are images.
    let video = "video --video drive --imgsz 112 --classes person car --track --track-thresh 0.3 --new-track-thresh 0.3 --min-hits 1 \
                 --jsonl tracks.jsonl";
    place.succeed(OCELLI, &video.split_whitespace().collect::<Vec<_>>());
    let whole = tracks(&place, "tracks.jsonl");
    for (index, annotations) in &found {
        assert_eq!(
            tracks_of(annotations).len(),
            annotations.len(),
            "each instance has a track: {annotations:?}"
        );
        assert_eq!(tracks_of(annotations), whole[*index as usize], "frame {index}");
    }
    let ids = |of: u64| found[&of].iter().map(|one| one["track_id"].as_u64()).collect::<Vec<_>>();
    assert!(ids(8).iter().any(|id| ids(24).contains(id)), "no object lasts: {found:?}");

    // An id for each object of the data set, the same in the files of the splits.
    let mut known = BTreeMap::new();
    let parts = ["set/annotations_train.json", "set/annotations_val.json"].map(|part| place.json(part));
    for one in annotations.iter().chain(parts.iter().flat_map(|part| part["annotations"].as_array().unwrap()))
    {
        let id = known.entry(one["track_id"].as_u64()).or_insert(one["instance_id"].clone());
        assert_eq!(*id, one["instance_id"], "{one}");
    }
    let mut numbers: Vec<u64> = known.values().filter_map(Value::as_u64).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=known.len() as u64).collect::<Vec<_>>());
    assert_eq!(
        (&parts[1]["images"][0]["frame_id"], &parts[1]["images"][0]["frame_index"]),
        (&json!(0), &json!(32))
    );
    assert_eq!(parts[1]["videos"][0]["id"], 1);

    check_youtube_vis(&place.json("set/youtube_vis.json"), &coco);
}

/// Checks that the file has the masks and boxes of COCO's, by object.
fn check_youtube_vis(vis: &Value, coco: &Value) {
    let found = by_frame(coco);
    let names: Vec<Value> = list(coco, "images").iter().map(|image| image["file_name"].clone()).collect();
    assert_eq!(vis["videos"][0]["file_names"], json!(names));
    assert_eq!((&vis["videos"][0]["length"], &vis["categories"]), (&json!(names.len()), &coco["categories"]));
    let mut shown = 0;
    for (number, object) in list(vis, "annotations").iter().enumerate() {
        assert_eq!((&object["id"], &object["video_id"]), (&json!(number + 1), &json!(1)));
        let masks: Vec<Option<Mask>> =
            serde_json::from_value(object["segmentations"].clone()).expect("run lengths or null");
        for (place, annotations) in found.values().enumerate() {
            let one = annotations.iter().find(|one| one["track_id"] == object["track_id"]);
            let key = |key: &str| one.map_or(Value::Null, |one| one[key].clone());
            assert_eq!((&object["bboxes"][place], &object["areas"][place]), (&key("bbox"), &key("area")));
            assert_eq!(json!(masks[place]), key("segmentation"), "{object}");
            if let Some(one) = one {
                assert_eq!(one["category_id"], object["category_id"]);
                shown += 1;
            }
        }
    }
    assert_eq!(shown, list(coco, "annotations").len());
}

#[test]
fn what_a_person_makes_of_the_objects_of_a_video_reaches_every_file() {
    let place = Place::new();
    frames(&place, "drive", "480x360", 17);
    let run =
        arguments("drive", "set", &["--format", "yolo,coco,youtube-vis", "--every", "8", "--val-share", "0"]);
    place.succeed(OCELLI, &run);
    let mut vis = place.json("set/youtube_vis.json");
    let before = by_frame(&place.json("set/annotations.json"));
    let lasts = |object: &Value| list(object, "segmentations")[..2].iter().all(|outline| !outline.is_null());
    let places: Vec<usize> =
        (0..).zip(list(&vis, "annotations")).filter(|(_, object)| lasts(object)).map(|(at, _)| at).collect();
    let [first, second, third, ..] = places[..] else { panic!("too few objects are in two images: {vis}") };
    let tracks = [first, second, third].map(|at| vis["annotations"][at]["track_id"].clone());
    // One is of another class, one is not in the second image, and one gets the outline of another there.
    let objects = &mut vis["annotations"];
    let class = 3 - objects[first]["category_id"].as_u64().expect("an id");
    objects[first]["category_id"] = json!(class);
    objects[second]["segmentations"][1] = Value::Null;
    for key in ["segmentations", "bboxes"] {
        objects[third][key][1] = objects[first][key][0].clone();
    }
    let outline = objects[third]["segmentations"][1].clone();
    // A new one, in two images.
    let mut new = objects[second].clone();
    for key in ["segmentations", "bboxes", "areas"] {
        new[key] = json!([objects[first][key][2], objects[first][key][1], null]);
    }
    new["track_id"] = Value::Null;
    objects.as_array_mut().expect("a list").push(new);
    let write =
        |vis: &Value| place.write("set/youtube_vis.json", serde_json::to_vec(vis).expect("plain data"));
    write(&vis);
    let written = place.read("set/annotations.json");
    let said = place.run(OCELLI, &run);
    let why = "expected a track_id; give a new object a number that no other one has";
    assert!(said.stderr.contains("youtube_vis.json") && said.stderr.contains(why), "{said:?}");
    assert_eq!(said.status, Some(1));
    assert_eq!(place.read("set/annotations.json"), written);
    let last = list(&vis, "annotations").len() - 1;
    vis["annotations"][last]["track_id"] = json!(1000);
    write(&vis);
    let mut sets = Vec::new();
    for _ in 0..2 {
        let ran = place.succeed(OCELLI, &run);
        let now = by_frame(&place.json("set/annotations.json"));
        let of = |index: u64, track: &Value| {
            now[&index].iter().find(|one| one["track_id"] == *track).cloned().unwrap_or_default()
        };
        let were = |index: u64, track: &Value| {
            before[&index].iter().find(|one| one["track_id"] == *track).cloned().unwrap_or_default()
        };
        for index in [0, 8, 16] {
            assert_eq!(of(index, &tracks[0])["category_id"], class, "{ran:?}");
            assert_eq!(of(index, &tracks[0])["segmentation"], were(index, &tracks[0])["segmentation"]);
            for track in &tracks[1..] {
                let same = ["bbox", "score", "segmentation", "category_id"]
                    .map(|key| of(index, track)[key] == were(index, track)[key]);
                assert_eq!(same.into_iter().all(|same| same), index != 8, "{index} {track} {now:?}");
            }
            assert_eq!(of(index, &json!(1000)).is_null(), index == 16, "{now:?}");
            for one in before[&index].iter().filter(|one| !tracks.contains(&one["track_id"])) {
                let there = of(index, &one["track_id"]);
                assert_eq!(
                    ["bbox", "score", "segmentation"].map(|key| &there[key]),
                    ["bbox", "score", "segmentation"].map(|key| &one[key])
                );
            }
            let label = place.read(&format!("set/labels/train/drive_{index:06}.txt"));
            assert_eq!(String::from_utf8_lossy(&label).lines().count(), now[&index].len());
        }
        assert!(of(8, &tracks[1]).is_null());
        assert_eq!(of(8, &tracks[2])["segmentation"], outline);
        check_youtube_vis(&place.json("set/youtube_vis.json"), &place.json("set/annotations.json"));
        sets.push(["annotations.json", "youtube_vis.json"].map(|file| place.read(&format!("set/{file}"))));
    }
    assert_eq!(sets[0], sets[1]);
}

#[test]
fn youtube_vis_is_compared_with_what_was_written() {
    let place = Place::new();
    frames(&place, "drive", "480x360", 17);
    let run =
        arguments("drive", "set", &["--format", "yolo,coco,youtube-vis", "--every", "8", "--val-share", "0"]);
    place.succeed(OCELLI, &run);
    let read = |file: &str| String::from_utf8(place.read(&format!("set/{file}"))).expect("text");
    let write =
        |vis: &Value| place.write("set/youtube_vis.json", serde_json::to_vec(vis).expect("plain data"));
    let label = |index: u64| read(&format!("labels/train/drive_{index:06}.txt"));
    let written = (read("annotations.json"), read("youtube_vis.json"), [0, 8, 16].map(label));
    // A program that leaves out what it does not know changes nothing.
    let mut vis = place.json("set/youtube_vis.json");
    for object in vis["annotations"].as_array_mut().expect("a list") {
        let object = object.as_object_mut().expect("an object");
        for key in ["track_id", "score", "areas", "bboxes", "length"] {
            object.remove(key);
        }
    }
    write(&vis);
    place.succeed(OCELLI, &run);
    assert_eq!((read("annotations.json"), read("youtube_vis.json"), [0, 8, 16].map(label)), written);

    // A part of an object is another object, which has to be said.
    for are_left_out in [false, true] {
        let mut vis = place.json("set/youtube_vis.json");
        let objects = vis["annotations"].as_array_mut().expect("a list");
        let mut part = objects[0].clone();
        objects[0]["segmentations"][2] = Value::Null;
        for at in 0..2 {
            part["segmentations"][at] = Value::Null;
        }
        part["track_id"] = Value::Null;
        objects.push(part);
        if are_left_out {
            objects.iter_mut().for_each(|object| object["track_id"] = Value::Null);
        }
        write(&vis);
        let ran = place.run(OCELLI, &run);
        assert!(ran.status == Some(1) && ran.stderr.contains("expected a track_id"), "{ran:?}");
    }

    // The class of an object in one image, by its boxes; then another object is removed, one loses a mask to one without
    // pixels, and one gets a mask in one image, without a box.
    place.write("set/youtube_vis.json", written.1.as_bytes());
    let mut vis = place.json("set/youtube_vis.json");
    let [first, second, third] = [0, 1, 2].map(|at| vis["annotations"][at]["track_id"].clone());
    let before = by_frame(&place.json("set/annotations.json"));
    let at = |found: &BTreeMap<u64, Vec<Value>>, index: u64, track: &Value| {
        found[&index].iter().find(|one| one["track_id"] == *track).cloned().unwrap_or_default()
    };
    let number = before[&8].iter().position(|one| one["track_id"] == first).expect("it is there");
    let lines: Vec<String> = label(8)
        .lines()
        .enumerate()
        .map(|(line, text)| {
            let class = if line == number {
                2 - at(&before, 8, &first)["category_id"].as_u64().expect("an id")
            } else {
                return text.to_owned();
            };
            format!("{class}{}", &text[1..])
        })
        .collect();
    let corrected = lines.join("\n") + "\n";
    place.write("set/labels/train/drive_000008.txt", &corrected);
    place.succeed(OCELLI, &run);
    let other = at(&by_frame(&place.json("set/annotations.json")), 8, &first);
    assert_ne!(other["category_id"], at(&before, 8, &first)["category_id"]);
    let empty = Mask::from_bitmap(&vec![0; 480 * 360], 480, 360).expect("the size is right");
    let objects = &mut vis["annotations"];
    objects[2]["segmentations"][0] = json!(empty);
    let new = objects[0]["segmentations"][0].clone();
    objects[0]["segmentations"][2] = new.clone();
    objects.as_array_mut().expect("a list").remove(1);
    write(&vis);
    for _ in 0..2 {
        place.succeed(OCELLI, &run);
        let now = by_frame(&place.json("set/annotations.json"));
        for index in [0, 8, 16] {
            assert!(at(&now, index, &second).is_null());
            assert_eq!(at(&now, index, &third).is_null(), index == 0);
        }
        assert_eq!(at(&now, 8, &first)["category_id"], other["category_id"], "its mask there is as it was");
        let one = at(&now, 16, &first);
        let bbox: Mask = serde_json::from_value(new.clone()).expect("a mask");
        let bbox = bbox.bounding_box().expect("it has pixels").to_ltwh().map(f64::from);
        assert_eq!((&one["segmentation"], &one["bbox"]), (&new, &json!(bbox)));
    }

    // Two files that say different things, and two objects of one number.
    let mut coco = place.json("set/annotations.json");
    let written = place.json("set/youtube_vis.json");
    let mut vis = written.clone();
    let image = coco["annotations"][0]["image_id"].clone();
    let annotations = coco["annotations"].as_array_mut().expect("a list");
    annotations.retain(|one| one["image_id"] != image);
    place.write("set/annotations.json", serde_json::to_vec(&coco).expect("plain data"));
    vis["annotations"][0]["segmentations"][0] = vis["annotations"][0]["segmentations"][1].clone();
    write(&vis);
    let ran = place.run(OCELLI, &run);
    assert!(ran.status == Some(1) && ran.stderr.contains("annotations.json was changed, too"), "{ran:?}");
    vis["annotations"][1]["track_id"] = vis["annotations"][0]["track_id"].clone();
    write(&vis);
    let ran = place.run(OCELLI, &run);
    assert!(
        ran.status == Some(1) && ran.stderr.contains("entry 2: another object has its track_id"),
        "{ran:?}"
    );
    // Without either of them, both are discarded.
    write(&written);
    place.succeed(OCELLI, &run);
    assert!(by_frame(&place.json("set/annotations.json")).values().any(Vec::is_empty));
    let without = arguments("drive", "set", &["--format", "yolo,coco", "--every", "8", "--val-share", "0"]);
    write(&vis);
    let ran = place.run(OCELLI, &without);
    assert!(ran.status == Some(1) && ran.stderr.contains("youtube_vis.json"), "{ran:?}");
}

#[test]
#[cfg(unix)]
fn a_stopped_run_goes_on_with_the_same_tracks() {
    let place = Place::new();
    frames(&place, "drive", "320x240", 30);
    let more = ["--format", "yolo,coco,youtube-vis", "--every", "2"];
    place.succeed(OCELLI, &arguments("drive", "whole", &more));
    let run = arguments("drive", "stopped", &more);
    for (signal, lines, status) in [("-KILL", 3, None), ("-INT", 6, Some(130)), ("-KILL", 10, None)] {
        let ended = stop_when(&place, &run, signal, || journal_lines(&place.path("stopped")) >= lines);
        // On a busy machine it may have ended before.
        assert!(ended.status == status || ended.status == Some(0), "{ended:?}");
        let said = ended.stderr.contains("continues from there");
        assert_eq!(said, ended.status == Some(130), "{ended:?}");
    }
    let first = place.read("stopped/.ocelli-label/journal.jsonl");
    let again = place.run(OCELLI, &run);
    assert!(again.status == Some(0) && again.stderr.contains("done before"), "{again:?}");
    assert_eq!(differences(&place.path("stopped"), &place.path("whole")), [""; 0]);
    let journal = place.read("stopped/.ocelli-label/journal.jsonl");
    let whole = first.iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    assert_eq!(journal[..whole], first[..whole]);
    assert_eq!(journal_lines(&place.path("stopped")), 16, "no image is labelled twice");
}

#[test]
fn corrections_stay_whatever_else_is_labelled() {
    let place = Place::new();
    frames(&place, "a/drive", "320x240", 9);
    frames(&place, "b/drive", "480x360", 9);
    let more = ["--every", "4", "--format", "yolo,coco", "--val-share", "0"];
    place.succeed(OCELLI, &arguments("b/drive", "set", &more));
    let mine = "1 0.5 0.5 0.25 0.125\n";
    for name in ["drive_000000", "drive_000004"] {
        let label = format!("set/labels/train/{name}.txt");
        assert_ne!(place.read(&label), mine.as_bytes());
        place.write(&label, mine);
    }
    let label =
        |name: &str| String::from_utf8(place.read(&format!("set/labels/train/{name}.txt"))).expect("text");
    // More frames, and a video of the same name, which is named first and is another one.
    for run in [
        arguments("b/drive", "set", &["--every", "2", "--format", "yolo,coco", "--val-share", "0"]),
        [&arguments("a/drive", "set", &[])[..], &["--video", "b/drive"], &more].concat(),
        [&arguments("a/drive", "set", &[])[..], &more].concat(),
    ] {
        let ran = place.run(OCELLI, &run);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let is_named = run.contains(&"b/drive");
        let reported = ran.stderr.contains("2 images with labels that a person corrected");
        assert_eq!(reported, is_named, "{ran:?}");
        for name in ["drive_000000", "drive_000004"] {
            assert_eq!(label(name), mine, "{run:?}");
            let copy = place.read(&format!("set/images/train/{name}.png"));
            assert_eq!(copy, place.read(&format!("b/drive/{}.png", &name[6..])), "{run:?}");
        }
    }
    let coco = place.json("set/annotations.json");
    let images = list(&coco, "images");
    let of_video = |path: &str| -> Vec<(Value, Value)> {
        let videos = list(&coco, "videos");
        let size = if path == "a" { 320 } else { 480 };
        let video = videos.iter().find(|video| video["width"] == size).expect("it is there");
        let images = images.iter().filter(|image| image["video_id"] == video["id"] && image["width"] == size);
        images.map(|image| (image["frame_index"].clone(), image["frame_id"].clone())).collect()
    };
    let places = |frames: &[u64]| -> Vec<(Value, Value)> {
        frames.iter().enumerate().map(|(place, frame)| (json!(frame), json!(place))).collect()
    };
    assert_eq!(of_video("a"), places(&[0, 4, 8]));
    assert_eq!(of_video("b"), places(&[0, 2, 4, 6, 8]));
    assert_eq!(images.len(), 8);
    let names: Vec<&str> =
        coco["videos"].as_array().unwrap().iter().filter_map(|v| v["name"].as_str()).collect();
    assert_eq!(names, ["drive", "drive-2"]);
    // Objects of two videos are never one.
    let number = |one: &Value| (one["instance_id"].as_u64(), one["image_id"].as_u64());
    let annotations = list(&coco, "annotations");
    let video_of = |image: Option<u64>| {
        images.iter().find(|one| one["id"].as_u64() == image).map(|one| one["video_id"].clone())
    };
    let mut videos: BTreeMap<Option<u64>, Value> = BTreeMap::new();
    for (instance, image) in annotations.iter().map(number) {
        let video = video_of(image).expect("its image is there");
        assert_eq!(*videos.entry(instance).or_insert(video.clone()), video, "object {instance:?}");
    }

    // Images that are added before others move these: their objects are followed to them by another way.
    for letter in ["a", "b", "c", "d"] {
        place.write(&format!("b/drive/000000{letter}.png"), place.read("b/drive/000000.png"));
    }
    let moved = place.run(OCELLI, &arguments("b/drive", "set", &more));
    let words = "3 images to label, 1 done before";
    assert!(moved.status == Some(0) && moved.stderr.contains(words), "one is new, two are moved: {moved:?}");
    for name in ["drive_000000", "drive_000004"] {
        assert_eq!(label(name), mine);
    }
    let images = list(&place.json("set/annotations.json"), "images");
    let moved = images.iter().find(|image| image["file_name"] == "train/drive_000004.png");
    assert_eq!(moved.map(|image| image["frame_index"].clone()), Some(json!(8)));
}

#[test]
fn masks_follow_the_memory_of_a_model() {
    let place = Place::new();
    copy(&place, "tracker", "model");
    // The tracker of random weights does not follow what the detector finds: after eight frames its objects are removed.
    frames(&place, "short", "96x72", 7);
    frames(&place, "long", "96x72", 40);
    let label = |video: &'static str, output: &'static str, more: &'static str| {
        let run =
            "label --model model --classes dog,car --confidence 0.02 --format coco,yolo-seg,youtube-vis";
        let run = run.split(' ').chain(["--video", video, "-o", output]);
        run.chain(more.split(' ')).collect::<Vec<_>>()
    };
    place.succeed(OCELLI, &label("short", "set", "--memory --every 2"));
    let video =
        "video --model model --classes dog car --confidence 0.02 --video short --memory --jsonl tracks.jsonl";
    place.succeed(OCELLI, &video.split(' ').collect::<Vec<_>>());
    let whole = tracks(&place, "tracks.jsonl");
    let coco = place.json("set/annotations.json");
    let found = by_frame(&coco);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 2, 4, 6]);
    for (index, annotations) in &found {
        assert_eq!(tracks_of(annotations), whole[*index as usize], "frame {index}");
    }
    assert!(list(&coco, "annotations").len() >= 6, "random weights show too few objects to mean something");
    check_youtube_vis(&place.json("set/youtube_vis.json"), &coco);
    place.succeed(OCELLI, &label("short", "one", "--memory --every 2 --engine embedded"));
    place.succeed(OCELLI, &label("short", "two", "--memory --every 2 --engine embedded,embedded"));
    assert_eq!(differences(&place.path("two"), &place.path("one")), [""; 0], "devices change nothing");
    let other = place.run(OCELLI, &label("short", "set", "--every 2"));
    other.is_refusal(1, &["tracker", "bytetrack", "--restart"]).unwrap_or_else(|e| panic!("{e}"));

    // What is held back when a run is stopped is not written: it is not what the whole run shows.
    #[cfg(unix)]
    {
        place.succeed(OCELLI, &label("long", "whole", "--memory --every 1"));
        let stopped = label("long", "stopped", "--memory --every 1");
        let ended = stop_when(&place, &stopped, "-INT", || journal_lines(&place.path("stopped")) >= 3);
        // On a busy machine it may have ended before.
        assert!(matches!(ended.status, Some(130 | 0)), "{ended:?}");
        place.succeed(OCELLI, &stopped);
        assert_eq!(differences(&place.path("stopped"), &place.path("whole")), [""; 0]);
    }
}

#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn a_video_file_gives_images_with_stable_names() {
    let place = Place::new();
    let draw = |name: &str| {
        let drawn = format!(
            "video -q --classes person car --scene-size 320x240 --max-frames 25 --detect-every 1000 --confidence 1 -o {name}"
        );
        place.succeed(OCELLI, &drawn.split(' ').collect::<Vec<_>>());
    };
    draw("drive.mp4");
    draw("cut.avi");
    let more = ["--format", "yolo"];
    place.succeed(OCELLI, &arguments("drive.mp4", "set", &more));
    let before = tree(&place.path("set"));
    let images: Vec<&str> = before
        .keys()
        .filter(|path| path.starts_with("images"))
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    let expected = [0, 10, 20].map(|index| format!("drive_{index:06}.jpg"));
    assert_eq!(images, expected);
    let image = image::open(place.path("set/images/train/drive_000010.jpg")).expect("it is an image");
    assert_eq!((image.width(), image.height()), (320, 240));
    let link = place.path("set/images/train/drive_000010.jpg").symlink_metadata().expect("it is there");
    assert!(link.is_file(), "the set can be moved without what is beside it");
    // Images that were written stay, and so does one that a person edited in the set.
    let edited = place.path("set/images/train/drive_000000.jpg");
    std::fs::remove_file(&edited).expect("it is there");
    image.save(&edited).expect("it can be written to");
    let edited_bytes = std::fs::read(&edited).expect("it was written");
    let again = place.run(OCELLI, &arguments("drive.mp4", "set", &more));
    assert!(again.stderr.contains("0 images to label, 3 done before"), "{again:?}");
    assert!(again.stderr.contains("1 image whose file was edited"), "{again:?}");
    assert_eq!(std::fs::read(&edited).expect("it is there"), edited_bytes);
    // Another video in its place: everything is labelled again.
    let opened = std::fs::File::options().write(true).open(place.path("drive.mp4")).expect("it is there");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(100);
    opened.set_modified(later).expect("its time can be set");
    let again = place.run(OCELLI, &arguments("drive.mp4", "set", &more));
    assert!(again.stderr.contains("2 images to label"), "{again:?}");
    assert_eq!(std::fs::read(&edited).expect("it is there"), edited_bytes);

    // A recording that was cut off.
    let whole = place.read("cut.avi");
    place.write("cut.avi", &whole[..whole.len() * 6 / 10]);
    let cut = place.run(OCELLI, &arguments("cut.avi", "cut", &more));
    let errors: Vec<&str> = cut.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!((cut.status, errors.len()), (Some(1), 1), "{cut:?}");
    let words = ["cut.avi", "truncated", "of 25 frames were read", "the frames before are labelled"];
    assert!(words.iter().all(|word| errors[0].contains(word)), "{cut:?}");
    let labels = |set: &str| tree(&place.path(set)).keys().filter(|path| path.starts_with("labels")).count();
    let kept = labels("cut");
    assert!((1..3).contains(&kept) && place.path("cut/data.yaml").is_file(), "{kept} are labelled");
    let failed = String::from_utf8(place.read("cut/failed.csv")).expect("it is text");
    assert!(
        failed.lines().count() == 2 && failed.contains("cut.avi") && failed.contains("truncated"),
        "{failed}"
    );
    place.write("cut.avi", &whole);
    place.succeed(OCELLI, &arguments("cut.avi", "cut", &more));
    assert_eq!(labels("cut"), 3);
    assert!(!place.path("cut/failed.csv").exists(), "it can be read now");
    // The stream is a setting of the data set.
    let with = |stream, flags: &[&'static str]| [&more[..], &["--stream", stream], flags].concat();
    let other = place.run(OCELLI, &arguments("cut.avi", "cut", &with("0", &[])));
    other.is_refusal(1, &["with stream unset, this is 0", "--restart"]).unwrap_or_else(|e| panic!("{e}"));
    place.succeed(OCELLI, &arguments("cut.avi", "cut", &with("0", &["--restart"])));
    let again = place.run(OCELLI, &arguments("cut.avi", "cut", &with("0", &[])));
    assert!(again.stderr.contains("0 images to label, 3 done before"), "{again:?}");
    let none = place.run(OCELLI, &arguments("cut.avi", "none", &with("1", &[])));
    none.is_refusal(1, &["no video stream 1"]).unwrap_or_else(|e| panic!("{e}"));

    // A folder of videos.
    place.folder("videos");
    for (from, to) in [("drive.mp4", "videos/one.mp4"), ("cut.avi", "videos/two.avi")] {
        std::fs::copy(place.path(from), place.path(to)).expect("it can be copied");
    }
    place.succeed(OCELLI, &arguments("videos", "both", &["--format", "coco", "--every", "20"]));
    let names: Vec<Value> = list(&place.json("both/annotations.json"), "videos")
        .iter()
        .map(|video| video["name"].clone())
        .collect();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn what_cannot_be_labelled_is_refused() {
    let place = Place::new();
    copy(&place, "plain", "plain");
    frames(&place, "drive", "96x72", 6);
    place.folder("empty");
    place.write("empty.mp4", "");
    place.write("map.yaml", "classes: [{name: vehicle, phrases: [car, van]}]");
    copy(&place, "tracker", "model");
    let run = |more: &str| format!("label|--model|built-in|--classes|dog|-o|out|{more}");
    let rows: [(String, i32, &[&str]); 19] = [
        (run("--video|drive|--images|drive"), 2, &["--video", "--images"]),
        (run("--video|drive|--every|0"), 2, &["--every is 0", "10 for every tenth"]),
        (run("--video|drive|--stream|0"), 2, &["--stream is for video files"]),
        (run("--images|drive|--ffmpeg-option|threads=1"), 2, &["--ffmpeg-option is for videos"]),
        (run("--video|drive|--every|-3"), 2, &["--every", "-3"]),
        (run("--video|drive|--format|mp4"), 2, &["--format", "mp4", "youtube-vis"]),
        (run("--video|drive|--format|youtube-vis|--no-masks"), 2, &["youtube-vis", "--no-masks"]),
        (run("--video|drive|--shard|1/2"), 2, &["--video", "--shard"]),
        (run("--video|drive|--low-memory"), 2, &["--video", "--low-memory"]),
        (run("--video|drive|--track|--memory"), 2, &["--track", "--memory"]),
        (run("--video|nowhere"), 2, &["nowhere", "no such file or folder"]),
        (run("--video|empty"), 2, &["--video", "empty", "contains none"]),
        (run("--video|drive/000000.png"), 2, &["--video, drive/000000.png", "--images"]),
        (run("--images|drive|--every|3"), 2, &["--every", "--video"]),
        (run("--images|drive|--memory"), 2, &["--memory", "--video"]),
        (run("--images|drive|--format|youtube-vis"), 2, &["youtube-vis", "--video"]),
        (run("--video|drive|--memory"), 1, &["--memory, the built-in model: it has no tracker"]),
        (
            "label|--model|plain|--classes|dog|-o|out|--video|drive|--memory".into(),
            1,
            &["memory tracker", "no tracker", "facebook/sam3"],
        ),
        (
            "label|--model|model|--map|map.yaml|-o|out|--video|drive|--memory".into(),
            2,
            &["class \"vehicle\"", "one phrase"],
        ),
    ];
    let rows: Vec<_> = rows.iter().map(|(line, status, words)| refusal(line, *status, words)).collect();
    place.refuses(OCELLI, &rows);
    if cfg!(not(without_video)) {
        place.refuses(OCELLI, &[refusal(&run("--video|empty.mp4"), 1, &["empty.mp4", "empty"])]);
    }

    // An image among the frames that cannot be read ends the video, and keeps what was labelled.
    place.write("drive/000004.png", "hello");
    let broken = place.run(OCELLI, &arguments("drive", "broken", &["--every", "1", "--val-share", "0"]));
    assert_eq!(broken.status, Some(1), "{broken:?}");
    let last = broken.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("000004.png") && last.contains("the frames before are labelled"), "{broken:?}");
    let labels = std::fs::read_dir(place.path("broken/labels/train")).expect("it was written").count();
    assert_eq!(labels, 4);
    assert!(Path::new(&place.path("broken/data.yaml")).is_file());
    frames(&place, "drive", "96x72", 6);
    place.succeed(OCELLI, &arguments("drive", "broken", &["--every", "1", "--val-share", "0"]));
    assert_eq!(std::fs::read_dir(place.path("broken/labels/train")).expect("it was written").count(), 6);

    // A set of images is not continued with videos.
    let images = "label --model built-in --imgsz 112 --images drive --classes person,car -o images";
    place.succeed(OCELLI, &images.split(' ').collect::<Vec<_>>());
    let mixed = place.run(OCELLI, &arguments("drive", "images", &[]));
    mixed.is_refusal(1, &["started with images, this has videos"]).unwrap_or_else(|e| panic!("{e}"));
}
