//! `ocelli detect --point` on a small random model, whose masks are as random.

use serde_json::{Value, json};

use crate::checkpoints::copy;
use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const SIZE: [u32; 2] = [480, 270];

/// A place with a model that has a tracker, and an image.
fn place() -> Place {
    let place = Place::new();
    copy(&place, "tracker", "model");
    let pixel = |x: u32, y: u32| image::Rgb([(x % 251) as u8, (y * 3 % 256) as u8, ((x * y) % 241) as u8]);
    let image = image::RgbImage::from_fn(SIZE[0], SIZE[1], pixel);
    image.save(place.path("scene.png")).expect("the temporary folder can be written to");
    place
}

fn segment(place: &Place, more: &str) -> Vec<Value> {
    let run = format!("detect|--image|scene.png|--model|model|--json|found.json|{more}");
    place.succeed(OCELLI, &run.split('|').collect::<Vec<_>>());
    let report = place.json("found.json");
    report["images"][0]["detections"].as_array().expect("a list").clone()
}

#[test]
fn clicks_boxes_and_masks_find_their_objects() {
    let place = place();
    let one = segment(&place, "--point|100,80|--output|drawn.png");
    assert_eq!(one.len(), 1, "{one:?}");
    assert_eq!((&one[0]["label"], &one[0]["class_id"]), (&json!("object"), &json!(0)));
    assert_eq!(one[0]["mask"]["size"], json!([SIZE[1], SIZE[0]]));
    let score = one[0]["score"].as_f64().expect("a number");
    assert!((0.0..=1.0).contains(&score), "{score}");
    assert!(place.path("drawn.png").is_file());

    // The best of the three masks of a click is the mask of the click.
    let three = segment(&place, "--point|100,80|--multimask");
    assert_eq!(three.len(), 3);
    assert_eq!(three[0]["mask"], one[0]["mask"], "the highest score first");
    assert_ne!(three[1]["mask"], one[0]["mask"]);
    let others_score = three[1]["score"].as_f64().expect("a number");
    let kept = segment(&place, &format!("--point|100,80|--multimask|--confidence|{others_score}"));
    assert_eq!((kept.len(), &kept[0]), (1, &three[0]), "those with a higher score");
    assert_eq!(segment(&place, "--point|100,80|--multimask|--max-det|2").len(), 2);

    // Objects by name are independent of each other.
    let two =
        segment(&place, "--point|100,80@dog|300,200@cat|310,10:no@cat|--box-prompt|250,150,400,260@cat");
    let named = |label: &str| two.iter().find(|found| found["label"] == label).expect("it is found");
    assert_eq!(two.len(), 2);
    assert_eq!(named("dog")["mask"], one[0]["mask"]);
    assert_eq!(named("cat")["class_id"], 1);
    let boxes = segment(&place, "--box-prompt|10,10,200,200|250,150,400,260");
    let mut labels: Vec<&str> = boxes.iter().filter_map(|found| found["label"].as_str()).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["object 1", "object 2"]);

    let white = |x: u32, _| image::Luma([if x < SIZE[0] / 2 { 255 } else { 0 }]);
    let mask = image::GrayImage::from_fn(SIZE[0], SIZE[1], white);
    mask.save(place.path("left.png")).expect("the temporary folder can be written to");
    let refined = segment(&place, "--mask-prompt|left.png|--point|100,80");
    assert_ne!(refined[0]["mask"], one[0]["mask"], "the mask counts");
    assert_eq!(segment(&place, "--mask-prompt|left.png").len(), 1);
}

#[test]
fn what_cannot_be_clicked_is_refused() {
    let place = place();
    copy(&place, "plain", "plain");
    image::RgbImage::new(48, 27)
        .save(place.path("small.png"))
        .expect("the temporary folder can be written to");
    image::RgbImage::new(480, 270)
        .save(place.path("black.png"))
        .expect("the temporary folder can be written to");
    let clicked = |more: &str| format!("detect|--image|scene.png|--model|model|{more}");
    let cases: [(String, i32, &[&str]); 17] = [
        (
            clicked("--point|480,10"),
            2,
            &["scene.png", "object \"object\"", "point 480,10 is outside the image of 480 × 270"],
        ),
        (clicked("--point|-1,10@dog"), 2, &["object \"dog\"", "point -1,10 is outside"]),
        (
            clicked("--point|10,10:no"),
            2,
            &["nothing shows where it is", "add a positive point, a box or a mask"],
        ),
        (clicked("--box-prompt|500,10,600,20"), 2, &["box 500,10,600,20 has no pixel of the image"]),
        (clicked("--box-prompt|20,10,10,20"), 2, &["the box has no area"]),
        (clicked("--point|10"), 2, &["--point", "expected x,y in pixels"]),
        (
            clicked("--mask-prompt|small.png"),
            2,
            &["48 × 27 pixels: expected those of the image of 480 × 270"],
        ),
        (clicked("--mask-prompt|black.png"), 2, &["the mask prompt is empty"]),
        (clicked("--mask-prompt|none.png@dog"), 1, &["--mask-prompt", "none.png"]),
        (
            clicked("--point|1,1|--box-prompt|1,1,9,9|2,2,8,8"),
            2,
            &["--box-prompt: 2 for object \"object\"", "@name"],
        ),
        (clicked("--multimask|--classes|dog"), 2, &["--multimask", "--point"]),
        (clicked("--point|1,1|--classes|dog"), 2, &["--point", "--classes"]),
        (clicked("--point|1,1|--nms|0.5"), 2, &["--point", "--nms"]),
        (clicked("--point|1,1|--blur|dog"), 2, &["--blur, dog", "object"]),
        ("detect|scene.png|small.png|--model|model|--point|1,1".into(), 2, &["of one image"]),
        (
            "detect|--image|scene.png|--point|1,1".into(),
            1,
            &["clicks, the built-in model: it has no tracker", "--model"],
        ),
        (
            "detect|--image|scene.png|--point|1,1|--model|plain".into(),
            1,
            &["clicks", "this model has no tracker", "facebook/sam3"],
        ),
    ];
    let refusals: Vec<_> =
        cases.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(OCELLI, &refusals);
}
