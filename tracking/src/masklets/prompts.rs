//! Objects that are given as masks or clicks.

use crate::masklets::group::{ABSENT, Group, GroupFrame, ObjectFrame, PROMPTED_SCORE, Slots};
use crate::masklets::network::{
    EncodeBatch, EncodeObject, MaskNetwork, MaskPrompt, MaskPromptBatch, MemoryKind, PointPrompt,
};
use crate::masklets::{BitMask, Click, LogitMask, MaskletOptions, ObjectId, PointerOrigin, TrackedMask};
use ocelli_error::Result;
use std::collections::BTreeSet;

/// Adds objects that start on `frame` to a group that has places for them: a new one, or one that has been tracked on `frame`.
/// `masks` have the side of the memory encoder.
pub(crate) fn start(
    group: &mut Group,
    frame: usize,
    masks: Vec<(ObjectId, BitMask)>,
    video: [usize; 2],
    options: &MaskletOptions,
    slots: &mut Slots,
    network: &mut impl MaskNetwork,
) -> Result<()> {
    let ids: Vec<ObjectId> = masks.iter().map(|&(id, _)| id).collect();
    let stored = stored_masks(masks.iter().map(|(_, mask)| mask), video, options);
    let is_new = group.objects.is_empty();
    group.add(&ids);
    let entry = group.frames.entry(frame).or_default();
    if is_new {
        entry.is_conditioning = true;
        entry.is_assembled = true;
        entry.buckets.extend((0..group.buckets.count()).map(|_| slots.bucket()));
    }
    entry.mask_prompts.extend(ids);
    entry.objects.extend(masks.iter().zip(stored).map(|((_, mask), stored)| {
        let object_score = if mask.is_empty() { -PROMPTED_SCORE } else { PROMPTED_SCORE };
        prompted(stored, object_score, 1.0, PointerOrigin::Mask)
    }));
    let is_written = entry.is_conditioning && !is_new;
    prompt_masks(group, frame, masks, is_new, network)?;
    // The reference keeps the memory of a conditioning frame that is passed again, without the objects that start there.
    if is_written { Ok(()) } else { encode_prompts(group, frame, slots, network) }
}

/// Gives masks to objects of a group that has already been tracked on `frame`: in SAM 3 it becomes a conditioning frame. Its
/// memory is encoded with those of all objects afterwards.
pub(crate) fn recondition(
    group: &mut Group,
    frame: usize,
    masks: Vec<(ObjectId, BitMask)>,
    video: [usize; 2],
    options: &MaskletOptions,
    network: &mut impl MaskNetwork,
) -> Result<()> {
    let Group { objects, frames, .. } = &mut *group;
    let entry = frames.entry(frame).or_default();
    let stored = if options.life_cycle.is_multiplex() {
        stored_masks(masks.iter().map(|(_, mask)| mask), video, options)
    } else {
        entry.is_conditioning = true;
        entry.is_assembled = true;
        entry.score = None;
        masks.iter().flat_map(|(_, mask)| stored_masks(std::iter::once(mask), video, options)).collect()
    };
    for ((id, _), stored) in masks.iter().zip(stored) {
        let object =
            objects.iter().position(|object| object == id).and_then(|index| entry.objects.get_mut(index));
        let Some(object) = object else { continue };
        object.mask = Some(stored);
        (object.object_score, object.iou, object.origin) = (PROMPTED_SCORE, 1.0, PointerOrigin::Mask);
        entry.mask_prompts.insert(*id);
        entry.point_prompts.remove(id);
    }
    prompt_masks(group, frame, masks, false, network)
}

/// Gives clicks to an object of a group: the frame becomes a conditioning frame of the whole group.
pub(crate) fn click(
    group: &mut Group,
    frame: usize,
    id: ObjectId,
    clicks: &[Click],
    options: &MaskletOptions,
    slots: &mut Slots,
    network: &mut impl MaskNetwork,
) -> Result<()> {
    group.complete(frame, options.mask_side());
    let mut entry = group.frames.remove(&frame).unwrap_or_default();
    let is_known = !entry.objects.is_empty();
    let mut missing = Vec::new();
    for &object in group.objects.iter().filter(|_| !is_known) {
        let absent = LogitMask::filled(options.mask_side(), ABSENT);
        entry.objects.push(prompted(absent, PROMPTED_SCORE, 0.0, PointerOrigin::Mask));
        missing.extend((object != id).then_some(object));
    }
    entry.buckets.resize_with(group.buckets.count(), || slots.bucket());
    let side = options.memory_side();
    let missing = missing.into_iter().map(|object| (object, BitMask::empty(side, side))).collect();
    entry.is_conditioning = true;
    entry.is_assembled = true;
    entry.score = None;
    entry.mask_prompts.remove(&id);
    entry.point_prompts.insert(id);
    let position = group.position(id).unwrap_or_default();
    let (bucket, place) = group.buckets.find(id).unwrap_or_default();
    let object = &mut entry.objects[position];
    let previous = object.mask.as_ref().filter(|_| is_known);
    let clicks = limited(clicks, options.max_points);
    let found = network.prompt_points(&PointPrompt {
        frame,
        id,
        clicks: &clicks,
        previous,
        pointer: entry.buckets[bucket].pointer,
        place,
        is_new: !is_known,
    })?;
    let found = crate::masklets::track::checked(found, options)?;
    let TrackedMask { mask, object_score, iou } = found;
    object.mask = Some(mask);
    (object.object_score, object.iou, object.origin) = (object_score, iou, PointerOrigin::Click);
    group.frames.insert(frame, entry);
    prompt_masks(group, frame, missing, false, network)?;
    encode_prompts(group, frame, slots, network)?;
    group.clear_prompts_near(id, frame, options.click_window);
    Ok(())
}

/// The first half and the last half of too many clicks.
fn limited(clicks: &[Click], most: usize) -> Vec<Click> {
    if clicks.len() <= most {
        return clicks.to_vec();
    }
    let first = most / 2;
    [&clicks[..first], &clicks[clicks.len() - (most - first)..]].concat()
}

fn prompted(mask: LogitMask, object_score: f32, iou: f32, origin: PointerOrigin) -> ObjectFrame {
    ObjectFrame { mask: Some(mask), object_score, iou, origin, is_prompted_memory: true, is_present: false }
}

/// Asks for the pointers of mask prompts.
fn prompt_masks(
    group: &Group,
    frame: usize,
    masks: Vec<(ObjectId, BitMask)>,
    is_new: bool,
    network: &mut impl MaskNetwork,
) -> Result<()> {
    let Some(entry) = group.frames.get(&frame).filter(|_| !masks.is_empty()) else { return Ok(()) };
    let prompt = |(id, mask): (ObjectId, BitMask)| {
        let (bucket, place) = group.buckets.find(id)?;
        Some(MaskPrompt { id, mask, pointer: entry.buckets[bucket].pointer, place })
    };
    let prompts: Vec<MaskPrompt> = masks.into_iter().filter_map(prompt).collect();
    let masks = group.objects.iter().zip(&entry.objects);
    let group = masks.filter_map(|(&id, object)| Some((id, object.mask.as_ref()?))).collect();
    network.prompt_masks(&MaskPromptBatch { frame, prompts: &prompts, is_new, group })
}

/// Encodes the masks of a frame that was put together from prompts.
fn encode_prompts(
    group: &mut Group,
    frame: usize,
    slots: &mut Slots,
    network: &mut impl MaskNetwork,
) -> Result<()> {
    let Some(entry) = group.frames.get_mut(&frame) else { return Ok(()) };
    entry.objects.iter_mut().for_each(|object| object.is_prompted_memory = true);
    let objects = to_encode(group, frame, slots);
    network.encode(&EncodeBatch { frame, kind: MemoryKind::Prompted, objects })
}

/// The masks of a frame as they are.
pub(crate) fn to_encode<'f>(group: &'f mut Group, frame: usize, slots: &mut Slots) -> Vec<EncodeObject<'f>> {
    let Group { objects, buckets, frames } = group;
    let Some(entry) = frames.get_mut(&frame) else { return Vec::new() };
    for object in &mut entry.objects {
        object.is_present = object.object_score > 0.0;
    }
    for bucket in &mut entry.buckets {
        bucket.memory.get_or_insert_with(|| slots.memory());
    }
    let entry: &GroupFrame = entry;
    let object = |(&id, object): (&ObjectId, &'f ObjectFrame)| {
        let (bucket, place) = buckets.find(id)?;
        Some(EncodeObject {
            id,
            mask: object.mask.as_ref()?,
            keeps_mask: true,
            is_present: object.is_present,
            is_given: entry.is_given(id),
            slot: entry.buckets[bucket].memory?,
            place,
        })
    };
    objects.iter().zip(&entry.objects).filter_map(object).collect()
}

/// Masks that are given together, as the tracker stores them: at the size of the video, without overlaps (in SAM 3 the last
/// one wins, in SAM 3.1 none), ±1024, of the side of the network's masks.
pub(crate) fn stored_masks<'a>(
    masks: impl Iterator<Item = &'a BitMask>,
    video: [usize; 2],
    options: &MaskletOptions,
) -> Vec<LogitMask> {
    let whole: Vec<BitMask> = masks.map(|mask| resized(mask, video)).collect();
    let side = options.mask_side();
    let first_rival = |index: usize| if options.life_cycle.is_multiplex() { 0 } else { index + 1 };
    let stored = whole.iter().enumerate().map(|(index, mask)| {
        let mut mask = mask.clone();
        let rivals = whole.iter().enumerate().skip(first_rival(index)).filter(|(other, _)| *other != index);
        rivals.for_each(|(_, rival)| mask.subtract(rival));
        LogitMask::of_foreground(&mask, [ABSENT, -ABSENT]).resized_antialiased(side, side)
    });
    stored.collect()
}

/// A mask at another size: pixels of which it has more than half.
pub(crate) fn resized(mask: &BitMask, [width, height]: [usize; 2]) -> BitMask {
    let shares = LogitMask::of_foreground(mask, [0.0, 1.0]).resized_antialiased(width, height);
    BitMask::from_fn(width, height, |x, y| shares.values()[y * width + x] > 0.5)
}

/// The groups that hold any of the objects.
pub(crate) fn groups_of(groups: &[Group], ids: &BTreeSet<ObjectId>) -> Vec<usize> {
    (0..groups.len()).filter(|&index| groups[index].objects.iter().any(|id| ids.contains(id))).collect()
}
