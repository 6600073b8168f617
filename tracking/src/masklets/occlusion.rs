//! Objects that cover each other.

use crate::masklets::{BitMask, MaskletOptions, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// The last occlusion of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Occluded {
    Never,
    At(usize),
    /// An object that is removed on this very frame.
    Always,
}

/// The last frame on which each object was without a mask, or covered by another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Occlusions(BTreeMap<ObjectId, Occluded>);

impl Occlusions {
    /// The objects whose masks another object covers: of two that overlap at least `occlusion_iou`, the one
    /// that was occluded last, provided that the other was occluded, too. An object that was never occluded
    /// suppresses none. With an `occlusion_iou` of 0 nothing is recorded.
    pub(crate) fn update(
        &mut self,
        frame: usize,
        is_reverse: bool,
        masks: &[(ObjectId, BitMask)],
        removed: &BTreeSet<ObjectId>,
        options: &MaskletOptions,
    ) -> BTreeSet<ObjectId> {
        if options.occlusion_iou <= 0.0 {
            self.0.clear();
            return BTreeSet::new();
        }
        let last = |id: ObjectId| match self.0.get(&id) {
            Some(last) if !(options.life_cycle.is_multiplex() && removed.contains(&id)) => *last,
            _ if removed.contains(&id) => Occluded::Always,
            _ => Occluded::Never,
        };
        let mut last: BTreeMap<ObjectId, Occluded> = masks.iter().map(|&(id, _)| (id, last(id))).collect();
        let yields = |own: Occluded, other: Occluded| {
            let is_later = if is_reverse { own < other } else { own > other };
            is_later && other != Occluded::Never
        };
        let mut suppressed = BTreeSet::new();
        for (index, (id, mask)) in masks.iter().enumerate() {
            for (other, other_mask) in &masks[index + 1..] {
                if mask.iou(other_mask) < options.occlusion_iou {
                    continue;
                }
                if yields(last[id], last[other]) {
                    suppressed.insert(*id);
                }
                if yields(last[other], last[id]) {
                    suppressed.insert(*other);
                }
            }
        }
        for (id, mask) in masks {
            if mask.is_empty() || suppressed.contains(id) {
                last.insert(*id, Occluded::At(frame));
            }
        }
        last.retain(|id, _| !removed.contains(id));
        self.0 = last;
        suppressed
    }

    /// The frame of each object's last occlusion.
    pub(crate) fn frames(&self) -> BTreeMap<ObjectId, Option<usize>> {
        let frame = |occluded: &Occluded| match *occluded {
            Occluded::At(frame) => Some(frame),
            Occluded::Never | Occluded::Always => None,
        };
        self.0.iter().map(|(&id, occluded)| (id, frame(occluded))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> BitMask {
        BitMask::from_fn(10, 1, |_, _| true)
    }

    fn update(
        occlusions: &mut Occlusions,
        frame: usize,
        is_reverse: bool,
        visible: &[bool],
    ) -> Vec<ObjectId> {
        let mask = |&is_visible: &bool| if is_visible { full() } else { BitMask::empty(10, 1) };
        let masks: Vec<_> =
            visible.iter().enumerate().map(|(id, visible)| (id as ObjectId, mask(visible))).collect();
        let options = MaskletOptions::default();
        occlusions.update(frame, is_reverse, &masks, &BTreeSet::new(), &options).into_iter().collect()
    }

    #[test]
    fn the_object_that_was_occluded_last_yields() {
        let mut occlusions = Occlusions::default();
        assert!(update(&mut occlusions, 0, false, &[false, true, true]).is_empty());
        assert!(update(&mut occlusions, 1, false, &[true, false, false]).is_empty());
        assert_eq!(update(&mut occlusions, 2, false, &[true, true, true]), [1, 2]);
        assert_eq!(
            update(&mut occlusions, 3, false, &[true, true, true]),
            [1, 2],
            "for as long as they overlap"
        );
        assert_eq!(occlusions.frames(), BTreeMap::from([(0, Some(0)), (1, Some(3)), (2, Some(3))]));
    }

    #[test]
    fn an_object_that_was_never_occluded_suppresses_none_forward_and_yields_backward() {
        for (is_reverse, expected) in [(false, &[][..]), (true, &[1])] {
            let mut occlusions = Occlusions::default();
            update(&mut occlusions, 5, is_reverse, &[false, true]);
            assert_eq!(
                update(&mut occlusions, 6, is_reverse, &[true, true]),
                expected,
                "backward {is_reverse}"
            );
        }
    }

    #[test]
    fn a_removed_object_yields_and_is_forgotten() {
        let masks = [(0, full()), (1, full())];
        for (options, known) in [
            (MaskletOptions::default(), 1),
            (MaskletOptions::multiplex(), 1),
            (MaskletOptions::multiplex(), 2),
        ] {
            let mut occlusions = Occlusions::default();
            update(&mut occlusions, 0, false, &vec![false; known]);
            let removed = BTreeSet::from([1]);
            assert_eq!(occlusions.update(1, false, &masks, &removed, &options), removed, "{known} known");
            assert_eq!(occlusions.frames(), BTreeMap::from([(0, Some(0))]));
        }
    }
}
