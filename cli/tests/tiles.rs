//! `--tile`, with the built-in model on drawn scenes.

use std::fs::File;
use std::io::Cursor;

use ocelli_verify::scenes::{SceneGenerator, SceneOptions};
use serde_json::Value;
use tiff::encoder::{TiffEncoder, colortype};

use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
/// The side of the image, in which the objects are small. Two tiles of 300 pixels fit side by side.
const SIDE: u32 = 520;
pub const NAMES: [&str; 3] = ["dog", "pizza", "tree"];

/// The pixels of an image with objects of 44 to 64 pixels, and how many there are.
fn drawn_image(number: u64) -> (Vec<u8>, usize) {
    let options = SceneOptions {
        width: SIDE,
        height: SIDE,
        objects: 12..=12,
        kinds: 3..=3,
        noisy: 0.0,
        labels: NAMES.map(str::to_owned).into(),
        sizes: Some(44..=64),
    };
    let scene = SceneGenerator::new(3, options).expect("valid options").scene(number);
    (scene.image.into_rgb8(), scene.objects.len())
}

/// Writes the image as a PNG file.
pub fn write_image(place: &Place, name: &str, number: u64) {
    let image = image::RgbImage::from_raw(SIDE, SIDE, drawn_image(number).0).expect("all pixels");
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, image::ImageFormat::Png).expect("a vector grows");
    place.write(name, png.into_inner());
}

/// Writes a TIFF file in strips.
fn write_tiff(place: &Place, name: &str) -> usize {
    let (pixels, objects) = drawn_image(0);
    let file = File::create(place.path(name)).expect("the temporary folder can be written to");
    let mut encoder = TiffEncoder::new(file).expect("it can be written");
    let mut image = encoder.new_image::<colortype::RGB8>(SIDE, SIDE).expect("a size");
    image.rows_per_strip(50).expect("nothing was written yet");
    image.write_data(&pixels).expect("all pixels");
    objects
}

/// Keys of a projected coordinate system.
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_tiff_in_tiles_has_small_objects() {
    let place = Place::new();
    let objects = write_tiff(&place, "roofs.tif");
    let detect = |more: &str| {
        let all = format!("detect --image roofs.tif --classes dog pizza tree --json found.json {more}");
        place.succeed(OCELLI, &all.split(' ').collect::<Vec<_>>());
        list(&place.json("found.json")["images"][0], "detections").to_vec()
    };
    let whole = detect("-q");
    let found = detect("--tile 300 --tile-overlap 0.25 --masks");
    assert!(found.len() * 10 >= objects * 8, "{} of {objects}", found.len());
    assert!(whole.len() * 2 < found.len(), "{} without tiles", whole.len());
    // The pixels are read again for what is drawn.
    assert_eq!(detect("--tile 300 --tile-overlap 0.25 --masks -o drawn.png"), found);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let place = Place::new();
    write_image(&place, "plain.png", 0);
    let detect = "detect|--image|plain.png|--classes|dog|";
    let with = |more: &str| format!("{detect}{more}");
    let cases = [
        (with("--tile|8"), 2, vec!["--tile", "at least 32 pixels"]),
        (with("--tile|huge"), 2, vec!["--tile", "such as 1024 or 1024x768"]),
        (with("--tile-overlap|0.5"), 2, vec!["--tile"]),
        (with("--tile|auto|--tile-overlap|1"), 2, vec!["--tile-overlap is 1: expected 0 to 0.8"]),
        ("detect|--image|plain.png|--point|9,9|--tile|auto".to_owned(), 2, vec!["--tile", "cannot be used"]),
        ("video|--video|frames|--classes|dog|--tile|8".to_owned(), 2, vec!["--tile", "at least 32 pixels"]),
        (with("--low-memory|--tile|auto"), 2, vec!["--tile", "cannot be used"]),
        (
            "label|--images|plain.png|--classes|dog|--model|built-in|-o|set|--low-memory|--tile|auto"
                .to_owned(),
            2,
            vec!["--tile", "cannot be used"],
        ),
    ];
    let cases: Vec<_> = cases.iter().map(|(run, status, words)| refusal(run, *status, words)).collect();
    place.refuses(OCELLI, &cases);
    assert!(!place.path("set").exists());
}

#[test]
fn a_data_set_is_labelled_in_tiles() {
    let place = Place::new();
    let objects = write_tiff(&place, "a.tif");
    let label = |more: &str| {
        let all = format!(
            "label --images a.tif --classes dog pizza tree --model built-in -o set --format coco {more}"
        );
        place.run(OCELLI, &all.split(' ').collect::<Vec<_>>())
    };
    let first = label("--tile 300 --no-masks");
    assert_eq!(first.status, Some(0), "{}", first.stderr);
    let found = list(&place.json("set/annotations.json"), "annotations").len();
    assert!(found * 10 >= objects * 8, "{found} of {objects}");
    let other = label("--no-masks");
    assert_eq!(other.status, Some(1), "{}", other.stdout);
    assert!(other.stderr.contains("tile") && other.stderr.contains("--restart"), "{}", other.stderr);
}

#[test]
fn frames_in_tiles_are_images_in_tiles() {
    let place = Place::new();
    let files = ["frames/a.png", "frames/b.png"];
    (0..).zip(files).for_each(|(number, file)| write_image(&place, file, number));
    let options = ["--classes", &NAMES.join(","), "--tile", "300", "--tile-overlap", "0.25"];
    place.succeed(OCELLI, &[&["detect", "--json", "found.json", "--image"][..], &files, &options].concat());
    place
        .succeed(OCELLI, &[&["video", "--video", "frames", "--jsonl", "found.jsonl"][..], &options].concat());
    let lines = String::from_utf8(place.read("found.jsonl")).expect("JSON is text");
    let frames: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let found = place.json("found.json");
    assert_eq!((frames.len(), list(&found, "images").len()), (2, 2));
    for (frame, image) in frames.iter().zip(list(&found, "images")) {
        assert!(list(image, "detections").len() > 6, "{image}");
        assert_eq!(frame["detections"], image["detections"]);
    }
    assert_ne!(frames[0]["detections"], frames[1]["detections"]);
}
