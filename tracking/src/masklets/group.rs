//! Objects that share their conditioning frames, and what is remembered of them.

use crate::masklets::network::EncodeObject;
use crate::masklets::slots::SlotPool;
use crate::masklets::{LifeCycle, LogitMask, MemorySlot, ObjectId, PointerSlot, TrackedMask};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The object score of an object that is given as a mask.
pub(crate) const PROMPTED_SCORE: f32 = 10.0;
/// The logit of a mask where the object is certainly not.
pub(crate) const ABSENT: f32 = -1024.0;

/// The origin of an object's pointer.
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
    /// Set if the memory was made of a prompt.
    pub(crate) is_prompted_memory: bool,
    /// Set if the memory shows the object.
    pub(crate) is_present: bool,
}

impl ObjectFrame {
    /// A mask without a memory.
    pub(crate) fn new(found: TrackedMask, origin: PointerOrigin) -> Self {
        Self {
            mask: Some(found.mask),
            object_score: found.object_score,
            iou: found.iou,
            origin,
            is_prompted_memory: origin != PointerOrigin::Tracked,
            is_present: false,
        }
    }

    /// An object without a mask on a frame.
    pub(crate) fn absent(side: usize, object_score: f32, origin: PointerOrigin) -> Self {
        Self::new(TrackedMask { mask: LogitMask::filled(side, ABSENT), object_score, iou: 0.0 }, origin)
    }
}

/// One bucket on one frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketFrame {
    /// `None` after the memory was dropped.
    pub(crate) memory: Option<MemorySlot>,
    pub(crate) pointer: PointerSlot,
}

/// One frame of a group: an entry for each object of the group, in its order, but for those that were born
/// later.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupFrame {
    pub(crate) is_conditioning: bool,
    /// Objects that are given as masks on this frame.
    pub(crate) mask_prompts: BTreeSet<ObjectId>,
    /// Objects that are clicked on this frame.
    pub(crate) point_prompts: BTreeSet<ObjectId>,
    /// The score of the memory selection. A conditioning frame has none until an object leaves the group.
    pub(crate) score: Option<f32>,
    /// Set if it was put together from prompts: its scores then multiply object by object.
    pub(crate) is_assembled: bool,
    pub(crate) objects: Vec<ObjectFrame>,
    pub(crate) buckets: BTreeMap<usize, BucketFrame>,
}

impl GroupFrame {
    /// `true` if the object is given on the frame.
    pub(crate) fn is_given(&self, id: ObjectId) -> bool {
        self.mask_prompts.contains(&id) || self.point_prompts.contains(&id)
    }

    fn has_prompts(&self) -> bool {
        !self.mask_prompts.is_empty() || !self.point_prompts.is_empty()
    }

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
        self.is_conditioning &= self.has_prompts();
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
    pub(crate) fn bucket(&mut self) -> BucketFrame {
        let memory = Some(MemorySlot(self.memories.take()));
        BucketFrame { memory, pointer: PointerSlot(self.pointers.take()) }
    }

    fn release_memory(&mut self, bucket: &mut BucketFrame) {
        if let Some(slot) = bucket.memory.take() {
            self.memories.give_back(slot.0);
        }
    }

    fn release(&mut self, mut bucket: BucketFrame) {
        self.release_memory(&mut bucket);
        self.pointers.give_back(bucket.pointer.0);
    }
}

/// Objects that are conditioned on the same frames. In SAM 3 they were born on the same frame; in SAM 3.1
/// later ones join them if their buckets have free places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) life_cycle: LifeCycle,
    /// In the order of their births.
    pub(crate) objects: Vec<ObjectId>,
    /// The place of each object, counted through the buckets. No other object gets it, because older memories
    /// still show that object there.
    pub(crate) places: Vec<usize>,
    /// The places that no object had yet.
    pub(crate) free: Range<usize>,
    pub(crate) frames: BTreeMap<usize, GroupFrame>,
}

impl Group {
    /// A group without objects, with buckets for `count`.
    pub(crate) fn new(count: usize, life_cycle: LifeCycle) -> Self {
        Self { life_cycle, free: 0..count.next_multiple_of(life_cycle.bucket_size()), ..Self::default() }
    }

    /// Gives objects the first free places.
    pub(crate) fn add(&mut self, ids: &[ObjectId]) {
        self.objects.extend(ids);
        self.places.extend(self.free.by_ref().take(ids.len()));
    }

    pub(crate) fn position(&self, id: ObjectId) -> Option<usize> {
        self.objects.iter().position(|&object| object == id)
    }

    /// The mask of an object on a frame.
    pub(crate) fn mask(&self, frame: usize, id: ObjectId) -> Option<&LogitMask> {
        self.frames.get(&frame)?.objects.get(self.position(id)?)?.mask.as_ref()
    }

    /// The bucket of an object, and its place there.
    pub(crate) fn seat(&self, id: ObjectId) -> Option<(usize, usize)> {
        let (place, size) = (*self.places.get(self.position(id)?)?, self.life_cycle.bucket_size());
        Some((place / size, place % size))
    }

    /// The buckets that have objects, with the objects and their places.
    pub(crate) fn buckets(&self) -> BTreeMap<usize, Vec<(ObjectId, usize)>> {
        let (mut buckets, size) = (BTreeMap::<_, Vec<_>>::new(), self.life_cycle.bucket_size());
        for (&id, place) in self.objects.iter().zip(&self.places) {
            buckets.entry(place / size).or_default().push((id, place % size));
        }
        buckets
    }

    /// New slots for all buckets.
    pub(crate) fn new_slots(&self, slots: &mut Slots) -> BTreeMap<usize, BucketFrame> {
        self.buckets().into_keys().map(|bucket| (bucket, slots.bucket())).collect()
    }

    /// `true` if objects were given on the frame: it is not tracked again.
    pub(crate) fn is_given_on(&self, frame: usize) -> bool {
        self.frames.get(&frame).is_some_and(GroupFrame::has_prompts)
    }

    /// Adds objects that were born after the frame was passed.
    pub(crate) fn complete(&mut self, frame: usize, mask_side: usize) {
        if let Some(entry) = self.frames.get_mut(&frame) {
            let absent = || ObjectFrame::absent(mask_side, ABSENT, PointerOrigin::Tracked);
            entry.objects.resize_with(self.objects.len(), absent);
        }
    }

    /// The request to write an object's mask into the memory of a frame.
    pub(crate) fn to_encode<'m>(
        &self,
        frame: usize,
        id: ObjectId,
        mask: &'m LogitMask,
        keeps_mask: bool,
    ) -> Option<EncodeObject<'m>> {
        let (bucket, place) = self.seat(id)?;
        let entry = self.frames.get(&frame)?;
        let is_present = entry.objects.get(self.position(id)?)?.is_present;
        let slot = entry.buckets.get(&bucket)?.memory?;
        Some(EncodeObject { id, mask, keeps_mask, is_present, is_given: entry.is_given(id), slot, place })
    }

    pub(crate) fn conditioning_frames(&self) -> Vec<usize> {
        self.frames.iter().filter(|(_, found)| found.is_conditioning).map(|(&frame, _)| frame).collect()
    }

    /// Replaces what is remembered of a frame.
    pub(crate) fn insert(&mut self, frame: usize, entry: GroupFrame, slots: &mut Slots) {
        if let Some(earlier) = self.frames.insert(frame, entry) {
            earlier.buckets.into_values().for_each(|bucket| slots.release(bucket));
        }
    }

    /// Forgets all frames.
    fn clear(&mut self, slots: &mut Slots) {
        for (_, entry) in std::mem::take(&mut self.frames) {
            entry.buckets.into_values().for_each(|bucket| slots.release(bucket));
        }
    }

    /// Removes an object, and its bucket if that has no others. Frames on which only this object was prompted
    /// become ordinary ones, and the scores of all frames are those of the objects that remain.
    pub(crate) fn remove(&mut self, id: ObjectId, slots: &mut Slots) {
        let Some((position, (bucket, _))) = self.position(id).zip(self.seat(id)) else { return };
        self.objects.remove(position);
        self.places.remove(position);
        let is_dropped = !self.buckets().contains_key(&bucket);
        if is_dropped && bucket == self.free.start / self.life_cycle.bucket_size() {
            self.free = 0..0;
        }
        for entry in self.frames.values_mut() {
            let was_prompted = entry.mask_prompts.remove(&id) | entry.point_prompts.remove(&id);
            if was_prompted {
                entry.settle();
            }
            if position < entry.objects.len() {
                entry.objects.remove(position);
            }
            let dropped = if is_dropped { entry.buckets.remove(&bucket) } else { None };
            dropped.into_iter().for_each(|bucket| slots.release(bucket));
            entry.score = Some(entry.memory_score());
        }
        if self.objects.is_empty() || !self.frames.values().any(|entry| entry.is_conditioning) {
            self.lose_conditioning(slots);
        }
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

    /// Without a conditioning frame nothing could be tracked, where the references fail: the latest
    /// remembered frame that was put together from prompts, or else the latest one, becomes one.
    fn lose_conditioning(&mut self, slots: &mut Slots) {
        if self.objects.is_empty() || self.life_cycle == LifeCycle::MultiplexAsReleased {
            return self.clear(slots);
        }
        let is_remembered = |entry: &&mut GroupFrame| {
            !entry.objects.is_empty() && entry.buckets.values().all(|bucket| bucket.memory.is_some())
        };
        let remembered = self.frames.values_mut().filter(is_remembered);
        if let Some(entry) = remembered.max_by_key(|entry| entry.is_assembled) {
            entry.is_conditioning = true;
            entry.mask_prompts.extend(&self.objects[..entry.objects.len()]);
        }
    }

    /// Drops the frames that are in neither list, of memories and of pointers; of those in the second alone,
    /// the memories. Before `masks_from`, only frames with prompts, which a run passes again without
    /// tracking, keep their masks.
    pub(crate) fn keep_only(&mut self, needed: &[Vec<usize>; 2], masks_from: usize, slots: &mut Slots) {
        let [memories, pointers] = needed;
        let is_dropped = |frame: &usize, _: &mut _| !memories.contains(frame) && !pointers.contains(frame);
        for (_, entry) in self.frames.extract_if(.., is_dropped) {
            entry.buckets.into_values().for_each(|bucket| slots.release(bucket));
        }
        for (_, entry) in self.frames.iter_mut().filter(|(frame, _)| !memories.contains(frame)) {
            entry.buckets.values_mut().for_each(|bucket| slots.release_memory(bucket));
        }
        let without_mask = self.frames.range_mut(..masks_from).filter(|(_, entry)| !entry.has_prompts());
        for (_, entry) in without_mask {
            entry.objects.iter_mut().for_each(|object| object.mask = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(object_score: f32, iou: f32) -> ObjectFrame {
        ObjectFrame {
            mask: Some(LogitMask::filled(4, 1.0)),
            object_score,
            iou,
            origin: PointerOrigin::Tracked,
            is_prompted_memory: false,
            is_present: true,
        }
    }

    fn group(slots: &mut Slots) -> Group {
        let mut group = Group::new(2, LifeCycle::Sam3);
        group.add(&[3, 5]);
        for (frame, prompts) in [(0, vec![3, 5]), (1, vec![]), (16, vec![5]), (17, vec![])] {
            let objects = vec![object(9.0, 0.5), object(-9.0, 0.25)];
            let is_conditioning = !prompts.is_empty();
            let mask_prompts = prompts.into_iter().collect();
            let entry = GroupFrame {
                is_conditioning,
                mask_prompts,
                is_assembled: is_conditioning,
                objects,
                buckets: group.new_slots(slots),
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
    fn a_group_of_buckets_goes_on_without_the_objects_of_its_first_frame() {
        for (life_cycle, frames, conditioning) in
            [(LifeCycle::Multiplex, 4, vec![16]), (LifeCycle::MultiplexAsReleased, 0, vec![])]
        {
            let as_released = frames == 0;
            let mut slots = Slots::default();
            let mut group = Group::new(1, life_cycle);
            group.add(&[3]);
            group.add(&[5]);
            for (frame, prompt, count) in [(0, Some(3), 1), (1, None, 1), (16, Some(5), 2), (17, None, 2)] {
                let entry = GroupFrame {
                    is_conditioning: frame == 0,
                    mask_prompts: prompt.into_iter().collect(),
                    objects: vec![object(9.0, 0.5); count],
                    buckets: group.new_slots(&mut slots),
                    is_assembled: prompt.is_some(),
                    ..GroupFrame::default()
                };
                group.insert(frame, entry, &mut slots);
            }
            group.remove(3, &mut slots);
            assert_eq!((group.frames.len(), group.conditioning_frames()), (frames, conditioning));
            assert_eq!((slots.memories.in_use(), slots.pointers.in_use()), (frames, frames));
            group.complete(1, 4);
            let scores = |entry: &GroupFrame| entry.objects.iter().map(|found| found.object_score).collect();
            let completed: Option<Vec<f32>> = group.frames.get(&1).map(scores);
            assert_eq!(completed, (!as_released).then(|| vec![ABSENT]));
        }
    }

    #[test]
    fn places_are_filled_in_order_and_not_used_again() {
        let mut slots = Slots::default();
        let mut group = Group::new(17, LifeCycle::Multiplex);
        group.add(&Vec::from_iter(0..17));
        let (is_conditioning, buckets) = (true, group.new_slots(&mut slots));
        group.insert(0, GroupFrame { is_conditioning, buckets, ..GroupFrame::default() }, &mut slots);
        assert_eq!((slots.memories.in_use(), group.free.len(), group.seat(16)), (2, 15, Some((1, 0))));
        group.remove(5, &mut slots);
        group.add(&[20]);
        assert_eq!((group.free.len(), group.seat(6), group.seat(20)), (14, Some((0, 6)), Some((1, 1))));
        group.remove(16, &mut slots);
        assert_eq!((slots.memories.in_use(), group.free.len()), (2, 14));
        group.remove(20, &mut slots);
        assert_eq!((slots.memories.in_use(), group.free.len()), (1, 0), "the bucket goes with its places");
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
