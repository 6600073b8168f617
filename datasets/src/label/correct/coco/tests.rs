//! Runs and merges come after a person has saved labels in COCO's file, and must keep them.

use std::collections::BTreeMap;

use ocelli::{BoundingBox, ErrorKind};
use serde_json::Value;

use super::*;
use crate::label::correct::tests::area_of;
use crate::label::folders::{Place, Run, stopping};
use crate::label::{DataSetOptions, Existing, Format, Shard, merge};

fn run() -> Run {
    let options =
        DataSetOptions { formats: vec![Format::Coco], validation_share: 0.3, ..DataSetOptions::default() };
    Run { classes: vec!["dog", "cat"], options, ..Run::default() }
}

const IMAGES: [(&str, usize); 6] =
    [("a.png", 40), ("b/b.png", 80), ("c.png", 21), ("d.png", 22), ("e.png", 23), ("f.png", 24)];

fn labelled(run: &Run) -> (Place, CorrectedSet) {
    let place = Place::new();
    place.images(&IMAGES);
    place.label(run).expect("the images can be labelled");
    let set = CorrectedSet::open(&place.path("set")).expect("it is a data set");
    (place, set)
}

/// The annotations of each image by the end of its name: category, box, area, score.
fn annotations(place: &Place, file: &str) -> BTreeMap<String, Vec<(u64, Value, f64, f64)>> {
    let text = place.read(file).unwrap_or_else(|| panic!("{file} is missing"));
    let coco: Value = serde_json::from_str(&text).expect("it is JSON");
    let list = |key: &str| coco[key].as_array().cloned().expect("a list");
    let of = |image: &Value| {
        let own = list("annotations").into_iter().filter(|one| one["image_id"] == image["id"]);
        let number = |value: &Value| value.as_f64().expect("a number");
        own.map(|one| {
            let category = one["category_id"].as_u64().expect("an id");
            (category, one["bbox"].clone(), number(&one["area"]), number(&one["score"]))
        })
        .collect()
    };
    let name = |image: &Value| {
        let name = image["file_name"].as_str().expect("a name");
        name.trim_start_matches("train/").trim_start_matches("val/").to_owned()
    };
    list("images").iter().map(|image| (name(image), of(image))).collect()
}

fn new(class: usize, edges: [f32; 4]) -> LabelledInstance {
    let [x1, y1, x2, y2] = edges;
    LabelledInstance { line: None, class, bbox: BoundingBox::new(x1, y1, x2, y2), polygon: None, mask: None }
}

/// The found instance gets another class, and one is added.
fn correct(set: &CorrectedSet, number: usize) -> Result<Labels> {
    let image = set.images()[number].clone();
    let labels = set.labels(&image)?;
    let mut instances = labels.instances;
    instances[0].class = 1;
    instances.push(new(0, [8.0, 16.0, 24.0, 48.0]));
    set.save(&image, &labels.version, &instances)
}

#[test]
fn saved_labels_stay_in_later_runs() {
    let run = run();
    let (place, set) = labelled(&run);
    let before = annotations(&place, "set/annotations.json");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    assert!(!labels.is_corrected && labels.instances.len() == 1);
    let saved = correct(&set, 0).expect("it can be saved");
    assert!(saved.is_corrected && saved.instances.len() == 2);
    let outlines = saved.instances.iter().map(|one| one.polygon.as_ref().expect("it has a mask"));
    let areas: Vec<f32> = outlines.map(|points| area_of(points)).collect();
    // From the middles of the outermost pixels, except where the mask is one pixel.
    assert_eq!(areas, [1.0, 15.0 * 31.0]);
    let mine = annotations(&place, "set/annotations.json");
    let found = before["a.png"][0].clone();
    let expected =
        vec![(2, found.1.clone(), found.2, 1.0), (1, serde_json::json!([8.0, 16.0, 16.0, 32.0]), 512.0, 1.0)];
    assert_eq!(mine["a.png"], expected);
    assert_eq!((&mine["b/b.png"], mine.len()), (&before["b/b.png"], 6));
    let splits: Vec<_> = ["train", "val"]
        .map(|split| annotations(&place, &format!("set/annotations_{split}.json")))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(splits.len(), 6);
    assert!(splits.iter().any(|(name, own)| name == "a.png" && *own == expected), "{splits:?}");
    // Seen and left as it was, it is the person's, too.
    let seen = set.labels(&set.images()[1]).expect("there are labels");
    set.save(&set.images()[1].clone(), &seen.version, &seen.instances).expect("it can be saved");
    assert_eq!(annotations(&place, "set/annotations.json"), mine);
    // An old version is refused, and so are instances that the file cannot have.
    let image = set.images()[0].clone();
    for (version, instances, kind) in [
        (&*labels.version, vec![], ErrorKind::Mismatch),
        (&*saved.version, vec![new(2, [0.0, 0.0, 9.0, 9.0])], ErrorKind::InvalidArgument),
        (&*saved.version, vec![new(0, [9.0, 0.0, 9.0, 9.0])], ErrorKind::InvalidArgument),
    ] {
        let refused = set.save(&image, version, &instances).expect_err("it is wrong");
        assert_eq!(refused.kind(), kind, "{refused}");
    }

    // Other images under the same names, a restart, more classes, an image that is gone: what was saved stays.
    place.images(&[("a.png", 50), ("b/b.png", 90), ("c.png", 91)]);
    let more_classes = vec!["dog", "cat", "cow"];
    for (restart, classes) in
        [(false, None), (true, None), (false, Some(more_classes.clone())), (true, Some(more_classes))]
    {
        let existing = Existing { restart, ..Existing::default() };
        let classes = classes.unwrap_or(run.classes.clone());
        place.label(&Run { existing, classes, ..run.clone() }).expect("the images can be labelled");
        let after = annotations(&place, "set/annotations.json");
        assert_eq!((&after["a.png"], &after["b/b.png"]), (&mine["a.png"], &mine["b/b.png"]), "{restart}");
        assert_ne!(after["c.png"], mine["c.png"]);
    }
    place.remove("images/a.png");
    let run = Run { classes: vec!["dog", "cat", "cow"], ..run };
    place.label(&run).expect("the images can be labelled");
    assert_eq!(annotations(&place, "set/annotations.json")["a.png"], mine["a.png"]);

    // What cannot keep it is refused, and names the images.
    let both = DataSetOptions { formats: vec![Format::Yolo, Format::Coco], ..run.options.clone() };
    let text = place.read("set/annotations.json");
    for (other, restart) in [
        (Run { classes: vec!["cow"], ..run.clone() }, true),
        (
            Run {
                options: DataSetOptions { formats: vec![Format::Voc], ..run.options.clone() },
                ..run.clone()
            },
            false,
        ),
    ] {
        let existing = Existing { restart, ..Existing::default() };
        let refused = place.label(&Run { existing, ..other }).expect_err("it would lose what was saved");
        assert_eq!(refused.kind(), ErrorKind::Mismatch, "{refused}");
        assert!(refused.to_string().contains("a.png, b/b.png"), "{refused}");
        assert_eq!(place.read("set/annotations.json"), text);
    }
    // Files of other formats follow it.
    place.label(&Run { options: both, ..run.clone() }).expect("the images can be labelled");
    let lines =
        ["train", "val"].map(|split| place.read(&format!("set/labels/{split}/a.txt")).unwrap_or_default());
    assert_eq!(lines.concat().lines().count(), 2, "{lines:?}");
    let discard = Existing { discard_corrections: true, restart: true };
    place.label(&Run { existing: discard, ..run.clone() }).expect("the images can be labelled");
    let after = annotations(&place, "set/annotations.json");
    assert_eq!((after["b/b.png"].len(), after["b/b.png"][0].0), (1, 1));
    assert_ne!(after["b/b.png"], mine["b/b.png"]);
}

#[test]
fn a_stop_at_every_write_loses_nothing() {
    let run = run();
    for writes in 0.. {
        let (place, set) = labelled(&run);
        let before = annotations(&place, "set/annotations.json");
        let done = stopping(writes, || correct(&set, 0)).is_ok();
        place.label(&run).unwrap_or_else(|e| panic!("after {writes} writes: {e}"));
        let after = annotations(&place, "set/annotations.json");
        let is_mine = after["a.png"].len() == 2;
        assert!(is_mine || (!done && after == before), "{writes} writes: {after:?}");
        // What is shown is what is in the file.
        let labels = set.labels(&set.images()[0]).expect("there are labels");
        assert_eq!((labels.is_corrected, labels.instances.len()), (is_mine, after["a.png"].len()));
        assert!(place.label(&run).is_ok(), "{writes} writes");
        if done {
            assert!(writes > 3, "{writes} writes");
            return;
        }
    }
}

#[test]
fn merged_shards_have_what_was_saved_in_them() {
    let run = run();
    let place = Place::new();
    place.images(&IMAGES);
    let shards = [1, 2].map(|index| {
        let output = format!("part-{index}");
        let shard = Shard::new(index, 2).ok();
        place
            .label(&Run { shard, output: output.clone(), ..run.clone() })
            .expect("the images can be labelled");
        place.path(&output)
    });
    let mut names = Vec::new();
    for root in &shards {
        let set = CorrectedSet::open(root).expect("it is a data set");
        assert!(!set.images().is_empty(), "each shard has images");
        correct(&set, 0).expect("it can be saved");
        names.push(set.images()[0].name.clone());
    }
    let joined = || merge(&shards, &place.path("joined"), &mut || Ok(())).expect("they belong together");
    joined();
    let after = annotations(&place, "joined/annotations.json");
    let corrected: Vec<_> =
        after.iter().filter(|(_, own)| own.len() == 2).map(|(name, _)| name.clone()).collect();
    names.sort();
    assert_eq!((corrected, after.len()), (names.clone(), 6));
    // What is saved in the joined data set stays when the shards are merged again.
    let set = CorrectedSet::open(&place.path("joined")).expect("it is a data set");
    let image = set.images().iter().find(|image| image.name == names[0]).expect("it is there").clone();
    let labels = set.labels(&image).expect("there are labels");
    set.save(&image, &labels.version, &[]).expect("it can be saved");
    joined();
    let after = annotations(&place, "joined/annotations.json");
    assert_eq!((after[&names[0]].len(), after[&names[1]].len()), (0, 2));
}

#[test]
fn a_file_that_another_program_changed_is_followed_or_not_written() {
    let run = run();
    let (place, set) = labelled(&run);
    let whole = place.read("set/annotations.json").expect("it is there");
    // The box of the first image is elsewhere.
    place.write("set/annotations.json", &whole.replacen("[2.0,", "[32.0,", 1));
    let refused = correct(&set, 0).expect_err("it was loaded before");
    assert!(refused.to_string().contains("changed meanwhile"), "{refused}");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    assert!(labels.is_corrected && labels.instances[0].bbox.x1 == 32.0, "{labels:?}");
    correct(&set, 0).expect("it can be saved");
    assert_eq!(annotations(&place, "set/annotations.json")["a.png"].len(), 2);
    let why = "expected images, annotations and categories";
    for file in ["set/annotations.json", "set/annotations_train.json"] {
        let before = place.read(file).expect("it is there");
        place.write(file, "{}");
        for refused in [correct(&set, 0).map(drop), CorrectedSet::open(&place.path("set")).map(drop)] {
            let refused = refused.expect_err("it is the person's");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        assert_eq!(place.read(file).as_deref(), Some("{}"));
        place.write(file, &before);
    }
    // A record that is corrupt is not passed over.
    place.remove("set/annotations.json");
    correct(&set, 0).expect("it can be saved");
    assert_eq!(place.read("set/annotations.json"), None, "a run writes it");
    place.label(&run).expect("the images can be labelled");
    assert_eq!(annotations(&place, "set/annotations.json")["a.png"].len(), 3);
    place.write("set/.ocelli-label/state.jsonl", "{\n");
    let refused = place.label(&run).expect_err("it is corrupt");
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    let discard = Existing { discard_corrections: true, restart: true };
    place.label(&Run { existing: discard, ..run }).expect("the images can be labelled");
}
