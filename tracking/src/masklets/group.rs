//! Objects that share their conditioning frames, and what is remembered of them.

use crate::masklets::slots::SlotPool;
use crate::masklets::{LogitMask, MemorySlot, ObjectId, PointerSlot, TrackedMask};
use std::collections::{BTreeMap, BTreeSet};

/// The object score of an object that is given as a mask.
pub(crate) const PROMPTED_SCORE: f32 = 10.0;
/// The logit of a mask where the object is certainly not.
pub(crate) const ABSENT: f32 = -1024.0;

/// Where the pointer of an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerOrigin {
    /// The object was tracked.
    Tracked,
    /// The object was given as a mask.
    Mask,
    /// The object was clicked.
    Click,
}

/// One object on one frame.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFrame {
    /// The mask of the decoder, or the mask prompt as the tracker sees it; `None` after it was dropped.
    pub(crate) mask: Option<LogitMask>,
    pub(crate) object_score: f32,
    pub(crate) iou: f32,
    pub(crate) origin: PointerOrigin,
    /// Whether the memory was made of a prompt.
    pub(crate) is_prompted_memory: bool,
    /// Whether the memory shows the object.
    pub(crate) is_present: bool,
    /// `None` after the memory was dropped.
    pub(crate) memory: Option<MemorySlot>,
    pub(crate) pointer: PointerSlot,
}

impl ObjectFrame {
    /// A mask without a memory.
    pub(crate) fn new(found: TrackedMask, origin: PointerOrigin, pointer: PointerSlot) -> Self {
        Self {
            mask: Some(found.mask),
            object_score: found.object_score,
            iou: found.iou,
            origin,
            is_prompted_memory: origin != PointerOrigin::Tracked,
            is_present: false,
            memory: None,
            pointer,
        }
    }
}

/// One frame of a group: an entry for each object of the group, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupFrame {
    pub(crate) is_conditioning: bool,
    /// Objects that are given as masks on this frame.
    pub(crate) mask_prompts: BTreeSet<ObjectId>,
    /// Objects that are clicked on this frame.
    pub(crate) point_prompts: BTreeSet<ObjectId>,
    /// The score of the memory selection. A conditioning frame has none until an object leaves the group.
    pub(crate) score: Option<f32>,
    /// Whether it was put together from prompts: its scores then multiply object by object.
    pub(crate) is_assembled: bool,
    pub(crate) objects: Vec<ObjectFrame>,
}

impl GroupFrame {
    /// The score of the memory selection: how sure the decoder was of the objects and of their masks.
    pub(crate) fn memory_score(&self) -> f32 {
        let count = self.objects.len().max(1) as f32;
        let presence = |object: &ObjectFrame| (sigmoid(object.object_score) * 2.0 - 1.0).max(0.0);
        if self.is_assembled {
            return self.objects.iter().map(|object| presence(object) * object.iou).sum::<f32>() / count;
        }
        // The reference multiplies every object score with every IoU.
        let presence: f32 = self.objects.iter().map(presence).sum::<f32>() / count;
        presence * (self.objects.iter().map(|object| object.iou).sum::<f32>() / count)
    }

    /// Makes the frame an ordinary one if no prompt is left on it.
    fn settle(&mut self) {
        self.is_conditioning &= !(self.mask_prompts.is_empty() && self.point_prompts.is_empty());
    }
}

pub(crate) fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

/// The slots of all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    pub(crate) memories: SlotPool,
    pub(crate) pointers: SlotPool,
}

impl Slots {
    pub(crate) fn memory(&mut self) -> MemorySlot {
        MemorySlot(self.memories.take())
    }

    pub(crate) fn pointer(&mut self) -> PointerSlot {
        PointerSlot(self.pointers.take())
    }

    fn release_memory(&mut self, object: &mut ObjectFrame) {
        if let Some(slot) = object.memory.take() {
            self.memories.give_back(slot.0);
        }
    }

    fn release(&mut self, mut object: ObjectFrame) {
        self.release_memory(&mut object);
        self.pointers.give_back(object.pointer.0);
    }
}

/// Objects that were born on the same frame. They are conditioned on the same frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) objects: Vec<ObjectId>,
    pub(crate) frames: BTreeMap<usize, GroupFrame>,
}

impl Group {
    pub(crate) fn position(&self, id: ObjectId) -> Option<usize> {
        self.objects.iter().position(|&object| object == id)
    }

    pub(crate) fn is_conditioned_on(&self, frame: usize) -> bool {
        self.frames.get(&frame).is_some_and(|found| found.is_conditioning)
    }

    pub(crate) fn conditioning_frames(&self) -> Vec<usize> {
        self.frames.iter().filter(|(_, found)| found.is_conditioning).map(|(&frame, _)| frame).collect()
    }

    /// Replaces what is remembered of a frame.
    pub(crate) fn insert(&mut self, frame: usize, entry: GroupFrame, slots: &mut Slots) {
        if let Some(earlier) = self.frames.insert(frame, entry) {
            earlier.objects.into_iter().for_each(|object| slots.release(object));
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, slots: &mut Slots) {
        self.objects.clear();
        for (_, entry) in std::mem::take(&mut self.frames) {
            entry.objects.into_iter().for_each(|object| slots.release(object));
        }
    }

    /// Removes an object. Frames on which only this object was prompted become ordinary ones, and the scores of all frames
    /// are those of the objects that remain.
    pub(crate) fn remove(&mut self, id: ObjectId, slots: &mut Slots) {
        let Some(position) = self.position(id) else { return };
        if self.objects.len() == 1 {
            self.clear(slots);
            return;
        }
        self.objects.remove(position);
        for entry in self.frames.values_mut() {
            let was_prompted = entry.mask_prompts.remove(&id) | entry.point_prompts.remove(&id);
            if was_prompted {
                entry.settle();
            }
            slots.release(entry.objects.remove(position));
            entry.score = Some(entry.memory_score());
        }
        self.keep_one_conditioning_frame();
    }

    /// Makes the mask prompts of an object within `window` frames of a click ordinary frames, for the whole group.
    pub(crate) fn clear_prompts_near(&mut self, id: ObjectId, clicked: usize, window: usize) {
        let near = clicked.saturating_sub(window)..=clicked.saturating_add(window);
        for (_, entry) in self.frames.range_mut(near) {
            if entry.mask_prompts.contains(&id) && !entry.point_prompts.contains(&id) {
                entry.mask_prompts.clear();
                entry.point_prompts.clear();
                entry.settle();
            }
        }
    }

    /// Without a conditioning frame nothing could be tracked, where the reference ends with an assertion: the latest frame
    /// that was put together from prompts stays one.
    fn keep_one_conditioning_frame(&mut self) {
        if self.frames.values().any(|entry| entry.is_conditioning) {
            return;
        }
        if let Some(entry) = self.frames.values_mut().rev().find(|entry| entry.is_assembled) {
            entry.is_conditioning = true;
            entry.mask_prompts.extend(&self.objects);
        }
    }

    /// Drops the frames that are in neither list, of memories and of pointers; of those in the second alone, the memories. Before `masks_from`,
    /// only conditioning frames, which a run passes again without tracking, keep their masks.
    pub(crate) fn keep_only(&mut self, needed: &[Vec<usize>; 2], masks_from: usize, slots: &mut Slots) {
        let [memories, pointers] = needed;
        let is_dropped = |frame: &usize, _: &mut _| !memories.contains(frame) && !pointers.contains(frame);
        for (_, entry) in self.frames.extract_if(.., is_dropped) {
            entry.objects.into_iter().for_each(|object| slots.release(object));
        }
        for (_, entry) in self.frames.iter_mut().filter(|(frame, _)| !memories.contains(frame)) {
            entry.objects.iter_mut().for_each(|object| slots.release_memory(object));
        }
        let without_mask = self.frames.range_mut(..masks_from).filter(|(_, entry)| !entry.is_conditioning);
        for (_, entry) in without_mask {
            entry.objects.iter_mut().for_each(|object| object.mask = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(slots: &mut Slots, object_score: f32, iou: f32) -> ObjectFrame {
        ObjectFrame {
            mask: Some(LogitMask::filled(4, 1.0)),
            object_score,
            iou,
            origin: PointerOrigin::Tracked,
            is_prompted_memory: false,
            is_present: true,
            memory: Some(slots.memory()),
            pointer: slots.pointer(),
        }
    }

    fn group(slots: &mut Slots) -> Group {
        let mut group = Group { objects: vec![3, 5], ..Group::default() };
        for (frame, prompts) in [(0, vec![3, 5]), (1, vec![]), (16, vec![5]), (17, vec![])] {
            let objects = vec![object(slots, 9.0, 0.5), object(slots, -9.0, 0.25)];
            let is_conditioning = !prompts.is_empty();
            let mask_prompts = prompts.into_iter().collect();
            let entry = GroupFrame {
                is_conditioning,
                mask_prompts,
                is_assembled: is_conditioning,
                objects,
                ..GroupFrame::default()
            };
            group.insert(frame, entry, slots);
        }
        group
    }

    #[test]
    fn a_memory_score_is_a_mean_of_the_objects() {
        let mut slots = Slots::default();
        let group = group(&mut slots);
        let presence = sigmoid(9.0) * 2.0 - 1.0;
        assert_eq!(group.frames[&1].memory_score(), (presence / 2.0) * (0.75 / 2.0));
        assert_eq!(group.frames[&16].memory_score(), presence * 0.5 / 2.0);
    }

    #[test]
    fn the_prompts_of_a_removed_object_go_with_it() {
        let mut slots = Slots::default();
        let mut group = group(&mut slots);
        assert_eq!(group.conditioning_frames(), [0, 16]);
        group.remove(5, &mut slots);
        assert_eq!((group.objects.as_slice(), group.conditioning_frames()), (&[3][..], vec![0]));
        assert_eq!(group.frames[&17].score, Some((sigmoid(9.0) * 2.0 - 1.0) * 0.5));
        assert_eq!((slots.memories.in_use(), slots.pointers.in_use()), (4, 4));
        group.remove(3, &mut slots);
        assert!(group.objects.is_empty() && group.frames.is_empty());
        assert_eq!((slots.memories.in_use(), slots.pointers.in_use()), (0, 0));
    }

    #[test]
    fn a_click_replaces_the_mask_prompts_around_it() {
        let mut slots = Slots::default();
        let mut group = group(&mut slots);
        group.clear_prompts_near(3, 17, 16);
        assert_eq!(
            group.conditioning_frames(),
            [0, 16],
            "object 3 has no prompt on frame 16, and 0 is too far"
        );
        group.clear_prompts_near(5, 17, 16);
        assert_eq!(group.conditioning_frames(), [0]);
    }

    #[test]
    fn a_group_keeps_a_conditioning_frame() {
        let mut slots = Slots::default();
        let mut group = group(&mut slots);
        group.clear_prompts_near(5, 0, 8);
        assert_eq!(group.conditioning_frames(), [16]);
        group.remove(5, &mut slots);
        assert_eq!(group.conditioning_frames(), [16]);
    }

    #[test]
    fn dropped_frames_give_their_slots_back() {
        let mut slots = Slots::default();
        let mut group = group(&mut slots);
        group.keep_only(&[vec![0, 16], vec![16, 17]], usize::MAX, &mut slots);
        assert_eq!(group.frames.keys().copied().collect::<Vec<_>>(), [0, 16, 17]);
        assert_eq!((slots.memories.in_use(), slots.pointers.in_use()), (4, 6));
        let masks =
            |frame: usize| group.frames[&frame].objects.iter().filter(|object| object.mask.is_some()).count();
        assert_eq!([masks(0), masks(16), masks(17)], [2, 2, 0]);
    }
}
