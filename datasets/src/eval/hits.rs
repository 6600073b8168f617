//! Precision and recall at one threshold: what a person sees.

use std::collections::HashMap;

use hotcoco::types::{Annotation, Segmentation};
use ocelli_tracking::BoundingBox;
use serde::Serialize;

use super::{Predictions, Thing, Truth};
use ocelli::Mask;
use ocelli::Result;

/// How much a detection's box must overlap a thing's to have found it.
pub const LEAST_IOU: f32 = 0.5;

/// Hits and misses at one score threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HitCounts {
    /// Detections that score above this count.
    pub confidence: f32,
    /// Things that were found.
    pub hits: usize,
    /// Detections of nothing, or of what another one has found.
    pub false_alarms: usize,
    /// Things that were not found.
    pub missed: usize,
    /// hits / (hits + false alarms), 0 to 1; `None` where nothing was detected.
    pub precision: Option<f64>,
    /// hits / (hits + missed), 0 to 1; `None` where there is nothing to find.
    pub recall: Option<f64>,
    /// Mean IoU of the masks of hits and their things; `None` without masks.
    pub mask_iou: Option<f64>,
    /// How many pairs of masks that is the mean of.
    pub masks: usize,
}

/// Gives the detections of each picture, the best first, each to that free thing of its class which its box overlaps
/// most, where that is by [`LEAST_IOU`] at least. A detection that has no thing but lies in a crowd counts for nothing.
///
/// # Errors
/// [`Mismatch`](ocelli::ErrorKind::Mismatch) where a mask is not as large as what was marked.
pub fn count_hits(
    truth: &Truth,
    predictions: &Predictions,
    picture_ids: &[u64],
    confidence: f32,
) -> Result<HitCounts> {
    let mut of_picture: HashMap<u64, Vec<&Annotation>> = HashMap::new();
    for one in predictions.0.iter().filter(|one| score(one) > f64::from(confidence)) {
        of_picture.entry(one.image_id).or_default().push(one);
    }
    let mut counts = HitCounts { confidence, ..HitCounts::default() };
    let mut overlaps = Vec::new();
    for id in picture_ids {
        let mut found = of_picture.remove(id).unwrap_or_default();
        found.sort_by(|a, b| score(b).total_cmp(&score(a)));
        count_picture(&truth.things(*id), &found, &mut counts, &mut overlaps)?;
    }
    let share = |of: usize, all: usize| (all > 0).then(|| of as f64 / all as f64);
    counts.precision = share(counts.hits, counts.hits + counts.false_alarms);
    counts.recall = share(counts.hits, counts.hits + counts.missed);
    counts.masks = overlaps.len();
    counts.mask_iou = (!overlaps.is_empty()).then(|| overlaps.iter().sum::<f64>() / overlaps.len() as f64);
    Ok(counts)
}

fn count_picture(
    things: &[Thing],
    found: &[&Annotation],
    counts: &mut HitCounts,
    overlaps: &mut Vec<f64>,
) -> Result<()> {
    let mut free: Vec<bool> = things.iter().map(|thing| !thing.is_crowd).collect();
    for one in found {
        let mask = mask_of(one)?;
        let Some(bbox) = bbox_of(one, mask.as_ref()) else {
            counts.false_alarms += 1;
            continue;
        };
        let same = |place: &usize| things[*place].category_id == one.category_id;
        let overlap = |place: usize| things[place].bbox.iou(&bbox);
        // Of equals the first.
        let best = (0..things.len())
            .rev()
            .filter(same)
            .filter(|&place| free[place])
            .max_by(|&a, &b| overlap(a).total_cmp(&overlap(b)));
        match best.filter(|&place| overlap(place) >= LEAST_IOU) {
            Some(place) => {
                counts.hits += 1;
                free[place] = false;
                if let (Some(theirs), Some(ours)) = (&things[place].mask, &mask) {
                    overlaps.push(ours.iou(theirs)?);
                }
            }
            None => {
                let crowds = (0..things.len()).filter(same).filter(|&place| things[place].is_crowd);
                let in_crowd = |place: usize| {
                    let common = bbox.intersection(&things[place].bbox).map_or(0.0, |common| common.area());
                    common >= LEAST_IOU * bbox.area()
                };
                counts.false_alarms += usize::from(!crowds.into_iter().any(in_crowd));
            }
        }
    }
    counts.missed += free.iter().filter(|free| **free).count();
    Ok(())
}

fn score(one: &Annotation) -> f64 {
    one.score.unwrap_or_default()
}

/// The detection's mask, where it has one as run lengths.
fn mask_of(one: &Annotation) -> Result<Option<Mask>> {
    let rle = one.segmentation.as_ref().and_then(Segmentation::rle_ref);
    let rle = rle.and_then(|rle| rle.to_rle().ok());
    rle.as_ref().map(|rle| Mask::from_run_lengths(&rle.counts, rle.w, rle.h)).transpose()
}

fn bbox_of(one: &Annotation, mask: Option<&Mask>) -> Option<BoundingBox> {
    match one.bbox {
        Some(ltwh) => Some(BoundingBox::from_ltwh(ltwh.map(|value| value as f32))),
        None => mask.and_then(Mask::bounding_box),
    }
}
