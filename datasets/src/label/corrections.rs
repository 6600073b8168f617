//! Corrections stay, in every situation that lost one once.

use ocelli::ErrorKind;

use crate::label::folders::{MINE, Place, Run, copies, detect, text_of};
use crate::label::run::SearchedImage;
use crate::label::{Format, ImageMode, Shard, identity, merge};

fn labelled(images: &[(&str, usize)]) -> (Place, Run) {
    let (place, run) = (Place::new(), Run::default());
    place.images(images);
    place.label(&run).expect("the images can be labelled");
    (place, run)
}

#[test]
fn emptied_and_removed_label_files_stay() {
    let (place, run) = labelled(&[("a.png", 1), ("b.png", 2), ("c.png", 3)]);
    assert_eq!(place.read("set/labels/train/c.txt"), Some(text_of(3, Format::Yolo)));
    place.write("set/labels/train/a.txt", "");
    place.remove("set/labels/train/b.txt");
    for length in [3, 4] {
        // The second run labels another image.
        place.image("c.png", length);
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(""));
        assert_eq!(place.read("set/labels/train/b.txt"), None);
        assert_eq!(place.read("set/labels/train/c.txt"), Some(text_of(length, Format::Yolo)));
    }
}

#[test]
fn a_stop_at_every_write_loses_nothing() {
    let images: Vec<(String, usize)> = (0..5).map(|i| (format!("{i}.png"), 10 + i)).collect();
    let mut run = Run::default();
    run.options.formats = vec![Format::Yolo, Format::YoloSeg, Format::Coco];
    let set = |place: &Place| {
        images.iter().for_each(|(name, length)| place.image(name, *length));
        // A set that is there already, and changes.
        place.image("4.png", 99);
    };
    let mut writes = 0;
    loop {
        let place = Place::new();
        set(&place);
        assert!(place.label(&run).is_ok());
        place.image("4.png", 14);
        place.image("5.png", 15);
        let ended = place.label_and_stop(&run, writes);
        // The person corrects one file of each kind after the stop.
        let label = |number: usize| format!("set/labels/train/{number}.txt");
        place.write(&label(0), "");
        place.remove(&label(1));
        place.write(&label(4), MINE);
        let was_new = place.read(&label(5)).is_some();
        if was_new {
            place.remove(&label(5));
        }
        place.label(&run).unwrap_or_else(|e| panic!("after {writes} writes: {e}"));
        let expected = [Some(""), None, Some(&*text_of(12, Format::Yolo))];
        let found: Vec<_> = (0..3).map(|number| place.read(&label(number))).collect();
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{writes} writes");
        assert_eq!(place.read(&label(4)).as_deref(), Some(MINE), "{writes} writes");
        let new = (!was_new).then(|| text_of(15, Format::Yolo));
        assert_eq!(place.read(&label(5)), new, "{writes} writes");
        // What the person made of the boxes reaches the polygons.
        let polygons = ["0", "5"].map(|name| place.read(&format!("set/segments/labels/train/{name}.txt")));
        let new = if was_new { String::new() } else { text_of(15, Format::YoloSeg) };
        assert_eq!(polygons, [Some(String::new()), Some(new)], "{writes} writes");
        let names = place.read("set/annotations.json").unwrap_or_default();
        assert_eq!(names.matches("file_name").count(), 6, "{writes} writes");
        if ended {
            break;
        }
        writes += 1;
    }
    assert!(writes > 20, "{writes} writes");
}

#[test]
fn corrections_survive_a_moved_image_folder() {
    let (mut place, run) = labelled(&[("a.png", 1), ("b/b.png", 2)]);
    place.write("set/labels/train/a.txt", MINE);
    std::fs::rename(place.path("images"), place.path("mount")).expect("a temporary folder");
    place.images = "mount".into();
    place.label(&run).expect("the images can be labelled");
    assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE));
    assert_eq!(place.read("set/images/train/b/b.png").as_deref(), Some("xx"));
}

#[test]
fn images_that_are_not_named_keep_labels_and_copies() {
    for options in [Run::default().options, copies()] {
        let place = Place::new();
        let mut run = Run { options, ..Run::default() };
        run.options.formats.push(Format::Coco);
        place.images(&[("a.png", 1), ("b.png", 2)]);
        place.label(&run).expect("the images can be labelled");
        place.write("set/labels/train/b.txt", MINE);
        let others = Place { images: "others".into(), ..place };
        others.image("c.png", 3);
        let summary = others.label(&run).expect("the images can be labelled");
        assert_eq!(summary.kept, ["a.png", "b.png"]);
        assert_eq!(others.read("set/labels/train/a.txt"), Some(text_of(1, Format::Yolo)));
        assert_eq!(others.read("set/labels/train/b.txt").as_deref(), Some(MINE));
        assert_eq!(others.read("set/images/train/a.png").as_deref(), Some("x"));
        let coco = others.read("set/annotations.json").unwrap_or_default();
        assert_eq!(coco.matches("file_name").count(), 3, "{coco}");
        assert_eq!(others.read("set/labels/train/c.txt"), Some(text_of(3, Format::Yolo)));
    }
}

#[test]
#[cfg(unix)]
fn unreadable_images_keep_their_labels() {
    let (place, mut run) = (Place::new(), Run::default());
    run.options.formats = vec![Format::Yolo, Format::Coco];
    for (name, length) in [("a.png", 1), ("b.png", 2)] {
        place.write(&format!("disk/{name}"), &"x".repeat(length));
        std::fs::create_dir_all(place.path("images")).expect("a temporary folder");
        let link = place.path(&format!("images/{name}"));
        std::os::unix::fs::symlink(place.path(&format!("disk/{name}")), link).expect("a temporary folder");
    }
    place.label(&run).expect("the images can be labelled");
    place.write("set/labels/train/a.txt", "");
    for (from, to, failed) in [("disk", "gone", 2), ("gone", "disk", 0)] {
        std::fs::rename(place.path(from), place.path(to)).expect("a temporary folder");
        let summary = place.label(&run).expect("the images can be labelled");
        assert_eq!(summary.failed, failed);
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(""));
        assert_eq!(place.read("set/labels/train/b.txt"), Some(text_of(2, Format::Yolo)));
        let coco = place.read("set/annotations.json").unwrap_or_default();
        assert_eq!(coco.matches("file_name").count(), 2, "{coco}");
    }
}

#[test]
fn images_stay_in_their_split() {
    let place = Place::new();
    let names: Vec<String> = (0..12).map(|i| format!("{i}.png")).collect();
    names[..2].iter().for_each(|name| place.image(name, 5));
    let mut run = Run::default();
    let split_of = |place: &Place, name: &str| {
        let label = |split| place.read(&format!("set/labels/{split}/{}.txt", name.trim_end_matches(".png")));
        (label("train"), label("val"))
    };
    run.options.validation_share = 0.01;
    place.label(&run).expect("the images can be labelled");
    let before = [split_of(&place, "0.png"), split_of(&place, "1.png")];
    assert!(before.iter().any(|split| split.1.is_some()), "{before:?}");
    let file = if before[0].0.is_some() { "set/labels/train/0.txt" } else { "set/labels/val/0.txt" };
    place.write(file, MINE);
    for share in [0.01, 0.5, 0.99] {
        names.iter().for_each(|name| place.image(name, 5));
        run.options.validation_share = share;
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read(file).as_deref(), Some(MINE), "{share}");
        for name in &names {
            let (train, val) = split_of(&place, name);
            assert!(train.is_some() != val.is_some(), "{share}, {name}");
        }
        assert_eq!(split_of(&place, "1.png"), before[1], "{share}");
    }
}

#[test]
fn an_empty_or_corrupt_state_is_an_error() {
    for (state, content) in [("state.jsonl", ""), ("journal.jsonl", ""), ("state.jsonl", "middle")] {
        let (place, mut run) = labelled(&[("a.png", 1)]);
        place.image("b.png", 2);
        place.label(&run).expect("the images can be labelled");
        place.write("set/labels/train/a.txt", MINE);
        let file = format!("set/.ocelli-label/{state}");
        let whole = place.read(&file).unwrap_or_default();
        let lines: Vec<&str> = whole.lines().collect();
        let damaged = format!("{}\n[\n{}\n", lines[0], lines[lines.len() - 1]);
        place.write(&file, if content == "middle" { &damaged } else { content });
        let error = place.label(&run).expect_err(state);
        assert!(error.kind() == ErrorKind::InvalidData && error.to_string().contains(state), "{error}");
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE), "{state}");
        run.existing.restart = true;
        let restarted = place.label(&run);
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE), "{state}");
        // Without its record, nothing is known about corrections.
        assert_eq!(restarted.is_err(), state == "state.jsonl", "{state}");
        run.existing.discard_corrections = true;
        place.label(&run).unwrap_or_else(|e| panic!("{state}: {e}"));
        assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(1, Format::Yolo)), "{state}");
    }
}

#[test]
fn merged_shards_keep_corrections() {
    let place = Place::new();
    (0..8).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let shards = ["one", "two"].map(|name| place.path(name));
    for (index, name) in ["one", "two"].into_iter().enumerate() {
        let shard = Shard::new(index as u32 + 1, 2).expect("one of two");
        let run = Run { output: name.into(), shard: Some(shard), ..Run::default() };
        place.label(&run).expect("the images can be labelled");
    }
    let of_shard = |shard: &str| {
        let has = |i: &usize| place.read(&format!("{shard}/labels/train/{i}.txt")).is_some();
        (0..8).filter(has).collect::<Vec<_>>()
    };
    let (one, two) = (of_shard("one"), of_shard("two"));
    place.write(&format!("one/labels/train/{}.txt", one[0]), "");
    place.remove(&format!("two/labels/train/{}.txt", two[0]));
    for _ in 0..2 {
        merge(&shards, &place.path("joined"), &mut || Ok(())).expect("the shards belong together");
        let joined = |i: usize| place.read(&format!("joined/labels/train/{i}.txt"));
        assert_eq!((joined(one[0]).as_deref(), joined(two[0])), (Some(""), None));
        assert_eq!(joined(one[1]), Some(text_of(10 + one[1], Format::Yolo)));
    }
    place.write(&format!("joined/labels/train/{}.txt", one[0]), MINE);
    merge(&shards, &place.path("joined"), &mut || Ok(())).expect("the shards belong together");
    assert_eq!(place.read(&format!("joined/labels/train/{}.txt", one[0])).as_deref(), Some(MINE));
}

#[test]
fn corrected_annotations_of_a_shard_are_not_dropped() {
    let place = Place::new();
    (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let shards = ["one", "two"].map(|name| place.path(name));
    for (index, name) in (1..).zip(["one", "two"]) {
        let mut run = Run { output: name.into(), shard: Shard::new(index, 2).ok(), ..Run::default() };
        run.options.formats.push(Format::Coco);
        place.label(&run).expect("the images can be labelled");
    }
    place.write("two/annotations.json", "{}");
    let refused = merge(&shards, &place.path("joined"), &mut || Ok(())).expect_err("they would be lost");
    assert!(refused.to_string().contains("two/annotations.json: expected images"), "{refused}");
    place.remove("two/annotations.json");
    merge(&shards, &place.path("joined"), &mut || Ok(())).expect("nothing is lost");
}

#[test]
fn names_in_a_journal_do_not_leave_the_output_folder() {
    let (place, run) = labelled(&[("a.png", 1)]);
    place.write("victim.jpg", "mine");
    let journal = place.read("set/.ocelli-label/journal.jsonl").unwrap_or_default();
    place.write("set/.ocelli-label/journal.jsonl", &journal.replace("\"a.png\"", "\"../../../victim.jpg\""));
    let error = place.label(&run).expect_err("the name is refused");
    assert!(error.to_string().contains("line 2"), "{error}");
    assert_eq!(place.read("victim.jpg").as_deref(), Some("mine"));
}

#[test]
#[cfg(unix)]
fn a_copy_is_made_once_and_stays_without_its_source() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let run = Run { options: copies(), ..Run::default() };
    place.images(&[("a.png", 1)]);
    let inode = || place.path("set/images/train/a.png").metadata().map(|meta| meta.ino()).ok();
    let mut job = place.open(&run).expect("a new data set");
    for file in std::mem::take(&mut job.todo) {
        let (identity, found) = (identity(&file.path), detect(&file.path));
        let seen = SearchedImage { file: &file, identity, found, first: 0, classes: vec![0], device: 0 };
        job.finish_image(seen, &mut |_| Ok(())).expect("there is room");
    }
    let first = inode();
    job.finish(&mut || Ok(())).expect("there is room");
    assert!(first.is_some() && inode() == first, "it was copied twice");
    place.write("images/a.png", "bad");
    assert_eq!(place.label(&run).map(|summary| summary.failed).ok(), Some(1));
    place.remove("images/a.png");
    place.image("b.png", 2);
    place.label(&run).expect("the images can be labelled");
    assert_eq!((inode(), place.read("set/images/train/a.png").as_deref()), (first, Some("x")));
}

#[test]
fn a_label_that_is_corrected_before_its_run_ends_is_followed_and_stays() {
    let (place, mut run, label) = (Place::new(), Run::default(), "set/labels/train/a.txt");
    run.options.formats.extend([Format::Coco, Format::Voc]);
    place.images(&[("a.png", 1), ("b.png", 2)]);
    let mut job = place.open(&run).expect("a new data set");
    for file in std::mem::take(&mut job.todo) {
        let (identity, found) = (identity(&file.path), detect(&file.path));
        let seen = SearchedImage { file: &file, identity, found, first: 0, classes: vec![0], device: 0 };
        job.finish_image(seen, &mut |_| Ok(())).expect("there is room");
    }
    job.data.stopped().expect("there is room");
    place.write(label, MINE);
    let summary = job.finish(&mut || Ok(())).expect("there is room");
    assert_eq!(summary.corrected, ["a.png"]);
    let coco = place.read("set/annotations.json").unwrap_or_default();
    assert!(coco.contains("[28.8,28.8,6.4,6.4]"), "{coco}");
    let voc = place.read("set/voc/Annotations/a.xml").unwrap_or_default();
    assert!(voc.contains("<xmin>30</xmin><ymin>30</ymin><xmax>35</xmax><ymax>35</ymax>"), "{voc}");
    // It is the person's, even if it becomes what it was.
    place.write(label, &text_of(1, Format::Yolo));
    place.image("a.png", 3);
    place.label(&run).expect("the images can be labelled");
    assert_eq!(place.read(label), Some(text_of(1, Format::Yolo)));
}

#[test]
fn another_format_is_refused_if_it_would_overwrite_corrections() {
    let (place, mut run) = labelled(&[("a.png", 1), ("b.png", 2)]);
    run.options.formats = vec![Format::YoloSeg];
    place.label(&run).expect("nothing is corrected");
    assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(1, Format::YoloSeg)));
    place.write("set/labels/train/a.txt", "");
    run.options.formats = vec![Format::Yolo];
    let error = place.label(&run).expect_err("a file is corrected");
    assert_eq!(error.parameter(), Some("discard_corrections"));
    let error = error.to_string();
    assert!(error.contains("labels/train/a.txt") && error.contains("discard_corrections"), "{error}");
    assert!(!error.contains("b.txt"), "{error}");
    assert_eq!(place.read("set/labels/train/b.txt"), Some(text_of(2, Format::YoloSeg)));
    run.existing.discard_corrections = true;
    place.label(&run).expect("corrections are discarded");
    assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(1, Format::Yolo)));
}

#[test]
fn an_image_that_is_replaced_while_it_is_read_is_labelled_again() {
    let (place, run) = (Place::new(), Run::default());
    place.image("a.png", 1);
    let mut job = place.open(&run).expect("a new data set");
    let file = job.todo.remove(0);
    let (before, found) = (identity(&file.path), detect(&file.path));
    place.image("a.png", 2);
    let seen = SearchedImage { file: &file, identity: before, found, first: 0, classes: vec![0], device: 0 };
    job.finish_image(seen, &mut |_| Ok(())).expect("there is room");
    drop(job.finish(&mut || Ok(())));
    place.label(&run).expect("the images can be labelled");
    assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(2, Format::Yolo)));
}

#[test]
fn temporary_files_of_a_killed_run_are_removed() {
    let (place, run) = labelled(&[("a.png", 1), ("b/c.png", 2)]);
    let parts = ["", "labels/train/", "images/train/b/", "review/", ".ocelli-label/"];
    parts.iter().for_each(|folder| place.write(&format!("set/{folder}.ocelli-Xy12.part"), "half"));
    place.label(&run).expect("the images can be labelled");
    for folder in parts {
        assert_eq!(place.read(&format!("set/{folder}.ocelli-Xy12.part")), None, "{folder}");
    }
}

#[test]
fn images_keep_their_names_when_others_are_found_first() {
    let (place, mut run) = labelled(&[("b/a.png", 1), ("c.png", 3)]);
    place.write("set/labels/train/c.txt", MINE);
    // It would be `c.bmp`, and `c.png` would be `c-2.png`.
    place.image("c.bmp", 4);
    for restart in [false, true, false] {
        run.existing.restart = restart;
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read("set/labels/train/c.txt").as_deref(), Some(MINE));
        assert_eq!(place.read("set/images/train/c.png").as_deref(), Some("xxx"));
        assert_eq!(place.read("set/images/train/c-2.bmp").as_deref(), Some("xxxx"));
    }
}

#[test]
fn annotations_that_were_corrected_are_not_overwritten() {
    let (place, mut run) = (Place::new(), Run::default());
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    place.image("a.png", 1);
    place.label(&run).expect("the images can be labelled");
    place.write("set/annotations.json", "{}");
    place.image("b.png", 2);
    let error = place.label(&run).expect_err("it cannot be followed");
    assert_eq!(error.parameter(), Some("discard_corrections"));
    let error = error.to_string();
    assert!(error.contains("annotations.json") && error.contains("discard_corrections"), "{error}");
    assert_eq!(place.read("set/annotations.json").as_deref(), Some("{}"));
    run.existing.discard_corrections = true;
    place.label(&run).expect("corrections are discarded");
    assert!(place.read("set/annotations.json").is_some_and(|text| text.contains("b.png")));
}
