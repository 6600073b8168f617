//! `annotations.json` that a person changed, by hand or in another program, and put back.

mod names;
mod order;
mod stops;

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

/// The images as a program names them that knows no folders.
fn without_folders(coco: &mut Value) {
    for image in list(coco, "images") {
        let name = image["file_name"].as_str().expect("a name").rsplit('/').next().map(str::to_owned);
        image["file_name"] = json!(name);
    }
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
