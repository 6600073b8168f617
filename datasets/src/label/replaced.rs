//! An image is its content: labels never describe another one than the one beside them, whatever has its name.

use std::fs::File;
use std::path::PathBuf;

use ocelli::{BoundingBox, ErrorKind, Mask};
use serde_json::Value;

use crate::label::disk::REFUSES_HARD_LINKS;
use crate::label::folders::{MINE, Place, Run, copies, text_of};
use crate::label::run::SearchedImage;
use crate::label::{CorrectedSet, Existing, Format, ImageMode, LabelledInstance, Shard, merge};

fn with_formats(formats: &[Format]) -> Run {
    let mut run = Run::default();
    run.options.formats = formats.to_vec();
    run
}

fn labelled(run: &Run, images: &[(&str, usize)]) -> Place {
    let place = Place::new();
    place.images(images);
    place.label(run).expect("the images can be labelled");
    place
}

/// Replaces an image by a new file.
fn replace(place: &Place, name: &str, length: usize) {
    place.write("new", &"x".repeat(length));
    std::fs::rename(place.path("new"), place.path(name)).expect("it can");
}

#[test]
fn our_copy_of_an_image_that_was_replaced_is_replaced_in_every_mode() {
    let link = Run::default();
    let cases = [
        (Run { options: copies(), ..Run::default() }, link.clone(), false),
        (with_formats(&[Format::Yolo, Format::Coco]), link, false),
        (with_formats(&[Format::Coco]), with_formats(&[Format::Coco]), true),
        (with_formats(&[Format::Voc]), with_formats(&[Format::Voc]), false),
    ];
    let mut wrong = Vec::new();
    for (case, (first, then, is_moved)) in cases.into_iter().enumerate() {
        let place = labelled(&first, &[("a.png", 21), ("b.png", 42)]);
        if is_moved {
            for name in ["a", "b"] {
                let path = place.path(&format!("set/images/train/{name}.png"));
                let time = path.metadata().and_then(|meta| meta.modified()).expect("it has one");
                std::fs::copy(&path, place.path("new")).expect("it can");
                let new = File::options().write(true).open(place.path("new")).expect("it is there");
                new.set_modified(time).expect("it can");
                std::fs::rename(place.path("new"), path).expect("it can");
            }
        }
        REFUSES_HARD_LINKS.set(is_moved);
        replace(&place, "images/a.png", 25);
        replace(&place, "images/b.png", 45);
        let summary = place.label(&then).expect("the images can be labelled");
        REFUSES_HARD_LINKS.set(false);
        let folder = if then.options.has(Format::Voc) { "voc/JPEGImages" } else { "images/train" };
        for (name, length) in [("a", 25), ("b", 45)] {
            let there = place.read(&format!("set/{folder}/{name}.png")).unwrap_or_default();
            if there.len() != length || !summary.edited.is_empty() {
                wrong.push(format!("case {case}, {name}: {} bytes, {:?}", there.len(), summary.edited));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_data_set_that_was_restored_without_times_is_not_edited() {
    let run = Run { options: copies(), ..Run::default() };
    let place = labelled(&run, &[("a.png", 21), ("b.png", 42), ("c.png", 12)]);
    place.write("set/labels/train/a.txt", MINE);
    for name in ["a", "b", "c"] {
        let path = format!("set/images/train/{name}.png");
        place.write(&path, &place.read(&path).expect("it was copied"));
    }
    // A change of the middle alone, as large as before.
    place.write("set/images/train/c.png", "xxxxxx.xxxxx");
    let summary = place.label(&run).expect("the images can be labelled");
    assert_eq!((summary.edited, summary.outdated), (vec!["c.png".to_owned()], vec![]));
    // The copies have their times again: another image replaces them.
    replace(&place, "images/b.png", 45);
    let summary = place.label(&run).expect("the images can be labelled");
    assert_eq!(summary.edited, ["c.png"]);
    assert_eq!(place.read("set/images/train/b.png").map(|there| there.len()), Some(45));
    assert_eq!(place.read("set/labels/train/b.txt"), Some(text_of(45, Format::Yolo)));
    assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE));
}

/// Two cameras with equal names.
fn cameras() -> Place {
    let place = Place { images: "cam1".into(), ..Place::new() };
    for number in 0..8 {
        place.write(&format!("cam1/{number}.png"), &"x".repeat(10 + number));
        place.write(&format!("cam2/{number}.png"), &"x".repeat(30 + number));
    }
    place
}

#[test]
fn parts_with_other_histories_are_joined_without_losing_or_doubling_images() {
    let shard =
        |index| Run { output: format!("part-{index}"), shard: Shard::new(index, 2).ok(), ..Run::default() };
    let mut place = cameras();
    // On the first day, one machine was down, and the other labelled the second camera alone.
    place.images = "cam2".into();
    place.label(&shard(1)).expect("it can be labelled");
    let corrected = (0..8).find(|number| place.read(&format!("part-1/labels/train/{number}.txt")).is_some());
    let corrected = corrected.expect("the shard has images");
    place.write(&format!("part-1/labels/train/{corrected}.txt"), MINE);
    for order in [["cam1", "cam2"], ["cam2", "cam1"]] {
        (place.images, place.also) = (order[0].into(), Some(order[1].into()));
        for index in [1, 2] {
            place.label(&shard(index)).expect("it can be labelled");
        }
        let parts: Vec<PathBuf> = [1, 2].map(|index| place.path(&format!("part-{index}"))).to_vec();
        for _ in 0..2 {
            let summary = merge(&parts, &place.path("joined"), &mut || Ok(())).expect("they belong together");
            assert_eq!((summary.images, summary.corrected.len()), (16, 1));
            let mut found = Vec::new();
            for number in 0..8 {
                for name in [format!("{number}"), format!("{number}-2")] {
                    let length =
                        place.read(&format!("joined/images/train/{name}.png")).unwrap_or_default().len();
                    let label = place.read(&format!("joined/labels/train/{name}.txt")).unwrap_or_default();
                    let is_mine = length == 30 + corrected && label == MINE;
                    assert!(is_mine || label == text_of(length, Format::Yolo), "{name}: {length}, {label}");
                    found.push(length);
                }
            }
            found.sort_unstable();
            assert_eq!(found, (10..18).chain(30..38).collect::<Vec<_>>());
        }
    }
}

#[test]
fn files_of_formats_that_are_not_named_any_more_are_removed_or_refused() {
    let formats = [Format::Yolo, Format::YoloSeg, Format::Voc, Format::Coco, Format::Masks];
    let files = [
        "segments/labels/train/a.txt",
        "segments/images/train/a.png",
        "segments/data.yaml",
        "voc/Annotations/a.xml",
        "voc/JPEGImages/a.png",
        "voc/ImageSets/Main/train.txt",
        "annotations.json",
        "masks/train/a/dog-0.png",
    ];
    for mode in [ImageMode::Link, ImageMode::Copy] {
        let (mut all, mut yolo) = (with_formats(&formats), with_formats(&[Format::Yolo]));
        (all.options.images, yolo.options.images) = (mode, mode);
        let place = labelled(&all, &[("a.png", 21), ("b.png", 42)]);
        let is_there = |file: &&&str| place.path(&format!("set/{file}")).symlink_metadata().is_ok();
        assert_eq!(files.iter().filter(is_there).count(), files.len());
        place.write("set/voc/Annotations/b.xml", "mine");
        let refused = place.label(&yolo).expect_err("a file is corrected");
        assert_eq!((refused.kind(), refused.parameter()), (ErrorKind::Mismatch, Some("discard_corrections")));
        assert!(refused.to_string().contains("voc/Annotations/b.xml"), "{refused}");
        assert_eq!(files.iter().filter(is_there).count(), files.len());
        // Whoever does not want it removes it.
        place.remove("set/voc/Annotations/b.xml");
        replace(&place, "images/a.png", 25);
        let summary = place.label(&yolo).expect("nothing is corrected");
        assert_eq!(files.iter().filter(is_there).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert!(summary.dropped.contains(&"voc/Annotations/a.xml".to_owned()), "{:?}", summary.dropped);
        assert_eq!(place.read("set/images/train/a.png").map(|there| there.len()), Some(25));
        assert!(place.label(&yolo).expect("nothing is new").dropped.is_empty());
    }
}

/// Removes the hashes of contents.
fn forget_contents(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("content");
            fields.values_mut().for_each(forget_contents);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_contents),
        _ => {}
    }
}

#[test]
fn an_image_of_equal_name_size_and_time_is_another_one_if_its_content_is() {
    for mode in [Run::default().options, copies()] {
        for is_known in [true, false] {
            let run = Run { options: mode.clone(), ..Run::default() };
            let place = labelled(&run, &[("a.png", 5), ("b.png", 6)]);
            if !is_known {
                // Its content could not be read.
                for file in ["state.jsonl", "journal.jsonl"] {
                    let file = format!("set/.ocelli-label/{file}");
                    let text = place.read(&file).expect("there is one");
                    let lines = text.lines().map(|line| {
                        let mut line = serde_json::from_str(line).expect("it is JSON");
                        forget_contents(&mut line);
                        format!("{line}\n")
                    });
                    place.write(&file, &lines.collect::<String>());
                }
            }
            place.write("set/labels/train/a.txt", MINE);
            let time = place.path("images/a.png").metadata().and_then(|meta| meta.modified());
            std::fs::rename(place.path("images"), place.path("unplugged")).expect("it can");
            place.write("other/a.png", "yyyyy");
            let file = File::options().write(true).open(place.path("other/a.png")).expect("it is there");
            file.set_modified(time.expect("it has one")).expect("it can");
            let place = Place { images: "other".into(), ..place };
            place.label(&run).expect("it can be labelled");
            let is_told = is_known || mode.images == ImageMode::Copy;
            let expected = is_told.then(|| "yyyyy".to_owned());
            assert_eq!(place.read("set/images/train/a-2.png"), expected, "{mode:?}, {is_known}");
        }
    }
}

#[test]
fn an_image_that_a_person_put_into_the_data_set_keeps_its_name() {
    for formats in [&[Format::Yolo][..], &[Format::Yolo, Format::YoloSeg], &[Format::Voc]] {
        let run = with_formats(formats);
        let place = labelled(&run, &[("a.png", 5)]);
        let images = if formats == [Format::Voc] { "set/voc/JPEGImages" } else { "set/images/train" };
        place.write(&format!("{images}/own.jpg"), "ooooooo");
        place.image("own.png", 9);
        place.label(&run).expect("it can be labelled");
        assert_eq!(place.read(&format!("{images}/own.jpg")).as_deref(), Some("ooooooo"));
        assert_eq!(place.read(&format!("{images}/own-2.png")), Some("x".repeat(9)), "{formats:?}");
        assert_eq!(place.read("set/labels/train/own.txt"), None);
    }
}

#[test]
fn an_image_that_a_person_put_there_after_the_first_run_was_stopped_keeps_its_name() {
    let run = Run { options: copies(), ..Run::default() };
    for writes in 1..4 {
        let place = Place::new();
        place.image("own.png", 9);
        assert!(!place.label_and_stop(&run, writes), "no image has a name yet");
        place.write("set/images/train/own.jpg", "ooooooo");
        place.label(&run).expect("it can be labelled");
        assert_eq!(place.read("set/images/train/own.jpg").as_deref(), Some("ooooooo"), "{writes} writes");
        assert_eq!(place.read("set/labels/train/own.txt"), None, "{writes} writes");
        assert_eq!(place.read("set/labels/train/own-2.txt"), Some(text_of(9, Format::Yolo)));
    }
}

#[test]
fn a_file_that_a_person_filled_and_emptied_again_is_the_persons() {
    let mut run = Run { finds_added: true, ..Run::default() };
    let place = labelled(&run, &[("a.png", 5), ("b.png", 6)]);
    let ours = place.read("set/labels/train/a.txt").expect("it is labelled");
    place.write("set/labels/train/a.txt", MINE);
    place.label(&run).expect("nothing is new");
    place.write("set/labels/train/a.txt", &ours);
    run.classes.push("cat");
    for restart in [true, false] {
        run.existing = Existing { restart, discard_corrections: false };
        place.label(&run).expect("it can be labelled");
        assert_eq!(place.read("set/labels/train/a.txt"), Some(ours.clone()), "restart {restart}");
    }
}

#[test]
fn an_image_that_was_removed_does_not_come_back_when_its_folder_is_out_of_reach() {
    let run = with_formats(&[Format::Yolo, Format::Coco]);
    let mut run = Run { options: run.options, ..Run::default() };
    run.options.images = ImageMode::Link;
    let mut place = Place::new();
    place.image("a.png", 5);
    REFUSES_HARD_LINKS.set(true);
    place.label(&run).expect("it can be labelled");
    place.image("b.png", 6);
    place.remove("images/a.png");
    assert_eq!(place.label(&run).expect("it can be labelled").removed, ["a.png"]);
    std::fs::rename(place.path("images"), place.path("away")).expect("it can");
    place.images = "others".into();
    place.image("c.png", 7);
    let summary = place.label(&run).expect("it can be labelled");
    REFUSES_HARD_LINKS.set(false);
    assert_eq!((summary.kept, summary.removed.len()), (vec!["b.png".to_owned()], 0));
    assert_eq!(place.read("set/labels/train/a.txt"), None);
    assert!(!place.read("set/annotations.json").unwrap_or_default().contains("a.png"));
}

#[test]
#[cfg(unix)]
fn a_stop_is_mended_where_the_folder_of_the_labels_is_a_link() {
    let run = Run::default();
    for writes in 0.. {
        let place = Place::new();
        place.write("store/any", "");
        place.write("set/.ocelli-label/lock", "");
        std::fs::create_dir_all(place.path("set/labels")).expect("it can");
        std::os::unix::fs::symlink(place.path("store"), place.path("set/labels/train")).expect("it can");
        place.images(&[("a.png", 5), ("b/b.png", 6)]);
        let is_ended = place.label_and_stop(&run, writes);
        let summary = place.label(&run).expect("it can be labelled");
        assert!(summary.corrected.is_empty(), "{writes} writes: {:?}", summary.corrected);
        assert_eq!(place.read("store/a.txt"), Some(text_of(5, Format::Yolo)), "{writes} writes");
        if is_ended {
            break;
        }
    }
}

#[test]
fn an_image_that_is_replaced_during_a_run_is_reported() {
    for options in [Run::default().options, copies()] {
        let run = Run { options, ..Run::default() };
        let place = Place::new();
        place.image("a.png", 5);
        let summary = place.label_while(&run, &mut || replace(&place, "images/a.png", 7));
        assert_eq!(summary.expect("it can be labelled").changed, ["a.png"]);
        assert!(place.label(&run).expect("it can be labelled").changed.is_empty());
        assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(7, Format::Yolo)));
        assert_eq!(place.read("set/images/train/a.png"), Some("x".repeat(7)));
    }
}

#[test]
fn a_merge_reports_images_that_were_replaced_since() {
    let place = Place::new();
    (0..4).for_each(|number| place.image(&format!("{number}.png"), 10 + number));
    let parts = [1, 2].map(|index| {
        let output = format!("part-{index}");
        let run = Run { output: output.clone(), shard: Shard::new(index, 2).ok(), ..Run::default() };
        place.label(&run).expect("it can be labelled");
        place.path(&output)
    });
    replace(&place, "images/1.png", 30);
    let summary = merge(&parts, &place.path("joined"), &mut || Ok(())).expect("they belong together");
    assert_eq!(summary.changed, ["1.png"]);
}

#[test]
fn every_format_follows_what_was_corrected_in_yolos_file() {
    let run = with_formats(&[Format::Yolo, Format::Voc, Format::Coco]);
    let place = labelled(&run, &[("a.png", 21), ("b.png", 42)]);
    place.write("set/labels/train/a.txt", "");
    place.write("set/labels/train/b.txt", MINE);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!((summary.corrected.len(), summary.classes[0].instances), (2, 1));
    let coco = place.read("set/annotations.json").unwrap_or_default();
    assert_eq!((coco.matches("\"bbox\"").count(), coco.matches("file_name").count()), (1, 2), "{coco}");
    let xml = |name: &str| place.read(&format!("set/voc/Annotations/{name}.xml")).unwrap_or_default();
    assert!(!xml("a").contains("<object>") && xml("b").contains("<xmin>30</xmin>"), "{}", xml("b"));
    // What is not a label is said, and changes nothing.
    for (text, line) in [("7 0.5 0.5 0.1 0.1\n", "line 1"), ("0 0.5 0.5 0.1 0.1\n0 0,5 0,5\n", "line 2")] {
        place.write("set/labels/train/a.txt", text);
        let unclear = place.label(&run).expect("nothing is new").unclear;
        assert!(
            unclear.len() == 1 && unclear[0].contains("labels/train/a.txt") && unclear[0].contains(line),
            "{unclear:?}"
        );
    }
}

#[test]
fn every_file_follows_the_one_that_was_corrected() {
    let formats = [Format::Yolo, Format::YoloSeg, Format::Voc, Format::Masks, Format::Coco];
    let voc = |objects: &str| format!("<annotation><size/>{objects}</annotation>");
    let object = "<object><name>dog</name><part><name>tail</name></part><bndbox><xmax>35</xmax><ymax>35</ymax>\
                  <xmin>30</xmin><ymin>30</ymin></bndbox></object>";
    let texts = [
        ("set/labels/train", "txt", String::new(), MINE.to_owned()),
        ("set/segments/labels/train", "txt", String::new(), "0 .45 .45 .55 .45 .55 .55 .45 .55\n".to_owned()),
        ("set/voc/Annotations", "xml", voc(""), voc(object)),
    ];
    for (corrected, extension, none, one) in &texts {
        let run = with_formats(&formats);
        let place = labelled(&run, &[("a.png", 21), ("b.png", 42), ("c.png", 63)]);
        let of = |folder: &str, name: &str| {
            let extension = if folder.contains("voc") { "xml" } else { "txt" };
            place.read(&format!("{folder}/{name}.{extension}")).unwrap_or_default()
        };
        let before = texts.each_ref().map(|(folder, ..)| of(folder, "c"));
        place.write(&format!("{corrected}/a.{extension}"), none);
        place.write(&format!("{corrected}/b.{extension}"), one);
        for _ in 0..2 {
            let summary = place.label(&run).expect("nothing is new");
            assert_eq!((summary.corrected.len(), summary.classes[0].instances), (2, 2), "{corrected}");
            assert!(summary.unclear.is_empty(), "{:?}", summary.unclear);
            assert_eq!(of(corrected, "b"), *one);
            let [yolo, segments, xml] = texts.each_ref().map(|(folder, ..)| of(folder, "b"));
            let middle = |text: &str, count: usize| {
                let numbers: Vec<f64> =
                    text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
                let near = |number: &f64| (number - 0.5).abs() < 0.06;
                numbers.len() == count && numbers[1..3].iter().all(near)
            };
            assert!(middle(&yolo, 5) && middle(&segments, 9), "{corrected}: {yolo}, {segments}");
            assert!(xml.matches("<object>").count() == 1 && xml.contains("<xmin>30<"), "{corrected}: {xml}");
            let [yolo, segments, xml] = texts.each_ref().map(|(folder, ..)| of(folder, "a"));
            assert!(yolo.is_empty() && segments.is_empty() && !xml.contains("<object>"), "{corrected}");
            let masks =
                ["a", "b", "c"].map(|name| place.path(&format!("set/masks/train/{name}/dog-0.png")).exists());
            assert_eq!(masks, [false, true, true], "{corrected}");
            assert_eq!(texts.each_ref().map(|(folder, ..)| of(folder, "c")), before, "{corrected}");
            let coco = place.read("set/annotations.json").unwrap_or_default();
            assert_eq!(coco.matches("\"bbox\"").count(), 2, "{coco}");
        }
    }
}

#[test]
fn what_stays_where_it_was_keeps_its_mask_and_what_cannot_be_read_is_said() {
    let run = with_formats(&[Format::Yolo, Format::Masks, Format::Voc]);
    let place = labelled(&run, &[("a.png", 21), ("b.png", 42)]);
    let mask = || std::fs::read(place.path("set/masks/train/a/dog-0.png")).ok();
    let was = mask();
    // A tool added a score.
    place.write("set/labels/train/a.txt", &text_of(21, Format::Yolo).replace('\n', " 0.7\n"));
    place.label(&run).expect("nothing is new");
    assert!(was.is_some() && mask() == was);
    for text in [
        "no annotation",
        "<annotation><object>",
        "<annotation><object><name>cow</name></object></annotation>",
    ] {
        place.write("set/voc/Annotations/b.xml", text);
        let summary = place.label(&run).expect("nothing is new");
        assert!(
            summary.unclear.len() == 1 && summary.unclear[0].starts_with("voc/Annotations/b.xml: "),
            "{:?}",
            summary.unclear
        );
        assert_eq!(place.read("set/labels/train/b.txt"), Some(text_of(42, Format::Yolo)));
    }
    place.write("set/masks/train/b/dog-0.png", "mine");
    assert_eq!(place.label(&run).expect("nothing is new").unclear.len(), 2);
}

#[test]
fn a_folder_that_is_missing_empties_no_other_file() {
    let run = with_formats(&[Format::Yolo, Format::YoloSeg, Format::Voc, Format::Coco]);
    let place = labelled(&run, &[("a.png", 21), ("b.png", 42)]);
    for folder in ["set/voc", "set/segments"] {
        std::fs::remove_dir_all(place.path(folder)).expect("it is there");
        let summary = place.label(&run).expect("nothing is new");
        assert!(summary.unclear.iter().all(|line| line.contains("it was removed")), "{:?}", summary.unclear);
        assert_eq!(summary.classes[0].instances, 2, "{folder}");
        assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(21, Format::Yolo)), "{folder}");
    }
}

#[test]
fn a_mask_that_a_person_drew_reaches_every_file() {
    let run = with_formats(&[Format::Yolo, Format::YoloSeg, Format::Coco, Format::Masks]);
    let place = labelled(&run, &[("a.png", 21), ("b.png", 42)]);
    let set = CorrectedSet::open(&place.path("set")).expect("it is labelled");
    let image = set.images()[0].clone();
    let labels = set.labels(&image).expect("it is labelled");
    let (width, height) = (image.width, image.height);
    // Three quarters of its box.
    let is_in = |x: u32, y: u32| (10..30).contains(&x) && (10..30).contains(&y) && (x < 20 || y < 20);
    // Another object is in front of it.
    let is_small = |x: u32, y: u32| (12..18).contains(&x) && (12..18).contains(&y);
    let small: Vec<u8> =
        (0..height).flat_map(|y| (0..width).map(move |x| u8::from(is_small(x, y)))).collect();
    let small = Mask::from_bitmap(&small, width, height).expect("the size is right");
    let bitmap: Vec<u8> = (0..height).flat_map(|y| (0..width).map(move |x| u8::from(is_in(x, y)))).collect();
    let mask = Mask::from_bitmap(&bitmap, width, height).expect("the size is right");
    let drawn = LabelledInstance {
        line: None,
        class: 0,
        bbox: BoundingBox::default(),
        polygon: None,
        mask: Some(mask.clone()),
    };
    let in_front = LabelledInstance { mask: Some(small.clone()), ..drawn.clone() };
    set.save(&image, &labels.version, &[labels.instances[0].clone(), drawn.clone(), in_front])
        .expect("nothing changed meanwhile");
    let summary = place.label(&run).expect("nothing is new");
    assert!(summary.unclear.is_empty(), "{:?}", summary.unclear);
    for (number, mask, least) in [(1, &mask, 0.85), (2, &small, 0.65)] {
        let stem = image.name.trim_end_matches(".png");
        let file = place.path(&format!("set/masks/train/{stem}/dog-{number}.png"));
        let written = ocelli::mask::read_mask_png(&file).expect("it is a mask").remove(0).1;
        assert!(written.iou(mask).expect("they are as large") > least, "{number}: {} pixels", written.area());
    }
    let coco: Value =
        serde_json::from_str(&place.read("set/annotations.json").unwrap_or_default()).expect("JSON");
    let area = coco["annotations"][1]["area"].as_f64().unwrap_or_default();
    assert!((area - 300.0).abs() < 45.0, "{area}");
}

#[test]
fn what_is_done_before_a_stop_can_be_trained_on() {
    let (place, run) = (Place::new(), Run::default());
    place.images(&[("a.png", 5), ("b.png", 6)]);
    let mut job = place.open(&run).expect("a new data set");
    let file = job.todo.remove(0);
    let found = crate::label::folders::detect(&file.path);
    let identity = crate::label::source::identity(&file.path);
    let seen = SearchedImage { file: &file, identity, found, first: 0, classes: vec![0], device: 0 };
    job.finish_image(seen, &mut |_| Ok(())).expect("there is room");
    job.data.stopped().expect("there is room");
    assert!(place.read("set/data.yaml").is_some() && place.read("set/classes.txt").is_some());
}

#[test]
fn an_image_that_is_replaced_before_it_is_searched_for_added_classes_is_labelled_again() {
    let mut run = Run { finds_added: true, ..Run::default() };
    let place = labelled(&run, &[("a.png", 5), ("b.png", 6)]);
    run.classes.push("cat");
    let mut is_done = false;
    let summary = place.label_while(&run, &mut || {
        if !std::mem::replace(&mut is_done, true) {
            replace(&place, "images/b.png", 9);
        }
    });
    assert_eq!(summary.expect("they can be labelled").changed, ["b.png"]);
    let classes = || -> Vec<String> {
        let text = place.read("set/labels/train/b.txt").unwrap_or_default();
        text.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
    };
    assert_eq!(classes(), ["1"], "what was found in the earlier image is not beside this one");
    assert!(place.label(&run).expect("it can be labelled").changed.is_empty());
    assert_eq!(classes(), ["0", "1"]);
}

#[test]
fn an_edited_image_whose_source_was_moved_does_not_prevent_another_format() {
    let mut run = Run { options: copies(), finds_added: true, ..Run::default() };
    let mut place = labelled(&run, &[("a.png", 5), ("b.png", 6)]);
    place.write("new", "edited");
    std::fs::rename(place.path("new"), place.path("set/images/train/a.png")).expect("it can");
    std::fs::rename(place.path("images"), place.path("moved")).expect("it can");
    place.images = "moved".into();
    run.classes.push("cat");
    run.options.formats.push(Format::Voc);
    assert_eq!(place.label(&run).expect("its source is there").edited, ["a.png"]);
    assert_eq!(place.read("set/images/train/a.png").as_deref(), Some("edited"));
}

#[test]
fn a_removed_label_file_is_reported_when_its_format_is_named_again_after_the_image_was_replaced() {
    let (yolo, coco) = (with_formats(&[Format::Yolo]), with_formats(&[Format::Coco]));
    let place = labelled(&yolo, &[("a.png", 5), ("b.png", 6)]);
    place.remove("set/labels/train/a.txt");
    place.label(&coco).expect("nothing is overwritten");
    replace(&place, "images/a.png", 8);
    place.label(&coco).expect("nothing is overwritten");
    for _ in 0..2 {
        assert_eq!(place.label(&yolo).expect("nothing is overwritten").outdated, ["a.png"]);
        assert_eq!(place.read("set/labels/train/a.txt"), None);
    }
}
