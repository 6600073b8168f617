//! The results of a session.

use crate::masklets::{BitMask, ObjectId};
use ocelli_error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// An object as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownObject {
    /// Its id.
    pub id: ObjectId,
    /// The score of the detection that started it; 1 if it was clicked.
    pub score: f32,
    /// Left, top, width and height of the mask before it was separated from the others, as shares of the frame.
    pub bbox: [f32; 4],
    /// Its mask, of the size of the video, without overlaps.
    pub mask: BitMask,
}

/// A frame as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownFrame {
    /// The frame.
    pub frame: usize,
    /// Its objects in the order of their ids.
    pub objects: Vec<ShownObject>,
}

/// Masks of a frame at the size of the video, as run lengths.
pub(crate) type Masks = BTreeMap<ObjectId, Vec<u32>>;

/// A frame that was processed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameOutput {
    pub(crate) frame: usize,
    pub(crate) masks: Masks,
    /// Scores by the detections that started the objects.
    pub(crate) scores: BTreeMap<ObjectId, f32>,
    /// Scores of the objects on this frame, which decide overlaps.
    pub(crate) tracker_scores: BTreeMap<ObjectId, f32>,
    pub(crate) hidden: BTreeSet<ObjectId>,
    /// Objects that are hidden for now, because detections did not match them often enough yet.
    pub(crate) unconfirmed: BTreeSet<ObjectId>,
}

impl FrameOutput {
    /// Leaves out objects.
    pub(crate) fn without(mut self, removed: &BTreeSet<ObjectId>) -> Self {
        self.masks.retain(|id, _| !removed.contains(id) && !self.hidden.contains(id));
        self
    }

    /// The visible objects; a pixel belongs to the object with the highest score of the frame, the first one on ties.
    pub(crate) fn show(&self, width: usize, height: usize) -> Result<ShownFrame> {
        let mut objects = Vec::with_capacity(self.masks.len());
        for (&id, runs) in self.masks.iter().filter(|(id, _)| !self.hidden.contains(id)) {
            let mask = BitMask::from_runs(width, height, runs)?;
            let Some([left, top, right, bottom]) = mask.bounds() else { continue };
            let share = |pixels: usize, side: usize| pixels as f32 / side as f32;
            let bbox = [
                share(left, width),
                share(top, height),
                share(right - left, width),
                share(bottom - top, height),
            ];
            objects.push(ShownObject { id, score: self.scores.get(&id).copied().unwrap_or(0.0), bbox, mask });
        }
        if objects.len() > 1 {
            self.separate(&mut objects);
        }
        Ok(ShownFrame { frame: self.frame, objects })
    }

    /// Removes overlaps. An object without a positive score owns no pixel.
    fn separate(&self, objects: &mut [ShownObject]) {
        let score = |object: &ShownObject| self.tracker_scores.get(&object.id).copied().unwrap_or(0.0);
        let mut order: Vec<usize> = (0..objects.len()).collect();
        order.sort_by(|&a, &b| score(&objects[b]).total_cmp(&score(&objects[a])));
        for (rank, &index) in order.iter().enumerate() {
            if score(&objects[index]) <= 0.0 {
                let mask = &objects[index].mask;
                objects[index].mask = BitMask::empty(mask.width(), mask.height());
            }
            let owner = objects[index].mask.clone();
            order[rank + 1..].iter().for_each(|&other| objects[other].mask.subtract(&owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(objects: &[(ObjectId, usize, usize, f32)]) -> FrameOutput {
        let mask =
            |start: usize, end: usize| BitMask::from_fn(10, 2, |x, _| (start..end).contains(&x)).runs();
        FrameOutput {
            frame: 4,
            masks: objects.iter().map(|&(id, start, end, _)| (id, mask(start, end))).collect(),
            scores: objects.iter().map(|&(id, ..)| (id, 0.9)).collect(),
            tracker_scores: objects.iter().map(|&(id, _, _, score)| (id, score)).collect(),
            hidden: BTreeSet::new(),
            ..FrameOutput::default()
        }
    }

    fn shown(output: &FrameOutput) -> Vec<(ObjectId, usize)> {
        let frame = output.show(10, 2).expect("the masks are of this size");
        frame.objects.iter().map(|object| (object.id, object.mask.area())).collect()
    }

    #[test]
    fn a_pixel_belongs_to_the_best_object() {
        assert_eq!(shown(&output(&[(0, 0, 6, 0.5), (1, 4, 10, 0.9)])), [(0, 8), (1, 12)]);
        assert_eq!(shown(&output(&[(0, 0, 6, 0.9), (1, 4, 10, 0.9)])), [(0, 12), (1, 8)], "ties: the first");
        assert_eq!(shown(&output(&[(0, 0, 6, 0.9), (1, 4, 10, 0.0)])), [(0, 12), (1, 0)]);
        assert_eq!(shown(&output(&[(1, 4, 10, -3.0)])), [(1, 12)], "alone it keeps its mask");
    }

    #[test]
    fn boxes_are_those_of_the_whole_masks() {
        let frame =
            output(&[(0, 0, 6, 0.5), (1, 4, 10, 0.9)]).show(10, 2).expect("the masks are of this size");
        assert_eq!((frame.frame, frame.objects[0].bbox), (4, [0.0, 0.0, 0.5, 0.5]));
    }

    #[test]
    fn removed_hidden_and_empty_objects_are_not_shown() {
        let mut found = output(&[(0, 0, 2, 0.5), (1, 2, 4, 0.5), (2, 4, 6, 0.5), (3, 6, 6, 0.5)]);
        found.hidden.insert(1);
        assert_eq!(shown(&found), [(0, 4), (2, 4)]);
        assert_eq!(shown(&found.without(&BTreeSet::from([2]))), [(0, 4)]);
    }
}
