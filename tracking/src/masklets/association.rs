//! A detection is an object that is tracked already, or a new one: the overlaps of their masks decide.

use crate::masklets::{BitMask, DetectedMask, MaskletOptions, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Objects whose keep-alive counter goes down.
    pub(crate) missed: Vec<ObjectId>,
    /// The objects of each detection that has some.
    pub(crate) matches: Vec<(usize, Vec<ObjectId>)>,
    /// Detections that start an object.
    pub(crate) new: Vec<usize>,
    /// Detections that are sure enough to recondition an object.
    pub(crate) recondition: BTreeMap<ObjectId, usize>,
}

/// The detections above the score threshold that no better detection overlaps too much, in their order. On a
/// prompted frame of SAM 3.1, detections that are suppressed suppress others, too.
pub fn candidates(
    detections: &[DetectedMask],
    options: &MaskletOptions,
    is_prompted: bool,
) -> Vec<Candidate> {
    let candidate = |(index, found): (usize, &DetectedMask)| Candidate {
        index,
        score: found.score,
        mask: found.mask.positive(),
    };
    suppress(detections.iter().enumerate().map(candidate).collect(), options, is_prompted)
}

fn suppress(mut detections: Vec<Candidate>, options: &MaskletOptions, is_prompted: bool) -> Vec<Candidate> {
    detections.retain(|detection| detection.score > options.detection_threshold);
    sort_by_score(&mut detections, options, |detection| detection.score);
    let (mut kept, mut suppressed) = (Vec::<Candidate>::new(), Vec::<Candidate>::new());
    for detection in detections {
        let others = suppressed.iter().filter(|_| is_prompted && options.life_cycle.is_multiplex());
        let better = kept.iter().chain(others);
        let mut overlaps = better.map(|better| options.life_cycle.overlap(&better.mask, &detection.mask));
        let is_clear = overlaps.all(|overlap| overlap <= options.detection_nms_iou);
        let list = if is_clear { &mut kept } else { &mut suppressed };
        list.push(detection);
    }
    kept.sort_by_key(|detection| detection.index);
    kept
}

/// Sorts by score, the highest first. Of equal scores the last comes first in SAM 3, the first in SAM 3.1.
pub(crate) fn sort_by_score<T>(items: &mut [T], options: &MaskletOptions, score: impl Fn(&T) -> f32) {
    if !options.life_cycle.is_multiplex() {
        items.reverse();
    }
    items.sort_by(|a, b| score(b).total_cmp(&score(a)));
}

/// Associates detections with the masks of objects. One detection may match many objects, and one object many detections.
pub(crate) fn associate(
    detections: &[Candidate],
    objects: &[(ObjectId, BitMask)],
    options: &MaskletOptions,
) -> Association {
    let mut found = Association::default();
    let is_multiplex = options.life_cycle.is_multiplex();
    if objects.is_empty() {
        let starts = |found: &&Candidate| !is_multiplex || found.score >= options.new_object_threshold;
        found.new = detections.iter().filter(starts).map(|detection| detection.index).collect();
        return found;
    }
    let overlap = |a: &Candidate, b: &BitMask| options.life_cycle.overlap(&a.mask, b);
    let mut overlaps: Vec<Vec<f32>> = detections
        .iter()
        .map(|detection| objects.iter().map(|(_, mask)| overlap(detection, mask)).collect())
        .collect();
    for (column, (id, mask)) in objects.iter().enumerate() {
        if mask.is_empty() {
            found.empty.push(*id);
        } else if overlaps.iter().all(|row| row[column] < options.unmatched_iou) {
            found.unmatched.push(*id);
        }
    }
    for (detection, row) in detections.iter().zip(&overlaps) {
        let is_free = row.iter().all(|&overlap| overlap < options.match_iou);
        if is_free && detection.score >= options.new_object_threshold {
            found.new.push(detection.index);
        }
    }
    if let Some(least) = options.ambiguous_iou {
        ignore_ambiguous(&mut overlaps, least);
    }
    for (detection, row) in detections.iter().zip(&overlaps) {
        if found.new.contains(&detection.index) {
            continue;
        }
        let matched: Vec<ObjectId> = objects
            .iter()
            .zip(row)
            .filter(|&(_, &overlap)| overlap >= options.match_iou)
            .map(|((id, _), _)| *id)
            .collect();
        let best = (1..row.len()).fold(0, |best, other| if row[other] > row[best] { other } else { best });
        if detection.score >= options.recondition_score && row[best] >= options.recondition_iou {
            found.recondition.insert(objects[best].0, detection.index);
        }
        if !matched.is_empty() {
            found.matches.push((detection.index, matched));
        }
    }
    let matched = found.matched();
    let is_missed = |(id, mask): &&(ObjectId, BitMask)| {
        let is_missed = found.unmatched.contains(id) || mask.is_empty() && options.empty_decreases_keep_alive;
        if is_multiplex { !matched.contains(id) } else { is_missed }
    };
    found.missed = objects.iter().filter(is_missed).map(|(id, _)| *id).collect();
    found
}

impl Association {
    /// The objects that a detection matches.
    pub(crate) fn matched(&self) -> BTreeSet<ObjectId> {
        self.matches.iter().flat_map(|(_, ids)| ids).copied().collect()
    }
}

/// Zeroes the overlaps of detections and objects that have more than one partner of at least this overlap.
fn ignore_ambiguous(overlaps: &mut [Vec<f32>], least: f32) {
    let count = overlaps.first().map_or(0, Vec::len);
    let partners = |column: usize| overlaps.iter().filter(|row| row[column] >= least).count();
    let columns: Vec<usize> = (0..count).map(partners).collect();
    for row in overlaps {
        let is_many = row.iter().filter(|&&overlap| overlap >= least).count() > 1;
        let ambiguous = row.iter_mut().zip(&columns).filter(|(_, partners)| is_many || **partners > 1);
        ambiguous.for_each(|(overlap, _)| *overlap = 0.0);
    }
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
            suppress(candidates(detections), &options, false).iter().map(|kept| kept.index).collect()
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

    #[test]
    fn detections_of_buckets_overlap_by_the_smaller_area() {
        let options = MaskletOptions::multiplex();
        let kept = |detections: &[(f32, BitMask)], by_suppressed| -> Vec<usize> {
            let kept = suppress(candidates(detections), &options, by_suppressed);
            kept.iter().map(|kept| kept.index).collect()
        };
        assert_eq!(kept(&[(0.9, bar(0, 10)), (0.9, bar(5, 10))], false), [0], "equal scores: the first");
        assert_eq!(kept(&[(0.9, bar(0, 80)), (0.8, bar(78, 10))], false), [0], "a fifth of the smaller one");
        let chain = [(0.9, bar(0, 20)), (0.8, bar(10, 20)), (0.7, bar(25, 20))];
        assert_eq!((kept(&chain, false), kept(&chain, true)), (vec![0, 2], vec![0]));
    }

    #[test]
    fn ambiguous_detections_of_buckets_match_nothing_and_start_nothing() {
        let options = MaskletOptions::multiplex();
        let shared = found(&options, &[(0.9, bar(0, 20)), (0.9, bar(60, 9))], &[bar(0, 8), bar(12, 8)]);
        assert_eq!((shared.matches, shared.new), (vec![], vec![1]));
        assert_eq!((shared.unmatched, shared.missed), (vec![], vec![0, 1]), "they are seen all the same");
        let first = found(&options, &[(0.64, bar(0, 9)), (0.65, bar(20, 9))], &[]);
        assert_eq!(first.new, [1], "the first objects need as good a score as later ones");
    }

    #[test]
    fn ambiguous_pairs_match_nobody_if_it_is_asked_for() {
        let detections = [(0.9, bar(0, 10)), (0.9, bar(30, 10))];
        let objects = [bar(0, 9), bar(1, 9), bar(30, 9)];
        for (ambiguous_iou, matches, recondition) in [
            (None, vec![(0, vec![0, 1]), (1, vec![2])], vec![(0, 0), (2, 1)]),
            (Some(0.95), vec![(0, vec![0, 1]), (1, vec![2])], vec![(0, 0), (2, 1)]),
            (Some(0.8), vec![(1, vec![2])], vec![(2, 1)]),
        ] {
            let options = MaskletOptions { ambiguous_iou, ..MaskletOptions::default() };
            let found = found(&options, &detections, &objects);
            assert_eq!((found.matches, found.recondition), (matches, BTreeMap::from_iter(recondition)));
            assert_eq!(
                (found.new, found.unmatched, found.missed),
                (vec![], vec![], vec![]),
                "{ambiguous_iou:?}"
            );
        }
        let options = MaskletOptions { ambiguous_iou: Some(0.8), ..MaskletOptions::default() };
        let twice = found(&options, &[(0.9, bar(0, 9)), (0.9, bar(1, 9))], &[bar(0, 10)]);
        assert_eq!((twice.matches, twice.new, twice.unmatched), (vec![], vec![], vec![]), "two detections");
    }

    fn candidates(detections: &[(f32, BitMask)]) -> Vec<Candidate> {
        let candidate = |(index, (score, mask)): (usize, &(f32, BitMask))| Candidate {
            index,
            score: *score,
            mask: mask.clone(),
        };
        detections.iter().enumerate().map(candidate).collect()
    }

    fn found(options: &MaskletOptions, detections: &[(f32, BitMask)], objects: &[BitMask]) -> Association {
        let detections = candidates(detections);
        let objects: Vec<_> =
            objects.iter().enumerate().map(|(id, mask)| (id as ObjectId, mask.clone())).collect();
        associate(&detections, &objects, options)
    }

    #[test]
    fn overlaps_match_and_everything_else_is_new_or_unmatched() {
        let options = &MaskletOptions::default();
        let first = found(options, &[(0.55, bar(0, 9))], &[]);
        assert_eq!(first.new, [0], "without objects every detection starts one");

        let both = found(
            options,
            &[(0.9, bar(0, 20)), (0.69, bar(60, 9)), (0.7, bar(80, 9))],
            &[bar(0, 10), bar(12, 8), bar(40, 0)],
        );
        assert_eq!(both.matches, [(0, vec![0, 1])]);
        assert_eq!((both.new, both.unmatched, both.empty), (vec![2], vec![1], vec![2]));

        let sure = found(options, &[(0.8, bar(0, 10)), (0.79, bar(50, 10))], &[bar(0, 8), bar(50, 10)]);
        assert_eq!(sure.recondition, BTreeMap::from([(0, 0)]));
    }
}
