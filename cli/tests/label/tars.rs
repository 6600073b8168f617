//! Images in tar files, as WebDataset writes them.

use std::path::Path;

use super::data_set::{CLASSES, IMGSZ, differences, tree, write_images};
use super::{OCELLI, journal_of};
use crate::run::Place;

/// A tar file of the files in a folder, by name, as WebDataset writes it: an image and a text for each key.
fn pack(place: &Place, folder: &str, tar: &str) {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in tree(&place.path(folder)) {
        let mut add = |name: &Path, content: &[u8]| {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, content).expect("memory");
        };
        add(&path, &content);
        add(&path.with_extension("cls"), b"7");
    }
    place.write(tar, builder.into_inner().expect("memory"));
}

fn label(place: &Place, images: &str, output: &str, more: &[&str]) -> crate::run::Outcome {
    let start =
        ["label", "--model", "built-in", "--imgsz", IMGSZ, "--engine", "embedded", "--classes", CLASSES];
    let outcome =
        place.run(OCELLI, &[&start[..], &["--images", images, "-o", output, "--review"], more].concat());
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
    outcome
}

/// Two shards, and the folders that they are made of.
fn shards() -> Place {
    let place = Place::new();
    for shard in ["shard-000000", "shard-000001"] {
        write_images(&place, &format!("images/{shard}"), if shard.ends_with('0') { 9 } else { 7 });
        pack(&place, &format!("images/{shard}"), &format!("tars/{shard}.tar"));
    }
    place
}

const FORMATS: [&str; 2] = ["--format", "yolo,coco"];
const TARS: &str = "tars/shard-{000000..000001}.tar";

fn failed(place: &Place, output: &str) -> Vec<String> {
    let path = place.path(output).join("failed.csv");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn shards_are_labelled_as_folders_with_the_same_images() {
    let place = shards();
    assert_eq!(label(&place, "images", "folders", &[&FORMATS[..], &["--copy"]].concat()).status, Some(0));
    // Links are the default, and nothing can link into a tar file: the images are copied.
    assert_eq!(label(&place, TARS, "braces", &FORMATS).status, Some(0));
    assert_eq!(differences(&place.path("folders"), &place.path("braces")), without_sources(&place));
    assert_eq!(label(&place, "tars/*.tar", "pattern", &FORMATS).status, Some(0));
    place.write("list.txt", "tars/shard-000000.tar\ntars/shard-000001.tar\n");
    assert_eq!(differences(&place.path("braces"), &place.path("pattern")), [""; 0]);
    assert_eq!(failed(&place, "braces"), [""; 0]);

    // The same command has nothing to do, and a job in three shards makes the same data set.
    let again = label(&place, TARS, "braces", &FORMATS);
    assert!(again.stderr.contains("0 images to label, 16 done before"), "{again:?}");
    for part in ["1/3", "2/3", "3/3"] {
        let more = [&FORMATS[..], &["--shard", part]].concat();
        assert_eq!(label(&place, TARS, &format!("part-{}", &part[..1]), &more).status, Some(0));
    }
    place.succeed(OCELLI, &["label", "merge", "part-1", "part-2", "part-3", "-o", "joined"]);
    assert_eq!(differences(&place.path("braces"), &place.path("joined")), [""; 0]);

    let missing = label(&place, "tars/shard-{000000..000002}.tar", "none", &[]);
    assert!(missing.stderr.contains("tars/shard-000002.tar: no such file"), "{missing:?}");
    assert!(!place.path("none").exists());

    // Without images in the data set, COCO names them as tar and member.
    assert_eq!(label(&place, TARS, "bare", &["--format", "coco", "--no-images"]).status, Some(0));
    let names = place.json("bare/annotations.json")["images"].as_array().expect("a list").clone();
    assert_eq!(names[0]["file_name"], "shard-000000/000.png");
    assert_eq!(names.len(), 16);
}

/// The lists for review name the sources, which are other files.
fn without_sources(place: &Place) -> Vec<String> {
    let size = |set: &str, name: &str| place.read(&format!("{set}/review/{name}")).len();
    let lists = ["low_confidence.csv", "sample.csv"];
    let line = |name: &&str| {
        format!("review/{name}: {} bytes, {} bytes", size("folders", name), size("braces", name))
    };
    lists.iter().map(line).collect()
}

#[test]
fn a_truncated_tar_is_one_line_and_corrections_stay() {
    let place = shards();
    let whole = place.read("tars/shard-000001.tar");
    let cut = whole.len() / 2 + 100;
    place.write("tars/shard-000001.tar", &whole[..cut]);
    let first = label(&place, "tars/*.tar", "set", &["--strict"]);
    assert_eq!(first.status, Some(1), "{first:?}");
    let lines = failed(&place, "set");
    let tar = place.path("tars/shard-000001.tar").display().to_string();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with(&tar) && lines[0].contains("truncated at byte"), "{lines:?}");
    let labels = |set: &str| tree(&place.path(set).join("labels")).len();
    let before = labels("set");
    assert!((10..16).contains(&before), "{before} label files");

    // One image in each tar is corrected, one of them by removing the file.
    let file = |shard: u32| {
        let of = |split: &str| format!("set/labels/{split}/shard-00000{shard}/000.txt");
        [of("train"), of("val")].into_iter().find(|file| place.path(file).exists()).expect("it is labelled")
    };
    let (corrected, removed) = (file(0), file(1));
    place.write(&corrected, "0 0.5 0.5 0.25 0.25\n");
    std::fs::remove_file(place.path(&removed)).expect("it is there");
    // The whole tar arrives: all its images are new or may have changed.
    place.write("tars/shard-000001.tar", &whole);
    let second = label(&place, "tars/*.tar", "set", &["--strict"]);
    assert_eq!(second.status, Some(0), "{second:?}");
    assert!(second.stderr.contains("7 images to label, 9 done before"), "{second:?}");
    assert_eq!(failed(&place, "set"), [""; 0]);
    assert_eq!(place.read(&corrected), b"0 0.5 0.5 0.25 0.25\n");
    assert!(!place.path(&removed).exists());
    assert_eq!(labels("set"), 15);

    // A tar that is gone today: labels and copies stay.
    std::fs::remove_file(place.path("tars/shard-000001.tar")).expect("it is there");
    let third = label(&place, "tars/*.tar", "set", &["--strict"]);
    assert_eq!(third.status, Some(0), "{third:?}");
    assert_eq!(labels("set"), 15);
    assert_eq!(place.read(&corrected), b"0 0.5 0.5 0.25 0.25\n");
    assert_eq!(journal_of(&place, "set").matches("shard-000001.tar/000.png").count(), 2);
}

#[test]
fn hostile_tars_write_nothing_elsewhere() {
    let place = Place::new();
    write_images(&place, "images", 1);
    let image = place.read("images/000.png");
    let mut bytes = Vec::new();
    let mut add = |name: &str, size: u64, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(size);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    };
    let size = image.len() as u64;
    add("../../up.png", size, &image);
    add("/tmp/absolute.png", size, &image);
    add("images/../../../side.png", size, &image);
    add("images/good.png", size, &image);
    add("noise.png", 9, b"no image.");
    add("huge.png", 1 << 40, b"");
    place.write("tars/evil.tar", &bytes);
    let before = place.paths();
    let outcome = label(&place, "tars/evil.tar", "set", &[]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let outside = place.paths().into_iter().filter(|path| !path.starts_with("set"));
    assert_eq!(outside.collect::<Vec<_>>(), before.into_iter().collect::<Vec<_>>());
    let labels: Vec<_> = tree(&place.path("set/labels")).into_keys().collect();
    assert_eq!(labels, [Path::new("train/evil/images_/good.txt")]);
    let lines = failed(&place, "set");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("truncated") && lines[0].contains("3 images are left out"), "{lines:?}");
    assert!(lines[1].contains("evil.tar/noise.png") && lines[1].contains("not an image"), "{lines:?}");

    // What is no tar file at all is refused like an image that cannot be read.
    place.write("tars/text.tar", "hello");
    let outcome = label(&place, "tars/text.tar", "other", &["--strict"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(failed(&place, "other")[0].contains("not a tar file"), "{outcome:?}");
}
