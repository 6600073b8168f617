//! A network that draws rectangles, and checks how its slots are used.

use crate::test_random::Random;
use ocelli_tracking::Result;
use ocelli_tracking::masklets::{
    DetectedMask, EncodeBatch, LogitMask, MaskNetwork, MaskPromptBatch, MaskletOptions, MemorySlot, ObjectId,
    PointPrompt, PointerSlot, TrackBatch, TrackedMask,
};
use std::collections::{BTreeMap, BTreeSet};

/// The side of the network's masks.
pub const SIDE: usize = 16;

/// Options for masks of this size.
pub fn options(is_on: bool) -> MaskletOptions {
    let mut options = if is_on {
        MaskletOptions::default()
    } else {
        MaskletOptions::default().without_temporal_disambiguation()
    };
    options.patch_grid = SIDE / 4;
    options.fill_hole_area = 2;
    options
}

/// A mask of one rectangle, `[left, top, right, bottom]`.
pub fn rectangle([left, top, right, bottom]: [usize; 4]) -> LogitMask {
    let logit = |index: usize| {
        let (x, y) = (index % SIDE, index / SIDE);
        if (left..right).contains(&x) && (top..bottom).contains(&y) { 5.0 } else { -5.0 }
    };
    LogitMask::new(SIDE, SIDE, (0..SIDE * SIDE).map(logit).collect()).expect("a logit for each pixel")
}

/// A network whose objects and detections are given by functions of the frame.
pub struct Scene<D, T> {
    pub detections: D,
    pub tracks: T,
    /// The object and frame that each slot holds.
    pub memories: BTreeMap<MemorySlot, (ObjectId, usize)>,
    pub pointers: BTreeMap<PointerSlot, (ObjectId, usize)>,
    /// Memories that show their object, and how many were read, of these and of the others.
    pub shows: BTreeSet<MemorySlot>,
    pub read: [usize; 2],
    /// The most memories and pointers that an object read.
    pub most_read: [usize; 2],
    pub loaded: Option<usize>,
    /// `true` for frames that have detections.
    pub is_searched: fn(usize) -> bool,
}

impl<D, T> Scene<D, T>
where
    D: FnMut(usize) -> Vec<(f32, LogitMask)>,
    T: FnMut(ObjectId, usize) -> Option<LogitMask>,
{
    pub fn new(detections: D, tracks: T) -> Self {
        let (memories, pointers) = (BTreeMap::new(), BTreeMap::new());
        Self {
            detections,
            tracks,
            memories,
            pointers,
            shows: BTreeSet::new(),
            read: [0; 2],
            most_read: [0; 2],
            loaded: None,
            is_searched: |_| true,
        }
    }

    fn answer(&mut self, id: ObjectId, frame: usize) -> TrackedMask {
        match (self.tracks)(id, frame) {
            Some(mask) => TrackedMask { mask, object_score: 5.0, iou: 0.9 },
            None => {
                let absent =
                    LogitMask::new(SIDE, SIDE, vec![-1024.0; SIDE * SIDE]).expect("a logit for each pixel");
                TrackedMask { mask: absent, object_score: -3.0, iou: 0.2 }
            }
        }
    }
}

impl<D, T> MaskNetwork for Scene<D, T>
where
    D: FnMut(usize) -> Vec<(f32, LogitMask)>,
    T: FnMut(ObjectId, usize) -> Option<LogitMask>,
{
    fn load(&mut self, frame: usize) -> Result<()> {
        self.loaded = Some(frame);
        Ok(())
    }

    fn detect(&mut self, frame: usize) -> Result<Option<Vec<DetectedMask>>> {
        assert_eq!(self.loaded, Some(frame), "a frame is loaded before it is used");
        let detections = (self.detections)(frame).into_iter();
        let detections = detections.map(|(score, mask)| DetectedMask { score, mask }).collect();
        Ok((self.is_searched)(frame).then_some(detections))
    }

    fn track(&mut self, batch: &TrackBatch) -> Result<Vec<TrackedMask>> {
        assert_eq!(self.loaded, Some(batch.frame), "a frame is loaded before it is used");
        let counts =
            |index: usize| (batch.buckets[index].memories.len(), batch.buckets[index].pointers.len());
        let mut found = Vec::new();
        for (index, bucket) in batch.buckets.iter().enumerate() {
            assert_eq!(counts(index), counts(0), "a batch reads equally much");
            let has = |owner: ObjectId| bucket.objects.iter().any(|(id, _)| *id == owner);
            for memory in &bucket.memories {
                let (owner, frame) = self.memories[&memory.slot];
                self.read[usize::from(!self.shows.contains(&memory.slot))] += 1;
                assert!(
                    has(owner) && frame == memory.frame && frame != batch.frame,
                    "{memory:?} of object {owner}, frame {frame}"
                );
            }
            for pointer in &bucket.pointers {
                let owner = self.pointers[&pointer.slot].0;
                assert!(has(owner), "{pointer:?} is of object {owner}");
            }
            self.most_read = [self.most_read[0].max(counts(index).0), self.most_read[1].max(counts(index).1)];
        }
        for bucket in &batch.buckets {
            self.pointers.insert(bucket.pointer, (bucket.objects[0].0, batch.frame));
        }
        for id in batch.objects() {
            found.push(self.answer(id, batch.frame));
        }
        Ok(found)
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> Result<()> {
        let written = batch.prompts.iter().rev().map(|prompt| (prompt.pointer, (prompt.id, batch.frame)));
        self.pointers.extend(written);
        Ok(())
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> Result<TrackedMask> {
        self.pointers.insert(prompt.pointer, (prompt.id, prompt.frame));
        Ok(self.answer(prompt.id, prompt.frame))
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>) -> Result<()> {
        // The first object of a slot is its owner.
        self.memories
            .extend(batch.objects.iter().rev().map(|object| (object.slot, (object.id, batch.frame))));
        for object in &batch.objects {
            self.shows.remove(&object.slot);
            self.shows.extend(object.is_present.then_some(object.slot));
        }
        Ok(())
    }
}

/// Five rectangles that jump now and then, with detections that miss some. An object follows one of them, not always the one
/// that it was detected as, and is lost at times. The same seed gives the same scene, whatever is asked first.
pub fn random_scene(
    seed: u64,
) -> Scene<impl FnMut(usize) -> Vec<(f32, LogitMask)>, impl FnMut(ObjectId, usize) -> Option<LogitMask>> {
    let place = move |index: u64, frame: usize| {
        let mut random = Random::new(seed ^ (index << 40) ^ (((frame as u64 + 13 * index) / 50) << 20));
        let (left, top) = (random.below(SIDE - 6), random.below(SIDE - 6));
        rectangle([left, top, left + 4 + random.below(3), top + 4 + random.below(3)])
    };
    let detections = move |frame: usize| {
        let mut random = Random::new(seed ^ ((frame as u64) << 8));
        let seen = (0..5).filter(|_| random.below(4) > 0).collect::<Vec<u64>>();
        seen.into_iter().map(|index| (0.4 + 0.6 * random.unit(), place(index, frame))).collect()
    };
    let tracks = move |id: ObjectId, frame: usize| {
        let mut random = Random::new(seed ^ (u64::from(id) << 32) ^ (frame as u64 / 9));
        (random.below(8) > 0).then(|| place(u64::from(id) % 5, frame))
    };
    Scene::new(detections, tracks)
}
