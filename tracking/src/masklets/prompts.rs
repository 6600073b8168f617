//! Objects that are given as masks or clicks.

use crate::masklets::current::Current;
use crate::masklets::group::{ABSENT, Group, ObjectFrame, PROMPTED_SCORE, Slots};
use crate::masklets::network::{
    EncodeBatch, EncodeObject, MaskPrompt, MaskPromptBatch, MemoryKind, PointPrompt,
};
use crate::masklets::{BitMask, Click, LogitMask, ObjectId, PointerOrigin, TrackedMask};
use ocelli_error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Adds objects that start on the frame to a group with places for them: a new one, or one that has been
/// tracked on the frame. `masks` have the side of the memory encoder.
pub(crate) fn start(
    now: &mut Current<'_>,
    group: &mut Group,
    slots: &mut Slots,
    masks: Vec<(ObjectId, BitMask)>,
) -> Result<()> {
    let ids: Vec<ObjectId> = masks.iter().map(|&(id, _)| id).collect();
    let is_new = group.objects.is_empty();
    group.add(&ids);
    let buckets = if is_new { group.new_slots(slots) } else { BTreeMap::new() };
    let entry = group.frames.entry(now.frame).or_default();
    let is_written = entry.is_conditioning;
    entry.is_conditioning |= is_new || now.options.births_condition;
    entry.is_assembled = true;
    entry.buckets.extend(buckets);
    entry.mask_prompts.extend(ids);
    entry.objects.extend(masks.iter().zip(stored_masks(now, &masks)).map(|((_, given), mask)| {
        let object_score = if given.is_empty() { -PROMPTED_SCORE } else { PROMPTED_SCORE };
        ObjectFrame::new(TrackedMask { mask, object_score, iou: 1.0 }, PointerOrigin::Mask)
    }));
    prompt_masks(now, group, masks, is_new)?;
    // The reference keeps the memory of a conditioning frame that is passed again, without the objects that
    // start there.
    if is_written { Ok(()) } else { encode_prompts(now, group) }
}

/// Gives masks to objects of a group that has already been tracked on the frame: in SAM 3 it becomes a
/// conditioning frame. Its memory is encoded with those of all objects afterwards.
pub(crate) fn recondition(
    now: &mut Current<'_>,
    group: &mut Group,
    masks: Vec<(ObjectId, BitMask)>,
) -> Result<()> {
    let Group { objects, frames, .. } = &mut *group;
    let entry = frames.entry(now.frame).or_default();
    entry.is_assembled = true;
    let is_multiplex = now.options.life_cycle.is_multiplex();
    if !is_multiplex {
        entry.is_conditioning = true;
        entry.score = None;
    }
    // In SAM 3 these masks may share pixels.
    let together = if is_multiplex { masks.len() } else { 1 };
    let stored = masks.chunks(together).flat_map(|masks| stored_masks(now, masks));
    for ((id, _), stored) in masks.iter().zip(stored) {
        let object =
            objects.iter().position(|object| object == id).and_then(|index| entry.objects.get_mut(index));
        let Some(object) = object else { continue };
        object.mask = Some(stored);
        (object.object_score, object.iou, object.origin) = (PROMPTED_SCORE, 1.0, PointerOrigin::Mask);
        entry.mask_prompts.insert(*id);
        entry.point_prompts.remove(id);
    }
    prompt_masks(now, group, masks, false)
}

/// Gives clicks to an object of a group: the frame becomes a conditioning frame of the whole group. `previous` is its mask of
/// the frame if the group has none.
pub(crate) fn click(
    now: &mut Current<'_>,
    group: &mut Group,
    slots: &mut Slots,
    id: ObjectId,
    clicks: &[Click],
    previous: Option<&LogitMask>,
) -> Result<()> {
    let Current { frame, options, .. } = *now;
    group.complete(frame, options.mask_side());
    let mut entry = group.frames.remove(&frame).unwrap_or_default();
    let is_known = !entry.objects.is_empty();
    let mut missing = Vec::new();
    for &object in group.objects.iter().filter(|_| !is_known) {
        entry.objects.push(ObjectFrame::absent(options.mask_side(), PROMPTED_SCORE, PointerOrigin::Mask));
        missing.extend((object != id).then_some(object));
    }
    if !is_known {
        entry.buckets = group.new_slots(slots);
    }
    let side = options.memory_side();
    let missing = missing.into_iter().map(|object| (object, BitMask::empty(side, side))).collect();
    entry.is_conditioning = true;
    entry.is_assembled = true;
    entry.score = None;
    entry.mask_prompts.remove(&id);
    entry.point_prompts.insert(id);
    let position = group.position(id).unwrap_or_default();
    let (bucket, place) = group.seat(id).unwrap_or_default();
    let object = &mut entry.objects[position];
    let previous = object.mask.as_ref().filter(|_| is_known).or(previous);
    let clicks = limited(clicks, options.max_points);
    let pointer = entry.buckets[&bucket].pointer;
    let prompt = PointPrompt { frame, id, clicks: &clicks, previous, pointer, place, is_new: !is_known };
    let found = now.network.prompt_points(&prompt)?;
    let TrackedMask { mask, object_score, iou } = crate::masklets::track::checked(found, &options)?;
    object.mask = Some(mask);
    (object.object_score, object.iou, object.origin) = (object_score, iou, PointerOrigin::Click);
    group.frames.insert(frame, entry);
    prompt_masks(now, group, missing, false)?;
    encode_prompts(now, group)?;
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

/// Asks for the pointers of mask prompts.
fn prompt_masks(
    now: &mut Current<'_>,
    group: &Group,
    masks: Vec<(ObjectId, BitMask)>,
    is_new: bool,
) -> Result<()> {
    let frame = now.frame;
    let Some(entry) = group.frames.get(&frame).filter(|_| !masks.is_empty()) else { return Ok(()) };
    let prompt = |(id, mask): (ObjectId, BitMask)| {
        let (bucket, place) = group.seat(id)?;
        Some(MaskPrompt { id, mask, pointer: entry.buckets.get(&bucket)?.pointer, place })
    };
    let prompts: Vec<MaskPrompt> = masks.into_iter().filter_map(prompt).collect();
    let masks = group.objects.iter().zip(&entry.objects);
    let group = masks.filter_map(|(&id, object)| Some((id, object.mask.as_ref()?))).collect();
    now.network.prompt_masks(&MaskPromptBatch { frame, prompts: &prompts, is_new, group })
}

/// Encodes the masks of a frame that was put together from prompts.
fn encode_prompts(now: &mut Current<'_>, group: &mut Group) -> Result<()> {
    let (frame, kind) = (now.frame, MemoryKind::Prompted);
    let objects = to_encode(group, frame, kind);
    now.network.encode(&EncodeBatch { frame, kind, objects })
}

/// The masks of a frame as they are.
pub(crate) fn to_encode(group: &mut Group, frame: usize, kind: MemoryKind) -> Vec<EncodeObject<'_>> {
    let Some(entry) = group.frames.get_mut(&frame) else { return Vec::new() };
    for object in &mut entry.objects {
        object.is_prompted_memory = kind == MemoryKind::Prompted;
        object.is_present = object.object_score > 0.0;
    }
    let group: &Group = group;
    let request = |&id: &ObjectId| {
        let mask = group.frames[&frame].objects.get(group.position(id)?)?.mask.as_ref()?;
        group.to_encode(frame, id, mask, true)
    };
    group.objects.iter().filter_map(request).collect()
}

/// Masks that are given together, as the tracker stores them: at the size of the video, without overlaps (in
/// SAM 3 the last one wins, in SAM 3.1 none), ±1024, of the side of the network's masks.
fn stored_masks(now: &Current<'_>, masks: &[(ObjectId, BitMask)]) -> Vec<LogitMask> {
    let whole: Vec<BitMask> = masks.iter().map(|(_, mask)| resized(mask, now.video)).collect();
    let side = now.options.mask_side();
    let is_multiplex = now.options.life_cycle.is_multiplex();
    let stored = whole.iter().enumerate().map(|(index, mask)| {
        let mut mask = mask.clone();
        let is_rival = |other: usize| other > index || is_multiplex && other < index;
        let rivals = whole.iter().enumerate().filter(|(other, _)| is_rival(*other));
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
