//! Arguments of `ocelli label` that are refused, and its help.

use super::data_set::write_images;
use super::{OCELLI, arguments};
use crate::run::{Place, refusal};

#[test]
fn invalid_arguments_are_refused() {
    let place = Place::new();
    write_images(&place, "images", 3);
    place.folder("empty");
    place.write("file", "hello");
    place.write("mine/notes", "mine");
    for (name, map) in [
        ("key.yaml", "classes: {dog: {thresold: 0.5}}"),
        ("number.yaml", "classes: [dog]\nmin_area: 3"),
        ("text.yaml", "classes: [dog"),
        ("group.yaml", "classes: [dog, cat]\nmerge: [[dog, cow]]"),
        ("image.yaml", "classes: {dog: {exemplars: [{image: x.png, box: [1, 2, 3, 4]}]}}"),
        ("example.yaml", "classes: {dog: {exemplars: [{file: x.png, box: [1, 2, 3, 4]}]}}"),
    ] {
        place.write(name, map);
    }
    place.succeed(OCELLI, &arguments("set", &[]));
    let start = "label|--images|images|--classes|dog|-o|out|";
    let rows = [
        ("--format|tfrecord", 2, &["--format", "tfrecord", "yolo, yolo-seg, coco, voc"][..]),
        ("--format|", 2, &["--format", "no such format"]),
        ("--val-share|1", 2, &["--val-share is 1", "below 1"]),
        ("--val-share|-0.1", 2, &["--val-share is -0.1"]),
        ("--val-share|nan", 2, &["--val-share is NaN"]),
        ("--min-area|-1", 2, &["--min-area is -1"]),
        ("--review-below|2", 2, &["--review-below is 2"]),
        ("--review|x", 2, &["--review", "'x'"]),
        ("--confidence|3", 2, &["--confidence is 3"]),
        ("--conf|3", 2, &["--confidence is 3"]),
        ("--shard|0/3", 2, &["--shard", "shard 0/3", "1/3 to 3/3"]),
        ("--shard|4/3", 2, &["--shard", "shard 4/3"]),
        ("--shard|1", 2, &["--shard", "shard 1", "1/8"]),
        ("--spill|3", 2, &["--low-memory"]),
        ("--low-memory|--spill|-3", 2, &["--spill is -3"]),
        ("--workers|0", 2, &["--workers is 0"]),
        ("--no-pictures", 2, &["--no-images", "link or copy the images"]),
        ("--copy|--link", 2, &["--copy", "--link"]),
        ("--format|yolo-seg|--no-masks", 2, &["yolo-seg", "--no-masks"]),
        ("--map|key.yaml", 2, &["--map", "--classes"]),
        ("--engine|quick", 2, &["quick", "no such engine"]),
        ("--model|nowhere", 2, &["nowhere", "no such folder"]),
        ("--text-cache|nowhere/x", 1, &["nowhere"]),
    ];
    let lines: Vec<String> = rows.iter().map(|(more, ..)| format!("{start}{more}")).collect();
    let rows = lines.iter().zip(rows).map(|(line, (_, status, words))| refusal(line, status, words));
    let others = [
        refusal(
            "label|--images|images|--map|key.yaml|-o|out",
            2,
            &["key.yaml", "classes.dog.thresold", "threshold"],
        ),
        refusal(
            "label|--images|images|--map|number.yaml|-o|out",
            2,
            &["number.yaml", "min_area", "classes, merge"],
        ),
        refusal("label|--images|images|--map|text.yaml|-o|out", 2, &["text.yaml", "not YAML"]),
        refusal("label|--images|images|--map|group.yaml|-o|out", 2, &["group.yaml", "\"cow\""]),
        refusal("label|--images|images|--map|nowhere|-o|out", 1, &["nowhere"]),
        refusal(
            "label|--model|built-in|--images|images|--map|image.yaml|-o|out",
            2,
            &["x.png", "no image has this name"],
        ),
        refusal(
            "label|--model|built-in|--images|images|--map|example.yaml|-o|out",
            2,
            &["x.png", "no such file"],
        ),
        refusal("label|--images|images|-o|out", 2, &["--classes"]),
        refusal("label|--images|images|--classes|dog", 2, &["--output"]),
        refusal("label|--classes|dog|-o|out", 2, &["--images"]),
        refusal("label|--images|empty|--classes|dog|-o|out", 2, &["empty", "contain no images"]),
        refusal("label|--images|nowhere|--classes|dog|-o|out", 2, &["nowhere", "no such file"]),
        refusal("label|--images|images|--classes|dog,,|-o|out", 2, &["class 2", "blank"]),
        refusal("label|--images|images|--classes|dog|-o|file", 2, &["file", "name a folder"]),
        refusal("label|--model|built-in|--images|images|--classes|dog|-o|file/below", 1, &["file/below"]),
        refusal("label|--images|images|--classes|dog|-o|mine", 2, &["mine", "not empty"]),
        refusal("label|--images|images|--classes|dog|-o|images", 2, &["images", "not empty"]),
        refusal("label|--images|set/images|--classes|dog|-o|set", 2, &["set/images", "output folder"]),
        refusal(
            "label|--model|built-in|--imgsz|112|--images|images|--classes|dog|-o|set",
            1,
            &["classes of 7 entries, this is of 1", "--restart"],
        ),
    ];
    place.refuses(OCELLI, &rows.chain(others).collect::<Vec<_>>());
    assert_eq!(place.read("mine/notes"), b"mine");

    let lock =
        std::fs::File::options().write(true).open(place.path("set/.ocelli-label/lock")).expect("it exists");
    lock.lock().expect("it is not locked");
    let locked = place.run(OCELLI, &arguments("set", &[]));
    locked.is_refusal(1, &["set", "another process"]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn help_fits_the_terminal() {
    let place = Place::new();
    for (arguments, words) in [
        (
            &["label", "--help"][..],
            &["--images", "--map", "--shard", "--low-memory", "merge", "Examples"][..],
        ),
        (&["label", "merge", "--help"], &["<DIR>", "--output"]),
    ] {
        let text = place.succeed(OCELLI, arguments);
        for word in words {
            assert!(text.contains(word), "{arguments:?}: {word}: {text}");
        }
        for line in text.lines() {
            let example = line.starts_with("  ocelli ") || line.contains("ocelli label ");
            assert!(example || line.chars().count() <= 80, "{arguments:?}: {line}");
        }
    }
}
