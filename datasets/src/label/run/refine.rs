//! Turns the detections of an image into instances: the class of each prompt, suppression and minimum areas.

use ocelli::{BoundingBox, Detection, classes::MergeGroup};

use crate::label::{Instance, LabelSettings};

/// The limits of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub threshold: f32,
    nms: f32,
    /// The least area of an instance, in pixels.
    pub min_area: f64,
}

/// Applies the thresholds, suppression and minimum areas of the classes.
#[derive(Clone, Debug)]
pub(crate) struct Refiner {
    /// By class.
    pub limits: Vec<Limits>,
    groups: Vec<MergeGroup>,
}

impl Refiner {
    pub fn new(settings: &LabelSettings) -> Self {
        let limits = settings.classes.classes.iter().map(|class| Limits {
            threshold: class.threshold.unwrap_or(settings.confidence),
            nms: class.nms.unwrap_or(settings.nms),
            min_area: class.min_area.unwrap_or(settings.min_area),
        });
        Self { limits: limits.collect(), groups: settings.classes.merge.clone() }
    }

    /// The instances of an image, the highest score first. `detections` come in this order, too; `classes` has the class of
    /// each prompt.
    pub fn instances(&self, classes: &[usize], detections: Vec<Detection>) -> Vec<Instance> {
        let mut kept: Vec<Instance> = Vec::with_capacity(detections.len());
        for detection in detections {
            let class = classes[detection.class_id];
            let limits = &self.limits[class];
            let bbox = detection.bbox;
            let is_duplicate = |better: &Instance| {
                let max_iou = if better.class == class {
                    Some(limits.nms)
                } else {
                    self.group_iou(better.class, class)
                };
                max_iou.is_some_and(|max_iou| BoundingBox::from(better.bbox).iou(&bbox) > max_iou)
            };
            if detection.score <= limits.threshold || kept.iter().any(is_duplicate) {
                continue;
            }
            let area = detection.mask.as_ref().map_or(f64::from(bbox.area()), |mask| mask.area() as f64);
            if area < limits.min_area {
                continue;
            }
            let mask = detection.mask.map(|mask| mask.counts().to_owned());
            kept.push(Instance { class, score: detection.score, bbox: bbox.to_xyxy(), mask, track: None });
        }
        kept
    }

    /// The smallest IoU of the groups that contain both classes.
    fn group_iou(&self, a: usize, b: usize) -> Option<f32> {
        let shared =
            self.groups.iter().filter(|group| group.classes.contains(&a) && group.classes.contains(&b));
        shared.map(|group| group.iou).min_by(f32::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli::classes::{Class, ClassMap};

    #[test]
    fn prompts_become_classes_and_duplicates_are_removed() {
        let mut map = ClassMap::from_names(["car", "truck", "tree"]);
        map.classes[0].phrases.push("automobile".into());
        map.classes[2] = Class { threshold: Some(0.6), min_area: Some(300.0), ..map.classes[2].clone() };
        map.merge.push(MergeGroup { classes: vec![0, 1], iou: 0.5 });
        let refiner = Refiner::new(&LabelSettings { nms: 0.8, ..LabelSettings::new(map) });
        // The prompts: car, automobile, truck, tree.
        let classes = [0, 0, 1, 2];
        let detection = |class_id: usize, score: f32, left: f32| Detection {
            class_id,
            label: "".into(),
            score,
            bbox: BoundingBox::from_ltwh([left, 0.0, 20.0, 10.0]),
            mask: None,
        };
        let cases: [(&str, &[(usize, f32, f32)], &[(usize, f32)]); 7] = [
            ("two phrases of one class", &[(0, 0.9, 0.0), (1, 0.8, 0.0)], &[(0, 0.9)]),
            ("the phrase with the higher score", &[(1, 0.9, 0.0), (0, 0.8, 1.0)], &[(0, 0.9)]),
            ("little overlap", &[(0, 0.9, 0.0), (1, 0.8, 5.0)], &[(0, 0.9), (0, 0.8)]),
            ("a group", &[(2, 0.9, 0.0), (0, 0.8, 5.0)], &[(1, 0.9)]),
            ("no group", &[(2, 0.9, 0.0), (3, 0.8, 0.0)], &[(1, 0.9)]),
            ("threshold of a class", &[(3, 0.65, 0.0), (3, 0.55, 90.0)], &[]),
            (
                "a removed detection removes nothing",
                &[(0, 0.9, 0.0), (2, 0.8, 5.0), (2, 0.7, 11.0)],
                &[(0, 0.9), (1, 0.7)],
            ),
        ];
        let mut failures = Vec::new();
        for (name, detections, expected) in cases {
            let detections = detections.iter().map(|&(class, score, left)| detection(class, score, left));
            let found = refiner.instances(&classes, detections.collect());
            let found: Vec<_> = found.iter().map(|instance| (instance.class, instance.score)).collect();
            if found != expected {
                failures.push(format!("{name}: {found:?}, expected {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
