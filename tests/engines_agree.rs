//! The embedded engine and ONNX Runtime give the same detections: text prompts, exemplars, masks, with the built-in model.
//!
//! Needs ONNX Runtime; `make setup` installs it.

use ocelli::{Detection, Detector, EngineKind, Prompt, Prompts, stages::TextCacheFile};
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneOptions, vocabulary};

/// The largest difference of a score.
const SCORE: f32 = 1e-4;
/// The largest difference of a box's edge, in pixels.
const EDGE: f32 = 0.05;
/// The smallest IoU of two masks.
const MASK_IOU: f64 = 0.995;

fn detectors() -> [Detector; 2] {
    [EngineKind::Cpu, EngineKind::Embedded].map(|kind| {
        let builder = Detector::builder().with_engine(kind).with_masks(true);
        builder.with_text_cache(TextCacheFile::None).build().unwrap_or_else(|e| panic!("{kind}: {e}"))
    })
}

fn scenes(count: u64) -> Vec<Scene> {
    let generator = SceneGenerator::new(31, SceneOptions::default()).expect("the defaults");
    (0..count).map(|index| generator.scene(index)).collect()
}

/// One line for each difference.
fn differences(expected: &[Detection], found: &[Detection]) -> Vec<String> {
    if expected.len() != found.len() {
        return vec![format!("{} detections, expected {}", found.len(), expected.len())];
    }
    let mut wrong = Vec::new();
    for (a, b) in expected.iter().zip(found) {
        let corners = |found: &Detection| [found.bbox.x1, found.bbox.y1, found.bbox.x2, found.bbox.y2];
        let edge = corners(a).into_iter().zip(corners(b)).map(|(a, b)| (a - b).abs());
        let edge = edge.fold(0.0, f32::max);
        let iou = match (&a.mask, &b.mask) {
            (Some(a), Some(b)) => a.iou(b).expect("masks of one image"),
            _ => 0.0,
        };
        if a.label != b.label || (a.score - b.score).abs() > SCORE || edge > EDGE || iou < MASK_IOU {
            wrong.push(format!(
                "{} {} {:?}, expected {} {} {:?}; masks' IoU {iou}",
                b.label, b.score, b.bbox, a.label, a.score, a.bbox
            ));
        }
    }
    wrong
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn on_text_prompts_and_exemplars() {
    let [mut reference, mut embedded] = detectors();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (index, scene) in scenes(6).iter().enumerate() {
        // Chunks of one, four and more classes, and a prompt with exemplars.
        for classes in [1, 4, 9] {
            let names = scene.objects.iter().map(|object| object.label).chain(vocabulary().iter().copied());
            let mut names: Vec<_> = names.take(classes).collect();
            names.dedup();
            let text = names.into_iter().map(Prompt::new);
            let shown = scene.objects.first().expect("a scene has objects");
            let visual = Prompt::visual("shown").with_exemplar(shown.bbox, true);
            let prompts: Vec<_> = if classes == 4 { text.chain([visual]).collect() } else { text.collect() };
            let prompts = Prompts::new(prompts).expect("valid prompts");
            let [expected, found] = [&mut reference, &mut embedded]
                .map(|detector| detector.detect(&scene.image, &prompts).expect("it detects").items);
            count += expected.len();
            let lines = differences(&expected, &found).into_iter();
            wrong.extend(lines.map(|line| format!("scene {index}, {classes} classes: {line}")));
        }
    }
    assert!(count >= 30, "only {count} detections were compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
