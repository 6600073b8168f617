//! A person's work on shards survives their merges.

use super::*;
use crate::label::folders::MINE_POLYGON;

#[test]
fn what_was_saved_as_it_is_survives_a_merge() {
    let place = Place::new();
    (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let run = Run::default();
    let shards = shards(&place, &run);
    save_as_it_is(&place, shard_with(&place, "0.txt"), "0.png");
    joined(&place, &shards);
    place.image("0.png", 30);
    place.label(&Run { output: "joined".into(), ..run }).expect("the images can be labelled");
    assert_eq!(place.read("joined/labels/train/0.txt"), Some(text_of(10, Format::Yolo)));
}

#[test]
fn a_later_correction_of_a_shard_is_merged_again() {
    let place = Place::new();
    (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let shards = shards(&place, &Run::default());
    let (shard, file) = (shard_with(&place, "0.txt"), "joined/labels/train/0.txt");
    let ours = text_of(10, Format::Yolo);
    for content in [MINE, "", "0 0.2 0.2 0.1 0.1\n", &ours, MINE] {
        place.write(&format!("{shard}/labels/train/0.txt"), content);
        joined(&place, &shards);
        assert_eq!(place.read(file).as_deref(), Some(content));
    }
    place.remove(&format!("{shard}/labels/train/0.txt"));
    joined(&place, &shards);
    assert_eq!(place.read(file), None);
    place.write(&format!("{shard}/labels/train/0.txt"), "");
    joined(&place, &shards);
    assert_eq!(place.read(file).as_deref(), Some(""));
    // From now on it is corrected in the joined data set.
    place.write(file, MINE);
    place.write(&format!("{shard}/labels/train/0.txt"), "0 0.3 0.3 0.1 0.1\n");
    joined(&place, &shards);
    assert_eq!(place.read(file).as_deref(), Some(MINE));
}

#[test]
fn what_was_saved_again_in_annotations_of_a_shard_is_merged_again() {
    let place = Place::new();
    (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let shards = shards(&place, &with_formats(&[Format::Coco]));
    let has = |shard: &&str| {
        place.read(&format!("{shard}/annotations.json")).is_some_and(|text| text.contains("/0.png"))
    };
    let shard = ["one", "two"].into_iter().find(has).expect("one of the shards has it");
    for boxes in [1, 2] {
        let (set, image) = opened(&place, shard, "0.png");
        let version = set.labels(&image).expect("there are labels").version;
        let instances = vec![new_box(); boxes];
        set.save(&image, &version, &instances).expect("it can be saved");
        joined(&place, &shards);
        let (set, image) = opened(&place, "joined", "0.png");
        assert_eq!(set.labels(&image).expect("there are labels").instances.len(), boxes);
    }
}

#[test]
#[cfg(unix)]
fn linked_label_files_are_replaced_and_not_their_targets() {
    let place = Place::new();
    (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let shards = shards(&place, &Run::default());
    let shard = shard_with(&place, "0.txt");
    joined(&place, &shards);
    for (output, store) in [("joined", "store-1"), (shard, "store-2")] {
        let file = place.path(&format!("{output}/labels/train/0.txt"));
        std::fs::rename(&file, place.path(store)).expect("it can");
        std::os::unix::fs::symlink(place.path(store), &file).expect("it can");
    }
    save_as_it_is(&place, shard, "0.png");
    let (set, image) = opened(&place, shard, "0.png");
    let version = set.labels(&image).expect("there are labels").version;
    set.save(&image, &version, &[]).expect("it can be saved");
    joined(&place, &shards);
    assert_eq!(place.read("joined/labels/train/0.txt").as_deref(), Some(""));
    for store in ["store-1", "store-2"] {
        assert_eq!(place.read(store), Some(text_of(10, Format::Yolo)), "{store}");
    }
}

#[test]
fn images_that_labels_of_a_shard_describe_are_merged_with_them() {
    let options = crate::label::DataSetOptions {
        formats: vec![Format::Yolo, Format::YoloSeg, Format::Coco],
        ..copies()
    };
    let run = Run { options, ..Run::default() };
    let place = Place::new();
    (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
    let folders = shards(&place, &run);
    let (corrected, edited) = (shard_with(&place, "0.txt"), shard_with(&place, "1.txt"));
    place.write(&format!("{corrected}/labels/train/0.txt"), MINE);
    place.write("new", "blurred");
    let image = place.path(&format!("{edited}/images/train/1.png"));
    std::fs::rename(place.path("new"), image).expect("it can");
    place.image("0.png", 30);
    shards(&place, &run);
    // The source of another one is replaced after its shard was labelled.
    place.image("2.png", 40);
    for _ in 0..2 {
        let summary = merge(&folders, &place.path("joined"), &mut || Ok(())).expect("they belong together");
        let there = |file: &str| place.read(&format!("joined/{file}"));
        assert_eq!(there("images/train/0.png"), Some("x".repeat(10)));
        assert_eq!(there("labels/train/0.txt").as_deref(), Some(MINE));
        assert_eq!(there("segments/labels/train/0.txt").as_deref(), Some(MINE_POLYGON));
        assert_eq!(there("segments/images/train/0.png"), Some("x".repeat(10)));
        assert_eq!(there("images/train/1.png").as_deref(), Some("blurred"));
        assert_eq!(
            (there("images/train/2.png"), there("labels/train/2.txt")),
            (Some("x".repeat(12)), Some(text_of(12, Format::Yolo)))
        );
        assert_eq!((summary.outdated, summary.edited), (vec!["0.png".to_owned()], vec!["1.png".to_owned()]));
    }
    // The earlier image was removed to get the new one, and the labels corrected for it.
    place.remove(&format!("{corrected}/images/train/0.png"));
    place.remove(&format!("{corrected}/segments/images/train/0.png"));
    shards(&place, &run);
    place.write(&format!("{corrected}/labels/train/0.txt"), "");
    shards(&place, &run);
    joined(&place, &folders);
    assert_eq!(place.read("joined/images/train/0.png"), Some("x".repeat(30)));
    assert_eq!(place.read("joined/labels/train/0.txt").as_deref(), Some(""));
    assert_eq!(place.read("joined/segments/labels/train/0.txt").as_deref(), Some(""));
    // What was corrected in the joined data set since is about its file.
    place.write("joined/labels/train/1.txt", MINE);
    let image = place.path(&format!("{edited}/images/train/1.png"));
    place.write("new", "blurred again");
    std::fs::rename(place.path("new"), image).expect("it can");
    joined(&place, &folders);
    assert_eq!(place.read("joined/images/train/1.png").as_deref(), Some("blurred"));
}

#[test]
fn a_merge_reports_labels_that_were_corrected_for_an_earlier_image() {
    for formats in [&[Format::Yolo][..], &[Format::Coco]] {
        let run = with_formats(formats);
        let place = Place::new();
        (0..4).for_each(|i| place.image(&format!("{i}.png"), 10 + i));
        let folders = shards(&place, &run);
        for shard in ["one", "two"] {
            let set = CorrectedSet::open(&place.path(shard)).expect("it is a data set");
            if set.images().iter().any(|image| image.name == "0.png") {
                save_as_it_is(&place, shard, "0.png");
            }
        }
        place.image("0.png", 30);
        shards(&place, &run);
        for _ in 0..2 {
            let summary =
                merge(&folders, &place.path("joined"), &mut || Ok(())).expect("they belong together");
            assert_eq!(summary.outdated, ["0.png"], "{formats:?}");
        }
    }
}
