//! Runs that were stopped, and what was written before.

use super::*;

#[test]
fn a_stop_at_any_write_changes_nothing_of_what_is_followed() {
    let formats = [Format::Yolo, Format::YoloSeg, Format::Masks, Format::Coco];
    let edited = || {
        let (place, run) = labelled(&formats);
        let mut changed = coco(&place);
        // Masks that can move with their boxes.
        for one in list(&mut changed, "annotations") {
            one["bbox"] = json!([4.0, 4.0, 10.0, 12.0]);
            one["segmentation"] = json!([[4.0, 4.0, 14.0, 4.0, 14.0, 16.0, 9.0, 10.0, 4.0, 16.0]]);
        }
        write(&place, &changed);
        place.label(&run).expect("nothing is new");
        let mut changed = coco(&place);
        // One of each kind, and `f` and `g` keep the masks that they had elsewhere.
        edit(&mut changed);
        list(&mut changed, "annotations")[4]["bbox"] = json!([30.0, 20.0, 20.0, 24.0]);
        list(&mut changed, "annotations")[5]["bbox"] = json!([5.0, 4.0, 10.0, 12.0]);
        write(&place, &changed);
        (place, run)
    };
    let files =
        ["annotations.json", "annotations_train.json", "labels/train/f.txt", "segments/labels/train/f.txt"];
    let content = |place: &Place| {
        let mut state = files.map(|file| place.read(&format!("set/{file}")));
        // Without a split, there is no file for it.
        state[1] = None;
        let png = std::fs::read(place.path("set/masks/train/f/dog-0.png")).ok();
        (state, png)
    };
    let (place, run) = edited();
    place.label(&run).expect("nothing is new");
    let expected = content(&place);
    assert!(expected.0[0].as_ref().is_some_and(|text| text.contains("[30.0,20.0,20.0,24.0]")));
    for writes in 0.. {
        let (place, run) = edited();
        let mut is_ended = place.label_and_stop(&run, writes);
        // And again.
        is_ended &= place.label_and_stop(&run, writes / 2);
        let summary = place.label(&run).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
        assert_eq!((summary.corrected.len(), summary.unclear.len()), (7, 0), "{writes} writes");
        assert!(content(&place) == expected, "{writes} writes");
        if is_ended {
            assert!(writes > 8, "{writes} writes");
            break;
        }
    }
}

#[test]
fn without_a_copy_of_the_file_what_differs_is_followed() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let state = std::fs::read_dir(place.path("set/.ocelli-label")).expect("it is there").flatten();
    let copies = state.filter(|file| file.file_name().to_string_lossy().ends_with("-annotations.json"));
    let removed = copies.map(|file| std::fs::remove_file(file.path()).expect("it is there"));
    assert_eq!(removed.count(), 1);
    let mut changed = coco(&place);
    edit(&mut changed);
    rewritten(&mut changed);
    write(&place, &changed);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!(summary.corrected, ["a.png", "b.png", "c.png", "d.png", "e.png"]);
}

#[test]
fn images_that_a_stopped_run_labelled_again_are_no_corrections() {
    let mut run = Run { classes: vec!["dog"], finds_added: true, ..Run::default() };
    run.options.formats = vec![Format::Yolo, Format::Coco];
    let mut with_added = 0;
    for writes in 5..60 {
        let place = Place::new();
        place.images(&[("a.png", 21), ("b.png", 41), ("c.png", 61)]);
        place.label(&run).expect("the images can be labelled");
        let changed = {
            let mut changed = coco(&place);
            list(&mut changed, "annotations")[0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
            changed
        };
        place.image("c.png", 81);
        let more = Run { classes: vec!["dog", "cat"], ..run.clone() };
        if place.label_and_stop(&more, writes)
            || coco(&place)["categories"].as_array().map(Vec::len) != Some(1)
        {
            continue;
        }
        write(&place, &changed);
        let summary = place.label(&more).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
        assert_eq!(summary.corrected, ["a.png"], "{writes} writes");
        let after = coco(&place);
        let of = |name: &str| {
            let mut corners: Vec<_> = found(&after, name).iter().map(|one| (one.1[0], one.1[1])).collect();
            corners.sort_by(|a, b| a.1.total_cmp(&b.1));
            corners
        };
        let cat = row_of("cat") as f64;
        // After a stop between the record of the file and the file itself, it counts as one with the added class.
        assert_eq!(of("a.png").last(), Some(&(30.0, 30.0)), "{writes} writes");
        with_added += usize::from(of("a.png") == [(1.05, cat), (30.0, 30.0)]);
        assert_eq!(
            (of("b.png"), of("c.png")),
            (vec![(2.05, 0.0), (2.05, cat)], vec![(4.05, 0.0), (4.05, cat)]),
            "{writes} writes"
        );
    }
    assert!(with_added > 5, "{with_added}");
}

#[test]
fn a_class_that_no_run_added_yet_is_in_no_file() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    let mut changed = coco(&place);
    list(&mut changed, "categories").push(json!({"id": 3, "name": "cow"}));
    list(&mut changed, "annotations")[0]["category_id"] = json!(3);
    write(&place, &changed);
    run.classes.push("cow");
    run.finds_added = true;
    // Stopped before the class is added.
    for writes in 0..8 {
        place.label_and_stop(&run, writes);
        let set = CorrectedSet::open(&place.path("set")).expect("it is one");
        drop(Truth::open(&place.path("set")));
        let image = set.images()[1].clone();
        let labels = set.labels(&image).expect("there are labels");
        set.save(&image, &labels.version, &labels.instances).expect("nothing is new");
    }
    place.label(&run).expect("a class can be added");
    assert_eq!(found(&coco(&place), "a.png")[0].0, 3);
    // One that changes more than the classes is refused before anything is followed.
    let mut changed = coco(&place);
    list(&mut changed, "categories").push(json!({"id": 4, "name": "hen"}));
    list(&mut changed, "annotations")[1]["category_id"] = json!(4);
    write(&place, &changed);
    run.classes.push("hen");
    let shard = Run { shard: Shard::new(1, 2).ok(), ..run.clone() };
    place.label(&shard).expect_err("it is no shard");
    assert!(place.read("set/.ocelli-label/state.jsonl").is_some_and(|state| !state.contains("\"class\":3")));
    place.label(&run).expect("a class can be added");
}
