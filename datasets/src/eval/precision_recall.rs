//! Precision and recall at one score threshold.

use std::collections::HashMap;

use hotcoco::types::{Annotation, Segmentation};
use serde::Serialize;

use super::accuracy::mean;
use super::truth::bbox_of;
use super::{Instance, Predictions, Truth};
use ocelli::{Mask, Result};

/// The smallest IoU between the boxes of a detection and of the instance that it matches.
pub const MIN_IOU: f32 = 0.5;

/// Precision and recall at one score threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PrecisionRecall {
    /// The threshold: detections above this score count.
    pub confidence: f32,
    /// Detections that match an instance.
    #[serde(rename = "hits")]
    pub true_positives: usize,
    /// Detections without an instance, or whose instance another detection matches.
    #[serde(rename = "false_alarms")]
    pub false_positives: usize,
    /// Instances without a detection.
    #[serde(rename = "missed")]
    pub false_negatives: usize,
    /// Share of the detections that are true positives, 0 to 1; `None` without detections.
    pub precision: Option<f64>,
    /// Share of the instances that are detected, 0 to 1; `None` without instances.
    pub recall: Option<f64>,
    /// Mean IoU of the masks of true positives and their instances; `None` without masks.
    pub mask_iou: Option<f64>,
    /// Number of pairs of masks.
    pub masks: usize,
}

/// Matches the detections of each image, the highest score first, with instances: each detection with the unmatched instance
/// of its class that its box overlaps most, if the IoU is at least [`MIN_IOU`]. An unmatched detection in a crowd is ignored.
///
/// # Errors
/// [`Mismatch`](ocelli::ErrorKind::Mismatch) if the masks have different sizes.
pub fn precision_recall(
    truth: &Truth,
    predictions: &Predictions,
    image_ids: &[u64],
    confidence: f32,
) -> Result<PrecisionRecall> {
    let mut of_image: HashMap<u64, Vec<&Annotation>> = HashMap::new();
    for one in predictions.0.iter().filter(|one| score(one) > f64::from(confidence)) {
        of_image.entry(one.image_id).or_default().push(one);
    }
    let mut counts = PrecisionRecall { confidence, ..PrecisionRecall::default() };
    let mut overlaps = Vec::new();
    for id in image_ids {
        let mut found = of_image.remove(id).unwrap_or_default();
        found.sort_by(|a, b| score(b).total_cmp(&score(a)));
        count_image(&truth.instances(*id), &found, &mut counts, &mut overlaps)?;
    }
    let share = |of: usize, all: usize| (all > 0).then(|| of as f64 / all as f64);
    counts.precision = share(counts.true_positives, counts.true_positives + counts.false_positives);
    counts.recall = share(counts.true_positives, counts.true_positives + counts.false_negatives);
    counts.masks = overlaps.len();
    counts.mask_iou = mean(overlaps.into_iter());
    Ok(counts)
}

fn count_image(
    instances: &[Instance],
    found: &[&Annotation],
    counts: &mut PrecisionRecall,
    overlaps: &mut Vec<f64>,
) -> Result<()> {
    let (crowds, mut free): (Vec<&Instance>, Vec<&Instance>) = instances.iter().partition(|one| one.is_crowd);
    for one in found {
        let mask = mask_of(one)?;
        let Some(bbox) = bbox_of(one, mask.as_ref()) else {
            counts.false_positives += 1;
            continue;
        };
        let is_same = |other: &Instance| other.category_id == one.category_id;
        // The first one, if several overlap equally.
        let same = free.iter().enumerate().rev().filter(|(_, other)| is_same(other));
        let best = same.map(|(at, other)| (at, other.bbox.iou(&bbox))).max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((at, _)) = best.filter(|(_, overlap)| *overlap >= MIN_IOU) {
            counts.true_positives += 1;
            if let (Some(theirs), Some(ours)) = (&free.remove(at).mask, &mask) {
                overlaps.push(ours.iou(theirs)?);
            }
            continue;
        }
        let is_in = |crowd: &Instance| {
            let common = bbox.intersection(&crowd.bbox).map_or(0.0, |common| common.area());
            common >= MIN_IOU * bbox.area()
        };
        counts.false_positives += usize::from(!crowds.iter().any(|crowd| is_same(crowd) && is_in(crowd)));
    }
    counts.false_negatives += free.len();
    Ok(())
}

fn score(one: &Annotation) -> f64 {
    one.score.unwrap_or_default()
}

/// The mask of a detection that has run lengths.
fn mask_of(one: &Annotation) -> Result<Option<Mask>> {
    let rle = one.segmentation.as_ref().and_then(Segmentation::rle_ref);
    let rle = rle.and_then(|rle| rle.to_rle().ok());
    rle.as_ref().map(|rle| Mask::from_run_lengths(&rle.counts, rle.w, rle.h)).transpose()
}
