//! Objects that are given as masks or clicks.

use crate::masklets::current::Current;
use crate::masklets::group::{ABSENT, Group, GroupFrame, ObjectFrame, PROMPTED_SCORE, Slots};
use crate::masklets::network::{
    EncodeBatch, EncodeObject, MaskPrompt, MaskPromptBatch, MemoryKind, PointPrompt,
};
use crate::masklets::{BitMask, Click, LogitMask, ObjectId, PointerOrigin, TrackedMask};
use ocelli_error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// A new group of objects that start on the frame; `masks` have the side of the memory encoder.
pub(crate) fn start_group(
    now: &mut Current<'_>,
    masks: Vec<(ObjectId, BitMask)>,
    slots: &mut Slots,
) -> Result<Group> {
    let ids: Vec<ObjectId> = masks.iter().map(|&(id, _)| id).collect();
    let stored = stored_masks(masks.iter().map(|(_, mask)| mask), now.video, now.options.mask_side());
    let objects = masks.iter().zip(stored).map(|((_, mask), stored)| {
        let object_score = if mask.is_empty() { -PROMPTED_SCORE } else { PROMPTED_SCORE };
        let found = TrackedMask { mask: stored, object_score, iou: 1.0 };
        ObjectFrame::new(found, PointerOrigin::Mask, slots.pointer())
    });
    let entry = GroupFrame {
        is_conditioning: true,
        mask_prompts: ids.iter().copied().collect(),
        is_assembled: true,
        objects: objects.collect(),
        ..GroupFrame::default()
    };
    let mut group = Group { objects: ids, frames: BTreeMap::from([(now.frame, entry)]) };
    prompt_masks(now, &group, masks)?;
    encode_prompts(now, &mut group, slots)?;
    Ok(group)
}

/// Gives masks to objects of a group that has already been tracked on the frame: it becomes a conditioning frame. Its memory
/// is encoded with those of all objects afterwards.
pub(crate) fn recondition(
    now: &mut Current<'_>,
    group: &mut Group,
    masks: Vec<(ObjectId, BitMask)>,
) -> Result<()> {
    let Group { objects, frames } = &mut *group;
    let entry = frames.entry(now.frame).or_default();
    entry.is_conditioning = true;
    entry.is_assembled = true;
    entry.score = None;
    for (id, mask) in &masks {
        let object =
            objects.iter().position(|object| object == id).and_then(|index| entry.objects.get_mut(index));
        let Some(object) = object else { continue };
        object.mask = Some(stored_mask(mask, now.video, now.options.mask_side()));
        (object.object_score, object.iou, object.origin) = (PROMPTED_SCORE, 1.0, PointerOrigin::Mask);
        entry.mask_prompts.insert(*id);
        entry.point_prompts.remove(id);
    }
    prompt_masks(now, group, masks)
}

/// Gives clicks to an object of a group: the frame becomes a conditioning frame of the whole group.
pub(crate) fn click(
    now: &mut Current<'_>,
    group: &mut Group,
    slots: &mut Slots,
    id: ObjectId,
    clicks: &[Click],
) -> Result<()> {
    let Current { frame, options, .. } = *now;
    let mut entry = group.frames.remove(&frame).unwrap_or_default();
    let is_known = !entry.objects.is_empty();
    let mut missing = Vec::new();
    for &object in group.objects.iter().filter(|_| !is_known) {
        let mask = LogitMask::filled(options.mask_side(), ABSENT);
        let absent = TrackedMask { mask, object_score: PROMPTED_SCORE, iou: 0.0 };
        entry.objects.push(ObjectFrame::new(absent, PointerOrigin::Mask, slots.pointer()));
        missing.extend((object != id).then_some(object));
    }
    let side = options.memory_side();
    let missing = missing.into_iter().map(|object| (object, BitMask::empty(side, side))).collect();
    entry.is_conditioning = true;
    entry.is_assembled = true;
    entry.score = None;
    entry.mask_prompts.remove(&id);
    entry.point_prompts.insert(id);
    let position = group.position(id).unwrap_or_default();
    let object = &mut entry.objects[position];
    let previous = object.mask.as_ref().filter(|_| is_known);
    let clicks = limited(clicks, options.max_points);
    let prompt = PointPrompt { frame, id, clicks: &clicks, previous, pointer: object.pointer };
    let found = now.network.prompt_points(&prompt)?;
    let TrackedMask { mask, object_score, iou } = crate::masklets::track::checked(found, &options)?;
    object.mask = Some(mask);
    (object.object_score, object.iou, object.origin) = (object_score, iou, PointerOrigin::Click);
    group.frames.insert(frame, entry);
    prompt_masks(now, group, missing)?;
    encode_prompts(now, group, slots)?;
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
fn prompt_masks(now: &mut Current<'_>, group: &Group, masks: Vec<(ObjectId, BitMask)>) -> Result<()> {
    let frame = now.frame;
    let Some(entry) = group.frames.get(&frame).filter(|_| !masks.is_empty()) else { return Ok(()) };
    let prompt = |(id, mask): (ObjectId, BitMask)| {
        let pointer = entry.objects[group.position(id)?].pointer;
        Some(MaskPrompt { id, mask, pointer })
    };
    let prompts: Vec<MaskPrompt> = masks.into_iter().filter_map(prompt).collect();
    let masks = group.objects.iter().zip(&entry.objects);
    let group = masks.filter_map(|(&id, object)| Some((id, object.mask.as_ref()?))).collect();
    now.network.prompt_masks(&MaskPromptBatch { frame, prompts: &prompts, group })
}

/// Encodes the masks of a frame that was put together from prompts.
fn encode_prompts(now: &mut Current<'_>, group: &mut Group, slots: &mut Slots) -> Result<()> {
    let frame = now.frame;
    let Some(entry) = group.frames.get_mut(&frame) else { return Ok(()) };
    entry.objects.iter_mut().for_each(|object| object.is_prompted_memory = true);
    let objects = to_encode(&group.objects, entry, slots).collect();
    now.network.encode(&EncodeBatch { frame, kind: MemoryKind::Prompted, objects })
}

/// The masks of a frame as they are, each in a memory slot of its own.
pub(crate) fn to_encode<'f>(
    ids: &[ObjectId],
    entry: &'f mut GroupFrame,
    slots: &mut Slots,
) -> impl Iterator<Item = EncodeObject<'f>> {
    ids.iter().zip(&mut entry.objects).filter_map(move |(&id, object)| {
        let slot = *object.memory.get_or_insert_with(|| slots.memory());
        object.is_present = object.object_score > 0.0;
        let is_present = object.is_present;
        Some(EncodeObject { id, mask: object.mask.as_ref()?, keeps_mask: true, is_present, slot })
    })
}

/// Masks as the tracker stores them: at the size of the video, without overlaps (the last one wins), ±1024, resized to `side`.
pub(crate) fn stored_masks<'a>(
    masks: impl Iterator<Item = &'a BitMask>,
    video: [usize; 2],
    side: usize,
) -> Vec<LogitMask> {
    let mut masks: Vec<BitMask> = masks.map(|mask| resized(mask, video)).collect();
    for index in 1..masks.len() {
        let (earlier, later) = masks.split_at_mut(index);
        earlier.iter_mut().for_each(|mask| mask.subtract(&later[0]));
    }
    masks.iter().map(|mask| signed(mask).resized_antialiased(side, side)).collect()
}

fn stored_mask(mask: &BitMask, video: [usize; 2], side: usize) -> LogitMask {
    signed(&resized(mask, video)).resized_antialiased(side, side)
}

/// A mask at another size: pixels of which it has more than half.
pub(crate) fn resized(mask: &BitMask, [width, height]: [usize; 2]) -> BitMask {
    let shares = LogitMask::of_foreground(mask, [0.0, 1.0]).resized_antialiased(width, height);
    BitMask::from_fn(width, height, |x, y| shares.values()[y * width + x] > 0.5)
}

fn signed(mask: &BitMask) -> LogitMask {
    LogitMask::of_foreground(mask, [ABSENT, -ABSENT])
}

/// The groups that hold any of the objects.
pub(crate) fn groups_of(groups: &[Group], ids: &BTreeSet<ObjectId>) -> Vec<usize> {
    (0..groups.len()).filter(|&index| groups[index].objects.iter().any(|id| ids.contains(id))).collect()
}
