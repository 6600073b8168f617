//! Other images under known names, several formats, merges, and a person who saves while a run goes on.

mod merges;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use ocelli::{BoundingBox, ErrorKind};

use crate::label::folders::{MINE, Place, Run, copies, text_of};
use crate::label::{CorrectedSet, Existing, Format, LabelledInstance, SetImage, Shard, merge};

fn labelled(run: &Run, images: &[(&str, usize)]) -> Place {
    let place = Place::new();
    place.images(images);
    place.label(run).expect("the images can be labelled");
    place
}

fn with_formats(formats: &[Format]) -> Run {
    let mut run = Run::default();
    run.options.formats = formats.to_vec();
    run
}

/// The image of a name, and the page of the gallery that shows it.
fn opened(place: &Place, output: &str, name: &str) -> (CorrectedSet, SetImage) {
    let set = CorrectedSet::open(&place.path(output)).expect("it is a data set");
    let image = set.images().iter().find(|image| image.name == name).cloned().expect("it is labelled");
    (set, image)
}

fn save_as_it_is(place: &Place, output: &str, name: &str) {
    let (set, image) = opened(place, output, name);
    let labels = set.labels(&image).expect("there are labels");
    set.save(&image, &labels.version, &labels.instances).expect("it can be saved");
}

fn shards(place: &Place, run: &Run) -> [PathBuf; 2] {
    for (index, output) in (1..).zip(["one", "two"]) {
        let shard = Shard::new(index, 2).ok();
        place.label(&Run { output: output.into(), shard, ..run.clone() }).expect("a shard can be labelled");
    }
    ["one", "two"].map(|name| place.path(name))
}

fn joined(place: &Place, shards: &[PathBuf; 2]) {
    merge(shards, &place.path("joined"), &mut || Ok(())).expect("the shards belong together");
}

/// The shard that has the label file of an image.
fn shard_with(place: &Place, file: &str) -> &'static str {
    let has = |shard: &&str| place.read(&format!("{shard}/labels/train/{file}")).is_some();
    ["one", "two"].into_iter().find(has).expect("one of the shards has it")
}

#[test]
fn equal_names_in_another_folder_are_other_images() {
    for options in [Run::default().options, copies()] {
        let run = Run { options, ..Run::default() };
        let place = labelled(&run, &[("a.png", 1), ("b.png", 2)]);
        place.write("set/labels/train/a.txt", MINE);
        let place = Place { images: "others".into(), ..place };
        place.images(&[("a.png", 3), ("b.png", 4)]);
        for _ in 0..2 {
            let summary = place.label(&run).expect("the images can be labelled");
            assert_eq!(summary.kept, ["a.png", "b.png"]);
            let image = |name: &str| place.read(&format!("set/images/train/{name}.png"));
            let label = |name: &str| place.read(&format!("set/labels/train/{name}.txt"));
            assert_eq!((image("a").as_deref(), label("a").as_deref()), (Some("x"), Some(MINE)));
            assert_eq!((image("b").as_deref(), label("b")), (Some("xx"), Some(text_of(2, Format::Yolo))));
            assert_eq!(label("a-2"), Some(text_of(3, Format::Yolo)));
            assert_eq!(
                (image("b-2").as_deref(), label("b-2")),
                (Some("xxxx"), Some(text_of(4, Format::Yolo)))
            );
        }
    }
}

#[test]
fn a_correction_whose_image_was_replaced_is_reported_until_it_is_corrected_again() {
    let run = Run::default();
    let place = labelled(&run, &[("a.png", 1), ("b.png", 2)]);
    place.write("set/labels/train/a.txt", MINE);
    assert!(place.label(&run).expect("nothing is new").outdated.is_empty());
    place.image("a.png", 5);
    for _ in 0..2 {
        assert_eq!(place.label(&run).expect("it can be labelled").outdated, ["a.png"]);
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE));
    }
    place.write("set/labels/train/a.txt", "");
    assert!(place.label(&run).expect("nothing is new").outdated.is_empty());
}

#[test]
fn a_frozen_image_freezes_all_formats() {
    let formats = [Format::Yolo, Format::Voc, Format::Coco, Format::YoloSeg, Format::Masks];
    for mode in [Run::default().options, copies()] {
        for restart in [false, true] {
            let mut run = Run { options: mode.clone(), ..Run::default() };
            run.options.formats = formats.to_vec();
            let place = labelled(&run, &[("a.png", 20), ("b.png", 40)]);
            let files = ["annotations.json", "voc/Annotations/a.xml", "segments/labels/train/a.txt"];
            let files = files.map(|file| format!("set/{file}"));
            place.write("set/labels/train/a.txt", MINE);
            place.label(&run).expect("nothing is new");
            let before = files.each_ref().map(|file| place.read(file));
            place.write("images/new", &"x".repeat(50));
            std::fs::rename(place.path("images/new"), place.path("images/a.png")).expect("it can");
            run.existing.restart = restart;
            for _ in 0..2 {
                let summary = place.label(&run).expect("the images can be labelled");
                assert_eq!(place.read("set/images/train/a.png"), Some("x".repeat(20)));
                assert_eq!(files.each_ref().map(|file| place.read(file)), before, "restart {restart}");
                assert_eq!(summary.outdated, ["a.png"], "restart {restart}");
                run.existing.restart = false;
            }
        }
    }
}

fn new_box() -> LabelledInstance {
    LabelledInstance {
        line: None,
        class: 0,
        bbox: BoundingBox::new(1.0, 1.0, 20.0, 20.0),
        polygon: None,
        mask: None,
    }
}

#[test]
fn classes_are_proposed_again_after_the_folder_was_removed() {
    let mut run = Run { finds_added: true, ..Run::default() };
    let place = labelled(&run, &[("a.png", 1)]);
    place.write("set/labels/train/a.txt", MINE);
    let proposal = "set/added/labels/train/a.txt";
    for (classes, class) in [(vec!["dog", "cat"], "1"), (vec!["dog", "cat", "car"], "2")] {
        run.classes = classes;
        place.label(&run).expect("classes can be added");
        let text = place.read(proposal).unwrap_or_default();
        let found: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(found, [class]);
        std::fs::remove_dir_all(place.path("set/added")).expect("it is there");
        place.label(&run).expect("nothing is new");
        assert!(!place.path("set/added").exists(), "it was removed, and there is nothing new");
    }
}

#[test]
fn images_keep_their_names_in_shards_and_after_an_interrupted_restart() {
    for (shard, name) in [(Shard::new(1, 1).ok(), "a shard"), (None, "an interrupted restart")] {
        let mut run = Run { shard, ..Run::default() };
        let place = labelled(&run, &[("b.png", 1), ("c.png", 3)]);
        place.write("set/labels/train/c.txt", MINE);
        if shard.is_none() {
            run.existing.restart = true;
            assert!(!place.label_and_stop(&run, 12), "the restart is interrupted");
            run.existing.restart = false;
        }
        // It is found first: by its name it would be `c`.
        place.image("c.bmp", 4);
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read("set/labels/train/c.txt").as_deref(), Some(MINE), "{name}");
        assert_eq!(place.read("set/images/train/c.png").as_deref(), Some("xxx"), "{name}");
        assert_eq!(place.read("set/images/train/c-2.bmp").as_deref(), Some("xxxx"), "{name}");
    }
}

#[test]
fn images_that_failed_or_were_touched_keep_their_names() {
    for content in ["bad", "xxxxxx"] {
        let run = Run::default();
        let place = labelled(&run, &[("b.png", 1), ("c.png", 3)]);
        place.write("set/labels/train/c.txt", MINE);
        place.write("images/c.png", content);
        place.label(&run).expect("the images can be labelled");
        place.image("c.bmp", 4);
        place.image("c.png", 7);
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read("set/images/train/c.png"), Some("x".repeat(7)), "{content}");
        assert_eq!(place.read("set/images/train/c-2.bmp").as_deref(), Some("xxxx"), "{content}");
    }
}

#[test]
fn images_out_of_reach_keep_their_labels_and_removed_ones_are_reported() {
    for formats in [&[Format::Yolo][..], &[Format::Coco]] {
        let run = with_formats(formats);
        let place = labelled(&run, &[("a.png", 1), ("b.png", 2), ("c.png", 3)]);
        std::fs::rename(place.path("images"), place.path("away")).expect("it can");
        let place = Place { images: "others".into(), ..place };
        place.image("d.png", 4);
        // The folder is missing, and then it is an empty mount point.
        for mounted in [false, true] {
            if mounted {
                std::fs::create_dir(place.path("images")).expect("it can");
            }
            let summary = place.label(&run).expect("the images can be labelled");
            assert_eq!(
                (&summary.kept[..], summary.removed.len()),
                (&["a.png", "b.png", "c.png"].map(String::from)[..], 0)
            );
            if formats[0] == Format::Yolo {
                assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(1, Format::Yolo)));
            } else {
                let coco = place.read("set/annotations.json").unwrap_or_default();
                assert_eq!(coco.matches("file_name").count(), 4, "{coco}");
            }
        }
        std::fs::remove_dir(place.path("images")).expect("it is empty");
        std::fs::rename(place.path("away"), place.path("images")).expect("it can");
        place.remove("images/a.png");
        let summary = place.label(&run).expect("the images can be labelled");
        let kept_by_hard_link = formats[0] == Format::Coco;
        let expected: &[&str] = if kept_by_hard_link { &[] } else { &["a.png"] };
        assert_eq!(summary.removed, expected);
    }
}

#[test]
fn a_save_knows_what_a_run_did_since_the_page_was_loaded() {
    for formats in [&[Format::Coco][..], &[Format::Yolo]] {
        let mut run = with_formats(formats);
        run.classes = vec!["dog", "cat"];
        let place = labelled(&run, &[("a.png", 20), ("b.png", 40)]);
        let (set, image) = opened(&place, "set", "a.png");
        let labels = set.labels(&image).expect("there are labels");
        place.image("c.png", 30);
        place.label(&run).expect("the images can be labelled");
        let saved = set.save(&image, &labels.version, &labels.instances).expect("the image is as it was");
        if formats[0] == Format::Coco {
            let coco = place.read("set/annotations.json").unwrap_or_default();
            assert_eq!(coco.matches("file_name").count(), 3, "{coco}");
        }
        run.classes = vec!["dog", "cat", "car"];
        place.label(&run).expect("classes can be added");
        let refused = set.save(&image, &saved.version, &[]).expect_err("the page has other classes");
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{refused}");
        let (set, image) = opened(&place, "set", "b.png");
        let version = set.labels(&image).expect("there are labels").version;
        run.classes = vec!["car", "cat", "dog"];
        run.existing = Existing { restart: true, discard_corrections: true };
        place.label(&run).expect("it can be restarted");
        let refused = set.save(&image, &version, &[new_box()]).expect_err("the page has other classes");
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{refused}");
    }
}

#[test]
fn a_save_knows_that_the_formats_changed_since_the_page_was_loaded() {
    for (before, after) in [(Format::Yolo, Format::Coco), (Format::Coco, Format::Yolo)] {
        let place = labelled(&with_formats(&[before]), &[("a.png", 20)]);
        let (set, image) = opened(&place, "set", "a.png");
        let version = set.labels(&image).expect("there are labels").version;
        place.label(&with_formats(&[after])).expect("nothing was corrected");
        let refused = set.save(&image, &version, &[]).expect_err("the page shows another file");
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{before}: {refused}");
        let labels = set.labels(&image).expect("there are labels");
        assert!(!labels.is_corrected && labels.version != version, "{before}");
        set.save(&image, &labels.version, &[]).expect("the page is new");
        assert!(set.labels(&image).expect("there are labels").is_corrected, "{before}");
    }
}

#[test]
fn a_save_after_the_image_was_replaced_is_refused() {
    for formats in [&[Format::Coco][..], &[Format::Yolo]] {
        let run = with_formats(formats);
        let place = labelled(&run, &[("a.png", 20)]);
        save_as_it_is(&place, "set", "a.png");
        let (set, image) = opened(&place, "set", "a.png");
        let version = set.labels(&image).expect("there are labels").version;
        place.image("a.png", 25);
        if formats[0] == Format::Yolo {
            place.label(&run).expect("it can be labelled");
            let refused = set.save(&image, &version, &[]).expect_err("the page shows another image");
            assert_eq!(refused.kind(), ErrorKind::Mismatch, "{refused}");
        }
    }
}

#[test]
fn an_untouched_line_without_area_does_not_prevent_a_save() {
    let place = labelled(&Run::default(), &[("a.png", 20)]);
    let lines = "0 0.5 0.5 0.0 0.1\n0 1.5 0.5 0.1 0.1\n";
    place.write("set/labels/train/a.txt", lines);
    let (set, image) = opened(&place, "set", "a.png");
    let labels = set.labels(&image).expect("there are labels");
    let instances = [labels.instances.clone(), vec![new_box()]].concat();
    set.save(&image, &labels.version, &instances).expect("the two lines are as they were");
    let text = place.read("set/labels/train/a.txt").unwrap_or_default();
    assert!(text.starts_with(lines) && text.lines().count() == 3, "{text}");
}

#[test]
fn an_image_that_a_person_edited_in_the_set_stays() {
    let coco = {
        let mut run = with_formats(&[Format::Coco]);
        run.options.images = crate::label::ImageMode::Link;
        run
    };
    for run in [Run { options: copies(), ..Run::default() }, coco] {
        let place = labelled(&run, &[("a.png", 20), ("b.png", 30)]);
        // An editor writes a new file and renames it.
        place.write("set/images/train/new", "blurred");
        let image = "set/images/train/a.png";
        std::fs::rename(place.path("set/images/train/new"), place.path(image)).expect("it can");
        for length in [None, Some(25), None] {
            length.into_iter().for_each(|length| place.image("a.png", length));
            let summary = place.label(&run).expect("the images can be labelled");
            assert_eq!(place.read(image).as_deref(), Some("blurred"));
            assert_eq!(summary.edited, ["a.png"]);
        }
    }
}

#[test]
fn a_save_that_cannot_be_written_changes_no_format() {
    let run = with_formats(&[Format::Yolo, Format::YoloSeg]);
    let files = ["set/labels/train/a.txt", "set/segments/labels/train/a.txt"];
    for writes in 0.. {
        let place = labelled(&run, &[("a.png", 20)]);
        let before = files.map(|file| place.read(file));
        let (set, image) = opened(&place, "set", "a.png");
        let labels = set.labels(&image).expect("there are labels");
        let instances = [labels.instances, vec![new_box()]].concat();
        let saved = crate::label::folders::stopping(writes, || set.save(&image, &labels.version, &instances));
        let after = files.map(|file| place.read(file));
        if saved.is_ok() {
            assert!(writes > 2 && before.iter().zip(&after).all(|(a, b)| a != b), "{after:?}");
            break;
        }
        // The last rename is the only write that can leave one of the two.
        if after != before {
            assert_eq!(after[1], before[1], "{writes} writes");
            assert!(stops_between_renames(&place, files[1]), "{writes} writes: {after:?}");
        }
    }
}

/// `true` if the other file waits for its rename.
fn stops_between_renames(place: &Place, file: &str) -> bool {
    crate::label::store::files::part_path(&place.path(file)).exists()
}

#[test]
fn labels_of_each_format_are_reported_until_they_are_corrected_again() {
    let run = with_formats(&[Format::Yolo, Format::YoloSeg]);
    let place = labelled(&run, &[("a.png", 20)]);
    let files = ["set/labels/train/a.txt", "set/segments/labels/train/a.txt"];
    files.iter().for_each(|file| place.write(file, ""));
    place.image("a.png", 25);
    let outdated = || place.label(&run).expect("it can be labelled").outdated;
    assert_eq!(outdated(), ["a.png"]);
    place.write(files[1], &text_of(25, Format::YoloSeg));
    assert_eq!(outdated(), ["a.png"], "the boxes are those of the earlier image");
    place.write(files[0], &text_of(25, Format::Yolo));
    assert!(outdated().is_empty());
}

#[test]
fn saving_labels_as_they_are_beside_the_new_image_checks_them() {
    let run = Run::default();
    let place = labelled(&run, &[("a.png", 20)]);
    place.write("set/labels/train/a.txt", MINE);
    place.image("a.png", 25);
    for _ in 0..2 {
        assert_eq!(place.label(&run).expect("it can be labelled").outdated, ["a.png"]);
    }
    save_as_it_is(&place, "set", "a.png");
    assert!(place.label(&run).expect("nothing is new").outdated.is_empty());
    place.image("a.png", 30);
    assert_eq!(place.label(&run).expect("it can be labelled").outdated, ["a.png"]);
}

#[test]
fn labels_for_an_earlier_image_are_reported_while_their_image_is_not_named() {
    for run in [Run::default(), Run { options: copies(), ..Run::default() }] {
        let place = labelled(&run, &[("a.png", 20)]);
        place.write("set/labels/train/a.txt", MINE);
        place.image("a.png", 25);
        assert_eq!(place.label(&run).expect("it can be labelled").outdated, ["a.png"]);
        let place = Place { images: "others".into(), ..place };
        place.image("b.png", 30);
        for _ in 0..2 {
            let summary = place.label(&run).expect("it can be labelled");
            assert_eq!(
                (summary.kept, summary.outdated),
                (vec!["a.png".to_owned()], vec!["a.png".to_owned()])
            );
        }
        place.write("set/labels/train/a.txt", "");
        assert!(place.label(&run).expect("nothing is new").outdated.is_empty());
    }
}

#[test]
fn classes_that_are_added_after_a_stopped_run_are_looked_for_in_replaced_images() {
    let mut wrong = Vec::new();
    for options in [Run::default().options, copies()] {
        let mut run = Run { options, finds_added: true, ..Run::default() };
        run.options.formats = vec![Format::Yolo, Format::YoloSeg, Format::Coco];
        for writes in 0.. {
            let place = labelled(&run, &[("a.png", 20)]);
            // Another file: a hard link has the former one.
            place.write("new", &"x".repeat(25));
            std::fs::rename(place.path("new"), place.path("images/a.png")).expect("it can");
            let is_ended = place.label_and_stop(&run, writes);
            place.label(&Run { classes: vec!["dog", "cat"], ..run.clone() }).expect("it can be labelled");
            let text = place.read("set/labels/train/a.txt").unwrap_or_default();
            if text.lines().count() != 2 {
                wrong.push(format!("{:?}, {writes} writes: {text:?}", run.options.images));
            }
            if is_ended {
                assert!(writes > 10, "{writes} writes");
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two images without compression have the same size, and an edit may follow at once.
#[test]
fn an_edited_image_as_large_as_before_stays() {
    let run = Run { options: copies(), ..Run::default() };
    let place = labelled(&run, &[("a.png", 8)]);
    place.write("set/images/train/a.png", "edited..");
    let changed = place.path("images/a.png").metadata().and_then(|there| there.modified());
    let edited = changed.expect("the system has times") + Duration::from_millis(1501);
    let file = File::options().write(true).open(place.path("set/images/train/a.png"));
    file.and_then(|file| file.set_modified(edited)).expect("it is there");
    for restart in [false, true] {
        let existing = Existing { restart, ..Existing::default() };
        let summary = place.label(&Run { existing, ..run.clone() }).expect("it can be labelled");
        assert_eq!(place.read("set/images/train/a.png").as_deref(), Some("edited.."), "restart {restart}");
        assert_eq!(summary.edited, ["a.png"], "restart {restart}");
    }
}

#[test]
fn labels_for_an_earlier_image_are_reported_if_the_new_one_is_gone_after_a_stop() {
    let mut wrong = Vec::new();
    for restart in [false, true] {
        // Hard links follow an image that is replaced in place.
        let run = with_formats(&[Format::Yolo, Format::Coco]);
        for writes in 0.. {
            let place = labelled(&run, &[("a.png", 20)]);
            place.write("set/labels/train/a.txt", MINE);
            place.image("a.png", 25);
            let existing = Existing { restart, ..Existing::default() };
            let is_ended = place.label_and_stop(&Run { existing, ..run.clone() }, writes);
            place.remove("images/a.png");
            let place = Place { images: "others".into(), ..place };
            place.image("b.png", 30);
            let summary = place.label(&run).expect("it can be labelled");
            // What no run saw looks like an edited image.
            let reported = [summary.outdated, summary.edited].concat();
            if reported != ["a.png"] {
                wrong.push(format!("restart {restart}, {writes} writes: {reported:?}"));
            }
            if is_ended {
                assert!(writes > 10, "{writes} writes");
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_run_that_goes_on_replaces_the_copies_beside_labels_that_were_saved_meanwhile() {
    for formats in [[Format::Yolo, Format::YoloSeg], [Format::Yolo, Format::Voc]] {
        let mut run = with_formats(&formats);
        run.options.images = crate::label::ImageMode::Copy;
        let other = if formats[1] == Format::Voc { "voc/JPEGImages" } else { "segments/images/train" };
        let images = ["set/images/train/a.png".to_owned(), format!("set/{other}/a.png")];
        let mut differed = 0;
        for writes in 0.. {
            let place = labelled(&run, &[("a.png", 20)]);
            place.image("a.png", 25);
            let is_ended = place.label_and_stop(&run, writes);
            let lengths = || images.each_ref().map(|file| place.read(file).map(|there| there.len()));
            let [seen, beside] = lengths();
            differed += usize::from(seen != beside);
            let save = || {
                let (set, image) = opened(&place, "set", "a.png");
                let labels = set.labels(&image).expect("there are labels");
                set.save(&image, &labels.version, &labels.instances)
            };
            // The person checks what the next run reports.
            for _ in 0..2 {
                // After a stop between two renames, the labels are others once these are done.
                save().or_else(|_| save()).expect("it can be saved");
                place.label(&run).expect("it can be labelled");
                assert_eq!(lengths(), [seen, seen], "{formats:?}, {writes} writes");
            }
            if is_ended {
                break;
            }
        }
        assert!(differed > 0, "{formats:?}: no stop was between the copies");
    }
}
