//! Which detections are which objects.

use crate::masklets::{BitMask, Detection, MaskletOptions, ObjectId};
use std::collections::BTreeMap;

/// A detection with its place among all detections of the frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its place.
    pub index: usize,
    /// Its score.
    pub score: f32,
    /// Its foreground.
    pub mask: BitMask,
}

/// The result of an association; detections are named by [`Candidate::index`].
#[derive(Default)]
pub(crate) struct Association {
    /// Objects with a mask that no detection overlaps enough.
    pub(crate) unmatched: Vec<ObjectId>,
    /// Objects without a mask.
    pub(crate) empty: Vec<ObjectId>,
    /// The objects of each detection that has some.
    pub(crate) matches: Vec<(usize, Vec<ObjectId>)>,
    /// Detections that start an object.
    pub(crate) new: Vec<usize>,
    /// Detections that are sure enough to recondition an object.
    pub(crate) recondition: BTreeMap<ObjectId, usize>,
}

/// The detections above the score threshold that no better detection overlaps too much, in their order.
pub fn candidates(detections: &[Detection], options: &MaskletOptions) -> Vec<Candidate> {
    let candidate = |(index, found): (usize, &Detection)| Candidate {
        index,
        score: found.score,
        mask: found.mask.positive(),
    };
    suppress(detections.iter().enumerate().map(candidate).collect(), options)
}

fn suppress(mut detections: Vec<Candidate>, options: &MaskletOptions) -> Vec<Candidate> {
    detections.retain(|detection| detection.score > options.detection_threshold);
    // The reversed ascending order of the reference: of equal scores the last detection comes first.
    detections.sort_by(|a, b| a.score.total_cmp(&b.score));
    let mut kept: Vec<Candidate> = Vec::new();
    for detection in detections.into_iter().rev() {
        if kept.iter().all(|better| better.mask.iou(&detection.mask) <= options.detection_nms_iou) {
            kept.push(detection);
        }
    }
    kept.sort_by_key(|detection| detection.index);
    kept
}

/// Associates detections with the masks of objects. One detection may match many objects, and one object many detections.
pub(crate) fn associate(
    detections: &[Candidate],
    objects: &[(ObjectId, BitMask)],
    options: &MaskletOptions,
) -> Association {
    let mut found = Association::default();
    if objects.is_empty() {
        found.new = detections.iter().map(|detection| detection.index).collect();
        return found;
    }
    let ious: Vec<Vec<f32>> = detections
        .iter()
        .map(|detection| objects.iter().map(|(_, mask)| detection.mask.iou(mask)).collect())
        .collect();
    for (column, (id, mask)) in objects.iter().enumerate() {
        if mask.is_empty() {
            found.empty.push(*id);
        } else if ious.iter().all(|row| row[column] < options.unmatched_iou) {
            found.unmatched.push(*id);
        }
    }
    for (detection, row) in detections.iter().zip(&ious) {
        let matched: Vec<ObjectId> = objects
            .iter()
            .zip(row)
            .filter(|&(_, &iou)| iou >= options.match_iou)
            .map(|((id, _), _)| *id)
            .collect();
        if matched.is_empty() && detection.score >= options.new_object_threshold {
            found.new.push(detection.index);
            continue;
        }
        let best = (1..row.len()).fold(0, |best, other| if row[other] > row[best] { other } else { best });
        if detection.score >= options.recondition_score && row[best] >= options.recondition_iou {
            found.recondition.insert(objects[best].0, detection.index);
        }
        if !matched.is_empty() {
            found.matches.push((detection.index, matched));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bar of `length` pixels.
    fn bar(start: usize, length: usize) -> BitMask {
        BitMask::from_fn(100, 1, |x, _| (start..start + length).contains(&x))
    }

    #[test]
    fn the_best_of_overlapping_detections_is_kept() {
        let options = MaskletOptions::default();
        let kept = |detections: &[(f32, BitMask)]| -> Vec<usize> {
            suppress(candidates(detections), &options).iter().map(|kept| kept.index).collect()
        };
        let cases: [(&str, Vec<(f32, BitMask)>, &[usize]); 5] = [
            ("the better one stays", vec![(0.8, bar(0, 10)), (0.9, bar(5, 10))], &[1]),
            ("an IoU of 0.1 is not too much", vec![(0.8, bar(0, 55)), (0.9, bar(45, 55))], &[0, 1]),
            ("0.5 is not above the threshold", vec![(0.5, bar(0, 10)), (0.51, bar(50, 10))], &[1]),
            ("equal scores: the last", vec![(0.9, bar(0, 10)), (0.9, bar(5, 10))], &[1]),
            (
                "a suppressed one suppresses none",
                vec![(0.9, bar(0, 20)), (0.8, bar(10, 20)), (0.7, bar(25, 20))],
                &[0, 2],
            ),
        ];
        for (name, detections, expected) in cases {
            assert_eq!(kept(&detections), expected, "{name}");
        }
    }

    fn candidates(detections: &[(f32, BitMask)]) -> Vec<Candidate> {
        let candidate = |(index, (score, mask)): (usize, &(f32, BitMask))| Candidate {
            index,
            score: *score,
            mask: mask.clone(),
        };
        detections.iter().enumerate().map(candidate).collect()
    }

    fn found(detections: &[(f32, BitMask)], objects: &[BitMask]) -> Association {
        let detections = candidates(detections);
        let objects: Vec<_> =
            objects.iter().enumerate().map(|(id, mask)| (id as ObjectId, mask.clone())).collect();
        associate(&detections, &objects, &MaskletOptions::default())
    }

    #[test]
    fn overlaps_match_and_everything_else_is_new_or_unmatched() {
        let first = found(&[(0.55, bar(0, 9))], &[]);
        assert_eq!(first.new, [0], "without objects every detection starts one");

        let both = found(
            &[(0.9, bar(0, 20)), (0.69, bar(60, 9)), (0.7, bar(80, 9))],
            &[bar(0, 10), bar(12, 8), bar(40, 0)],
        );
        assert_eq!(both.matches, [(0, vec![0, 1])]);
        assert_eq!((both.new, both.unmatched, both.empty), (vec![2], vec![1], vec![2]));

        let sure = found(&[(0.8, bar(0, 10)), (0.79, bar(50, 10))], &[bar(0, 8), bar(50, 10)]);
        assert_eq!(sure.recondition, BTreeMap::from([(0, 0)]));
    }
}
