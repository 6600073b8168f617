//! Exemplars with the built-in model: boxes in the image itself, and boxes in another image.
//!
//! `cargo test -p ocelli-tests exemplars -- --nocapture` prints the figures. Needs ONNX Runtime; `make setup` installs it.

#![allow(clippy::print_stdout, reason = "the figures are interesting if the test passes, too")]

use std::collections::BTreeMap;

use ocelli::{Detection, Detector, Prompt, Prompts, stages::TextCacheFile};
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneObject, SceneOptions};

const CONFIDENCE: f32 = 0.3;
const SCENES: u64 = 40;

/// Detected objects with the label of the exemplar, all objects with it, detected objects with other labels, and all of those.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    hits: usize,
    objects: usize,
    others_hit: usize,
    others: usize,
}

impl Score {
    fn add(&mut self, found: &[Detection], scene: &Scene, label: &str, but: Option<&SceneObject>) {
        let hit = |object: &&SceneObject| found.iter().any(|one| one.bbox.iou(&object.bbox) > 0.5);
        let shown = |object: &&SceneObject| but.is_none_or(|but| but.bbox != object.bbox);
        let (same, other): (Vec<_>, Vec<_>) =
            scene.objects.iter().filter(shown).partition(|object| object.label == label);
        self.objects += same.len();
        self.hits += same.into_iter().filter(hit).count();
        self.others += other.len();
        self.others_hit += other.into_iter().filter(hit).count();
    }

    fn recall(&self) -> f64 {
        self.hits as f64 / self.objects.max(1) as f64
    }

    fn confusion(&self) -> f64 {
        self.others_hit as f64 / self.others.max(1) as f64
    }
}

fn detector() -> Detector {
    Detector::builder()
        .with_confidence(CONFIDENCE)
        .with_text_cache(TextCacheFile::None)
        .build()
        .expect("the built-in model runs")
}

fn scenes(count: u64) -> Vec<Scene> {
    let generator =
        SceneGenerator::new(77, SceneOptions { kinds: 1..=3, objects: 3..=8, ..SceneOptions::default() })
            .expect("valid ranges");
    (0..count).map(|number| generator.scene(number)).collect()
}

/// With one exemplar, the other objects with its label are detected, and objects with other labels mostly not.
#[test]
fn an_exemplar_detects_objects_with_its_label() {
    let mut detector = detector();
    let mut score = Score::default();
    for scene in scenes(SCENES) {
        let Some(shown) = scene
            .objects
            .iter()
            .find(|one| scene.objects.iter().filter(|other| other.label == one.label).count() > 1)
        else {
            continue;
        };
        let prompts =
            Prompts::new([Prompt::visual("shown").with_exemplar(shown.bbox, true)]).expect("an area");
        let found = detector.detect(&scene.image, &prompts).expect("it detects").items;
        score.add(&found, &scene, shown.label, Some(shown));
    }
    println!(
        "by a box in the same image: {score:?}, recall {:.2}, confusion {:.2}",
        score.recall(),
        score.confusion()
    );
    assert!(score.objects >= 30 && score.others >= 30, "too few objects: {score:?}");
    assert!(score.recall() >= 0.6, "{score:?}");
    assert!(score.confusion() <= 0.25, "{score:?}");
}

/// Kept exemplars, used in the image that they are from, give the same detections as exemplars that are not kept.
#[test]
fn kept_exemplars_change_nothing_in_their_own_image() {
    let mut detector = detector();
    let mut problems = Vec::new();
    for (number, scene) in scenes(6).iter().enumerate() {
        let [first, second] = [&scene.objects[0], &scene.objects[1]];
        let prompts = Prompts::new([
            Prompt::visual("shown").with_exemplar(first.bbox, true),
            Prompt::new("dog"),
            Prompt::new(second.label).with_exemplar(second.bbox, true).with_exemplar(first.bbox, false),
        ])
        .expect("boxes with area");
        let kept = detector.exemplar_features(&scene.image, &prompts).expect("boxes in the image");
        let direct = detector.detect(&scene.image, &prompts).expect("it detects").items;
        let later = detector.detect_embedded(&scene.image, &kept).expect("it detects").items;
        if direct != later || direct.is_empty() {
            problems.push(format!("scene {number}: {direct:?}, and kept {later:?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Exemplars in another image, which models are not trained for, with and without a text prompt. The bounds are far below the
/// measured figures: they fail if the exemplar has no effect.
#[test]
fn exemplars_from_another_image() {
    let mut detector = detector();
    let scenes = scenes(SCENES);
    // For each label, the scenes with it.
    let mut of_label: BTreeMap<&str, Vec<&Scene>> = BTreeMap::new();
    for scene in &scenes {
        for object in &scene.objects {
            let shown = of_label.entry(object.label).or_default();
            if !shown.iter().any(|other| std::ptr::eq(*other, scene)) {
                shown.push(scene);
            }
        }
    }
    let mut by_text = Score::default();
    let (mut by_box, mut by_both) = (Score::default(), Score::default());
    for (label, shown) in of_label.iter().filter(|(_, shown)| shown.len() > 1) {
        let [from, to] = [shown[0], shown[1]];
        let exemplar = from.objects.iter().find(|one| one.label == *label).expect("the scene shows it");
        let text = Prompts::new([*label]).expect("a label");
        let found = detector.detect(&to.image, &text).expect("it detects").items;
        by_text.add(&found, to, label, None);
        for (score, prompt) in [(&mut by_box, Prompt::visual(*label)), (&mut by_both, Prompt::new(*label))] {
            let prompts = Prompts::new([prompt.with_exemplar(exemplar.bbox, true)]).expect("an area");
            let kept = detector.exemplar_features(&from.image, &prompts).expect("a box in the image");
            let found = detector.detect_embedded(&to.image, &kept).expect("it detects").items;
            score.add(&found, to, label, None);
        }
    }
    for (name, score) in [("a text prompt", by_text), ("a box in another image", by_box), ("both", by_both)] {
        println!("by {name}: {score:?}, recall {:.2}, confusion {:.2}", score.recall(), score.confusion());
    }
    assert!(by_box.objects >= 30, "too few objects: {by_box:?}");
    assert!(by_box.recall() >= 0.5 && by_box.confusion() <= 0.4, "{by_box:?}");
    assert!(by_both.recall() >= 0.6, "{by_both:?}");
}
