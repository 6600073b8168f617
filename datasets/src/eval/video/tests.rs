use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use image::{GrayImage, Luma};
use ocelli::ErrorKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ObjectBox, Role, TrackBox, TrackCounts, TrackSequence, VideoReport, evaluate, write_video_report,
};

/// The arithmetic is the same to the last bits, but for the order of sums.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    truth: Vec<String>,
    predictions: String,
    /// Figures by part of the report.
    expected: BTreeMap<String, BTreeMap<String, Option<f64>>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/video_eval")
}

fn golden() -> Golden {
    let text = std::fs::read_to_string(folder().join("expected.json")).expect("it is in the repository");
    serde_json::from_str(&text).expect("the script writes JSON")
}

/// Evaluates files below a folder.
fn run(folder: &Path, truth: &[&str], predictions: &str) -> ocelli::Result<VideoReport> {
    let truth: Vec<PathBuf> = truth.iter().map(|path| folder.join(path)).collect();
    evaluate(&truth, &folder.join(predictions))
}

#[test]
fn figures_are_those_of_the_field_s_own_evaluations() {
    let (mut failures, mut compared) = (Vec::new(), 0);
    for case in golden().cases {
        let truth: Vec<&str> = case.truth.iter().map(String::as_str).collect();
        let report = match run(&folder().join("data"), &truth, &case.predictions) {
            Ok(report) => serde_json::to_value(&report).expect("it is JSON"),
            Err(error) => {
                failures.push(format!("{}: {error}", case.name));
                continue;
            }
        };
        for (part, figures) in &case.expected {
            for (name, expected) in figures {
                compared += 1;
                let found = report.pointer(&format!("{part}/{name}")).and_then(Value::as_f64);
                let is_equal = match (found, expected) {
                    (Some(found), Some(expected)) => (found - expected).abs() <= TOLERANCE,
                    (found, expected) => found.is_none() && expected.is_none(),
                };
                if !is_equal {
                    failures.push(format!("{}, {part}/{name}: {found:?}, expected {expected:?}", case.name));
                }
            }
        }
    }
    assert!(compared > 300, "only {compared} figures");
    assert!(failures.is_empty(), "{} of {compared}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_format_has_a_table() {
    for case in golden().cases {
        let truth: Vec<&str> = case.truth.iter().map(String::as_str).collect();
        let report = run(&folder().join("data"), &truth, &case.predictions).expect("the golden is valid");
        let mut text = Vec::new();
        write_video_report(&mut text, &report, true).expect("writing to a vector does not fail");
        let text = String::from_utf8(text).expect("it is text");
        let heading = match case.name.as_str() {
            name if name.starts_with("mot") => "HOTA",
            "vis" => "cgF1@50",
            name if name.starts_with("davis") => "J&F",
            _ => "IL_MCC",
        };
        assert!(text.contains(heading) && !text.contains("NaN"), "{}:\n{text}", case.name);
    }
}

#[test]
fn a_track_on_a_distractor_neither_counts_nor_is_wrong() {
    let object = |id, left: f64, role| ObjectBox { id, ltwh: [left, 0.0, 10.0, 10.0], role };
    let track = |id, left: f64| TrackBox { id, ltwh: [left, 0.0, 10.0, 10.0] };
    let objects =
        [object(1, 0.0, Role::Counts), object(2, 50.0, Role::Distractor), object(3, 90.0, Role::Ignored)];
    let mut sequence = TrackSequence::default();
    sequence.push_boxes(&objects, &[track(7, 0.0), track(8, 51.0), track(9, 90.0)]).expect("ids are unique");
    let figures = TrackCounts::of(&sequence).figures();
    let counts = (figures.objects, figures.true_positives, figures.false_positives, figures.false_negatives);
    assert_eq!(counts, (1, 1, 1, 0));
    for (objects, tracks, overlaps) in
        [(vec![1, 1], vec![2], vec![0.5; 2]), (vec![1], vec![2], vec![]), (vec![1], vec![2], vec![1.5])]
    {
        let error = sequence.push(objects, tracks, overlaps).expect_err("it is refused");
        assert!(error.to_string().contains("frame 2"), "{error}");
    }
}

/// A data set of one video of two frames of 4 × 4 pixels, as `ocelli video` writes it.
fn data_set(category: (u64, &str), score: Option<f64>) -> Value {
    let mask = json!({"size": [4, 4], "counts": [0, 8, 8]});
    json!({
        "videos": [{"id": 1, "width": 4, "height": 4, "length": 2, "file_names": ["00000.jpg", "00001.jpg"]}],
        "categories": [{"id": category.0, "name": category.1}],
        "annotations": [{"id": 1, "video_id": 1, "category_id": category.0, "iscrowd": 0, "score": score,
                         "segmentations": [mask, null], "areas": [8, null]}],
    })
}

#[test]
fn data_sets_of_youtube_vis_are_matched_by_name() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, value: &Value| {
        std::fs::write(place.path().join(name), value.to_string()).expect("it can be written to");
    };
    let mut truth = data_set((40, "dog"), None);
    truth["videos"][0]["id"] = json!(9);
    truth["annotations"][0]["video_id"] = json!(9);
    let ap = |report: &VideoReport| {
        let ap = report.segm.as_ref().and_then(|accuracy| accuracy.ap);
        (ap.expect("there is an object") * 1e6).round() / 1e6
    };
    write("truth.json", &truth);
    write("tracks.json", &data_set((1, "dog"), Some(0.5)));
    write("cat.json", &data_set((1, "cat"), Some(0.5)));
    let report = run(place.path(), &["truth.json"], "tracks.json").expect("names are equal");
    assert_eq!(ap(&report), 1.0);
    let error = run(place.path(), &["truth.json"], "cat.json").expect_err("there is no cat").to_string();
    assert!(error.contains("cat.json: the ground truth has no category \"cat\""), "{error}");

    // Two videos: a data set for each, named after the folder of its frames.
    let mut second = truth["videos"][0].clone();
    second["id"] = json!(3);
    second["file_names"] = json!(["goat/00000.jpg", "goat/00001.jpg"]);
    truth["videos"].as_array_mut().expect("a list").push(second);
    write("two.json", &truth);
    let error = run(place.path(), &["two.json"], "tracks.json").expect_err("which one?").to_string();
    assert!(error.contains("a folder with NAME.json"), "{error}");
    std::fs::create_dir(place.path().join("tracks")).expect("it can be made");
    write("tracks/9.json", &data_set((1, "dog"), Some(0.5)));
    let error = run(place.path(), &["two.json"], "tracks").expect_err("one is missing").to_string();
    assert!(error.contains("no predictions of video goat"), "{error}");
    write("tracks/goat.json", &data_set((1, "dog"), Some(0.9)));
    let report = run(place.path(), &["two.json"], "tracks").expect("both are there");
    assert_eq!(ap(&report), 0.5, "the better score is wrong");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| place.path().join(name);
    let text = |name: &str, text: &str| {
        std::fs::create_dir_all(path(name).parent().expect("it is below the folder"))
            .expect("it can be made");
        std::fs::write(path(name), text).expect("it can be written to");
    };
    let png = |name: &str, size: u32, number: u8| {
        std::fs::create_dir_all(path(name).parent().expect("it is below the folder"))
            .expect("it can be made");
        GrayImage::from_pixel(size, size, Luma([number])).save(path(name)).expect("it can be written to");
    };
    text("empty.txt", "\n");
    text("words.txt", "some words\n");
    text("mot.txt", "1,1,0,0,10,10,1,-1,-1,-1\n");
    text("none.txt", "1,1,0,0,10,10,0,1,1\n");
    text("twice.txt", "1,1,0,0,10,10,1\n1,1,5,5,10,10,1\n");
    text("car.txt", "1,1,0,0,10,10,1,3,1\n");
    text("odd.txt", "1,1,0,0,10,10,1,99,1\n");
    text("short.txt", "1,1,0,0,10\n");
    text("nan.txt", "1,1,0,0,nan,10,1\n");
    text("people.txt", "1,1,0,0,10,10,1,1,1\n");
    text("seq/A/gt/gt.txt", "1,1,0,0,10,10,1,1,1\n");
    text("seq/A/seqinfo.ini", "[Sequence]\nseqLength=1\n");
    text("found/A.txt", "2,1,0,0,10,10,1,-1,-1,-1\n");
    text("found-none/B.txt", "");
    text("mots.txt", "1 2001 2 2 2 04\n");
    text("list.json", "[]");
    text("coco.json", r#"{"images":[{"id":1,"file_name":"a"}],"annotations":[]}"#);
    text("saco.json", r#"{"images":[{"id":1,"width":2,"height":2,"is_instance_exhaustive":0}]}"#);
    text("vis.json", &data_set((1, "dog"), None).to_string());
    text(
        "vis-none.json",
        r#"{"videos":[{"id":1,"width":2,"height":2}],"categories":[{"id":1,"name":"a"}],"annotations":[]}"#,
    );
    text("vis-test.json", r#"{"videos":[{"id":1,"width":2,"height":2}],"categories":[{"id":1,"name":"a"}]}"#);
    let mut found = data_set((1, "dog"), Some(0.5))["annotations"].clone();
    found[0]["segmentations"] = json!([null]);
    text("vis-frames.json", &found.to_string());
    found[0]["video_id"] = json!(2);
    text("vis-video.json", &found.to_string());
    for frame in 0..3 {
        png(&format!("davis/{frame}.png"), 4, 1);
        png(&format!("nothing/{frame}.png"), 4, 0);
        png(&format!("small/{frame}.png"), 3, 1);
    }
    text("huge.txt", "1,1,0,0,1e300,1e300,1\n");
    text(
        "saco-huge.json",
        r#"{"images":[{"id":1,"width":2,"height":2,"is_instance_exhaustive":1}],
        "categories":[{"id":1}],"annotations":[{"image_id":1,"category_id":1,"bbox":[0,0,1e300,1e300]}]}"#,
    );
    text("saco-other.json", r#"[{"image_id":9,"category_id":1,"score":0.1,"bbox":[0,0,1,1]}]"#);
    text("saco-found.json", r#"[{"image_id":1,"category_id":1,"score":1,"bbox":[0,0,1e300,1e300]}]"#);
    png("frames/0.png", 4, 1);
    png("many/0.png", 4, 30);
    png("many/1.png", 4, 30);
    png("many/2.png", 4, 30);
    std::fs::create_dir(path("folder")).expect("it can be made");
    let (invalid, mismatch) = (ErrorKind::InvalidData, ErrorKind::Mismatch);
    let cases = [
        ("missing.txt", "mot.txt", ErrorKind::Io, "missing.txt"),
        ("mot.txt", "missing.txt", ErrorKind::Io, "missing.txt"),
        ("empty.txt", "mot.txt", invalid, "it is empty: there is nothing to compare with"),
        ("folder", "mot.txt", invalid, "neither PNGs nor text files"),
        ("words.txt", "mot.txt", invalid, "not MOTChallenge text"),
        ("list.json", "mot.txt", invalid, "it is a list, as results are"),
        ("coco.json", "mot.txt", invalid, "JSON without \"videos\""),
        ("none.txt", "mot.txt", invalid, "no object in it counts"),
        ("mot.txt", "twice.txt", invalid, "twice.txt: frame 1 has id 1 twice"),
        ("mot.txt", "short.txt", invalid, "short.txt, line 1: 5 numbers"),
        ("mot.txt", "nan.txt", invalid, "number 5 is \"nan\""),
        ("mot.txt", "huge.txt", invalid, "number 5 is \"1e300\""),
        ("odd.txt", "mot.txt", invalid, "class 99"),
        ("people.txt", "car.txt", mismatch, "class 3; MOTChallenge's evaluation is of pedestrians"),
        ("seq", "found", mismatch, "frame 2, but seqinfo.ini has 1 frames"),
        ("seq", "found-none", mismatch, "no predictions of sequence A"),
        ("mots.txt", "mots.txt", invalid, "not MOTChallenge text"),
        ("vis-none.json", "list.json", invalid, "it has no annotation"),
        ("vis-test.json", "list.json", invalid, "it has no \"annotations\""),
        ("vis.json", "vis-frames.json", mismatch, "1 masks, but video 1 has 2 frames"),
        ("vis.json", "vis-video.json", mismatch, "no video 2"),
        ("saco.json", "list.json", invalid, "no image has \"is_instance_exhaustive\""),
        ("saco-huge.json", "saco-other.json", mismatch, "entry 1: the annotations have no image 9"),
        ("nothing", "davis", invalid, "no object in the first frame"),
        ("davis", "frames", mismatch, "no prediction of"),
        ("davis", "small", mismatch, "3×3 pixels"),
        ("davis", "many", mismatch, "object 30"),
        ("davis", "mot.txt", mismatch, "expected a folder of PNGs"),
    ];
    let mut failures = Vec::new();
    for (truth, predictions, kind, expected) in cases {
        match run(place.path(), &[truth], predictions) {
            Ok(report) => failures.push(format!("{truth}, {predictions}: {report:?}")),
            Err(error) => {
                let message = error.to_string();
                if error.kind() != kind || !message.contains(expected) || message.contains('\n') {
                    failures.push(format!("{truth}, {predictions}: {:?}: {message}", error.kind()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let two = run(place.path(), &["mot.txt", "mot.txt"], "mot.txt").expect_err("one is enough");
    assert_eq!(two.kind(), ErrorKind::InvalidArgument);
    let report = run(place.path(), &["saco-huge.json"], "saco-found.json").expect("boxes are finite");
    assert_eq!(report.cgf1_bbox.map(|figures| figures.f1), Some(0.0), "areas are not");
    // No track at all is an answer, and a bad one.
    let report = run(place.path(), &["mot.txt"], "empty.txt").expect("an empty file is valid");
    assert_eq!(report.tracks.map(|tracks| (tracks.all.hota, tracks.all.false_negatives)), Some((0.0, 1)));
}

#[test]
fn crowds_annotators_and_kept_matches() {
    // A worse match of the previous frame is kept.
    let mut sequence = TrackSequence::default();
    sequence.push(vec![1], vec![5], vec![0.6]).expect("ids are unique");
    sequence.push(vec![1], vec![5, 6], vec![0.6, 0.9]).expect("ids are unique");
    let figures = TrackCounts::of(&sequence).figures();
    assert_eq!((figures.id_switches, figures.false_positives), (0, 1));

    let place = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, value: &Value| {
        std::fs::write(place.path().join(name), value.to_string()).expect("it can be written to");
    };
    // Several tracks on a crowd are not wrong, though their scores are higher.
    let mut truth = data_set((1, "dog"), None);
    let mut crowd = truth["annotations"][0].clone();
    crowd["iscrowd"] = json!(1);
    crowd["segmentations"] = json!([null, {"size": [4, 4], "counts": [8, 8]}]);
    crowd["areas"] = json!([null, 8]);
    truth["annotations"].as_array_mut().expect("a list").push(crowd.clone());
    write("truth.json", &truth);
    crowd["score"] = json!(0.9);
    let mut found = json!([crowd.clone(), crowd, truth["annotations"][0]]);
    found[2]["score"] = json!(0.5);
    write("tracks.json", &found);
    let report = run(place.path(), &["truth.json"], "tracks.json").expect("it is valid");
    let ap = report.segm.and_then(|accuracy| accuracy.ap);
    assert!(ap.is_some_and(|ap| ap > 0.999), "{ap:?}");

    // Of two annotators the one counts who, as the predictions, has nothing.
    let image = json!([{"id": 1, "width": 4, "height": 4, "is_instance_exhaustive": 1}]);
    let object = json!([{"image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2]}]);
    write("one.json", &json!({"images": image, "categories": [{"id": 1}], "annotations": object}));
    write("none.json", &json!({"images": image, "categories": [{"id": 1}], "annotations": []}));
    write("found.json", &json!([]));
    for (truth, positive) in [(vec!["one.json"], 1), (vec!["one.json", "none.json"], 0)] {
        let report = run(place.path(), &truth, "found.json").expect("it is valid");
        assert_eq!(report.cgf1_bbox.map(|figures| figures.positive_cases), Some(positive), "{truth:?}");
    }
}
