//! Which image an entry of the file is about.

use super::*;

#[test]
fn each_of_cocos_files_is_followed_and_two_that_contradict_are_refused() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    run.options.validation_share = 0.5;
    (0..8).for_each(|number| place.image(&format!("{number}.png"), 301 + 20 * number));
    place.label(&run).expect("the images can be labelled");
    for (round, file) in ["set/annotations_train.json", "set/annotations_val.json"].into_iter().enumerate() {
        let before = place.read(file).expect("it is there");
        let mut changed: Value = serde_json::from_str(&before).expect("it is JSON");
        let image = changed["images"][0].clone();
        let annotations = list(&mut changed, "annotations");
        let own = annotations.iter_mut().find(|one| one["image_id"] == image["id"]);
        own.expect("it is there")["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
        // Another program names the images without their folders.
        without_folders(&mut changed);
        place.write(file, &changed.to_string());
        let name = image["file_name"].as_str().expect("a name");
        let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
        assert!(truth.notes().len() == 1 && truth.notes()[0].contains("1 images"), "{:?}", truth.notes());
        assert_eq!(place.label(&run).expect("nothing is new").corrected.len(), round + 1);
        let truth = Truth::open(&place.path("set/annotations.json")).expect("it follows");
        assert_eq!(truth.notes(), [] as [String; 0]);
        assert_eq!(found(&coco(&place), name)[0].1, [30.0, 30.0, 10.0, 12.0]);
        let label = place.read(&format!("set/labels/{}.txt", name.trim_end_matches(".png")));
        assert!(label.is_some_and(|text| text.contains(" 0.156250 0.187500")));
        // Both files say something else about it.
        let mut whole = coco(&place);
        for (path, json) in [(FILE, &mut whole), (file, &mut changed)] {
            let own = list(json, "annotations").iter_mut().find(|one| one["image_id"] == image["id"]);
            own.expect("it is there")["bbox"] = json!([path.len(), 30.0, 10.0, 12.0]);
        }
        let texts = [FILE, file].map(|file| place.read(file));
        write(&place, &whole);
        place.write(file, &changed.to_string());
        let error = place.label(&run).expect_err("two truths").to_string();
        let why = format!(
            "image {}: annotations.json was changed, too",
            name.trim_start_matches(['t', 'r', 'a', 'i', 'n', 'v', 'l', '/'])
        );
        assert!(error.contains(&why), "{error}");
        [FILE, file]
            .iter()
            .zip(texts)
            .for_each(|(file, text)| place.write(file, &text.expect("it was there")));
    }
}

#[test]
fn names_that_another_program_changed_are_those_of_the_images() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    let place = Place::new();
    place.images(&[("a.png", 21), ("b/c.png", 41), ("d.png", 61)]);
    place.label(&run).expect("the images can be labelled");
    let mut changed = coco(&place);
    without_folders(&mut changed);
    for image in list(&mut changed, "images") {
        _ = image.as_object_mut().map(|image| image.remove("width"));
        _ = image.as_object_mut().map(|image| image.remove("height"));
    }
    list(&mut changed, "annotations")[1]["bbox"] = json!([30.0, 30.0, 10.0, 12.0]);
    write(&place, &changed);
    // In the browser, which writes the file again with all images.
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &[]).expect("nothing is new");
    let after = coco(&place);
    let counts = ["a.png", "b/c.png", "d.png"].map(|name| found(&after, name).len());
    assert_eq!((counts, found(&after, "b/c.png")[0].1), ([0, 1, 1], [30.0, 30.0, 10.0, 12.0]));
    // Two images can be the one of the file.
    place.image("c.png", 81);
    place.label(&run).expect("the images can be labelled");
    let mut changed = coco(&place);
    without_folders(&mut changed);
    write(&place, &changed);
    let error = place.label(&run).expect_err("two names").to_string();
    assert!(error.contains("image c.png: it is not clear which image it is"), "{error}");
}

#[test]
fn names_that_fit_two_images_are_refused() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    let place = Place::new();
    place.images(&[("a.png", 21), ("b/a.png", 41)]);
    place.label(&run).expect("the images can be labelled");
    let whole = place.read(FILE).expect("it is there");
    for is_left in [true, false] {
        let mut changed = coco(&place);
        let images = list(&mut changed, "images");
        images
            .iter_mut()
            .filter(|image| image["file_name"] != "c.gif")
            .for_each(|image| image["file_name"] = json!("a.png"));
        if !is_left {
            // The one without a folder.
            let id = images.remove(0)["id"].clone();
            list(&mut changed, "annotations").retain(|one| one["image_id"] != id);
        }
        write(&place, &changed);
        let error = place.label(&run).expect_err("two names").to_string();
        assert!(error.contains("image a.png: it is not clear which image it is"), "{error}");
        place.write(FILE, &whole);
    }
}

#[test]
fn an_image_of_equal_name_in_a_folder_is_not_mixed_up() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    let place = Place::new();
    place.images(&[("a.png", 21), ("b/a.png", 41), ("b/d.png", 61)]);
    place.label(&run).expect("the images can be labelled");
    let moved = |place: &Place, left: f64| {
        let mut changed = coco(place);
        let image = list(&mut changed, "images").iter().find(|image| image["file_name"] == "a.png").cloned();
        let id = image.expect("it is there")["id"].clone();
        let own = list(&mut changed, "annotations").iter_mut().find(|one| one["image_id"] == id);
        own.expect("it is there")["bbox"] = json!([left, 30.0, 10.0, 12.0]);
        changed
    };
    // A person removes the entry of the other.
    let mut changed = moved(&place, 20.0);
    list(&mut changed, "images").retain(|image| image["file_name"] != "b/a.png");
    list(&mut changed, "annotations").retain(|one| one["image_id"] != 2);
    write(&place, &changed);
    assert_eq!(place.label(&run).expect("nothing is new").corrected, ["a.png"]);
    assert_eq!(found(&coco(&place), "b/a.png").len(), 1);
    // And its file.
    place.remove("images/b/a.png");
    assert_eq!(place.label(&run).expect("one is gone").removed, ["b/a.png"]);
    write(&place, &moved(&place, 25.0));
    place.label(&run).expect("nothing is new");
    assert_eq!(found(&coco(&place), "a.png")[0].1[0], 25.0);
    let truth = Truth::open(&place.path(FILE)).expect("it follows");
    assert_eq!(truth.image_ids().len(), 2);
}

#[test]
fn a_file_of_ours_in_the_place_of_another_one_has_no_corrections() {
    let (place, mut run) = labelled(&[Format::Yolo, Format::Coco]);
    run.options.validation_share = 0.5;
    (0..8).for_each(|number| place.image(&format!("{number}.png"), 301 + 20 * number));
    place.label(&run).expect("the images can be labelled");
    let whole = place.read(FILE).expect("it is there");
    place.write("set/annotations_train.json", &whole);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!((summary.corrected.len(), place.read(FILE)), (0, Some(whole)));
    assert_eq!(place.read("set/annotations_train.json").map(|text| text.contains("\"val/")), Some(false));
}

#[test]
fn an_image_that_was_removed_from_annotations_keeps_its_labels() {
    let (place, run) = labelled(&[Format::Yolo, Format::Coco]);
    let mut changed = coco(&place);
    list(&mut changed, "images").remove(0);
    list(&mut changed, "annotations").remove(0);
    write(&place, &changed);
    let summary = place.label(&run).expect("nothing is new");
    assert_eq!((summary.unclear.len(), summary.corrected.len()), (0, 0), "{:?}", summary.unclear);
    assert_eq!(found(&coco(&place), "a.png").len(), 1);
    assert!(place.label(&run).expect("nothing is new").unclear.is_empty());
}

#[test]
fn an_image_that_is_gone_does_not_come_back_with_a_correction_of_another() {
    let mut run = Run { classes: vec!["dog", "cat"], ..Run::default() };
    run.options.formats = vec![Format::Coco];
    run.options.images = ImageMode::None;
    let place = Place::new();
    place.images(&[("a.png", 21), ("b.png", 41)]);
    place.label(&run).expect("the images can be labelled");
    place.remove("images/b.png");
    assert_eq!(place.label(&run).expect("one is gone").removed, ["b.png"]);
    let set = CorrectedSet::open(&place.path("set")).expect("it is one");
    let labels = set.labels(&set.images()[0]).expect("there are labels");
    set.save(&set.images()[0], &labels.version, &[]).expect("nothing is new");
    let names = coco(&place)["images"].as_array().map(Vec::len);
    assert_eq!(names, Some(1));
}
