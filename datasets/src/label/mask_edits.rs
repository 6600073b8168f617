//! Masks that a person changed, removed or added.

mod merges;
mod moves;
mod stops;

use std::collections::BTreeMap;
use std::path::Path;

use ocelli::{Detection, Mask, Result};
use serde_json::Value;

use crate::eval::Truth;
use crate::label::folders::{Place, Run, SIDE, stopping};
use crate::label::formats::mask_files::decoded;
use crate::label::run::SearchedImage;
use crate::label::{CorrectedSet, Existing, Format, Shard, Summary, identity, merge};

const ALL: [Format; 5] = [Format::Yolo, Format::YoloSeg, Format::Voc, Format::Masks, Format::Coco];
const NAMES: [&str; 5] = ["a.png", "b.png", "c.png", "d.png", "e.png"];
/// The objects of a class in every image, by score.
const LEFT: [usize; 3] = [2, 22, 42];

fn run_with(formats: &[Format]) -> Run {
    let mut run = Run { classes: vec!["dog"], ..Run::default() };
    run.options.formats = formats.to_vec();
    run
}

/// A square; an image with another number has others.
fn square(left: usize, top: usize) -> Mask {
    shape(|x, y| (left..left + 10).contains(&x) && (top..top + 10).contains(&y))
}

fn shape(is_in: impl Fn(usize, usize) -> bool) -> Mask {
    let side = SIDE as usize;
    let bitmap: Vec<u8> = (0..side * side).map(|at| u8::from(is_in(at % side, at / side))).collect();
    Mask::from_bitmap(&bitmap, SIDE, SIDE).expect("the size is right")
}

/// Labels the images: three squares of each class, in the row of the image's length and the class.
fn label(place: &Place, run: &Run) -> Result<Summary> {
    let mut job = place.open(run)?;
    job.label_groups(|job, first, todo| {
        for file in todo {
            let top = |class: usize| std::fs::read(&file.path).map_or(0, |text| text.len()) + 20 * class;
            let one = |class: usize, number: usize| {
                let mask = square(LEFT[number], top(class));
                let score = 0.9 - 0.1 * number as f32;
                let bbox = mask.bounding_box().expect("it has pixels");
                Detection { class_id: class - first, label: "".into(), score, bbox, mask: Some(mask) }
            };
            let classes: Vec<usize> = (first..run.classes.len()).collect();
            let found = classes.iter().flat_map(|class| (0..3).map(|number| one(*class, number))).collect();
            let (identity, found) = (identity(&file.path), Ok(((SIDE, SIDE), found)));
            job.finish_image(
                SearchedImage { file: &file, identity, found, first, classes, device: 0 },
                &mut |_| Ok(()),
            )?;
        }
        Ok(())
    })?;
    job.finish(&mut || Ok(()))
}

fn labelled(formats: &[Format]) -> (Place, Run) {
    let (place, run) = (Place::new(), run_with(formats));
    (0..).zip(NAMES).for_each(|(number, name)| place.image(name, 2 + number));
    label(&place, &run).expect("the images can be labelled");
    (place, run)
}

fn write(place: &Place, file: &str, mask: &Mask) {
    let pixels: Vec<u8> = mask.to_bitmap().iter().map(|pixel| pixel * 255).collect();
    let image = image::GrayImage::from_raw(SIDE, SIDE, pixels).expect("the size is right");
    std::fs::create_dir_all(place.path(file).parent().expect("it has one")).expect("a temporary folder");
    image.save(place.path(file)).expect("a temporary folder");
}

/// All files below a folder with their bytes, without the state and the pages.
fn bytes_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with('.') && name != "review" {
            let below = bytes_below(&entry.path());
            found.extend(below.into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else if let Ok(bytes) = std::fs::read(entry.path()) {
            found.insert(name, bytes);
        }
    }
    found
}

fn masks(place: &Place, set: &str) -> BTreeMap<String, Vec<u8>> {
    bytes_below(&place.path(&format!("{set}/masks")))
}

/// The annotations of an image: class, score and mask.
fn found(place: &Place, set: &str, name: &str) -> Vec<(u64, f64, Mask)> {
    let text = place.read(&format!("{set}/annotations.json")).expect("it is there");
    let coco: Value = serde_json::from_str(&text).expect("it is JSON");
    let all = |key: &str| coco[key].as_array().cloned().expect("a list");
    let is_it = |image: &Value| image["file_name"].as_str().is_some_and(|file| file.ends_with(name));
    let id = all("images").into_iter().find(is_it).expect("it is there")["id"].clone();
    let own = all("annotations").into_iter().filter(|one| one["image_id"] == id);
    own.map(|one| {
        let mask: Mask = serde_json::from_value(one["segmentation"].clone()).expect("a mask");
        let class = one["category_id"].as_u64().expect("an id") - 1;
        let bbox = mask.bounding_box().expect("it has pixels").to_ltwh().map(f64::from);
        assert_eq!(serde_json::to_value(bbox).ok(), Some(one["bbox"].clone()), "{name}");
        (class, (one["score"].as_f64().expect("a number") * 100.0).round() / 100.0, mask)
    })
    .collect()
}

/// Checks classes, scores and masks, in any order.
fn check(place: &Place, set: &str, name: &str, expected: &[(u64, f64, Mask)]) {
    let own = found(place, set, name);
    let is_there = |one| own.iter().any(|other| other == one);
    let said = |all: &[(u64, f64, Mask)]| {
        let one =
            |(class, score, mask): &(u64, f64, Mask)| format!("{class} {score} {:?}", mask.bounding_box());
        all.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let is_same = own.len() == expected.len() && expected.iter().all(is_there);
    assert!(is_same, "{set}, {name}: {}, expected {}", said(&own), said(expected));
}

/// An object with another outline than a square at the same place.
fn changed(left: usize, top: usize) -> Mask {
    shape(|x, y| {
        (left..left + 14).contains(&x) && (top..top + 9).contains(&y) && (x < left + 9 || y < top + 4)
    })
}

/// A person changes a mask of `a`, removes one of `b`, adds one to `c`, and removes all of `d`.
fn edit(place: &Place, set: &str) {
    let folder = |stem: &str| format!("{set}/masks/train/{stem}");
    write(place, &format!("{}/dog-1.png", folder("a")), &changed(22, 2));
    place.remove(&format!("{}/dog-0.png", folder("b")));
    write(place, &format!("{}/dog-7.png", folder("c")), &changed(30, 40));
    (0..3).for_each(|number| place.remove(&format!("{}/dog-{number}.png", folder("d"))));
}

fn check_edited(place: &Place, set: &str) {
    let is_left = |name: &str, numbers: &[usize]| -> Vec<(u64, f64, Mask)> {
        let top = 2 + NAMES.iter().position(|other| *other == name).expect("it is one");
        numbers.iter().map(|at| (0, 0.9 - 0.1 * *at as f64, square(LEFT[*at], top))).collect()
    };
    let with = |mut all: Vec<_>, mask| {
        all.push((0, 1.0, mask));
        all
    };
    check(place, set, "a.png", &with(is_left("a.png", &[0, 2]), changed(22, 2)));
    check(place, set, "b.png", &is_left("b.png", &[1, 2]));
    check(place, set, "c.png", &with(is_left("c.png", &[0, 1, 2]), changed(30, 40)));
    check(place, set, "d.png", &[]);
    check(place, set, "e.png", &is_left("e.png", &[0, 1, 2]));
}

const EDITED: [&str; 4] = ["a.png", "b.png", "c.png", "d.png"];

#[test]
fn every_file_follows_masks_that_were_changed_removed_and_added() {
    let (place, run) = labelled(&ALL);
    let before = ["labels/train/a.txt", "labels/train/e.txt"].map(|file| place.read(&format!("set/{file}")));
    edit(&place, "set");
    let own = masks(&place, "set");
    let mut sets = Vec::new();
    for _ in 0..3 {
        let summary = label(&place, &run).expect("nothing is new");
        assert!(summary.unclear.is_empty(), "{:?}", summary.unclear);
        assert_eq!(
            (&summary.corrected[..], summary.classes[0].instances),
            (&EDITED.map(str::to_owned)[..], 12)
        );
        assert!(masks(&place, "set") == own, "the masks are the person's");
        check_edited(&place, "set");
        sets.push(bytes_below(&place.path("set")));
    }
    assert!(sets[0] == sets[1] && sets[1] == sets[2], "a run changes what it followed");
    let lines = |file: &str| place.read(file).unwrap_or_default().lines().count();
    for (stem, count) in NAMES.map(|name| &name[..1]).into_iter().zip([3, 2, 4, 0, 3]) {
        let xml = place.read(&format!("set/voc/Annotations/{stem}.xml")).unwrap_or_default();
        let texts =
            ["labels", "segments/labels"].map(|folder| lines(&format!("set/{folder}/train/{stem}.txt")));
        assert_eq!((texts, xml.matches("<object>").count()), ([count; 2], count), "{stem}");
    }
    let after = ["labels/train/a.txt", "labels/train/e.txt"].map(|file| place.read(&format!("set/{file}")));
    assert!(after[0] != before[0] && after[1] == before[1]);
    // What was found keeps its line.
    let [after, before] = [after, before].map(|[text, _]| text.unwrap_or_default());
    assert_eq!(before.lines().filter(|line| after.contains(line)).count(), 2, "{before}{after}");
}

#[test]
fn evaluations_follow_masks_before_the_next_run() {
    for formats in [&[Format::Masks, Format::Coco][..], &ALL[..]] {
        let (place, mut run) = labelled(formats);
        edit(&place, "set");
        // The box of `e` stays.
        let ring =
            shape(|x, y| (2..12).contains(&x) && (6..16).contains(&y) && !((5..9).contains(&x) && y == 10));
        write(&place, "set/masks/train/e/dog-0.png", &ring);
        let own = bytes_below(&place.path("set"));
        let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
        let counts: Vec<usize> = truth.image_ids().iter().map(|id| truth.instances(*id).len()).collect();
        assert_eq!(counts, [3, 2, 4, 0, 3]);
        for (id, mask) in [(0, changed(22, 2)), (2, changed(30, 40)), (4, ring)] {
            let instances = truth.instances(truth.image_ids()[id]);
            assert!(instances.iter().any(|one| one.mask.as_ref() == Some(&mask)), "{id}: {instances:?}");
        }
        assert!(truth.notes().len() == 1 && truth.notes()[0].contains("5 images"), "{:?}", truth.notes());
        assert!(bytes_below(&place.path("set")) == own, "nothing is written");
        // The annotations have them after the next run, whether they are outlines or pixels.
        for polygons in [false, true] {
            run.options.polygons = polygons;
            label(&place, &run).expect("nothing is new");
            let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
            assert_eq!(truth.notes(), [] as [String; 0], "{polygons}");
        }
    }
}

/// Gives the annotation of an image with this left edge another mask, and its box.
fn annotate(place: &Place, name: &str, left: f64, mask: &Mask) {
    let text = place.read("set/annotations.json").expect("it is there");
    let mut coco: Value = serde_json::from_str(&text).expect("it is JSON");
    let images = coco["images"].as_array().cloned().expect("a list");
    let is_it = |image: &&Value| image["file_name"].as_str().is_some_and(|file| file.ends_with(name));
    let id = images.iter().find(is_it).expect("it is there")["id"].clone();
    let all = coco["annotations"].as_array_mut().expect("a list");
    let own = all.iter_mut().find(|one| one["image_id"] == id && one["bbox"][0] == left);
    let own = own.expect("it is there");
    own["segmentation"] = serde_json::to_value(mask).expect("plain data");
    own["bbox"] = mask.bounding_box().expect("it has pixels").to_ltwh().to_vec().into();
    place.write("set/annotations.json", &coco.to_string());
}

#[test]
fn of_masks_and_annotations_what_was_corrected_last_counts() {
    for formats in [&[Format::Masks, Format::Coco][..], &ALL[..]] {
        let (place, run) = labelled(formats);
        let check = |what: &str, expected: [Mask; 3]| {
            let own = masks(&place, "set");
            for _ in 0..2 {
                let unclear = label(&place, &run).expect("nothing is new").unclear;
                let is_named = unclear.iter().any(|line| line.starts_with(what));
                assert!(unclear.len() == usize::from(!what.is_empty()), "{what}: {unclear:?}");
                assert!(is_named || what.is_empty(), "{what}: {unclear:?}");
                assert!(masks(&place, "set") == own, "{what}: the masks are the person's");
                let there = found_masks(&place, "a.png");
                assert!(there.len() == 3 && expected.iter().all(|mask| there.contains(mask)), "{what}");
            }
        };
        let annotations = "annotations.json, a.png: other labels";
        write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
        check("", [square(2, 2), changed(22, 2), square(42, 2)]);
        // The masks stay without what is in the annotations.
        annotate(&place, "a.png", 2.0, &changed(2, 2));
        check("masks/train/a/: other masks", [changed(2, 2), changed(22, 2), square(42, 2)]);
        write(&place, "set/masks/train/a/dog-2.png", &changed(42, 2));
        check(annotations, [square(2, 2), changed(22, 2), changed(42, 2)]);
        // Both at once: a change of the annotations counts.
        annotate(&place, "a.png", 2.0, &changed(2, 2));
        write(&place, "set/masks/train/a/dog-1.png", &changed(24, 2));
        check("masks/train/a/: other masks", [changed(2, 2), changed(22, 2), changed(42, 2)]);
        // Until the masks say the same.
        write(&place, "set/masks/train/a/dog-0.png", &changed(2, 2));
        write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
        check("", [changed(2, 2), changed(22, 2), changed(42, 2)]);
    }
}

#[test]
fn what_is_no_mask_is_named_and_changes_nothing() {
    let (place, run) = labelled(&ALL);
    let before = place.read("set/annotations.json");
    let small = image::GrayImage::from_pixel(8, 8, image::Luma([255]));
    let dim = image::GrayImage::from_pixel(SIDE, SIDE, image::Luma([1]));
    let encoded = |image: &image::GrayImage| {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, image::ImageFormat::Png).expect("memory");
        bytes.into_inner()
    };
    let cases = [
        ("dog-0.png", b"no mask".to_vec(), "dog-0.png: "),
        (
            "dog-0.png",
            encoded(&small),
            "dog-0.png: it has 8 × 8 pixels, expected those of the image, 64 × 64",
        ),
        ("dog-3.png", encoded(&dim), "dog-3.png: its brightest pixel has 1, expected 255"),
        ("cow-0.png", encoded(&dim), "cow-0.png: expected a class and a number, such as dog-7.png"),
    ];
    for (file, bytes, why) in cases {
        // A change that could be followed does not count, either.
        place.remove("set/masks/train/a/dog-2.png");
        std::fs::write(place.path(&format!("set/masks/train/a/{file}")), &bytes).expect("a temporary folder");
        let own = masks(&place, "set");
        for _ in 0..2 {
            let summary = label(&place, &run).expect("nothing is new");
            let is_named =
                summary.unclear.len() == 1 && summary.unclear[0].starts_with(&format!("masks/train/a/{why}"));
            assert!(is_named, "{why}: {:?}", summary.unclear);
            assert!(masks(&place, "set") == own && place.read("set/annotations.json") == before, "{why}");
        }
        Truth::open(&place.path("set/annotations.json")).expect_err("a file is not followed");
        drop(std::fs::remove_file(place.path(&format!("set/masks/train/a/{file}"))));
        write(&place, "set/masks/train/a/dog-2.png", &square(42, 2));
        write(&place, "set/masks/train/a/dog-0.png", &square(2, 2));
    }
    // It has what was found again.
    assert!(label(&place, &run).expect("nothing is new").unclear.is_empty());
    assert_eq!(place.read("set/annotations.json"), before);
    // Other files in the folder are nobody's concern.
    place.write("set/masks/train/e/preview.png", "mine");
    assert_eq!(label(&place, &run).expect("nothing is new").corrected, ["a.png"]);
    // A folder that is missing is no correction of its images.
    std::fs::remove_dir_all(place.path("set/masks")).expect("it is there");
    let unclear = label(&place, &run).expect("nothing is new").unclear;
    assert!(
        unclear.len() == 5 && unclear.iter().all(|line| line.ends_with(": it was removed")),
        "{unclear:?}"
    );
    assert_eq!(place.read("set/annotations.json"), before);
}

#[test]
fn masks_are_known_by_their_pixels_whatever_their_numbers_are() {
    let (place, run) = labelled(&ALL);
    let text = place.read("set/labels/train/a.txt").unwrap_or_default();
    let rest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    place.write("set/labels/train/a.txt", &rest);
    label(&place, &run).expect("nothing is new");
    // What was `dog-2` is `dog-1` now.
    assert_eq!(masks(&place, "set").keys().filter(|file| file.starts_with("train/a/")).count(), 2);
    write(&place, "set/masks/train/a/dog-1.png", &changed(42, 2));
    // A mask that is saved again, by a program that writes colours, is the same.
    let path = place.path("set/masks/train/a/dog-0.png");
    image::open(&path).expect("a mask").into_rgb8().save(&path).expect("a temporary folder");
    let own = masks(&place, "set");
    for _ in 0..2 {
        let summary = label(&place, &run).expect("nothing is new");
        assert!(summary.unclear.is_empty() && masks(&place, "set") == own, "{:?}", summary.unclear);
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(&*rest));
        let own: Vec<Mask> = found_masks(&place, "a.png");
        assert_eq!(own, [square(22, 2), changed(42, 2)]);
    }
    // The first file counts if they say something else; both stay.
    place.write("set/labels/train/a.txt", "");
    for _ in 0..2 {
        let unclear = label(&place, &run).expect("nothing is new").unclear;
        assert!(unclear.len() == 1 && unclear[0].starts_with("masks/train/a/: other labels"), "{unclear:?}");
        assert!(masks(&place, "set") == own && place.read("set/labels/train/a.txt").as_deref() == Some(""));
        assert!(found_masks(&place, "a.png").is_empty());
    }
}

/// The masks in `annotations.json`, whose boxes may be others.
fn found_masks(place: &Place, name: &str) -> Vec<Mask> {
    let truth = Truth::open(&place.path("set/annotations.json")).or_else(|_| {
        std::fs::copy(place.path("set/annotations.json"), place.path("copy.json")).expect("it is there");
        Truth::open(&place.path("copy.json"))
    });
    let truth = truth.expect("it was written");
    let image = truth.images().iter().find(|image| image.file_name.ends_with(name)).expect("it is there");
    truth.instances(image.id).into_iter().filter_map(|one| one.mask).collect()
}

#[test]
fn polygons_that_were_corrected_count_before_masks() {
    let (place, run) = labelled(&ALL);
    let share = |value: f64| value / f64::from(SIDE);
    let [left, right, top, low] = [22.0, 30.0, 2.0, 12.0].map(share);
    let text = place.read("set/segments/labels/train/a.txt").unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[1] = format!("0 {left} {top} {right} {top} {right} {low} {left} {low}");
    let text = lines.join("\n");
    place.write("set/segments/labels/train/a.txt", &text);
    assert!(label(&place, &run).expect("nothing is new").unclear.is_empty(), "the masks follow");
    write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
    let own = masks(&place, "set");
    for _ in 0..2 {
        let unclear = label(&place, &run).expect("nothing is new").unclear;
        assert!(unclear.len() == 1 && unclear[0].starts_with("masks/train/a/: other masks"), "{unclear:?}");
        assert!(masks(&place, "set") == own);
        assert_eq!(place.read("set/segments/labels/train/a.txt").as_deref(), Some(&*text));
        assert!(!found_masks(&place, "a.png").contains(&changed(22, 2)));
    }
}

#[test]
fn classes_that_are_added_are_found_beside_masks_that_were_corrected() {
    for is_followed in [false, true] {
        let (place, mut run) = labelled(&ALL);
        edit(&place, "set");
        if is_followed {
            label(&place, &run).expect("nothing is new");
        }
        let own = masks(&place, "set");
        run.classes.push("cat");
        for _ in 0..2 {
            let summary = label(&place, &run).expect("a class can be added");
            assert!(summary.unclear.is_empty(), "{:?}", summary.unclear);
            let instances: Vec<u64> = summary.classes.iter().map(|class| class.instances).collect();
            assert_eq!(instances, [12, 15], "{is_followed}");
            let now = masks(&place, "set");
            let is_persons = |file: &String| !file.starts_with("train/e/");
            let now: Vec<_> = now.iter().filter(|(file, _)| is_persons(file)).collect();
            assert!(
                now == own.iter().filter(|(file, _)| is_persons(file)).collect::<Vec<_>>(),
                "{is_followed}"
            );
        }
        // One that is added later says nothing about the new class.
        write(&place, "set/masks/train/b/dog-9.png", &changed(30, 40));
        assert_eq!(label(&place, &run).expect("nothing is new").classes[1].instances, 15);
        // A person's mask of an object that was found is that object.
        write(&place, "set/masks/train/b/cat-0.png", &changed(2, 23));
        let summary = label(&place, &run).expect("nothing is new");
        assert_eq!(summary.classes[1].instances, 15);
        assert!(found_masks(&place, "b.png").contains(&changed(2, 23)));
        // Other classes mean other files.
        run.classes = vec!["cat", "dog"];
        run.existing.restart = true;
        label(&place, &run).expect_err("masks were corrected");
    }
}

#[test]
fn masks_that_were_corrected_are_not_left_behind_and_can_be_discarded() {
    for file in ["a/dog-1.png", "b/dog-0.png", "c/dog-7.png", "d"] {
        let (place, run) = labelled(&ALL);
        let before = bytes_below(&place.path("set"));
        edit(&place, "set");
        let own = masks(&place, "set");
        let error =
            label(&place, &run_with(&[Format::Yolo, Format::Coco])).expect_err("masks were corrected");
        assert!(error.to_string().contains(&format!("masks/train/{file}")), "{error}");
        assert!(masks(&place, "set") == own);
        // An empty folder stays, and says that there are no instances.
        label(&place, &run_with(&[Format::Yolo, Format::Masks, Format::Coco])).expect("nothing is lost");
        check_edited(&place, "set");
        let existing = Existing { discard_corrections: true, ..Existing::default() };
        label(&place, &Run { existing, ..run.clone() }).expect("they are discarded");
        label(&place, &run).expect("nothing is new");
        assert!(bytes_below(&place.path("set")) == before, "{file}: as it was found");
    }
}

#[test]
fn a_page_of_an_image_whose_masks_were_corrected_is_saved_beside_them() {
    for formats in [&ALL[..], &[Format::Masks, Format::Coco]] {
        let (place, run) = labelled(formats);
        edit(&place, "set");
        label(&place, &run).expect("nothing is new");
        let own = masks(&place, "set");
        let set = CorrectedSet::open(&place.path("set")).expect("it is labelled");
        let labels = set.labels(&set.images()[0]).expect("it is labelled");
        assert_eq!(labels.instances.len(), 3);
        // As it is: the masks stay as they were drawn.
        set.save(&set.images()[0], &labels.version, &labels.instances).expect("nothing changed meanwhile");
        for _ in 0..2 {
            let summary = label(&place, &run).expect("nothing is new");
            assert!(summary.unclear.is_empty() && masks(&place, "set") == own, "{:?}", summary.unclear);
            assert!(found_masks(&place, "a.png").contains(&changed(22, 2)));
        }
        // Another number of instances is said.
        let labels = set.labels(&set.images()[0]).expect("it is labelled");
        set.save(&set.images()[0], &labels.version, &labels.instances[..1])
            .expect("nothing changed meanwhile");
        let unclear = label(&place, &run).expect("nothing is new").unclear;
        assert!(unclear.iter().any(|line| line.starts_with("masks/train/a/: other labels")), "{unclear:?}");
        assert!(masks(&place, "set") == own && found_masks(&place, "a.png").len() == 1);
    }
}

#[test]
fn an_image_that_was_replaced_keeps_masks_that_were_corrected_and_is_named() {
    let (place, run) = labelled(&ALL);
    edit(&place, "set");
    label(&place, &run).expect("nothing is new");
    let own = masks(&place, "set");
    place.image("a.png", 30);
    for _ in 0..2 {
        let summary = label(&place, &run).expect("the images can be labelled");
        assert_eq!((&summary.outdated[..], summary.unclear.len()), (&["a.png".to_owned()][..], 0));
        assert!(masks(&place, "set") == own);
        assert_eq!(found_masks(&place, "a.png").len(), 3);
    }
    write(&place, "set/masks/train/a/dog-1.png", &changed(24, 2));
    assert!(label(&place, &run).expect("nothing is new").outdated.is_empty());
}

#[test]
fn masks_of_boxes_that_moved_are_those_of_the_files() {
    let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
    let moved = |left: f64| {
        let shares = [left + 5.0, 7.0, 10.0, 10.0].map(|value| value / f64::from(SIDE));
        format!("0 {} {} {} {}\n", shares[0], shares[1], shares[2], shares[3])
    };
    place.write("set/labels/train/a.txt", &LEFT.map(|left| moved(left as f64 + 2.0)).concat());
    label(&place, &run).expect("nothing is new");
    assert_eq!(found_masks(&place, "a.png"), LEFT.map(|left| square(left + 2, 2)));
    write(&place, "set/masks/train/a/dog-2.png", &changed(42, 2));
    assert!(label(&place, &run).expect("nothing is new").unclear.is_empty());
    let masks = [square(4, 2), square(24, 2), changed(42, 2)];
    assert_eq!(found_masks(&place, "a.png"), masks);
}

fn rectangle(x: std::ops::Range<usize>, y: std::ops::Range<usize>) -> Mask {
    shape(|at, below| x.contains(&at) && y.contains(&below))
}

/// A line of YOLO's with the box of a mask.
fn line_of(class: usize, mask: &Mask) -> String {
    let [left, top, width, height] = mask.bounding_box().expect("it has pixels").to_ltwh();
    let shares = [left + width / 2.0, top + height / 2.0, width, height].map(|value| value / SIDE as f32);
    format!("{class} {} {} {} {}\n", shares[0], shares[1], shares[2], shares[3])
}

#[test]
fn of_objects_that_overlap_each_has_its_own_mask() {
    let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
    let (first, second) = (rectangle(4..24, 4..24), rectangle(13..33, 4..24));
    place.write("set/labels/train/a.txt", &(line_of(0, &first) + &line_of(0, &second)));
    // The part of the first one that is to be seen is less like it than the second one is.
    let seen = rectangle(4..10, 4..24);
    write(&place, "set/masks/train/a/dog-0.png", &seen);
    write(&place, "set/masks/train/a/dog-1.png", &second);
    place.remove("set/masks/train/a/dog-2.png");
    // In `b`, one in another one is a second object there, and none is elsewhere.
    let (big, small, other) = (rectangle(4..34, 4..34), rectangle(10..20, 10..20), rectangle(40..50, 40..50));
    place.write("set/labels/train/b.txt", &(line_of(0, &big) + &line_of(0, &small)));
    write(&place, "set/masks/train/b/dog-0.png", &big);
    write(&place, "set/masks/train/b/dog-1.png", &other);
    place.remove("set/masks/train/b/dog-2.png");
    for _ in 0..2 {
        let unclear = label(&place, &run).expect("nothing is new").unclear;
        assert!(unclear.len() == 1 && unclear[0].starts_with("masks/train/b/: other labels"), "{unclear:?}");
        assert_eq!(found_masks(&place, "a.png"), [seen.clone(), second.clone()]);
        let masks = found_masks(&place, "b.png");
        assert!(masks.len() == 2 && masks[0] == big && masks[1] != big && masks[1] != other);
    }
}

#[test]
fn a_mask_stays_if_another_object_is_removed_elsewhere() {
    for formats in [&[Format::Yolo, Format::Masks, Format::Coco][..], &ALL[..]] {
        let (place, run) = labelled(formats);
        write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
        label(&place, &run).expect("nothing is new");
        let set = CorrectedSet::open(&place.path("set")).expect("it is labelled");
        let labels = set.labels(&set.images()[0]).expect("it is labelled");
        let kept: Vec<_> = labels.instances[1..].to_vec();
        set.save(&set.images()[0], &labels.version, &kept).expect("nothing changed meanwhile");
        for _ in 0..2 {
            let unclear = label(&place, &run).expect("nothing is new").unclear;
            assert!(
                unclear.len() == 1 && unclear[0].starts_with("masks/train/a/: other labels"),
                "{unclear:?}"
            );
            let there = found_masks(&place, "a.png");
            assert!(there.len() == 2 && there.contains(&changed(22, 2)), "{there:?}");
        }
        // Until its mask is removed, too.
        place.remove("set/masks/train/a/dog-0.png");
        assert_eq!(label(&place, &run).expect("nothing is new").unclear, [""; 0]);
        assert!(found_masks(&place, "a.png").contains(&changed(22, 2)));
    }
}

#[test]
fn what_is_said_of_classes_that_were_added_does_not_contradict_masks() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
    write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
    label(&place, &run).expect("nothing is new");
    run.classes.push("cat");
    label(&place, &run).expect("a class can be added");
    let text = place.read("set/labels/train/a.txt").unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6);
    // Two of three cats are none.
    place.write("set/labels/train/a.txt", &(lines[..4].join("\n") + "\n"));
    for _ in 0..2 {
        assert_eq!(label(&place, &run).expect("nothing is new").unclear, [""; 0]);
        let there = found_masks(&place, "a.png");
        assert!(there.len() == 4 && there.contains(&changed(22, 2)), "{there:?}");
        Truth::open(&place.path("set/annotations.json")).expect("nothing is said twice");
    }
}

#[test]
fn masks_beside_labels_that_were_corrected_are_evaluated_before_the_next_run() {
    let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
    let text = place.read("set/labels/train/a.txt").unwrap_or_default();
    let rest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    place.write("set/labels/train/a.txt", &rest);
    label(&place, &run).expect("nothing is new");
    let ring =
        shape(|x, y| (22..32).contains(&x) && (2..12).contains(&y) && !((25..29).contains(&x) && y == 6));
    write(&place, "set/masks/train/a/dog-0.png", &ring);
    let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
    let before: Vec<_> = truth.instances(truth.image_ids()[0]).into_iter().map(|one| one.mask).collect();
    assert!(before.len() == 2 && before.contains(&Some(ring.clone())), "{before:?}");
    assert_eq!(truth.notes().len(), 1);
    // Label files of boxes have no masks, whatever is beside them.
    let boxes = Truth::open(&place.path("set/data.yaml")).expect("it follows");
    let instances = boxes.instances(boxes.image_ids()[0]);
    assert!(instances.len() == 2 && instances.iter().all(|one| one.mask.is_none()), "{instances:?}");
    assert_eq!(label(&place, &run).expect("nothing is new").unclear, [""; 0]);
    assert!(found_masks(&place, "a.png").contains(&ring));
}

/// Moves a folder or file of an image to the other split.
fn move_to_val(place: &Place, train: &str) {
    let to = place.path(&train.replace("/train/", "/val/"));
    std::fs::create_dir_all(to.parent().expect("it has one")).expect("a temporary folder");
    std::fs::rename(place.path(train), to).expect("it is there");
}
