//! Tracking groups of objects on a frame.

use crate::masklets::bank::{Selection, select};
use crate::masklets::current::Current;
use crate::masklets::group::{Group, GroupFrame, ObjectFrame, Slots};
use crate::masklets::network::{MemoryInput, PointerInput, TrackBatch, TrackBucket, TrackedMask};
use crate::masklets::{
    BankReport, LogitMask, MaskletOptions, ObjectId, PointerOrigin, PointerSlot, ReadMemory, ReadPointer,
};
use ocelli_error::{Error, Result, refuse};
use std::collections::BTreeMap;

/// Tracks the groups whose objects are not given on the frame. Buckets that read equally much go in one
/// batch.
pub(crate) fn track_groups(
    now: &mut Current<'_>,
    groups: &mut [Group],
    chosen: &[usize],
    slots: &mut Slots,
) -> Result<Vec<BankReport>> {
    let Current { frame, course, options, .. } = *now;
    let divisor = course.pointer_frames(&options).saturating_sub(1);
    let (given, chosen): (Vec<usize>, Vec<usize>) =
        chosen.iter().copied().partition(|&index| groups[index].is_given_on(frame));
    given.into_iter().for_each(|index| groups[index].complete(frame, options.mask_side()));
    let mut banks = Vec::with_capacity(chosen.len());
    let mut batches: BTreeMap<(usize, usize), Vec<TrackBucket>> = BTreeMap::new();
    let mut fresh = Vec::with_capacity(chosen.len());
    for &index in &chosen {
        let group = &groups[index];
        let selection = select(group, frame, course, &options);
        if selection.memories.is_empty() {
            let why =
                "no memory, because those of their first frame were removed: LifeCycle::Multiplex goes on";
            refuse!("frame {frame}: objects {:?} have {why}", group.objects);
        }
        banks.push(report(group, frame, &selection, divisor));
        let buckets = group.new_slots(slots);
        for (index, objects) in group.buckets() {
            let bucket = request(group, (index, objects), &selection, divisor, buckets[&index].pointer);
            batches.entry((bucket.memories.len(), bucket.pointers.len())).or_default().push(bucket);
        }
        fresh.push(buckets);
    }
    let mut found = BTreeMap::new();
    for buckets in batches.into_values() {
        let batch = TrackBatch { frame, buckets };
        let masks = now.network.track(&batch)?;
        let count = batch.objects().count();
        if masks.len() != count {
            let text = format!("{} of {count} objects were tracked on frame {frame}", masks.len());
            return Err(Error::mismatch(text));
        }
        for (id, mask) in batch.objects().zip(masks) {
            found.insert(id, checked(mask, &options)?);
        }
    }
    for (index, buckets) in chosen.into_iter().zip(fresh) {
        let group = &mut groups[index];
        let own = group.objects.iter().filter_map(|id| found.remove(id));
        let objects = own.map(|found| ObjectFrame::new(found, PointerOrigin::Tracked)).collect();
        let mut entry = GroupFrame { objects, buckets, ..GroupFrame::default() };
        entry.score = Some(entry.memory_score());
        group.insert(frame, entry, slots);
    }
    Ok(banks)
}

/// An answer of the mask decoder, if it has the right size.
pub(crate) fn checked(found: TrackedMask, options: &MaskletOptions) -> Result<TrackedMask> {
    check_side(&found.mask, options)?;
    Ok(found)
}

/// Checks the size of a mask of the network.
pub(crate) fn check_side(mask: &LogitMask, options: &MaskletOptions) -> Result<()> {
    let side = options.mask_side();
    if (mask.width(), mask.height()) == (side, side) {
        return Ok(());
    }
    let text =
        format!("the network gave a mask of {} × {}: expected {side} × {side}", mask.width(), mask.height());
    Err(Error::mismatch(text))
}

fn request(
    group: &Group,
    (bucket, objects): (usize, Vec<(ObjectId, usize)>),
    selection: &Selection,
    divisor: usize,
    pointer: PointerSlot,
) -> TrackBucket {
    let earlier = |frame: usize| &group.frames[&frame].buckets[&bucket];
    let memory =
        |&(frame, row): &(usize, usize)| Some(MemoryInput { slot: earlier(frame).memory?, frame, row });
    let offset = |distance: usize| distance as f32 / divisor.max(1) as f32;
    let read = |&(frame, distance): &(usize, usize)| PointerInput {
        slot: earlier(frame).pointer,
        offset: offset(distance),
    };
    let memories = selection.memories.iter().filter_map(memory).collect();
    TrackBucket { objects, memories, pointers: selection.pointers.iter().map(read).collect(), pointer }
}

fn report(group: &Group, frame: usize, selection: &Selection, divisor: usize) -> BankReport {
    let first = |frame: usize| group.frames[&frame].objects.first();
    let memory = |&(frame, row): &(usize, usize)| {
        let is_prompted = first(frame).is_some_and(|object| object.is_prompted_memory);
        let is_present = first(frame).is_some_and(|object| object.is_present);
        ReadMemory { frame, row, is_prompted, is_present }
    };
    let pointer = |&(frame, distance): &(usize, usize)| {
        let origin = first(frame).map_or(PointerOrigin::Tracked, |object| object.origin);
        ReadPointer { frame, origin, distance }
    };
    BankReport {
        frame,
        objects: group.objects.clone(),
        memories: selection.memories.iter().map(memory).collect(),
        pointers: selection.pointers.iter().map(pointer).collect(),
        divisor,
    }
}
