//! The result of a detector: labels, scores, boxes and masks.

use std::sync::Arc;

use ocelli_tracking::{BoundingBox, TrackerDetection};
use serde::{Deserialize, Serialize, Serializer};

use crate::mask::{Mask, SemanticMap};
use crate::postprocess::Candidate;
use crate::timing::StageTimes;

/// One instance of a class in an image.
///
/// Serde formats have the fields `class_id`, `label`, `score`, `box` as `[x1, y1, x2, y2]` and, if there is one, `mask`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// The index of its prompt.
    pub class_id: usize,
    /// The label of its prompt, shared by all detections of the class.
    pub label: Arc<str>,
    /// Confidence, 0 to 1: the score of the query times the presence of its class in the image. Written with five decimals.
    #[serde(serialize_with = "with_five_decimals")]
    pub score: f32,
    /// Pixels of the original image, clipped to it. Written with two decimals.
    #[serde(rename = "box", serialize_with = "with_two_decimals")]
    pub bbox: BoundingBox,
    /// The pixels of the instance, as large as the original image, if the detector was built with masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Mask>,
}

impl Detection {
    /// A detection without a mask, from a kept query and the label of its class.
    pub fn from_candidate(candidate: &Candidate, label: Arc<str>) -> Self {
        Self { class_id: candidate.class_id, label, score: candidate.score, bbox: candidate.bbox, mask: None }
    }
}

impl From<&Detection> for TrackerDetection {
    fn from(detection: &Detection) -> Self {
        Self { bbox: detection.bbox, score: detection.score, class_id: detection.class_id }
    }
}

/// The value in steps of 1 / `scale`: `f64`, whose shortest decimal form then has no further digits.
pub fn rounded(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

pub(crate) fn with_five_decimals<S: Serializer>(score: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    rounded(f64::from(*score), 1e5).serialize(serializer)
}

pub(crate) fn with_two_decimals<S: Serializer>(bbox: &BoundingBox, serializer: S) -> Result<S::Ok, S::Error> {
    bbox.to_xyxy().map(|edge| rounded(f64::from(edge), 1e2)).serialize(serializer)
}

/// The detections of one image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detections {
    /// The highest score first.
    pub items: Vec<Detection>,
    /// The pixels of each class that was found, by class id; empty unless the detector was built
    /// [with semantic maps](crate::options::DetectorOptions::semantic_maps).
    pub semantic: Vec<SemanticMap>,
    /// The times of the stages.
    pub times: StageTimes,
}

/// The [`items`](Detections::items), so that detections can be counted and iterated.
impl std::ops::Deref for Detections {
    type Target = [Detection];

    fn deref(&self) -> &[Detection] {
        &self.items
    }
}

impl IntoIterator for Detections {
    type Item = Detection;
    type IntoIter = std::vec::IntoIter<Detection>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a> IntoIterator for &'a Detections {
    type Item = &'a Detection;
    type IntoIter = std::slice::Iter<'a, Detection>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trips_with_and_without_a_mask() {
        let bbox = BoundingBox::new(1.0, 0.0, 3.0, 2.5);
        let plain = Detection { class_id: 2, label: "red apple".into(), score: 0.75, bbox, mask: None };
        let mask = Mask::from_bitmap(&[1, 1, 0, 1, 0, 0], 3, 2).expect("six pixels");
        let masked = Detection { mask: Some(mask), ..plain.clone() };
        let start = r#"{"class_id":2,"label":"red apple","score":0.75,"box":[1.0,0.0,3.0,2.5]"#;
        for (detection, end) in [(plain, "}"), (masked, r#","mask":{"size":[2,3],"counts":"033"}}"#)] {
            let json = serde_json::to_string(&detection).expect("finite numbers have a JSON form");
            assert_eq!(json, format!("{start}{end}"));
            assert_eq!(serde_json::from_str::<Detection>(&json).expect("just written"), detection);
        }
    }

    #[test]
    fn detections_iterate_by_value_and_by_reference() {
        let detection = |class_id| Detection {
            class_id,
            label: "dog".into(),
            score: 0.5,
            bbox: BoundingBox::default(),
            mask: None,
        };
        let found = Detections { items: vec![detection(1), detection(0)], ..Detections::default() };
        let mut by_reference = Vec::new();
        for detection in &found {
            by_reference.push(detection.class_id);
        }
        assert_eq!(by_reference, [1, 0]);
        assert_eq!(found.into_iter().map(|detection| detection.class_id).collect::<Vec<_>>(), [1, 0]);
    }
}
