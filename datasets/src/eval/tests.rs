use ocelli_tracking::BoundingBox;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{
    Accuracy, ClassAccuracy, ExemplarMasks, Overlap, Predictions, StageTiming, Truth, TruthBuilder,
    average_precision, difference_interval, precision_recall,
};
use ocelli::{Detection, ErrorKind, Mask};

/// "To three digits" would be 5e-4; the arithmetic is the same to the last bits.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    kind: String,
    images: Option<Vec<u64>>,
    figures: BTreeMap<String, Option<f64>>,
    per_class: BTreeMap<String, BTreeMap<String, Option<f64>>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/eval")
}

fn data_set() -> (Truth, Predictions) {
    let truth = Truth::open(&folder().join("annotations.json")).expect("the golden is COCO");
    let found = Predictions::open(&folder().join("predictions.json"), &truth).expect("the golden is COCO");
    (truth, found)
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

fn figures(accuracy: &Accuracy) -> [(&'static str, Option<f64>); 12] {
    [
        ("ap", accuracy.ap),
        ("ap50", accuracy.ap50),
        ("ap75", accuracy.ap75),
        ("ap_small", accuracy.ap_small),
        ("ap_medium", accuracy.ap_medium),
        ("ap_large", accuracy.ap_large),
        ("ar1", accuracy.ar1),
        ("ar10", accuracy.ar10),
        ("ar100", accuracy.ar100),
        ("ar_small", accuracy.ar_small),
        ("ar_medium", accuracy.ar_medium),
        ("ar_large", accuracy.ar_large),
    ]
}

fn class_figures(class: &ClassAccuracy) -> [(&'static str, Option<f64>); 7] {
    [
        ("ap", class.ap),
        ("ap50", class.ap50),
        ("ap75", class.ap75),
        ("ap_small", class.ap_small),
        ("ap_medium", class.ap_medium),
        ("ap_large", class.ap_large),
        ("ar100", class.ar100),
    ]
}

fn differ(ours: Option<f64>, theirs: Option<f64>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() > TOLERANCE,
        (ours, theirs) => ours != theirs,
    }
}

#[test]
fn figures_equal_those_of_pycocotools() {
    let text = std::fs::read_to_string(folder().join("expected.json")).expect("it is in the repository");
    let golden: Golden = serde_json::from_str(&text).expect("the golden is JSON of this structure");
    let (truth, found) = data_set();
    let mut failures = Vec::new();
    let mut compared = 0;
    for case in &golden.cases {
        let overlap = if case.kind == "bbox" { Overlap::Boxes } else { Overlap::Masks };
        let ids = case.images.clone().unwrap_or_else(|| truth.image_ids());
        let name = format!("{}, {} images", case.kind, ids.len());
        let accuracy = average_precision(&truth, &found, &ids, overlap).expect("whole data");
        for (figure, ours) in figures(&accuracy) {
            compared += 1;
            if differ(ours, case.figures[figure]) {
                failures.push(format!("{name}, {figure}: {ours:?} for {:?}", case.figures[figure]));
            }
        }
        for class in &accuracy.per_class {
            for (figure, ours) in class_figures(class) {
                compared += 1;
                let theirs = case.per_class[&class.name][figure];
                if differ(ours, theirs) {
                    failures.push(format!("{name}, {}, {figure}: {ours:?} for {theirs:?}", class.name));
                }
            }
        }
        let with_figures = case.per_class.values().filter(|class| class["ap"].is_some()).count();
        if accuracy.per_class.iter().filter(|class| class.ap.is_some()).count() != with_figures {
            failures.push(format!("{name}: figures of {} classes", accuracy.per_class.len()));
        }
    }
    report(&failures);
    assert!(golden.cases.len() == 4 && compared > 150, "only {compared} figures compared");
}

#[test]
fn predictions_do_not_change_when_written_and_read() {
    let (truth, found) = data_set();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("found.json");
    let mut odd = Predictions::default();
    let bbox = BoundingBox::new(0.1, 1.0 / 3.0, 77.7, 100.123_45);
    let mask = Mask::from_bitmap(&[0, 1, 1, 0, 0, 1], 3, 2).expect("six bytes");
    odd.push(4, 3, bbox, 0.123_456_79, None);
    odd.push(4, 3, bbox, 1e-7, Some(&mask));
    let mut failures = Vec::new();
    for (name, list) in [("golden", &found), ("odd", &odd), ("empty", &Predictions::default())] {
        list.write(&path).expect("a folder that can be written to");
        let read = Predictions::open(&path, &truth).expect("what was just written");
        let same = list.0.iter().zip(&read.0).all(|(a, b)| {
            let mask = |one: &hotcoco::types::Annotation| serde_json::to_string(&one.segmentation).ok();
            (a.image_id, a.category_id, a.bbox, a.score) == (b.image_id, b.category_id, b.bbox, b.score)
                && mask(a) == mask(b)
        });
        if !same || list.len() != read.len() {
            failures.push(format!("{name}: {:?} became {:?}", list.0.first(), read.0.first()));
        }
    }
    // Nor was anything rounded before it was written.
    let (score, bbox) = (odd.0[1].score, odd.0[0].bbox.map(|ltwh| ltwh.map(|value| value as f32)));
    if (score, bbox) != (Some(1e-7), Some(BoundingBox::new(0.1, 1.0 / 3.0, 77.7, 100.123_45).to_ltwh())) {
        failures.push(format!("rounded: {score:?} {bbox:?}"));
    }
    report(&failures);
}

#[test]
fn invalid_files_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file.json");
    let start = r#"{"images":[{"id":1,"file_name":"a.png","width":9,"height":5}],"categories":[{"id":3,"name":"dog"}],"#;
    let annotation = |rest: &str| format!(r#"{start}"annotations":[{{"id":1,{rest}}}]}}"#);
    let mut failures = Vec::new();
    for (text, word) in [
        (String::new(), "invalid COCO annotations"),
        ("{".into(), "line 1"),
        ("hello".into(), "line 1"),
        ("[]".into(), "COCO results file"),
        ("{}".into(), "images"),
        (r#"{"images":[{"id":1}]}"#.into(), "categories"),
        (r#"{"images":[{"id":1},{"id":1}],"categories":[{"id":3,"name":"dog"}]}"#.into(), "two images"),
        (r#"{"images":[{"id":1}],"categories":[{"id":3,"name":" "}]}"#.into(), "category 3 has no name"),
        (r#"{"images":[{"id":1}],"categories":[{"id":3},{"id":3}]}"#.into(), "two categories"),
        (annotation(r#""image_id":2,"category_id":3,"bbox":[0,0,1,1]"#), "no image has the id 2"),
        (annotation(r#""image_id":1,"category_id":4,"bbox":[0,0,1,1]"#), "no category has the id 4"),
        (annotation(r#""image_id":1,"category_id":3"#), "neither bbox nor segmentation"),
        (annotation(r#""image_id":1,"category_id":3,"bbox":[0,0,1]"#), "line 1"),
        (
            annotation(r#""image_id":1,"category_id":3,"segmentation":{"size":[9,5],"counts":"03Z1"}"#),
            "its mask is 5×9, but the image is 9×5",
        ),
        (
            annotation(r#""image_id":1,"category_id":3,"segmentation":{"size":[5,9],"counts":[99]}"#),
            "segmentation",
        ),
    ] {
        std::fs::write(&path, &text).expect("a folder that can be written to");
        match Truth::open(&path) {
            Err(e) if e.kind() == ErrorKind::InvalidData && e.to_string().contains(word) => {}
            other => failures.push(format!("{text}: expected {word:?}, came {other:?}")),
        }
    }
    std::fs::write(&path, format!("{start}\"annotations\":[]}}")).expect("it can be written to");
    let truth = Truth::open(&path).expect("annotations without instances");
    for (text, kind, word) in [
        ("{}", ErrorKind::InvalidData, "invalid COCO results"),
        (
            r#"[{"image_id":1,"category_id":3,"bbox":[0,0,1,1]}]"#,
            ErrorKind::InvalidData,
            "entry 1: it has no score",
        ),
        (r#"[{"image_id":1,"category_id":3,"score":1}]"#, ErrorKind::InvalidData, "neither"),
        (r#"[{"image_id":2,"category_id":3,"bbox":[0,0,1,1],"score":1}]"#, ErrorKind::Mismatch, "no image 2"),
        (
            r#"[{"image_id":1,"category_id":1,"bbox":[0,0,1,1],"score":1}]"#,
            ErrorKind::Mismatch,
            "no category 1",
        ),
        (
            r#"[{"image_id":1,"category_id":3,"segmentation":{"size":[5,9],"counts":"ä"},"score":1}]"#,
            ErrorKind::InvalidData,
            "segmentation",
        ),
    ] {
        std::fs::write(&path, text).expect("a folder that can be written to");
        match Predictions::open(&path, &truth) {
            Err(e) if e.kind() == kind && e.to_string().contains(word) => {}
            other => failures.push(format!("{text}: expected {word:?}, came {other:?}")),
        }
    }
    report(&failures);
}

/// A square of 10 × 10 pixels at this position, whose mask fills its top rows, in tenths.
fn square(x: u32, y: u32, tenths: u32) -> (BoundingBox, Mask) {
    let mut bitmap = vec![0; 100 * 50];
    for row in y..y + tenths {
        bitmap[(row * 100 + x) as usize..][..10].fill(1);
    }
    let bbox = BoundingBox::from_ltwh([x as f32, y as f32, 10.0, 10.0]);
    (bbox, Mask::from_bitmap(&bitmap, 100, 50).expect("one byte for each pixel"))
}

#[test]
fn true_and_false_positives_and_false_negatives() {
    let mut truth = TruthBuilder::new(["a", "b"]);
    let image = truth.add_image("one", 100, 50);
    let empty = truth.add_image("two", 100, 50);
    for (class, (bbox, mask)) in [(0, square(0, 0, 10)), (0, square(5, 0, 10)), (1, square(40, 20, 10))] {
        truth.add_instance(image, class, bbox, Some(mask));
    }
    let truth = truth.build().expect("classes that exist");
    let at = |x: f32, y: f32| BoundingBox::from_ltwh([x, y, 10.0, 10.0]);
    let cases: [(&str, &[(u64, u64, BoundingBox, f32)], [usize; 3]); 8] = [
        ("nothing", &[], [0, 0, 3]),
        ("one", &[(image, 1, at(0.0, 0.0), 0.9)], [1, 0, 2]),
        ("too low", &[(image, 1, at(0.0, 0.0), 0.3)], [0, 0, 3]),
        ("of another class", &[(image, 2, at(0.0, 0.0), 0.9)], [0, 1, 3]),
        ("in another image", &[(empty, 1, at(0.0, 0.0), 0.9)], [0, 1, 3]),
        ("twice", &[(image, 2, at(40.0, 20.0), 0.9), (image, 2, at(41.0, 20.0), 0.8)], [1, 1, 2]),
        // The better one takes its instance first, the other the neighbour that is left.
        ("neighbours", &[(image, 1, at(4.0, 0.0), 0.5), (image, 1, at(5.0, 0.0), 0.9)], [1, 1, 2]),
        (
            "all",
            &[(image, 1, at(0.0, 0.0), 0.5), (image, 1, at(5.0, 0.0), 0.9), (image, 2, at(40.0, 20.0), 0.4)],
            [3, 0, 0],
        ),
    ];
    let mut failures = Vec::new();
    for (name, found, expected) in cases {
        let mut predictions = Predictions::default();
        for &(image, category, bbox, score) in found {
            predictions.push(image, category, bbox, score, None);
        }
        let counts =
            precision_recall(&truth, &predictions, &[image, empty], 0.3).expect("no masks to differ");
        let came = [counts.true_positives, counts.false_positives, counts.false_negatives];
        if came != expected {
            failures.push(format!(
                "{name}: true positives, false positives, false negatives are {came:?}, expected {expected:?}"
            ));
        }
    }
    let mut half = Predictions::default();
    let (bbox, mask) = square(0, 0, 5);
    half.push(image, 1, bbox, 0.9, Some(&mask));
    let counts = precision_recall(&truth, &half, &[image], 0.3).expect("masks of one size");
    if (counts.mask_iou, counts.masks, counts.precision) != (Some(0.5), 1, Some(1.0)) {
        failures.push(format!("half a mask: {counts:?}"));
    }
    report(&failures);
}

#[test]
fn detections_in_a_crowd_are_not_false_positives() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("crowd.json");
    let text = r#"{"images":[{"id":1,"width":100,"height":50}],"categories":[{"id":1,"name":"a"},{"id":2,"name":"b"}],
        "annotations":[{"id":1,"image_id":1,"category_id":1,"iscrowd":1,"bbox":[0,0,50,50],"area":2500,
        "segmentation":{"size":[50,100],"counts":[0,2500,2500]}}]}"#;
    std::fs::write(&path, text).expect("a folder that can be written to");
    let truth = Truth::open(&path).expect("COCO annotations");
    let mut failures = Vec::new();
    for (name, category, bbox, alarms) in [
        ("inside", 1, [10.0, 10.0, 10.0, 10.0], 0),
        ("mostly outside", 1, [46.0, 10.0, 10.0, 10.0], 1),
        ("of another class", 2, [10.0, 10.0, 10.0, 10.0], 1),
    ] {
        let mut found = Predictions::default();
        found.push(1, category, BoundingBox::from_ltwh(bbox), 0.9, None);
        let counts = precision_recall(&truth, &found, &[1], 0.3).expect("no masks to differ");
        if (counts.true_positives, counts.false_positives, counts.false_negatives) != (0, alarms, 0) {
            failures.push(format!("{name}: {counts:?}"));
        }
    }
    report(&failures);
}

#[test]
fn masks_of_instances_with_exemplars() {
    let mut truth = TruthBuilder::new(["a", "b"]);
    let image = truth.add_image("one", 100, 50);
    for (class, index) in [(0, 0), (0, 30), (1, 60)] {
        let (bbox, mask) = square(index, 10, 10);
        truth.add_instance(image, class, bbox, Some(mask));
    }
    truth.add_instance(image, 1, BoundingBox::new(1.0, 1.0, 5.0, 5.0), None);
    let truth = truth.build().expect("classes that exist");
    let instances = ExemplarMasks::eligible(truth.instances(image), 100, 50);
    assert_eq!(instances.len(), 3, "what has no mask cannot be compared");
    assert_eq!(ExemplarMasks::prompts(&instances).expect("three boxes").len(), 3);
    let detection = |class_id: usize, (bbox, mask): (BoundingBox, Mask), score: f32| Detection {
        class_id,
        label: "boxed".into(),
        score,
        bbox,
        mask: Some(mask),
    };
    let mut masks = ExemplarMasks::default();
    // The first is complete, although another detection has a higher score; the second is half; the third is elsewhere.
    let found = [
        detection(0, square(6, 10, 10), 0.9),
        detection(0, square(0, 10, 10), 0.2),
        detection(1, square(30, 10, 5), 0.8),
        detection(2, square(0, 10, 10), 0.8),
    ];
    masks.record(&ExemplarMasks::ious(&instances, &found).expect("masks of one size"));
    assert_eq!((masks.mask_iou, masks.instances, masks.without_mask), (Some(0.5), 3, 1));
    assert_eq!(masks.per_class, BTreeMap::from([(1, 0.75), (2, 0.0)]));
}

#[test]
fn percentiles_are_measured_values() {
    let cases: [(&[f64], Option<[f64; 4]>); 4] = [
        (&[], None),
        (&[3.0], Some([3.0; 4])),
        (&[4.0, 1.0, 3.0, 2.0], Some([2.5, 2.0, 4.0, 4.0])),
        (&[10.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], Some([5.5, 5.0, 9.0, 10.0])),
    ];
    for (durations, expected) in cases {
        let came = StageTiming::of(durations.iter().copied()).map(|t| [t.mean, t.p50, t.p90, t.p99]);
        assert_eq!(came, expected, "{durations:?}");
    }
}

#[test]
fn the_interval_of_a_difference_tells_chance_from_a_loss() {
    let mut truth = TruthBuilder::new(["a"]);
    let bbox = BoundingBox::from_ltwh([10.0, 10.0, 40.0, 40.0]);
    let images: Vec<u64> = (0..40).map(|_| truth.add_image("", 100, 100)).collect();
    images.iter().for_each(|image| truth.add_instance(*image, 0, bbox, None));
    let truth = truth.build().expect("classes that exist");
    let finds = |found: fn(usize) -> bool| {
        let mut predictions = Predictions::default();
        for (_, image) in images.iter().enumerate().filter(|(index, _)| found(*index)) {
            predictions.push(*image, 1, bbox, 0.9, None);
        }
        predictions
    };
    let interval = |predictions: [&Predictions; 2], ids: &[u64]| {
        difference_interval(&truth, predictions, ids, Overlap::Boxes).expect("boxes")
    };

    let (all, quarter, other) =
        (finds(|_| true), finds(|index| index % 4 > 0), finds(|index| index % 4 != 1));
    assert_eq!(interval([&all, &all], &images), Some([0.0, 0.0]));
    assert_eq!(interval([&all, &quarter], &images[..19]), None, "too few images");
    let [low, high] = interval([&all, &quarter], &images).expect("forty images");
    assert!(low < -0.25 && -0.25 < high && high < 0.0, "a loss: {low} to {high}");
    let [low, high] = interval([&quarter, &other], &images).expect("forty images");
    assert!(low < 0.0 && high > 0.0, "no loss: {low} to {high}");
}
