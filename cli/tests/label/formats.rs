//! Masks as files, Pascal VOC, splits of COCO, classes that are added, and formats that cannot be read.

use std::collections::BTreeSet;
use std::path::Path;

use ocelli::Mask;
use serde_json::Value;

use super::data_set::{CLASSES, IMGSZ, differences, tree, write_images};
use super::{OCELLI, arguments};
use crate::run::Place;

fn list<'a>(coco: &'a Value, key: &str) -> &'a [Value] {
    coco[key].as_array().map_or(&[], Vec::as_slice)
}

/// The names of the files below a folder, with `/`.
fn names_below(place: &Place, folder: &str) -> BTreeSet<String> {
    let names = tree(&place.path(folder)).into_keys();
    names.map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn splits_of_coco_and_voc_have_the_same_instances() {
    let place = Place::new();
    write_images(&place, "images", 12);
    place.succeed(OCELLI, &arguments("set", &["--format", "coco,voc", "--copy", "--val-share", "0.3"]));
    let all = place.json("set/annotations.json");
    let splits = ["train", "val"].map(|split| (split, place.json(&format!("set/annotations_{split}.json"))));
    for key in ["images", "annotations"] {
        let mut joined: Vec<Value> = splits.iter().flat_map(|(_, coco)| list(coco, key)).cloned().collect();
        joined.sort_by_key(|one| one["id"].as_u64());
        assert_eq!(joined, list(&all, key), "{key}");
    }
    for (split, coco) in &splits {
        assert_eq!(coco["categories"], all["categories"]);
        let start = format!("{split}/");
        let names: Vec<&str> = list(coco, "images").iter().filter_map(|i| i["file_name"].as_str()).collect();
        assert!(!names.is_empty() && names.iter().all(|name| name.starts_with(&start)), "{names:?}");
        let listed = String::from_utf8(place.read(&format!("set/voc/ImageSets/Main/{split}.txt")));
        let listed = listed.expect("it is text");
        let stems: Vec<&str> =
            names.iter().map(|name| name[start.len()..].trim_end_matches(".png")).collect();
        assert_eq!(listed.lines().collect::<Vec<_>>(), stems, "{split}");
    }
    let mut boxes = 0;
    for image in list(&all, "images") {
        let name = image["file_name"].as_str().and_then(|name| name.split_once('/')).expect("a split").1;
        assert!(place.path(&format!("set/voc/JPEGImages/{name}")).is_file(), "{name}");
        let xml = place.read(&format!("set/voc/Annotations/{}.xml", name.trim_end_matches(".png")));
        let xml = String::from_utf8(xml).expect("it is text");
        let numbers = |tag: &str| -> Vec<f64> {
            let start = format!("<{tag}>");
            let parts = xml.split(&start).skip(1);
            parts.filter_map(|part| part.split('<').next()?.parse().ok()).collect()
        };
        let found = ["xmin", "ymin", "xmax", "ymax"].map(numbers);
        let of_image: Vec<&Value> =
            list(&all, "annotations").iter().filter(|a| a["image_id"] == image["id"]).collect();
        assert_eq!(found[0].len(), of_image.len(), "{xml}");
        for (index, annotation) in of_image.iter().enumerate() {
            let [x, y, w, h] = serde_json::from_value::<[f64; 4]>(annotation["bbox"].clone()).expect("a box");
            let expected = [x + 1.0, y + 1.0, x + w, y + h];
            let is_near = found.iter().zip(expected).all(|(found, e)| (found[index] - e).abs() < 1.01);
            assert!(is_near, "{name}: {annotation}, {xml}");
            boxes += 1;
        }
    }
    assert!(boxes > 20, "{boxes}");
}

#[test]
fn masks_are_files_and_corrected_ones_stay() {
    let place = Place::new();
    write_images(&place, "images", 9);
    let options = ["--format", "coco,masks", "--no-images"];
    place.succeed(OCELLI, &arguments("set", &options));
    let coco = place.json("set/annotations.json");
    let names: Vec<&str> = CLASSES.split(',').collect();
    let mut expected = BTreeSet::new();
    for image in list(&coco, "images") {
        let name = image["file_name"].as_str().expect("it has a name").trim_end_matches(".png");
        let mut numbers = vec![0; names.len()];
        for annotation in list(&coco, "annotations").iter().filter(|a| a["image_id"] == image["id"]) {
            let class = annotation["category_id"].as_u64().expect("an id") as usize - 1;
            let below = format!("{name}/{}-{}.png", names[class], numbers[class]);
            numbers[class] += 1;
            let split = ["train", "val"]
                .into_iter()
                .find(|split| place.path(&format!("set/masks/{split}/{below}")).is_file());
            let file = format!("{}/{below}", split.unwrap_or_else(|| panic!("{below} is missing")));
            let png = image::load_from_memory(&place.read(&format!("set/masks/{file}"))).expect("a PNG");
            let mask: Mask = serde_json::from_value(annotation["segmentation"].clone()).expect("run lengths");
            let white: Vec<u8> = mask.to_bitmap().iter().map(|pixel| pixel * 255).collect();
            assert!(png.color() == image::ColorType::L8 && png.as_bytes() == white, "{file}");
            expected.insert(file);
        }
    }
    assert!(expected.len() > 10, "{}", expected.len());
    assert_eq!(names_below(&place, "set/masks"), expected);

    let mut files = expected.iter();
    let (removed, edited) = (files.next().expect("one"), files.next().expect("another"));
    std::fs::remove_file(place.path(&format!("set/masks/{removed}"))).expect("it is there");
    place.write(&format!("set/masks/{edited}"), b"mine");
    place.succeed(OCELLI, &arguments("set", &options));
    place.succeed(OCELLI, &arguments("set", &[&options[..], &["--restart"]].concat()));
    assert!(!place.path(&format!("set/masks/{removed}")).exists());
    assert_eq!(place.read(&format!("set/masks/{edited}")), b"mine");
    // Fewer instances: what is not found any more goes, except for what was corrected.
    let stricter = [&options[..], &["--restart", "--confidence", "0.97"]].concat();
    place.succeed(OCELLI, &arguments("set", &stricter));
    let left = names_below(&place, "set/masks");
    assert!(left.len() < expected.len() && left.contains(edited), "{left:?}");
}

/// The classes without the last three.
fn first_classes() -> String {
    let names: Vec<&str> = CLASSES.split(',').collect();
    names[..names.len() - 3].join(",")
}

#[test]
fn classes_can_be_added_without_losing_corrections() {
    let place = Place::new();
    write_images(&place, "images", 12);
    let first = first_classes();
    let label = |output: &str, classes: &str, more: &[&str]| {
        let start = ["label", "--model", "built-in", "--imgsz", IMGSZ, "--images", "images"];
        place.run(OCELLI, &[&start[..], &["--classes", classes, "-o", output], more].concat())
    };
    let options = ["--format", "yolo,yolo-seg,coco,masks"];
    assert_eq!(label("set", &first, &options).status, Some(0));
    assert_eq!(label("fresh", CLASSES, &options).status, Some(0));
    // An image in which an added class is found.
    let label_of =
        |set: &str, name: &str| String::from_utf8_lossy(&place.read(&format!("{set}/{name}"))).into_owned();
    let labels: Vec<String> =
        names_below(&place, "set").into_iter().filter(|f| f.starts_with("labels/")).collect();
    let is_added = |line: &&str| {
        line.split(' ')
            .next()
            .and_then(|id| id.parse().ok())
            .is_some_and(|id: usize| id >= first.split(',').count())
    };
    let has_added = |name: &&String| label_of("fresh", name).lines().any(|line| is_added(&line));
    let corrected = labels.iter().find(has_added).expect("an added class is found").clone();
    place.write(&format!("set/{corrected}"), "0 0.5 0.5 0.1 0.1\n");
    // More images at the same time.
    write_images(&place, "images", 14);
    assert_eq!(label("fresh", CLASSES, &options).status, Some(0));
    let grown = label("set", CLASSES, &options);
    assert_eq!(grown.status, Some(0), "{grown:?}");
    assert!(grown.stderr.contains("14 images to label"), "{grown:?}");
    assert!(
        grown.stderr.contains("1 corrected label file without instances of classes that were added"),
        "{grown:?}"
    );
    assert_eq!(label_of("set", &corrected), "0 0.5 0.5 0.1 0.1\n");
    let proposal = format!("added/{corrected}");
    let expected: String =
        label_of("fresh", &corrected).lines().filter(is_added).map(|line| format!("{line}\n")).collect();
    assert_eq!(label_of("set", &proposal), expected);
    // All other files follow what was corrected, and have the added classes.
    let polygons = format!("segments/{corrected}");
    let added = |set: &str| -> Vec<String> {
        label_of(set, &polygons).lines().filter(is_added).map(str::to_owned).collect()
    };
    assert_eq!(
        (added("set"), label_of("set", &polygons).lines().count()),
        (added("fresh"), 1 + added("fresh").len())
    );
    let masks = corrected.replace("labels/", "masks/").replace(".txt", "/");
    let allowed = [
        format!("{corrected}:"),
        format!("{proposal}:"),
        format!("{polygons}:"),
        masks,
        "annotations".to_owned(),
    ];
    let different = differences(&place.path("set"), &place.path("fresh"));
    let is_of = |name: &&String| different.iter().any(|line| line.starts_with(*name));
    let others: Vec<&String> =
        different.iter().filter(|line| !allowed.iter().any(|name| line.starts_with(name))).collect();
    assert!(others.is_empty() && allowed.iter().all(|name| is_of(&name)), "{different:?}");

    // Nothing is left to do, and the proposal that was removed stays away.
    std::fs::remove_dir_all(place.path("set/added")).expect("it is there");
    let again = label("set", CLASSES, &options);
    assert!(again.status == Some(0) && again.stderr.contains("0 images to label"), "{again:?}");
    assert!(!again.stderr.contains("corrected label file"), "{again:?}");
    assert!(!place.path(&format!("set/{proposal}")).exists());
    // Other classes, or another order, are refused as before.
    let reordered = label("set", &format!("robot,{first}"), &options);
    assert_eq!(reordered.status, Some(1), "{reordered:?}");
}

#[test]
fn only_the_added_classes_are_decoded() {
    let place = Place::new();
    write_images(&place, "images", 12);
    let first = first_classes();
    let label = |classes: &str, more: &[&str]| {
        let start = ["label", "--model", "built-in", "--imgsz", IMGSZ, "--images", "images"];
        place.succeed(OCELLI, &[&start[..], &["-o", "set", "--classes", classes], more].concat());
    };
    label(&first, &[]);
    // What was found before is taken from the journal: a change there shows that it is not found again.
    let journal = String::from_utf8(place.read("set/.ocelli-label/journal.jsonl")).expect("it is text");
    let changed = journal.replace("\"class\":1,", "\"class\":3,");
    assert_ne!(changed, journal, "no instance of the second class");
    let moved = changed.matches("\"class\":3,").count();
    place.write("set/.ocelli-label/journal.jsonl", changed);
    label(CLASSES, &["--low-memory"]);
    let lines: Vec<String> = names_below(&place, "set/labels")
        .iter()
        .flat_map(|name| {
            let text = String::from_utf8(place.read(&format!("set/labels/{name}"))).expect("it is text");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let count = |class: &str| lines.iter().filter(|line| line.starts_with(&format!("{class} "))).count();
    assert_eq!((count("1"), count("3")), (0, moved), "{lines:?}");
    assert!(count("4") + count("5") + count("6") > 0, "{lines:?}");
}

#[test]
fn formats_that_cannot_be_read_are_listed() {
    let place = Place::new();
    write_images(&place, "images", 3);
    // The start of a HEIC file; with the name of an image, as phones store both.
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";
    place.write("images/000.HEIC", heic);
    place.write("images/b c/other.avif", b"\0\0\0\x18ftypavif\0\0\0\0mif1avif");
    let labelled = place.run(OCELLI, &arguments("set", &[]));
    assert_eq!(labelled.status, Some(0), "{labelled:?}");
    assert!(labelled.stderr.contains("2 of 5 images failed: see set/failed.csv"), "{labelled:?}");
    let list = String::from_utf8(place.read("set/failed.csv")).expect("it is text");
    for part in ["000.HEIC,", "other.avif,", "HEIF, AVIF", "convert it to PNG or JPEG"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let names = names_below(&place, "set");
    assert!(
        names.iter().any(|name| name.ends_with("/000.txt"))
            && !names.iter().any(|name| name.contains("000-2"))
    );

    // The frames of a video are directly in its folder.
    for (program, count) in [
        (&["detect", "--image", "images/"][..], 2),
        (&["video", "--video", "images/", "--jsonl", "out.jsonl"], 1),
    ] {
        let ran = place.run(OCELLI, &[program, &["--classes", "dog"]].concat());
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let skipped = format!("{count} image(s) skipped, images/000.HEIC first");
        assert!(ran.stderr.contains(&skipped), "{ran:?}");
    }
    place.write("phone/a.heic", heic);
    let refused = place.run(OCELLI, &["detect", "--image", "phone", "--classes", "dog"]);
    refused.is_refusal(2, &["phone", "HEIC", "convert"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn eval_reads_the_annotations_that_label_wrote() {
    let place = Place::new();
    write_images(&place, "images", 3);
    for (output, more, images) in [
        ("apart", &["--format", "coco"][..], "images"),
        ("inside", &["--format", "coco", "--link"], "inside/images"),
    ] {
        place.succeed(OCELLI, &arguments(output, more));
        let annotations = format!("{output}/annotations.json");
        let shown = place
            .succeed(OCELLI, &["eval", "--imgsz", IMGSZ, "--images", images, "--annotations", &annotations]);
        assert!(shown.contains("AP"), "{shown}");
        assert!(Path::new(&place.path(images)).is_dir());
    }
}
