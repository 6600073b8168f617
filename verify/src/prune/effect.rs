//! The effect of a removal.

use ocelli::Detection;
use serde::{Deserialize, Serialize};

use crate::verification::match_detections;

/// Detections of one class that overlap by less are two different ones.
const SAME_IOU: f32 = 0.5;
/// A detection that overlaps the whole model's by less has moved.
const UNMOVED_IOU: f32 = 0.9;

/// The effect of a removal in one image. In 32 bits, so that it is the same when it is read from a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub relative_l2: f32,
    pub cosine: f32,
    pub detections: Option<DetectionEffect>,
}

impl Measurement {
    /// The whole model, in the image of this measurement.
    pub fn of_whole_model(&self) -> Self {
        let unchanged = |DetectionEffect { whole, .. }: DetectionEffect| DetectionEffect {
            whole,
            kept: whole,
            ..Default::default()
        };
        Self { relative_l2: 0.0, cosine: 1.0, detections: self.detections.map(unchanged) }
    }
}

/// The differences of the detections from those of the whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectionEffect {
    /// Detections of the whole model.
    pub whole: u32,
    /// Those that are still there, in the same place or moved: they overlap one of the same class by an IoU of 0.5.
    pub kept: u32,
    /// Those that are not.
    pub lost: u32,
    /// Those that the whole model does not have.
    pub new: u32,
    /// Those of the kept ones that overlap by an IoU of less than 0.9.
    pub moved: u32,
}

impl DetectionEffect {
    pub(super) fn between(whole: &[Detection], pruned: &[Detection]) -> Self {
        let matching = match_detections(whole, pruned, SAME_IOU);
        let moved = matching.pairs.iter().filter(|(.., iou)| *iou < UNMOVED_IOU).count();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            whole: count(whole.len()),
            kept: count(matching.pairs.len()),
            lost: count(matching.first.len()),
            new: count(matching.second.len()),
            moved: count(moved),
        }
    }
}

/// The effect of a removal, over all images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The distance of `fpn_2`, which detections are decoded from, from the whole model's, relative to its length: the mean of
    /// the images.
    pub relative_l2: f64,
    /// That of the image with the largest.
    pub worst_relative_l2: f64,
    /// The cosine between the two: the mean of the images.
    pub cosine: f64,
    /// The detections of all images, if they were counted.
    pub detections: Option<DetectionEffect>,
    /// The share of the whole model's detections that are kept, if it has any.
    pub kept_share: Option<f64>,
}

impl Effect {
    /// Adds up images.
    pub(super) fn of(images: &[Measurement]) -> Self {
        let mean = |of: &dyn Fn(&Measurement) -> f32| {
            images.iter().map(|image| f64::from(of(image))).sum::<f64>() / images.len() as f64
        };
        let counted: Option<Vec<DetectionEffect>> = images.iter().map(|image| image.detections).collect();
        let sum = counted.map(|images| {
            images.iter().fold(DetectionEffect::default(), |sum, image| DetectionEffect {
                whole: sum.whole + image.whole,
                kept: sum.kept + image.kept,
                lost: sum.lost + image.lost,
                new: sum.new + image.new,
                moved: sum.moved + image.moved,
            })
        });
        Self {
            relative_l2: mean(&|image| image.relative_l2),
            worst_relative_l2: images.iter().map(|image| f64::from(image.relative_l2)).fold(0.0, f64::max),
            cosine: mean(&|image| image.cosine),
            detections: sum,
            kept_share: sum.filter(|sum| sum.whole > 0).map(|sum| f64::from(sum.kept) / f64::from(sum.whole)),
        }
    }
}
