//! `annotations.json` that a person changed, by hand or in another program, and put back.

use serde_json::{Value, json};

use crate::eval::Truth;
use crate::label::folders::{Place, Run, row_of, text_of};
use crate::label::{CorrectedSet, Existing, Format, ImageMode, Shard, merge};

const FILE: &str = "set/annotations.json";
const NAMES: [&str; 7] = ["a.png", "b.png", "c.png", "d.png", "e.png", "f.png", "g.png"];

fn labelled(formats: &[Format]) -> (Place, Run) {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = formats.to_vec();
    let place = Place::new();
    (0..).zip(NAMES).for_each(|(number, name)| place.image(name, 21 + 20 * number));
    place.label(&run).expect("the images can be labelled");
    (place, run)
}

fn coco(place: &Place) -> Value {
    serde_json::from_str(&place.read(FILE).expect("it is there")).expect("it is JSON")
}

fn write(place: &Place, coco: &Value) {
    place.write(FILE, &serde_json::to_string_pretty(coco).expect("plain data"));
}

fn list<'a>(coco: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    coco[key].as_array_mut().expect("a list")
}

/// The annotations of an image: class, box, score and number of pixels.
fn found(coco: &Value, name: &str) -> Vec<(u64, [f64; 4], f64, f64)> {
    let all = |key: &str| coco[key].as_array().cloned().expect("a list");
    let is_it = |image: &Value| image["file_name"].as_str().is_some_and(|file| file.ends_with(name));
    let id = all("images").into_iter().find(is_it).expect("it is there")["id"].clone();
    let number = |value: &Value| value.as_f64().expect("a number");
    let own = all("annotations").into_iter().filter(|one| one["image_id"] == id);
    own.map(|one| {
        let bbox = [0, 1, 2, 3].map(|at| number(&one["bbox"][at]));
        (one["category_id"].as_u64().expect("an id"), bbox, number(&one["score"]), number(&one["area"]))
    })
    .collect()
}

/// A person moves the box of `a`, deletes that of `b`, adds one to `c`, changes the class of `d` and the mask of `e`.
fn edit(coco: &mut Value) {
    let square = |x: f64| json!([[x, 30.0, x + 10.0, 30.0, x + 10.0, 40.0, x, 40.0]]);
    let annotations = list(coco, "annotations");
    annotations[0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    annotations[3]["category_id"] = json!(2);
    annotations[4]["bbox"] = json!([20.0, 30.0, 10.0, 10.0]);
    annotations[4]["segmentation"] = square(20.0);
    annotations.push(json!({"id": 99, "image_id": 3, "category_id": 2, "bbox": [40.0, 30.0, 10.0, 10.0],
        "segmentation": square(40.0), "iscrowd": 0, "area": 100.0}));
    annotations.remove(1);
}

/// The file as another program writes it: other ids, another order, other names of images, other numbers, other keys.
fn rewritten(coco: &mut Value) {
    for image in list(coco, "images") {
        let name = image["file_name"].as_str().expect("a name").replace("train/", "images\\");
        *image = json!({"width": image["width"], "height": image["height"], "license": 0, "file_name": name,
            "id": image["id"].as_u64().expect("an id") + 500});
    }
    list(coco, "categories").reverse();
    for category in list(coco, "categories") {
        category["id"] = json!(category["id"].as_u64().expect("an id") + 6);
    }
    list(coco, "annotations").reverse();
    for (id, one) in (0..).zip(list(coco, "annotations")) {
        let bbox: Vec<f64> = (0..4).map(|at| one["bbox"][at].as_f64().expect("a number") + 1e-4).collect();
        *one = json!({"attributes": {"occluded": false}, "segmentation": one["segmentation"], "bbox": bbox, "iscrowd": 0,
            "category_id": one["category_id"].as_u64().expect("an id") + 6, "id": id + 1000,
            "image_id": (one["image_id"].as_u64().expect("an id") + 500).to_string()});
    }
}

#[test]
fn every_file_follows_annotations_that_were_changed_elsewhere() {
    let formats = [Format::Yolo, Format::YoloSeg, Format::Voc, Format::Masks, Format::Coco];
    for is_rewritten in [false, true] {
        let (place, run) = labelled(&formats);
        let mut changed = coco(&place);
        let before = ["f.png", "g.png"].map(|name| found(&changed, name));
        edit(&mut changed);
        if is_rewritten {
            rewritten(&mut changed);
        }
        write(&place, &changed);
        let mut texts = Vec::new();
        for _ in 0..2 {
            let summary = place.label(&run).expect("nothing is new");
            assert!(summary.unclear.is_empty(), "{:?}", summary.unclear);
            assert_eq!(summary.corrected, ["a.png", "b.png", "c.png", "d.png", "e.png"], "{is_rewritten}");
            texts.push(place.read(FILE));
        }
        assert!(texts[0] == texts[1], "a run changes what it followed");
        let after = coco(&place);
        assert_eq!(["f.png", "g.png"].map(|name| found(&after, name)), before);
        let near = |own: &[(u64, [f64; 4], f64, f64)], expected: &[(u64, [f64; 4], f64)]| {
            let is_it = |(class, bbox, score): &(u64, [f64; 4], f64)| {
                own.iter().any(|(other, there, certain, _)| {
                    let is_near = bbox.iter().zip(there).all(|(a, b)| (a - b).abs() < 0.02);
                    class == other && is_near && (score - certain).abs() < 1e-4
                })
            };
            assert!(
                own.len() == expected.len() && expected.iter().all(is_it),
                "{own:?}, expected {expected:?}"
            );
        };
        let left = |number: f64| [(21.0 + 20.0 * number) / 20.0, 0.0, 1.0, 1.0];
        near(&found(&after, "a.png"), &[(1, [30.0, 30.0, 10.0, 12.0], 1.0)]);
        near(&found(&after, "b.png"), &[]);
        near(&found(&after, "c.png"), &[(1, left(2.0), 0.9), (2, [40.0, 30.0, 10.0, 10.0], 1.0)]);
        near(&found(&after, "d.png"), &[(2, left(3.0), 1.0)]);
        near(&found(&after, "e.png"), &[(1, [20.0, 30.0, 10.0, 10.0], 1.0)]);
        assert!((found(&after, "e.png")[0].3 - 100.0).abs() <= 20.0, "{:?}", found(&after, "e.png"));
        let lines = |folder: &str, name: &str| {
            place.read(&format!("set/{folder}/{name}")).unwrap_or_default().lines().count()
        };
        for (number, stem) in [1, 0, 2, 1, 1, 1, 1].into_iter().zip(NAMES.map(|name| &name[..1])) {
            let text = format!("{stem}.txt");
            assert_eq!(
                (lines("labels/train", &text), lines("segments/labels/train", &text)),
                (number, number),
                "{stem}"
            );
            let xml = place.read(&format!("set/voc/Annotations/{stem}.xml")).unwrap_or_default();
            assert_eq!(xml.matches("<object>").count(), number, "{stem}");
            let masks = std::fs::read_dir(place.path(&format!("set/masks/train/{stem}")));
            assert_eq!(masks.map_or(0, Iterator::count), number, "{stem}");
        }
        assert!(place.read("set/labels/train/d.txt").is_some_and(|text| text.starts_with("1 ")));
        assert_eq!(place.read("set/labels/train/g.txt"), Some(text_of(141, Format::Yolo)));
        // The person's own file has what no other format has.
        let kept = place.read("set/.ocelli-label/annotations.json").expect("it is kept");
        assert!(kept.contains("\"id\"") && kept.contains("occluded") == is_rewritten);
    }
}

#[test]
fn a_correction_is_corrected_again_and_undone() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let whole = coco(&place);
    let lines =
        |name: &str| place.read(&format!("set/labels/train/{name}.txt")).unwrap_or_default().lines().count();
    for (count, left) in [(0, None), (1, Some(12.0)), (1, None)] {
        let mut changed = coco(&place);
        let annotations = list(&mut changed, "annotations");
        annotations.retain(|one| one["image_id"] != 1);
        let mut one = whole["annotations"][0].clone();
        one["id"] = json!(1000);
        if let Some(left) = left {
            one["bbox"][0] = json!(left);
        }
        annotations.extend((count > 0).then_some(one));
        write(&place, &changed);
        place.label(&run).expect("nothing is new");
        let own = found(&coco(&place), "a.png");
        let there: Vec<f64> = own.iter().map(|one| one.1[0]).collect();
        let expected: Vec<f64> = (0..count).map(|_| left.unwrap_or(1.05)).collect();
        assert_eq!((there, lines("a"), lines("b")), (expected, count, 1));
    }
}

#[test]
fn labels_that_were_corrected_since_are_no_corrections_of_annotations() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let line = |left: f64| format!("0 {left} 0.5 0.1 0.1\n");
    for (round, left) in [0.3, 0.4, 0.5].into_iter().enumerate() {
        // `b` in its label file, and another image in `annotations.json`.
        place.write("set/labels/train/b.txt", &line(left));
        let mut changed = coco(&place);
        let own = list(&mut changed, "annotations").iter_mut().find(|one| one["image_id"] == 3 + round);
        own.expect("it is there")["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
        write(&place, &changed);
        let summary = place.label(&run).expect("nothing is new");
        assert!(summary.unclear.is_empty() && summary.corrected.len() == 2 + round, "{summary:?}");
        let there = found(&coco(&place), "b.png")[0].1[0];
        assert!((there - (left - 0.05) * 64.0).abs() < 0.02, "{there}");
    }
}

#[test]
fn of_two_corrections_of_an_image_at_once_the_annotations_count_and_both_stay() {
    let (place, run) = labelled(&[Format::Yolo, Format::Voc, Format::Coco]);
    place.write("set/labels/train/a.txt", "");
    place.write("set/voc/Annotations/b.xml", "<annotation/>");
    let mut changed = coco(&place);
    for number in [0, 1] {
        list(&mut changed, "annotations")[number]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    }
    write(&place, &changed);
    for _ in 0..2 {
        let unclear = place.label(&run).expect("nothing is new").unclear;
        let is_named = |start: &str| unclear.iter().filter(|line| line.starts_with(start)).count() == 1;
        assert!(
            unclear.len() == 2 && is_named("labels/train/a.txt: ") && is_named("voc/Annotations/b.xml: "),
            "{unclear:?}"
        );
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(""));
        assert_eq!(place.read("set/voc/Annotations/b.xml").as_deref(), Some("<annotation/>"));
        assert!(place.read("set/voc/Annotations/a.xml").is_some_and(|text| text.contains("<object>")));
        assert!(place.read("set/labels/train/b.txt").is_some_and(|text| text.starts_with("0 0.5")));
        let after = coco(&place);
        assert_eq!(["a.png", "b.png"].map(|name| found(&after, name)[0].1[0]), [30.0, 30.0]);
    }
}

#[test]
fn what_cannot_be_followed_is_one_error_and_changes_nothing() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    let whole = place.read(FILE).expect("it is there");
    let label = place.read("set/labels/train/a.txt");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = coco(&place);
        list(&mut changed, "annotations")[0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
        change(&mut changed);
        changed.to_string()
    };
    let new_class = with(&|coco| {
        list(coco, "categories").push(json!({"id": 3, "name": "cow"}));
        list(coco, "annotations")[0]["category_id"] = json!(3);
    });
    let cases = [
        (whole[..whole.len() / 2].to_owned(), "EOF"),
        ("[]".into(), "it is a list"),
        (
            with(&|coco| _ = coco.as_object_mut().map(|keys| keys.remove("annotations"))),
            "expected images, annotations",
        ),
        (
            with(&|coco| {
                _ = list(coco, "annotations")[1].as_object_mut().map(|keys| keys.remove("image_id"));
            }),
            "image_id",
        ),
        (with(&|coco| list(coco, "annotations")[1]["image_id"] = json!(77)), "no image has the id 77"),
        (
            with(&|coco| list(coco, "annotations")[1]["bbox"] = json!([5.0, 5.0, 0.0, 3.0])),
            "boxes with an area",
        ),
        (
            with(&|coco| list(coco, "images")[1]["file_name"] = json!("new.png")),
            "new.png: it is not labelled here",
        ),
        (new_class.clone(), "category \"cow\": no class"),
    ];
    place.image("h.png", 300);
    for (text, why) in cases {
        place.write(FILE, &text);
        let error = place.label(&run).expect_err(why);
        let message = error.to_string();
        assert!(
            message.contains(why) && message.contains("annotations.json") && !message.contains('\n'),
            "{error}"
        );
        assert_eq!(error.parameter(), Some("discard_corrections"));
        assert_eq!((place.read(FILE), place.read("set/labels/train/a.txt")), (Some(text), label.clone()));
        assert_eq!(place.read("set/labels/train/h.txt"), None);
    }
    // A new category is a class of the data set from when it is named.
    run.classes.push("cow");
    run.finds_added = true;
    place.label(&run).expect("it is a class");
    assert!(place.read("set/labels/train/a.txt").is_some_and(|text| text.starts_with("2 ")));
    assert_eq!(found(&coco(&place), "a.png")[0].0, 3);
    place.write(FILE, "{}");
    run.existing = Existing { discard_corrections: true, ..Existing::default() };
    place.label(&run).expect("corrections are discarded");
    let found = place.read("set/labels/train/a.txt").unwrap_or_default();
    assert!(found.contains(&label.unwrap_or_default()), "{found}");
}

#[test]
fn an_image_that_was_removed_from_annotations_keeps_its_labels() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let mut changed = coco(&place);
    list(&mut changed, "images").remove(0);
    list(&mut changed, "annotations").remove(0);
    write(&place, &changed);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!((summary.unclear.len(), summary.corrected.len()), (0, 0), "{:?}", summary.unclear);
    assert_eq!(found(&coco(&place), "a.png").len(), 1);
    assert!(place.label(&run).expect("nothing is new").unclear.is_empty());
}

#[test]
fn a_stop_at_any_write_changes_nothing_of_what_is_followed() {
    let formats = [Format::Yolo, Format::YoloSeg, Format::Masks, Format::Coco];
    let edited = || {
        let (place, run) = labelled(&formats);
        let mut changed = coco(&place);
        // Masks that can move with their boxes.
        for one in list(&mut changed, "annotations") {
            one["bbox"] = json!([4.0, 4.0, 10.0, 12.0]);
            one["segmentation"] = json!([[4.0, 4.0, 14.0, 4.0, 14.0, 16.0, 9.0, 10.0, 4.0, 16.0]]);
        }
        write(&place, &changed);
        place.label(&run).expect("nothing is new");
        let mut changed = coco(&place);
        // One of each kind, and `f` and `g` keep the masks that they had elsewhere.
        edit(&mut changed);
        list(&mut changed, "annotations")[4]["bbox"] = json!([30.0, 20.0, 20.0, 24.0]);
        list(&mut changed, "annotations")[5]["bbox"] = json!([5.0, 4.0, 10.0, 12.0]);
        write(&place, &changed);
        (place, run)
    };
    let files =
        ["annotations.json", "annotations_train.json", "labels/train/f.txt", "segments/labels/train/f.txt"];
    let content = |place: &Place| {
        let mut state = files.map(|file| place.read(&format!("set/{file}")));
        // Without a split, there is no file for it.
        state[1] = None;
        let png = std::fs::read(place.path("set/masks/train/f/dog-0.png")).ok();
        (state, png)
    };
    let (place, run) = edited();
    place.label(&run).expect("nothing is new");
    let expected = content(&place);
    assert!(expected.0[0].as_ref().is_some_and(|text| text.contains("[30.0,20.0,20.0,24.0]")));
    for writes in 0.. {
        let (place, run) = edited();
        let mut is_ended = place.label_and_stop(&run, writes);
        // And again.
        is_ended &= place.label_and_stop(&run, writes / 2);
        let summary = place.label(&run).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
        assert_eq!((summary.corrected.len(), summary.unclear.len()), (7, 0), "{writes} writes");
        assert!(content(&place) == expected, "{writes} writes");
        if is_ended {
            assert!(writes > 8, "{writes} writes");
            break;
        }
    }
}

#[test]
fn a_mask_is_what_its_pixels_are() {
    for polygons in [false, true] {
        let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
        run.options.polygons = polygons;
        let mut changed = coco(&place);
        list(&mut changed, "annotations")[0]["segmentation"] =
            json!([[4.0, 4.0, 44.0, 4.0, 44.0, 44.0, 4.0, 44.0]]);
        list(&mut changed, "annotations")[0]["bbox"] = json!([4.0, 4.0, 40.0, 40.0]);
        write(&place, &changed);
        place.label(&run).expect("nothing is new");
        let before = found(&coco(&place), "a.png");
        assert_eq!(before[0].3, 1600.0);
        // A program counts the pixels of the mask for the box, and drops what it does not know.
        let mut changed = coco(&place);
        let annotations = list(&mut changed, "annotations");
        annotations[0]["bbox"] = json!([4, 4, 39, 39]);
        annotations.iter_mut().for_each(|one| _ = one.as_object_mut().map(|one| one.remove("score")));
        write(&place, &changed);
        assert_eq!(place.label(&run).expect("nothing is new").corrected, ["a.png"]);
        assert_eq!(found(&coco(&place), "a.png"), before);
        // A person takes one pixel in a hundred away.
        let mut changed = coco(&place);
        list(&mut changed, "annotations")[0]["segmentation"] =
            json!([[4.0, 4.0, 40.0, 4.0, 40.0, 8.0, 44.0, 8.0, 44.0, 44.0, 4.0, 44.0]]);
        write(&place, &changed);
        for _ in 0..2 {
            place.label(&run).expect("nothing is new");
            assert_eq!(found(&coco(&place), "a.png")[0].3, 1584.0);
        }
    }
}

#[test]
fn what_was_corrected_last_counts() {
    let (place, run) = labelled(&[Format::Yolo, Format::YoloSeg, Format::Coco]);
    let mut changed = coco(&place);
    list(&mut changed, "annotations")[0]["segmentation"] =
        json!([[4.0, 4.0, 24.0, 4.0, 24.0, 24.0, 14.0, 14.0, 4.0, 24.0]]);
    list(&mut changed, "annotations")[0]["bbox"] = json!([4.0, 4.0, 20.0, 20.0]);
    write(&place, &changed);
    place.label(&run).expect("nothing is new");
    let before = found(&coco(&place), "a.png");
    assert!(before[0].3 < 350.0, "{before:?}");
    // The label file, with a second box: the first keeps its mask.
    let text = place.read("set/labels/train/a.txt").expect("it is there");
    place.write("set/labels/train/a.txt", &(text + "1 0.5 0.5 0.25 0.25\n"));
    for _ in 0..2 {
        assert!(place.label(&run).expect("nothing is new").unclear.is_empty());
        let after = found(&coco(&place), "a.png");
        assert!(after.len() == 2 && after[0] == before[0], "{after:?}");
    }
    // The browser, which shows the label file.
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &labels.instances[..1]).expect("nothing is new");
    place.label(&run).expect("nothing is new");
    assert_eq!(found(&coco(&place), "a.png"), before);
    // And the annotations again; the label file stays.
    let mut changed = coco(&place);
    list(&mut changed, "annotations")[0]["bbox"] = json!([8.0, 4.0, 20.0, 20.0]);
    write(&place, &changed);
    let text = place.read("set/labels/train/a.txt");
    place.label(&run).expect("nothing is new");
    let after = found(&coco(&place), "a.png");
    assert!(after[0].1 == [8.0, 4.0, 20.0, 20.0] && (after[0].3 - before[0].3).abs() < 20.0, "{after:?}");
    assert_eq!(place.read("set/labels/train/a.txt"), text);
}

#[test]
fn each_of_cocos_files_is_followed_and_two_that_contradict_are_refused() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    run.options.validation_share = 0.5;
    (0..8).for_each(|number| place.image(&format!("{number}.png"), 301 + 20 * number));
    place.label(&run).expect("the images can be labelled");
    for (round, file) in ["set/annotations_train.json", "set/annotations_val.json"].into_iter().enumerate() {
        let before = place.read(file).expect("it is there");
        let mut changed: Value = serde_json::from_str(&before).expect("it is JSON");
        let image = changed["images"][0].clone();
        let annotations = list(&mut changed, "annotations");
        let own = annotations.iter_mut().find(|one| one["image_id"] == image["id"]);
        own.expect("it is there")["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
        // Another program names the images without their folders.
        for image in list(&mut changed, "images") {
            let name = image["file_name"].as_str().expect("a name").rsplit('/').next().map(str::to_owned);
            image["file_name"] = json!(name);
        }
        place.write(file, &changed.to_string());
        let name = image["file_name"].as_str().expect("a name");
        let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
        assert!(truth.notes().len() == 1 && truth.notes()[0].contains("1 images"), "{:?}", truth.notes());
        assert_eq!(place.label(&run).expect("nothing is new").corrected.len(), round + 1);
        let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
        assert_eq!(truth.notes(), [] as [String; 0]);
        assert_eq!(found(&coco(&place), name)[0].1, [30.0, 30.0, 10.0, 12.0]);
        let label = place.read(&format!("set/labels/{}.txt", name.trim_end_matches(".png")));
        assert!(label.is_some_and(|text| text.contains(" 0.156250 0.187500")));
        // Both files say something else about it.
        let mut whole = coco(&place);
        for (path, json) in [(FILE, &mut whole), (file, &mut changed)] {
            let own = list(json, "annotations").iter_mut().find(|one| one["image_id"] == image["id"]);
            own.expect("it is there")["bbox"] = json!([path.len(), 30.0, 10.0, 12.0]);
        }
        let texts = [FILE, file].map(|file| place.read(file));
        write(&place, &whole);
        place.write(file, &changed.to_string());
        let error = place.label(&run).expect_err("two truths").to_string();
        let why = format!(
            "image {}: annotations.json was changed, too",
            name.trim_start_matches(['t', 'r', 'a', 'i', 'n', 'v', 'l', '/'])
        );
        assert!(error.contains(&why), "{error}");
        [FILE, file]
            .iter()
            .zip(texts)
            .for_each(|(file, text)| place.write(file, &text.expect("it was there")));
    }
}

#[test]
fn names_that_another_program_changed_are_those_of_the_images() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    let place = Place::new();
    place.images(&[("a.png", 21), ("b/c.png", 41), ("d.png", 61)]);
    place.label(&run).expect("the images can be labelled");
    let mut changed = coco(&place);
    for image in list(&mut changed, "images") {
        let name = image["file_name"].as_str().expect("a name").rsplit('/').next().map(str::to_owned);
        image["file_name"] = json!(name);
        _ = image.as_object_mut().map(|image| image.remove("width"));
        _ = image.as_object_mut().map(|image| image.remove("height"));
    }
    list(&mut changed, "annotations")[1]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    write(&place, &changed);
    // In the browser, which writes the file again with all images.
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &[]).expect("nothing is new");
    let after = coco(&place);
    let counts = ["a.png", "b/c.png", "d.png"].map(|name| found(&after, name).len());
    assert_eq!((counts, found(&after, "b/c.png")[0].1), ([0, 1, 1], [30.0, 30.0, 10.0, 12.0]));
    // Two images can be the one of the file.
    place.image("c.png", 81);
    place.label(&run).expect("the images can be labelled");
    let mut changed = coco(&place);
    for image in list(&mut changed, "images") {
        let name = image["file_name"].as_str().expect("a name").rsplit('/').next().map(str::to_owned);
        image["file_name"] = json!(name);
    }
    write(&place, &changed);
    let error = place.label(&run).expect_err("two names").to_string();
    assert!(error.contains("image c.png: it is not clear which image it is"), "{error}");
}

#[test]
fn names_that_fit_two_images_are_refused() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    let place = Place::new();
    place.images(&[("a.png", 21), ("b/a.png", 41)]);
    place.label(&run).expect("the images can be labelled");
    let whole = place.read(FILE).expect("it is there");
    for is_left in [true, false] {
        let mut changed = coco(&place);
        let images = list(&mut changed, "images");
        images
            .iter_mut()
            .filter(|image| image["file_name"] != "c.gif")
            .for_each(|image| image["file_name"] = json!("a.png"));
        if !is_left {
            // The one without a folder.
            let id = images.remove(0)["id"].clone();
            list(&mut changed, "annotations").retain(|one| one["image_id"] != id);
        }
        write(&place, &changed);
        let error = place.label(&run).expect_err("two names").to_string();
        assert!(error.contains("image a.png: it is not clear which image it is"), "{error}");
        place.write(FILE, &whole);
    }
}

#[test]
fn an_image_of_equal_name_in_a_folder_is_not_mixed_up() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    let place = Place::new();
    place.images(&[("a.png", 21), ("b/a.png", 41), ("b/d.png", 61)]);
    place.label(&run).expect("the images can be labelled");
    let moved = |place: &Place, left: f64| {
        let mut changed = coco(place);
        let image = list(&mut changed, "images").iter().find(|image| image["file_name"] == "a.png").cloned();
        let id = image.expect("it is there")["id"].clone();
        let own = list(&mut changed, "annotations").iter_mut().find(|one| one["image_id"] == id);
        own.expect("it is there")["bbox"] = json!([left, 30.0, 10.0, 12.0]);
        changed
    };
    // A person removes the entry of the other.
    let mut changed = moved(&place, 20.0);
    list(&mut changed, "images").retain(|image| image["file_name"] != "b/a.png");
    list(&mut changed, "annotations").retain(|one| one["image_id"] != 2);
    write(&place, &changed);
    assert_eq!(place.label(&run).expect("nothing is new").corrected, ["a.png"]);
    assert_eq!(found(&coco(&place), "b/a.png").len(), 1);
    // And its file.
    place.remove("images/b/a.png");
    assert_eq!(place.label(&run).expect("one is gone").removed, ["b/a.png"]);
    write(&place, &moved(&place, 25.0));
    place.label(&run).expect("nothing is new");
    assert_eq!(found(&coco(&place), "a.png")[0].1[0], 25.0);
    let truth = Truth::open(&place.path(FILE)).expect("it follows");
    assert_eq!(truth.image_ids().len(), 2);
}

#[test]
fn a_file_of_ours_in_the_place_of_another_one_has_no_corrections() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    run.options.validation_share = 0.5;
    (0..8).for_each(|number| place.image(&format!("{number}.png"), 301 + 20 * number));
    place.label(&run).expect("the images can be labelled");
    let whole = place.read(FILE).expect("it is there");
    place.write("set/annotations_train.json", &whole);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!((summary.corrected.len(), place.read(FILE)), (0, Some(whole)));
    assert_eq!(place.read("set/annotations_train.json").map(|text| text.contains("\"val/")), Some(false));
}

#[test]
fn a_page_that_is_saved_as_it_is_counts() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    const LABEL: &str = "set/labels/train/a.txt";
    place.write(LABEL, "0 0.3 0.3 0.1 0.1\n");
    place.label(&run).expect("nothing is new");
    let mut changed = coco(&place);
    list(&mut changed, "annotations")[0]["bbox"] = json!([2.0, 40.0, 10.0, 12.0]);
    write(&place, &changed);
    place.label(&run).expect("nothing is new");
    assert_eq!(found(&coco(&place), "a.png")[0].1[1], 40.0);
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &labels.instances).expect("nothing is new");
    assert_eq!(place.read(LABEL).as_deref(), Some("0 0.3 0.3 0.1 0.1\n"));
    for _ in 0..2 {
        place.label(&run).expect("nothing is new");
        assert_eq!(found(&coco(&place), "a.png")[0].1[1], 16.0);
        assert!(Truth::open(&place.path("set")).is_ok());
    }
}

#[test]
fn a_class_that_no_run_added_yet_is_in_no_file() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    let mut changed = coco(&place);
    list(&mut changed, "categories").push(json!({"id": 3, "name": "cow"}));
    list(&mut changed, "annotations")[0]["category_id"] = json!(3);
    write(&place, &changed);
    run.classes.push("cow");
    run.finds_added = true;
    // Stopped before the class is added.
    for writes in 0..8 {
        place.label_and_stop(&run, writes);
        let set = CorrectedSet::open(&place.path("set")).expect("it is one");
        drop(Truth::open(&place.path("set")));
        let image = set.images()[1].clone();
        let labels = set.labels(&image).expect("there are labels");
        set.save(&image, &labels.version, &labels.instances).expect("nothing is new");
    }
    place.label(&run).expect("a class can be added");
    assert_eq!(found(&coco(&place), "a.png")[0].0, 3);
    // One that changes more than the classes is refused before anything is followed.
    let mut changed = coco(&place);
    list(&mut changed, "categories").push(json!({"id": 4, "name": "hen"}));
    list(&mut changed, "annotations")[1]["category_id"] = json!(4);
    write(&place, &changed);
    run.classes.push("hen");
    let shard = Run { shard: Shard::new(1, 2).ok(), ..run.clone() };
    place.label(&shard).expect_err("it is no shard");
    assert!(place.read("set/.ocelli-label/state.jsonl").is_some_and(|state| !state.contains("\"class\":3")));
    place.label(&run).expect("a class can be added");
}

#[test]
fn a_class_that_a_program_leaves_out_keeps_what_was_made_of_it() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    run.classes.push("cow");
    run.finds_added = true;
    place.label(&run).expect("a class can be added");
    let count = |place: &Place| {
        let found = NAMES.map(|name| found(&coco(place), name).iter().filter(|one| one.0 == 3).count());
        found.iter().sum::<usize>()
    };
    assert_eq!(count(&place), 7);
    let is_cow = |one: &Value| one["category_id"] == 3;
    // All but one are removed, and then the category, of which the person knows nothing.
    let mut changed = coco(&place);
    let first = changed["images"][0]["id"].clone();
    list(&mut changed, "annotations").retain(|one| !is_cow(one) || one["image_id"] == first);
    write(&place, &changed);
    place.label(&run).expect("nothing is new");
    assert_eq!(count(&place), 1);
    let mut changed = coco(&place);
    list(&mut changed, "annotations").retain(|one| !is_cow(one));
    list(&mut changed, "categories").truncate(2);
    list(&mut changed, "annotations")[0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    list(&mut changed, "annotations")[1]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    write(&place, &changed);
    for _ in 0..2 {
        place.label(&run).expect("nothing is new");
        assert_eq!(count(&place), 1);
    }
    // It becomes another class, and the category is left out with it.
    let mut changed = coco(&place);
    list(&mut changed, "annotations")
        .iter_mut()
        .filter(|one| is_cow(one))
        .for_each(|one| one["category_id"] = json!(1));
    list(&mut changed, "categories").truncate(2);
    write(&place, &changed);
    place.label(&run).expect("nothing is new");
    assert_eq!(count(&place), 0);
}

#[test]
fn a_label_file_that_was_corrected_before_and_after_is_named_with_the_annotations() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    place.write("set/labels/train/a.txt", "0 0.3 0.3 0.1 0.1\n");
    place.label(&run).expect("nothing is new");
    let mut changed = coco(&place);
    let own = list(&mut changed, "annotations").iter_mut().find(|one| one["image_id"] == 1);
    own.expect("it is there")["bbox"] = json!([2.0, 40.0, 10.0, 12.0]);
    write(&place, &changed);
    let unclear = place.label(&run).expect("nothing is new").unclear;
    assert!(unclear.len() == 1 && unclear[0].starts_with("labels/train/a.txt: "), "{unclear:?}");
    place.write("set/labels/train/a.txt", "0 0.35 0.3 0.1 0.1\n");
    let unclear = place.label(&run).expect("nothing is new").unclear;
    assert!(unclear.len() == 1 && unclear[0].starts_with("annotations.json, a.png: "), "{unclear:?}");
}

#[test]
fn an_image_that_is_gone_does_not_come_back_with_a_correction_of_another() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    let place = Place::new();
    place.images(&[("a.png", 21), ("b.png", 41)]);
    place.label(&run).expect("the images can be labelled");
    place.remove("images/b.png");
    assert_eq!(place.label(&run).expect("one is gone").removed, ["b.png"]);
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &[]).expect("nothing is new");
    let names = coco(&place)["images"].as_array().map(Vec::len);
    assert_eq!(names, Some(1));
}

#[test]
fn without_a_copy_of_the_file_what_differs_is_followed() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let state = std::fs::read_dir(place.path("set/.ocelli-label")).expect("it is there").flatten();
    let copies = state.filter(|file| file.file_name().to_string_lossy().ends_with("-annotations.json"));
    let removed = copies.map(|file| std::fs::remove_file(file.path()).expect("it is there"));
    assert_eq!(removed.count(), 1);
    let mut changed = coco(&place);
    edit(&mut changed);
    rewritten(&mut changed);
    write(&place, &changed);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!(summary.corrected, ["a.png", "b.png", "c.png", "d.png", "e.png"]);
}

#[test]
fn images_that_a_stopped_run_labelled_again_are_no_corrections() {
    let mut run = Run { classes: vec!["dog"], finds_added: true, ..Run::default() };
    run.options.formats = vec![Format::Yolo, Format::Coco];
    let mut with_added = 0;
    for writes in 5..60 {
        let place = Place::new();
        place.images(&[("a.png", 21), ("b.png", 41), ("c.png", 61)]);
        place.label(&run).expect("the images can be labelled");
        let changed = {
            let mut changed = coco(&place);
            list(&mut changed, "annotations")[0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
            changed
        };
        place.image("c.png", 81);
        let more = Run { classes: vec!["dog", "cat"], ..run.clone() };
        if place.label_and_stop(&more, writes)
            || coco(&place)["categories"].as_array().map(Vec::len) != Some(1)
        {
            continue;
        }
        write(&place, &changed);
        let summary = place.label(&more).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
        assert_eq!(summary.corrected, ["a.png"], "{writes} writes");
        let after = coco(&place);
        let of = |name: &str| {
            let mut corners: Vec<_> = found(&after, name).iter().map(|one| (one.1[0], one.1[1])).collect();
            corners.sort_by(|a, b| a.1.total_cmp(&b.1));
            corners
        };
        let cat = row_of("cat") as f64;
        // After a stop between the record of the file and the file itself, it counts as one with the added class.
        assert_eq!(of("a.png").last(), Some(&(30.0, 30.0)), "{writes} writes");
        with_added += usize::from(of("a.png") == [(1.05, cat), (30.0, 30.0)]);
        assert_eq!(
            (of("b.png"), of("c.png")),
            (vec![(2.05, 0.0), (2.05, cat)], vec![(4.05, 0.0), (4.05, cat)]),
            "{writes} writes"
        );
    }
    assert!(with_added > 5, "{with_added}");
}

#[test]
fn a_merge_takes_what_was_changed_in_a_shard_and_what_was_undone() {
    let place = Place::new();
    (0..8).for_each(|number| place.image(&format!("{number}.png"), 21 + 20 * number));
    let shards = ["one", "two"].map(|name| place.path(name));
    for (index, name) in (1..).zip(["one", "two"]) {
        let mut run = Run { output: name.into(), shard: Shard::new(index, 2).ok(), ..Run::default() };
        run.options.formats.push(Format::Coco);
        place.label(&run).expect("the images can be labelled");
    }
    let whole = place.read("one/annotations.json").expect("it is there");
    let mut changed: Value = serde_json::from_str(&whole).expect("it is JSON");
    changed["annotations"][0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    let name = changed["images"][0]["file_name"].as_str().expect("a name").replace(".png", ".txt");
    for (text, is_changed) in [(changed.to_string(), true), (whole, false)] {
        place.write("one/annotations.json", &text);
        let summary = merge(&shards, &place.path("joined"), &mut || Ok(())).expect("they belong together");
        assert_eq!(summary.corrected.len(), usize::from(is_changed));
        let joined = place.read("joined/annotations.json").unwrap_or_default();
        assert_eq!(joined.contains("[30.0,30.0,10.0,12.0]"), is_changed, "{joined}");
        let label = place.read(&format!("joined/labels/{name}")).unwrap_or_default();
        assert_eq!(label.contains(" 0.156250 0.187500"), is_changed, "{label}");
        assert_eq!(place.read("one/annotations.json"), Some(text));
    }
}
