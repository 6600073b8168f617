//! Restarts that are stopped, or whose images cannot be read or are not named, and images whose names are taken.

use std::collections::BTreeMap;

use ocelli::{BoundingBox, ErrorKind};

use crate::label::folders::{MINE, Place, Run, stopping, text_of};
use crate::label::store::State;
use crate::label::{CorrectedSet, Existing, Format, ImageMode, LabelledInstance};

const RESTART: Existing = Existing { restart: true, discard_corrections: false };

/// A data set with `a.png`, which is not named any more, and `b.png`.
fn grown(run: &Run) -> Place {
    let place = Place::new();
    place.image("a.png", 1);
    place.label(run).expect("the images can be labelled");
    let place = Place { images: "others".into(), ..place };
    place.image("b.png", 2);
    place.label(run).expect("the images can be labelled");
    place
}

#[test]
fn a_restart_that_is_stopped_at_any_write_keeps_images_that_are_not_named() {
    let mut run = Run::default();
    run.options.formats.push(Format::Coco);
    for writes in 0.. {
        let place = grown(&run);
        let restart = Run { existing: RESTART, ..run.clone() };
        let ended = place.label_and_stop(&restart, writes);
        let summary = place.label(&run).unwrap_or_else(|e| panic!("after {writes} writes: {e}"));
        assert_eq!(summary.kept, ["a.png"], "{writes} writes");
        let label = |name: &str| place.read(&format!("set/labels/train/{name}.txt"));
        let expected = [1, 2].map(|length| Some(text_of(length, Format::Yolo)));
        assert_eq!([label("a"), label("b")], expected, "{writes} writes");
        let coco = place.read("set/annotations.json").unwrap_or_default();
        assert_eq!(coco.matches("file_name").count(), 2, "{writes} writes");
        if ended {
            assert!(writes > 10, "{writes} writes");
            break;
        }
    }
}

#[test]
fn what_is_saved_after_a_stopped_restart_is_complete_or_refused() {
    let mut wrong = Vec::new();
    for formats in [vec![Format::Yolo, Format::YoloSeg], vec![Format::Coco]] {
        let mut run = Run::default();
        run.options.images = if formats == [Format::Coco] { ImageMode::None } else { ImageMode::Link };
        run.options.formats = formats;
        for writes in 0.. {
            let place = Place::new();
            place.images(&[("a.png", 1), ("b.png", 2)]);
            place.label(&run).expect("the images can be labelled");
            let set = CorrectedSet::open(&place.path("set")).expect("it is a data set");
            let image = set.images()[0].clone();
            let labels = set.labels(&image).expect("it is labelled");
            let is_ended = place.label_and_stop(&Run { existing: RESTART, ..run.clone() }, writes);
            let bbox = BoundingBox::new(0.0, 0.0, 32.0, 16.0);
            let drawn = LabelledInstance { line: None, class: 0, bbox, polygon: None, mask: None };
            let saved = set.save(&image, &labels.version, &[drawn]);
            let files = ["set/labels/train/a.txt", "set/segments/labels/train/a.txt"];
            let texts = files.map(|file| place.read(file).unwrap_or_default());
            let in_coco = place.read("set/annotations.json").map(|text| text.matches("file_name").count());
            let is_complete =
                in_coco.map_or(texts.iter().all(|text| text.contains("0.500000")), |images| images == 2);
            let is_right = match &saved {
                Ok(_) => is_complete,
                Err(e) => e.kind() == ErrorKind::Mismatch,
            };
            if !is_right {
                let formats = &run.options.formats;
                wrong
                    .push(format!("{formats:?}, {writes} writes: {:?}, {texts:?}, {in_coco:?}", saved.err()));
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
fn what_a_restart_with_other_classes_leaves_out_is_reported_after_any_stop() {
    let run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    let other = Run { classes: vec!["cat", "dog"], existing: RESTART, ..run.clone() };
    // Of two restarts, most lines of the journal are superseded.
    let many = || {
        let place = grown(&run);
        place.images(&[("c.png", 3), ("d.png", 4), ("e.png", 5)]);
        place
    };
    let all = (0..).find(|writes| many().label_and_stop(&other, *writes)).expect("it ends");
    let places: [&dyn Fn() -> Place; 2] = [&|| grown(&run), &|| {
        let place = many();
        assert!(!place.label_and_stop(&other, all - 1));
        place
    }];
    for (restarts, make) in (1..).zip(places) {
        for writes in 0.. {
            let place = make();
            let stopped = stopping(writes, || place.label(&other));
            // No file says that the ids mean other classes. A set whose second restart has just begun is refused.
            let set = CorrectedSet::open(&place.path("set"));
            if let Some(data) = place.read("set/data.yaml")
                && !(restarts == 2 && set.as_ref().is_err_and(|e| e.kind() == ErrorKind::InvalidArgument))
            {
                let set = set.expect("it is a data set");
                let place = |class: &String| data.find(&format!("\"{class}\""));
                let places: Vec<_> = set.classes().iter().map(place).collect();
                assert!(places.is_sorted() && !places.contains(&None), "{writes} writes: {data}");
            }
            let is_ended = stopped.is_ok();
            let summary = stopped.or_else(|_| place.label(&other)).expect("it can be labelled");
            assert_eq!(summary.left_out, ["a.png"], "{writes} writes");
            assert_eq!(
                (place.read("set/labels/train/a.txt"), summary.removed.len()),
                (None, 0),
                "{writes} writes"
            );
            let again =
                place.label(&Run { existing: Existing::default(), ..other.clone() }).expect("nothing is new");
            assert!(again.left_out.is_empty(), "{writes} writes");
            if is_ended {
                assert!(writes > 10, "{writes} writes");
                break;
            }
        }
    }
}

#[test]
fn a_restart_keeps_the_labels_of_images_that_cannot_be_read() {
    let run = Run::default();
    let place = Place::new();
    place.images(&[("a.png", 1), ("b.png", 2)]);
    place.label(&run).expect("the images can be labelled");
    place.write("images/a.png", "bad");
    let summary = place.label(&Run { existing: RESTART, ..run.clone() }).expect("one can be labelled");
    assert_eq!((summary.images, summary.failed), (1, 1));
    assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(1, Format::Yolo)));
    // It is labelled again as soon as it can be read, and so is every image if the restart is stopped.
    place.image("a.png", 3);
    place.label(&run).expect("the images can be labelled");
    assert_eq!(place.read("set/labels/train/a.txt"), Some(text_of(3, Format::Yolo)));
    let job = place.open(&Run { existing: RESTART, ..run.clone() }).expect("it can be restarted");
    drop(job);
    assert_eq!(place.open(&run).expect("it goes on").pending(), 2);
}

#[test]
fn an_image_that_is_gone_again_is_reported_again() {
    let run = Run::default();
    let place = grown(&run);
    // An empty folder may be a disk that is not mounted.
    place.write("images/c.png", "xxx");
    for round in 0..2 {
        place.remove("images/a.png");
        assert_eq!(place.label(&run).expect("it can be labelled").removed, ["a.png"], "round {round}");
        place.write("images/a.png", "x");
        assert_eq!(place.label(&run).expect("it can be labelled").kept, ["a.png"], "round {round}");
    }
}

#[test]
fn labels_that_came_back_without_their_image_do_not_go_without_a_word() {
    let run = Run::default();
    let place = Place::new();
    place.images(&[("a.png", 1), ("b.png", 2)]);
    place.label(&run).expect("the images can be labelled");
    place.remove("images/a.png");
    assert_eq!(place.label(&run).expect("it can be labelled").removed, ["a.png"]);
    let remove = || std::fs::remove_file(place.path("images/a.png")).unwrap_or_default();
    // The second one is gone again before its labels are written.
    for (content, is_gone) in [("bad", false), ("xxxx", true)] {
        place.write("images/a.png", content);
        let ended = place.label_while(&run, &mut || is_gone.then(remove).unwrap_or_default());
        ended.expect("it can be labelled");
        assert!(place.read("set/labels/train/a.txt").is_some(), "{content}");
        remove();
        assert_eq!(place.label(&run).expect("it can be labelled").removed, ["a.png"], "{content}");
        assert_eq!(place.read("set/labels/train/a.txt"), None, "{content}");
    }
}

#[test]
fn an_image_with_the_name_of_one_that_is_gone_is_another_image() {
    let run = Run::default();
    let place = Place::new();
    place.images(&[("a.png", 1), ("b.png", 2)]);
    place.label(&run).expect("the images can be labelled");
    place.write("set/labels/train/a.txt", MINE);
    place.remove("images/a.png");
    let place = Place { images: "others".into(), ..place };
    place.image("a.png", 3);
    place.label(&run).expect("the images can be labelled");
    assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE));
    assert_eq!(place.read("set/images/train/a-2.png").as_deref(), Some("xxx"));
    assert_eq!(place.read("set/labels/train/a-2.txt"), Some(text_of(3, Format::Yolo)));
}

#[test]
fn images_are_known_from_the_journal_if_their_record_is_lost() {
    for existing in [Existing::default(), RESTART] {
        let run = Run { existing, ..Run::default() };
        let place = Place::new();
        place.images(&[("a.png", 1), ("b.png", 2)]);
        place.label(&run).expect("the images can be labelled");
        place.write("set/labels/train/a.txt", MINE);
        let log = place.read("set/.ocelli-label/state.jsonl").expect("there is one");
        let others = log.split_inclusive('\n').filter(|line| !line.starts_with("{\"images\""));
        place.write("set/.ocelli-label/state.jsonl", &others.collect::<String>());
        let place = Place { images: "others".into(), ..place };
        place.image("a.png", 3);
        place.label(&run).expect("the images can be labelled");
        assert_eq!(place.read("set/images/train/a.png").as_deref(), Some("x"), "{existing:?}");
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(MINE), "{existing:?}");
        assert_eq!(place.read("set/labels/train/a-2.txt"), Some(text_of(3, Format::Yolo)), "{existing:?}");
    }
}

#[test]
fn a_data_set_of_a_version_before_the_first_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.images(&[("a.png", 1), ("b.png", 2)]);
    place.label(&Run::default()).expect("the images can be labelled");
    place.write("set/labels/train/a.txt", MINE);
    place.remove("set/.ocelli-label/state.jsonl");
    place.write("set/.ocelli-label/written.jsonl", "{\"ocelli_label_written\":1}\n");
    place.image("c.png", 3);
    let files = || {
        let (mut found, mut folders) = (BTreeMap::new(), vec![place.path("set")]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("it is a folder") {
                match entry.expect("it can be read").path() {
                    path if path.is_dir() => folders.push(path),
                    path => drop(found.insert(path.clone(), std::fs::read(path).expect("it is a file"))),
                }
            }
        }
        found
    };
    let before = files();
    assert!(before.len() > 5, "{before:?}");
    let discard = Existing { restart: true, discard_corrections: true };
    for existing in [Existing::default(), RESTART, discard] {
        let refused =
            place.label(&Run { existing, ..Run::default() }).expect_err("it is not of this version");
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{existing:?}");
        assert!(refused.to_string().ends_with("label into another output folder"), "{refused}");
        assert_eq!(files(), before, "{existing:?}");
    }
    assert_eq!(State::load(&place.path("set")).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Mismatch));
}

#[test]
fn too_many_classes_leave_no_folder_behind() {
    let classes = vec!["dog"; ocelli::prompt::MAX_CLASSES + 1];
    let place = Place::new();
    place.image("a.png", 1);
    let refused = place.label(&Run { classes, ..Run::default() }).expect_err("there are too many");
    assert!(
        refused.kind() == ErrorKind::InvalidArgument && refused.to_string().contains("65536"),
        "{refused}"
    );
    assert!(!place.path("set").exists());
}
