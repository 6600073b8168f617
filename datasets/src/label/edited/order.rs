//! Several corrections of one image.

use super::*;

#[test]
fn labels_that_were_corrected_since_are_no_corrections_of_annotations() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let line = |left: f64| format!("0 {left} 0.5 0.1 0.1\n");
    for (round, left) in [0.3, 0.4, 0.5].into_iter().enumerate() {
        // `b` in its label file, and another image in `annotations.json`.
        place.write("set/labels/train/b.txt", &line(left));
        let mut changed = coco(&place);
        let own = list(&mut changed, "annotations").iter_mut().find(|one| one["image_id"] == 3 + round);
        own.expect("it is there")["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
        write(&place, &changed);
        let summary = place.label(&run).expect("nothing is new");
        assert!(summary.unclear.is_empty() && summary.corrected.len() == 2 + round, "{summary:?}");
        let there = found(&coco(&place), "b.png")[0].1[0];
        assert!((there - (left - 0.05) * 64.0).abs() < 0.02, "{there}");
    }
}

#[test]
fn of_two_corrections_of_an_image_at_once_the_annotations_count_and_both_stay() {
    let (place, run) = labelled(&[Format::Yolo, Format::Voc, Format::Coco]);
    place.write("set/labels/train/a.txt", "");
    place.write("set/voc/Annotations/b.xml", "<annotation/>");
    let mut changed = coco(&place);
    for number in [0, 1] {
        list(&mut changed, "annotations")[number]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    }
    write(&place, &changed);
    for _ in 0..2 {
        let unclear = place.label(&run).expect("nothing is new").unclear;
        let is_named = |start: &str| unclear.iter().filter(|line| line.starts_with(start)).count() == 1;
        assert!(
            unclear.len() == 2 && is_named("labels/train/a.txt: ") && is_named("voc/Annotations/b.xml: "),
            "{unclear:?}"
        );
        assert_eq!(place.read("set/labels/train/a.txt").as_deref(), Some(""));
        assert_eq!(place.read("set/voc/Annotations/b.xml").as_deref(), Some("<annotation/>"));
        assert!(place.read("set/voc/Annotations/a.xml").is_some_and(|text| text.contains("<object>")));
        assert!(place.read("set/labels/train/b.txt").is_some_and(|text| text.starts_with("0 0.5")));
        let after = coco(&place);
        assert_eq!(["a.png", "b.png"].map(|name| found(&after, name)[0].1[0]), [30.0, 30.0]);
    }
}

#[test]
fn what_was_corrected_last_counts() {
    let (place, run) = labelled(&[Format::Yolo, Format::YoloSeg, Format::Coco]);
    let mut changed = coco(&place);
    list(&mut changed, "annotations")[0]["segmentation"] =
        json!([[4.0, 4.0, 24.0, 4.0, 24.0, 24.0, 14.0, 14.0, 4.0, 24.0]]);
    list(&mut changed, "annotations")[0]["bbox"] = json!([4.0, 4.0, 20.0, 20.0]);
    write(&place, &changed);
    place.label(&run).expect("nothing is new");
    let before = found(&coco(&place), "a.png");
    assert!(before[0].3 < 350.0, "{before:?}");
    // The label file, with a second box: the first keeps its mask.
    let text = place.read("set/labels/train/a.txt").expect("it is there");
    place.write("set/labels/train/a.txt", &(text + "1 0.5 0.5 0.25 0.25\n"));
    for _ in 0..2 {
        assert!(place.label(&run).expect("nothing is new").unclear.is_empty());
        let after = found(&coco(&place), "a.png");
        assert!(after.len() == 2 && after[0] == before[0], "{after:?}");
    }
    // The browser, which shows the label file.
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &labels.instances[..1]).expect("nothing is new");
    place.label(&run).expect("nothing is new");
    assert_eq!(found(&coco(&place), "a.png"), before);
    // And the annotations again; the label file stays.
    let mut changed = coco(&place);
    list(&mut changed, "annotations")[0]["bbox"] = json!([8.0, 4.0, 20.0, 20.0]);
    write(&place, &changed);
    let text = place.read("set/labels/train/a.txt");
    place.label(&run).expect("nothing is new");
    let after = found(&coco(&place), "a.png");
    assert!(after[0].1 == [8.0, 4.0, 20.0, 20.0] && (after[0].3 - before[0].3).abs() < 20.0, "{after:?}");
    assert_eq!(place.read("set/labels/train/a.txt"), text);
}

#[test]
fn a_page_that_is_saved_as_it_is_counts() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    const LABEL: &str = "set/labels/train/a.txt";
    place.write(LABEL, "0 0.3 0.3 0.1 0.1\n");
    place.label(&run).expect("nothing is new");
    let mut changed = coco(&place);
    list(&mut changed, "annotations")[0]["bbox"] = json!([2.0, 40.0, 10.0, 12.0]);
    write(&place, &changed);
    place.label(&run).expect("nothing is new");
    assert_eq!(found(&coco(&place), "a.png")[0].1[1], 40.0);
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &labels.instances).expect("nothing is new");
    assert_eq!(place.read(LABEL).as_deref(), Some("0 0.3 0.3 0.1 0.1\n"));
    for _ in 0..2 {
        place.label(&run).expect("nothing is new");
        assert_eq!(found(&coco(&place), "a.png")[0].1[1], 16.0);
        assert!(Truth::open(&place.path("set")).is_ok());
    }
}

#[test]
fn a_label_file_that_was_corrected_before_and_after_is_named_with_the_annotations() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    place.write("set/labels/train/a.txt", "0 0.3 0.3 0.1 0.1\n");
    place.label(&run).expect("nothing is new");
    let mut changed = coco(&place);
    let own = list(&mut changed, "annotations").iter_mut().find(|one| one["image_id"] == 1);
    own.expect("it is there")["bbox"] = json!([2.0, 40.0, 10.0, 12.0]);
    write(&place, &changed);
    let unclear = place.label(&run).expect("nothing is new").unclear;
    assert!(unclear.len() == 1 && unclear[0].starts_with("labels/train/a.txt: "), "{unclear:?}");
    place.write("set/labels/train/a.txt", "0 0.35 0.3 0.1 0.1\n");
    let unclear = place.label(&run).expect("nothing is new").unclear;
    assert!(unclear.len() == 1 && unclear[0].starts_with("annotations.json, a.png: "), "{unclear:?}");
}

#[test]
fn a_merge_takes_what_was_changed_in_a_shard_and_what_was_undone() {
    let place = Place::new();
    (0..8).for_each(|number| place.image(&format!("{number}.png"), 21 + 20 * number));
    let shards = ["one", "two"].map(|name| place.path(name));
    for (index, name) in (1..).zip(["one", "two"]) {
        let mut run = Run { output: name.into(), shard: Shard::new(index, 2).ok(), ..Run::default() };
        run.options.formats.push(Format::Coco);
        place.label(&run).expect("the images can be labelled");
    }
    let whole = place.read("one/annotations.json").expect("it is there");
    let mut changed: Value = serde_json::from_str(&whole).expect("it is JSON");
    changed["annotations"][0]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    let name = changed["images"][0]["file_name"].as_str().expect("a name").replace(".png", ".txt");
    for (text, is_changed) in [(changed.to_string(), true), (whole, false)] {
        place.write("one/annotations.json", &text);
        let summary = merge(&shards, &place.path("joined"), &mut || Ok(())).expect("they belong together");
        assert_eq!(summary.corrected.len(), usize::from(is_changed));
        let joined = place.read("joined/annotations.json").unwrap_or_default();
        assert_eq!(joined.contains("[30.0,30.0,10.0,12.0]"), is_changed, "{joined}");
        let label = place.read(&format!("joined/labels/{name}")).unwrap_or_default();
        assert_eq!(label.contains(" 0.156250 0.187500"), is_changed, "{label}");
        assert_eq!(place.read("one/annotations.json"), Some(text));
    }
}
