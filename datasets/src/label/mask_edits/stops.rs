//! Masks that are corrected around a stop, or a page that is saved.

use super::*;

#[test]
fn a_stop_at_any_write_loses_and_doubles_no_mask() {
    for writes in 0.. {
        let (place, run) = labelled(&ALL);
        edit(&place, "set");
        // The labels of another image change, too.
        place.image("e.png", 30);
        let restart =
            Run { existing: Existing { restart: writes % 2 == 1, ..Existing::default() }, ..run.clone() };
        let own = masks(&place, "set");
        let is_ended = stopping(writes, || label(&place, &restart)).is_ok();
        let summary = label(&place, &run).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
        assert!(summary.unclear.is_empty() && summary.corrected == EDITED, "{writes} writes: {summary:?}");
        let of_persons = |mut all: BTreeMap<String, Vec<u8>>| {
            all.retain(|file, _| !file.contains("/e/"));
            all
        };
        assert!(of_persons(masks(&place, "set")) == of_persons(own), "{writes} writes");
        let as_before = label(&place, &Run { existing: restart.existing, ..run.clone() });
        assert!(as_before.is_ok(), "{writes} writes");
        place.image("e.png", 6);
        label(&place, &run).expect("the images can be labelled");
        check_edited(&place, "set");
        if is_ended {
            assert!(writes > 20, "{writes} writes");
            break;
        }
    }
}

#[test]
fn a_mask_that_is_corrected_after_a_stop_is_not_doubled() {
    for writes in 0.. {
        let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
        let text = place.read("set/labels/train/a.txt").unwrap_or_default();
        let rest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        place.write("set/labels/train/a.txt", &rest);
        place.image("b.png", 30);
        // All masks of `a` get another number, and those of `b` are about another image.
        let is_ended = stopping(writes, || label(&place, &run)).is_ok();
        let file = "set/masks/train/a/dog-1.png";
        let before = std::fs::read(place.path(file)).ok();
        let before = before.and_then(|bytes| decoded(&bytes, (SIDE, SIDE)).ok());
        let left = LEFT.into_iter().find(|left| before == Some(square(*left, 2)));
        write(&place, file, &changed(left.unwrap_or(42), 2));
        let own = std::fs::read(place.path(file)).expect("it is there");
        place.remove("set/masks/train/b/dog-1.png");
        let mut sets = Vec::new();
        for _ in 0..2 {
            let Summary { unclear, outdated, .. } =
                label(&place, &run).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
            let of_b = found_masks(&place, "b.png");
            let [before, after] = [3, 30].map(|top| [square(2, top), square(42, top)]);
            let is_outdated = outdated.contains(&"b.png".to_owned());
            // Masks of both images are never mixed, and those of the earlier one are not kept without a word.
            assert!(of_b == after || (of_b == before && is_outdated), "{writes} writes: {}", of_b.len());
            assert!(std::fs::read(place.path(file)).is_ok_and(|bytes| bytes == own), "{writes} writes");
            let count = masks(&place, "set").keys().filter(|file| file.starts_with("train/a/")).count();
            let there = found_masks(&place, "a.png");
            assert_eq!(there.len(), 2, "{writes} writes");
            // Where the stop left other masks than boxes, this is said.
            let is_same = there.contains(&changed(left.unwrap_or(42), 2)) && count == 2;
            assert_eq!(unclear.is_empty(), is_same, "{writes} writes: {left:?}, {count} masks, {unclear:?}");
            assert!(is_same || !is_ended);
            sets.push(bytes_below(&place.path("set")));
        }
        assert!(sets[0] == sets[1], "{writes} writes");
        if is_ended {
            assert!(writes > 8, "{writes} writes");
            break;
        }
    }
}

#[test]
fn masks_that_are_painted_after_a_page_was_saved_have_what_was_saved() {
    let (place, run) = labelled(&[Format::Masks, Format::Coco]);
    let set = CorrectedSet::open(&place.path("set")).expect("it is labelled");
    let labels = set.labels(&set.images()[0]).expect("it is labelled");
    set.save(&set.images()[0], &labels.version, &labels.instances[1..]).expect("nothing changed meanwhile");
    assert_eq!(masks(&place, "set").keys().filter(|file| file.starts_with("train/a/")).count(), 2);
    write(&place, "set/masks/train/a/dog-0.png", &changed(22, 2));
    assert_eq!(label(&place, &run).expect("nothing is new").unclear, [""; 0]);
    assert_eq!(found_masks(&place, "a.png"), [square(42, 2), changed(22, 2)]);
}

#[test]
fn masks_that_are_painted_after_a_run_was_stopped_lose_no_annotation() {
    for writes in 0.. {
        let (place, run) = labelled(&[Format::Masks, Format::Coco]);
        let text = place.read("set/annotations.json").expect("it is there");
        let mut coco: Value = serde_json::from_str(&text).expect("it is JSON");
        let all = coco["annotations"].as_array_mut().expect("a list");
        all.retain(|one| !(one["image_id"] == 1 && one["bbox"][0] == 2.0));
        place.write("set/annotations.json", &coco.to_string());
        let is_ended = stopping(writes, || label(&place, &run)).is_ok();
        // The last object, whatever its number is.
        let file = ["set/masks/train/a/dog-1.png", "set/masks/train/a/dog-2.png"].into_iter().find(|file| {
            let bytes = std::fs::read(place.path(file)).unwrap_or_default();
            decoded(&bytes, (SIDE, SIDE)).is_ok_and(|mask| mask == square(42, 2))
        });
        // Between two names, there is nothing to paint.
        let Some(file) = file else { continue };
        write(&place, file, &changed(42, 2));
        for _ in 0..2 {
            let unclear = label(&place, &run).expect("nothing is new").unclear;
            let there = found_masks(&place, "a.png");
            // The masks count if they had what the annotations say, and are named if not.
            assert!(there.len() == 2 && there.contains(&square(22, 2)), "{writes} writes: {there:?}");
            assert_eq!(unclear.is_empty(), there.contains(&changed(42, 2)), "{writes} writes: {unclear:?}");
        }
        if is_ended {
            assert!(file.ends_with("-1.png") && writes > 8, "{writes} writes");
            break;
        }
    }
}
