//! The detector on drawn scenes against the Python reference pipeline: the built-in model, from image files to scores,
//! boxes and masks.
//!
//! The scenes, the reference's detections and the script that generates both are in `tests/golden/scenes`. `cargo test -p
//! ocelli-tests end_to_end -- --nocapture` prints the largest differences.
//!
//! Needs ONNX Runtime; `make setup` installs it.

#![allow(clippy::print_stdout, reason = "the largest differences are interesting if the test passes, too")]

use std::path::{Path, PathBuf};

use ocelli::export::contract::Target;
use ocelli::export::{Checkpoint, ExportOptions, Pruning, export};
use ocelli::{
    BoundingBox, Detection, Detector, DetectorBuilder, ErrorKind, Image, Mask, Model, Prompt, Prompts,
    stages::TextCacheFile,
};
use serde_json::Value;
use tempfile::TempDir;

/// The largest difference of a score.
const SCORE_TOLERANCE: f32 = 0.002;
/// The largest difference of a box edge, in pixels of the image.
const BOX_TOLERANCE: f32 = 0.5;
/// The minimum IoU of two masks.
const MASK_IOU: f64 = 0.99;
const SCENES: usize = 50;
/// The minimum number of detections of the reference, so that an incomplete golden is noticed.
const LEAST_DETECTIONS: usize = 100;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/scenes")
}

/// A scene and the detections of the reference.
struct Scene {
    file: String,
    prompts: Prompts,
    expected: Vec<Expected>,
    /// Label and box of what was drawn.
    drawn: Vec<(String, BoundingBox)>,
}

struct Expected {
    class_id: usize,
    score: f32,
    bbox: BoundingBox,
    mask: Option<Mask>,
}

impl Scene {
    fn image(&self) -> Image {
        Image::open(folder().join(&self.file)).expect("the scenes are in the repository")
    }
}

fn bounding_box(value: &Value) -> BoundingBox {
    let edges = serde_json::from_value::<[f32; 4]>(value.clone()).expect("a box is four numbers");
    BoundingBox::new(edges[0], edges[1], edges[2], edges[3])
}

/// The scenes and the score threshold they were made with.
fn scenes() -> (Vec<Scene>, f32) {
    let text = std::fs::read_to_string(folder().join("detections.json")).expect("it is in the repository");
    let report: Value = serde_json::from_str(&text).expect("the script writes JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let expected = |one: &Value| Expected {
        class_id: one["class_id"].as_u64().expect("a number") as usize,
        score: one["score"].as_f64().expect("a number") as f32,
        bbox: bounding_box(&one["box"]),
        mask: one.get("mask").map(|mask| serde_json::from_value(mask.clone()).expect("COCO's run lengths")),
    };
    let scene = |image: &Value| Scene {
        file: text(&image["file"]),
        prompts: Prompts::new(list(&image["classes"]).iter().map(text)).expect("classes with names"),
        expected: list(&image["detections"]).iter().map(expected).collect(),
        drawn: list(&image["ground_truth"])
            .iter()
            .map(|one| (text(&one["label"]), bounding_box(&one["box"])))
            .collect(),
    };
    let scenes: Vec<Scene> = list(&report["images"]).iter().map(scene).collect();
    assert_eq!(scenes.len(), SCENES);
    let found: usize = scenes.iter().map(|scene| scene.expected.len()).sum();
    assert!(found >= LEAST_DETECTIONS, "the reference has {found} detections");
    (scenes, report["score_threshold"].as_f64().expect("a number") as f32)
}

/// The built-in model, exported into a temporary folder instead of the user's cache.
fn builtin(options: &ExportOptions) -> (TempDir, Model) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (checkpoint, exported) = (folder.path().join("checkpoint"), folder.path().join("exported"));
    std::fs::create_dir(&checkpoint).expect("the folder is new");
    ocelli::builtin::write_checkpoint(&checkpoint).expect("it writes");
    let checkpoint = Checkpoint::open(&checkpoint).expect("the built-in model is a checkpoint");
    export(&checkpoint, options, &exported, |_| Ok(())).expect("it exports");
    let model = Model::open(&exported).expect("it was just exported");
    (folder, model)
}

fn builder(model: &Model) -> DetectorBuilder {
    Detector::builder().with_open_model(model.clone()).with_text_cache(TextCacheFile::None)
}

/// The largest difference of the edges.
fn box_distance(a: &BoundingBox, b: &BoundingBox) -> f32 {
    let edges = [a.x1 - b.x1, a.y1 - b.y1, a.x2 - b.x2, a.y2 - b.y2];
    edges.into_iter().fold(0.0, |most, edge| if edge.is_nan() { f32::INFINITY } else { most.max(edge.abs()) })
}

fn mask_iou(a: &Mask, b: &Mask) -> f64 {
    assert_eq!((a.width(), a.height()), (b.width(), b.height()), "masks have the size of the image");
    let (a, b) = (a.to_bitmap(), b.to_bitmap());
    let count = |both: fn(u8, u8) -> bool| a.iter().zip(&b).filter(|(a, b)| both(**a, **b)).count();
    count(|a, b| a & b == 1) as f64 / count(|a, b| a | b == 1).max(1) as f64
}

/// Pairs detections of the same class greedily, nearest boxes first. The rest has no counterpart.
fn pair<'a, 'b>(
    ours: &'a [Detection],
    theirs: &'b [Expected],
) -> (Vec<(&'a Detection, &'b Expected)>, Vec<&'a Detection>, Vec<&'b Expected>) {
    let (mut ours, mut theirs) = (Vec::from_iter(ours), Vec::from_iter(theirs));
    let mut pairs = Vec::new();
    loop {
        let candidates = ours.iter().enumerate().flat_map(|(i, a)| {
            let same = theirs.iter().enumerate().filter(|(_, b)| b.class_id == a.class_id);
            same.map(move |(j, b)| (box_distance(&a.bbox, &b.bbox), i, j))
        });
        match candidates.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, i, j)) => pairs.push((ours.swap_remove(i), theirs.swap_remove(j))),
            None => return (pairs, ours, theirs),
        }
    }
}

/// The largest differences of a run.
#[derive(Default)]
struct Worst {
    pairs: usize,
    masks: usize,
    score: f32,
    edge: f32,
    lost_iou: f64,
    /// Detections so close to the threshold that either side may miss them.
    at_threshold: usize,
}

impl Worst {
    /// Compares a scene's detections; returns the problems.
    fn compare(
        &mut self,
        file: &str,
        ours: &[Detection],
        theirs: &[Expected],
        threshold: f32,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let (pairs, extra, missing) = pair(ours, theirs);
        let alone = extra.iter().map(|a| ("ours", &*a.label, a.score, a.bbox, a.class_id));
        for (whose, label, score, bbox, class) in
            alone.chain(missing.iter().map(|b| ("the reference's", "", b.score, b.bbox, b.class_id)))
        {
            if (score - threshold).abs() <= SCORE_TOLERANCE {
                self.at_threshold += 1;
            } else {
                problems.push(format!("{file}: only {whose}: class {class} {label} {score:.4} {bbox:?}"));
            }
        }
        for (a, b) in pairs {
            self.pairs += 1;
            let (score, edge) = ((a.score - b.score).abs(), box_distance(&a.bbox, &b.bbox));
            (self.score, self.edge) = (self.score.max(score), self.edge.max(edge));
            if !(score <= SCORE_TOLERANCE && edge <= BOX_TOLERANCE) {
                problems.push(format!(
                    "{file}: {}: score {} for {}, an edge {edge} px off",
                    a.label, a.score, b.score
                ));
            }
            let Some(theirs) = &b.mask else { continue };
            self.masks += 1;
            match &a.mask {
                Some(ours) => {
                    let iou = mask_iou(ours, theirs);
                    self.lost_iou = self.lost_iou.max(1.0 - iou);
                    if iou < MASK_IOU {
                        problems.push(format!("{file}: {}: mask IoU {iou:.4}", a.label));
                    }
                }
                None => problems.push(format!("{file}: {}: no mask", a.label)),
            }
        }
        problems
    }
}

#[test]
fn detections_equal_those_of_the_reference() {
    let (scenes, threshold) = scenes();
    let (_folder, model) = builtin(&ExportOptions::default());
    let build = |masks| builder(&model).with_confidence(threshold).with_masks(masks).build();
    let mut plain = build(false).expect("it builds");
    let mut with_masks = build(true).expect("it builds");
    let (mut worst, mut problems) = (Worst::default(), Vec::new());
    for scene in &scenes {
        let masks = scene.expected.iter().any(|one| one.mask.is_some());
        let detector = if masks { &mut with_masks } else { &mut plain };
        match detector.detect(&scene.image(), &scene.prompts) {
            Ok(found) => {
                problems.extend(worst.compare(&scene.file, &found.items, &scene.expected, threshold));
            }
            Err(error) => problems.push(format!("{}: {error}", scene.file)),
        }
    }
    let Worst { pairs, masks, score, edge, lost_iou, at_threshold } = worst;
    println!(
        "{SCENES} scenes, {pairs} detections: score within {score:.1e}, edges within {edge:.1e} px; {masks} masks: IoU at \
         least {:.4}; {at_threshold} at the threshold on one side only",
        1.0 - lost_iou
    );
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    assert!(masks > 0, "no mask was compared");
}

/// The same detections in the same order, with scores and edges, relative to the image side, within 1e-5.
fn same(name: &str, a: &[Detection], b: &[Detection], size: f32) -> Vec<String> {
    if a.len() != b.len() {
        return vec![format!("{name}: {} detections and {}", a.len(), b.len())];
    }
    let differ = |(a, b): &(&Detection, &Detection)| {
        let near = (a.score - b.score).abs() <= 1e-5 && box_distance(&a.bbox, &b.bbox) <= 1e-5 * size;
        a.class_id != b.class_id || !near
    };
    let pairs = a.iter().zip(b).filter(differ);
    pairs
        .map(|(a, b)| {
            format!("{name}: {} {} {:?}, {} {} {:?}", a.label, a.score, a.bbox, b.label, b.score, b.bbox)
        })
        .collect()
}

/// The detections do not depend on the number of classes decoded at once, nor on the form of the graphs.
#[test]
fn detections_do_not_depend_on_chunks_and_graphs() {
    let (scenes, threshold) = scenes();
    let (_folder, model) = builtin(&ExportOptions::default());
    let explicit = builtin(&ExportOptions {
        target: Target::TensorRt,
        pruning: Pruning { split_block: Some(3), ..Pruning::default() },
        ..ExportOptions::default()
    });
    let boxes_only = builtin(&ExportOptions { detection_only: true, ..ExportOptions::default() });
    let variants = [
        ("chunks of 1", builder(&model).with_class_chunk(1)),
        ("chunks of 3", builder(&model).with_class_chunk(3)),
        ("chunks of 16", builder(&model).with_class_chunk(16)),
        ("one thread", builder(&model).with_threads(1)),
        ("explicit attention, split backbone", builder(&explicit.1)),
        ("detection only", builder(&boxes_only.1)),
    ];
    let mut reference = builder(&model).with_confidence(threshold).build().expect("it builds");
    let scenes = &scenes[..8];
    let expected: Vec<_> =
        scenes.iter().map(|s| reference.detect(&s.image(), &s.prompts).expect("it detects").items).collect();
    let found: usize = expected.iter().map(Vec::len).sum();
    assert!(found >= 10, "only {found} detections to compare");
    let mut problems = Vec::new();
    for (name, builder) in variants {
        // The threshold of a detector can be changed.
        let mut detector = builder.with_confidence(1.0).build().expect("it builds");
        let refused = detector.set_confidence(1.5).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::InvalidArgument));
        detector.set_confidence(threshold).expect("it is between 0 and 1");
        for (scene, expected) in scenes.iter().zip(&expected) {
            let image = scene.image();
            let size = image.width().max(image.height()) as f32;
            let name = format!("{name}, {}", scene.file);
            match detector.detect(&image, &scene.prompts) {
                Ok(found) => problems.extend(same(&name, &found.items, expected, size)),
                Err(error) => problems.push(format!("{name}: {error}")),
            }
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// An example box without a text prompt detects that object and others of its class, rather than other classes.
#[test]
fn example_boxes_detect_their_class() {
    let (scenes, threshold) = scenes();
    let (_folder, model) = builtin(&ExportOptions::default());
    let mut detector = builder(&model).with_confidence(threshold).build().expect("it builds");
    let (mut shown, mut hits, mut others, mut false_hits) = (0, 0, 0, 0);
    for scene in &scenes {
        let image = scene.image();
        let frame = BoundingBox::new(0.0, 0.0, image.width() as f32, image.height() as f32);
        // Only objects that the model detects by a text prompt.
        let known = |bbox: &BoundingBox| scene.expected.iter().any(|one| one.bbox.iou(bbox) > 0.7);
        let Some((label, bbox)) = scene.drawn.iter().find(|(_, bbox)| known(bbox)) else { continue };
        let example = bbox.intersection(&frame).expect("drawn objects are inside the image");
        let prompts = Prompts::new([Prompt::visual(label.as_str()).with_exemplar(example, true)])
            .expect("a box with area");
        let found = detector.detect(&image, &prompts).expect("it detects").items;
        let hit = |bbox: &BoundingBox| found.iter().any(|one| one.bbox.iou(bbox) > 0.5);
        assert!(found.iter().all(|one| &*one.label == label.as_str()), "{}: {found:?}", scene.file);
        let different: Vec<_> =
            scene.drawn.iter().filter(|(other, bbox)| other != label && known(bbox)).collect();
        shown += 1;
        hits += usize::from(hit(&example));
        others += different.len();
        false_hits += different.iter().filter(|(_, bbox)| hit(bbox)).count();
    }
    println!(
        "by an example box, {hits} of {shown} objects detected, and {false_hits} of {others} of other classes"
    );
    assert!(shown >= 20 && others >= 20, "only {shown} objects, {others} of other classes");
    assert!(hits * 10 >= shown * 9, "{hits} of {shown} objects detected by an example box");
    assert!(false_hits * 4 <= others, "{false_hits} of {others} objects of other classes detected");
}

/// Text prompts and example boxes in one call: each class has the same detections as alone.
#[test]
fn classes_do_not_affect_each_other() {
    let (scenes, threshold) = scenes();
    let (_folder, model) = builtin(&ExportOptions::default());
    let mut detector = builder(&model).with_confidence(threshold).build().expect("it builds");
    let mut problems = Vec::new();
    for scene in scenes.iter().filter(|scene| scene.expected.len() >= 2).take(6) {
        let image = scene.image();
        let size = image.width().max(image.height()) as f32;
        let shown = scene.expected[0].bbox;
        let mut prompts: Vec<Prompt> = scene.prompts.iter().take(5).cloned().collect();
        prompts.insert(2, Prompt::visual("shown").with_exemplar(shown, true));
        let all = Prompts::new(prompts.clone()).expect("as before");
        let together = detector.detect(&image, &all).expect("it detects").items;
        for (class, prompt) in prompts.into_iter().enumerate() {
            let mut alone = detector
                .detect(&image, &Prompts::new([prompt]).expect("one class"))
                .expect("it detects")
                .items;
            alone.iter_mut().for_each(|one| one.class_id = class);
            let among: Vec<Detection> =
                together.iter().filter(|one| one.class_id == class).cloned().collect();
            problems.extend(same(&format!("{}, class {class}", scene.file), &among, &alone, size));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}
