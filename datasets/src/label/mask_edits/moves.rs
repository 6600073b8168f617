//! Masks that were moved, put back, or are nobody's concern.

use super::*;

#[test]
fn masks_of_an_image_that_was_moved_to_the_other_split_count() {
    for (is_seen, are_moved) in [(false, false), (true, false), (false, true), (true, true)] {
        let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
        write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
        if is_seen {
            label(&place, &run).expect("nothing is new");
        }
        if are_moved {
            move_to_val(&place, "set/masks/train/a");
        }
        let own = masks(&place, "set");
        move_to_val(&place, "set/labels/train/a.txt");
        for _ in 0..2 {
            let summary = label(&place, &run).expect("nothing is new");
            assert_eq!(summary.unclear, [""; 0]);
            assert!(masks(&place, "set") == own, "{is_seen}: {:?}", masks(&place, "set").keys());
            assert!(found_masks(&place, "a.png").contains(&changed(22, 2)));
            Truth::open(&place.path("set/annotations.json")).expect("all files say the same");
        }
    }
}

#[test]
fn masks_that_are_moved_with_their_image_are_no_correction() {
    for are_copied in [false, true] {
        let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
        let own = masks(&place, "set");
        move_to_val(&place, "set/labels/train/a.txt");
        move_to_val(&place, "set/images/train/a.png");
        move_to_val(&place, "set/masks/train/a");
        if are_copied {
            for (file, bytes) in own.iter().filter(|(file, _)| file.starts_with("train/a/")) {
                std::fs::create_dir_all(place.path("set/masks/train/a")).expect("a temporary folder");
                std::fs::write(place.path(&format!("set/masks/{file}")), bytes).expect("a temporary folder");
            }
        }
        for _ in 0..2 {
            let summary = label(&place, &run).expect("nothing is new");
            assert!(summary.unclear.is_empty() && summary.corrected.is_empty(), "{summary:?}");
            let moved = own.iter().map(|(file, bytes)| (file.replace("train/a/", "val/a/"), bytes.clone()));
            assert!(masks(&place, "set") == moved.collect(), "{:?}", masks(&place, "set").keys());
        }
        // One in the folder of the other split is named, and changes nothing.
        let before = place.read("set/annotations.json");
        write(&place, "set/masks/train/a/dog-1.png", &changed(22, 2));
        let unclear = label(&place, &run).expect("nothing is new").unclear;
        assert_eq!(unclear, ["masks/train/a/: its image has masks in masks/val/a/"]);
        assert_eq!(place.read("set/annotations.json"), before);
        write(&place, "set/masks/val/a/dog-0.png", &changed(2, 2));
        label(&place, &run).expect("nothing is new");
        let painted = [square(22, 2), square(42, 2), changed(2, 2)];
        assert_eq!(found_masks(&place, "a.png"), painted);
        // Back where it was.
        place.remove("set/masks/train/a/dog-1.png");
        for file in ["labels/train/a.txt", "images/train/a.png", "masks/train/a"] {
            let (from, to) = (
                place.path(&format!("set/{}", file.replace("/train/", "/val/"))),
                place.path(&format!("set/{file}")),
            );
            drop(std::fs::remove_dir(&to));
            std::fs::rename(from, to).expect("it is there");
        }
        assert_eq!(label(&place, &run).expect("nothing is new").unclear, [""; 0]);
        assert_eq!(found_masks(&place, "a.png"), painted);
    }
}

#[test]
fn files_that_are_no_masks_of_a_run_stay_and_refuse_none() {
    let (place, mut run) = labelled(&[Format::Yolo]);
    write(&place, "set/masks/train/a/dog-0.png", &square(2, 2));
    run.classes.push("cat");
    label(&place, &run).expect("masks are no format of it");
    run.existing = Existing { restart: true, ..Existing::default() };
    label(&place, &run).expect("masks are no format of it");
    run.existing.discard_corrections = true;
    label(&place, &run).expect("masks are no format of it");
    assert_eq!(masks(&place, "set").len(), 1);

    let (place, mut run) = labelled(&[Format::Yolo, Format::Masks]);
    run.options.formats = vec![Format::Yolo];
    label(&place, &run).expect("masks are dropped");
    write(&place, "set/masks/train/a/dog-0.png", &square(30, 30));
    label(&place, &run).expect("masks are no format of it");
    run.existing = Existing { restart: true, discard_corrections: true };
    label(&place, &run).expect("masks are no format of it");
    assert_eq!(masks(&place, "set").len(), 1);

    let (place, run) = labelled(&ALL);
    let before = bytes_below(&place.path("set"));
    for file in ["dog-07.png", "cow-0.png"] {
        write(&place, &format!("set/masks/train/a/{file}"), &square(2, 40));
        label(&place, &run).expect("it is named");
        let existing = Existing { discard_corrections: true, ..Existing::default() };
        label(&place, &Run { existing, ..run.clone() }).expect("they are discarded");
        assert!(bytes_below(&place.path("set")) == before, "{file}");
    }
    // A mask that was saved with another name, or for another program, is not missing without a word.
    for name in ["dog-1 fixed.png", "dog.png", "dog-9.PNG"] {
        let (from, to) = ("set/masks/train/a/dog-1.png", format!("set/masks/train/a/{name}"));
        std::fs::rename(place.path(from), place.path(&to)).expect("it is there");
        let unclear = label(&place, &run).expect("it is named").unclear;
        let why = format!("masks/train/a/{name}: expected a class and a number, such as dog-7.png");
        assert_eq!(unclear, [why]);
        assert_eq!(found_masks(&place, "a.png").len(), 3);
        std::fs::rename(place.path(&to), place.path(from)).expect("it is there");
    }
}

#[test]
fn a_mask_that_a_run_removed_can_be_put_back() {
    let (place, run) = labelled(&[Format::Yolo, Format::Masks, Format::Coco]);
    let file = place.path("set/masks/train/a/dog-2.png");
    let mask = std::fs::read(&file).expect("it was written");
    let text = place.read("set/labels/train/a.txt").unwrap_or_default();
    place.write(
        "set/labels/train/a.txt",
        &text.lines().take(2).map(|line| format!("{line}\n")).collect::<String>(),
    );
    label(&place, &run).expect("nothing is new");
    assert!(!file.exists());
    std::fs::write(&file, &mask).expect("a temporary folder");
    let unclear = label(&place, &run).expect("nothing is new").unclear;
    assert!(unclear.len() == 1 && unclear[0].starts_with("masks/train/a/: other labels"), "{unclear:?}");
    place.write("set/labels/train/a.txt", &text);
    assert_eq!(label(&place, &run).expect("nothing is new").unclear, [""; 0]);
    assert!(found_masks(&place, "a.png").len() == 3 && file.exists());
}
