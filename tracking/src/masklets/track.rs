//! Tracking groups of objects on a frame.

use crate::masklets::bank::{Selection, select};
use crate::masklets::current::Current;
use crate::masklets::group::{Group, GroupFrame, ObjectFrame, Slots};
use crate::masklets::network::{MemoryInput, PointerInput, TrackBatch, TrackObject, TrackedMask};
use crate::masklets::{
    BankReport, LogitMask, MaskletOptions, PointerOrigin, PointerSlot, ReadMemory, ReadPointer,
};
use ocelli_error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// Tracks the groups that are not conditioned on the frame. Objects that read equally much go in one batch.
pub(crate) fn track_groups(
    now: &mut Current<'_>,
    groups: &mut [Group],
    chosen: &[usize],
    slots: &mut Slots,
) -> Result<Vec<BankReport>> {
    let Current { frame, course, options, .. } = *now;
    let divisor = course.pointer_frames(&options).saturating_sub(1);
    let chosen: Vec<usize> =
        chosen.iter().copied().filter(|&index| !groups[index].is_conditioned_on(frame)).collect();
    let mut banks = Vec::with_capacity(chosen.len());
    let mut batches: BTreeMap<(usize, usize), Vec<TrackObject>> = BTreeMap::new();
    for &index in &chosen {
        let group = &groups[index];
        let selection = select(group, frame, course, &options);
        banks.push(report(group, frame, &selection, divisor));
        for position in 0..group.objects.len() {
            let object = request(group, position, &selection, divisor, slots.pointer());
            batches.entry((object.memories.len(), object.pointers.len())).or_default().push(object);
        }
    }
    let mut found = BTreeMap::new();
    for objects in batches.into_values() {
        let batch = TrackBatch { frame, objects };
        let masks = now.network.track(&batch)?;
        if masks.len() != batch.objects.len() {
            let text =
                format!("{} of {} objects were tracked on frame {frame}", masks.len(), batch.objects.len());
            return Err(Error::new(ErrorKind::Mismatch, text));
        }
        for (object, mask) in batch.objects.iter().zip(masks) {
            found.insert(object.id, (checked(mask, &options)?, object.pointer));
        }
    }
    for index in chosen {
        let group = &mut groups[index];
        let own = group.objects.iter().filter_map(|id| found.remove(id));
        let objects = own.map(|(found, pointer)| ObjectFrame::new(found, PointerOrigin::Tracked, pointer));
        let objects = objects.collect();
        let mut entry = GroupFrame { objects, ..GroupFrame::default() };
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
    Err(Error::new(ErrorKind::Mismatch, text))
}

fn request(
    group: &Group,
    position: usize,
    selection: &Selection,
    divisor: usize,
    pointer: PointerSlot,
) -> TrackObject {
    let object = |frame: usize| &group.frames[&frame].objects[position];
    let memory = |&(frame, row): &(usize, usize)| Some(MemoryInput { slot: object(frame).memory?, row });
    let offset = |distance: usize| distance as f32 / divisor.max(1) as f32;
    let read = |&(frame, distance): &(usize, usize)| PointerInput {
        slot: object(frame).pointer,
        offset: offset(distance),
    };
    TrackObject {
        id: group.objects[position],
        memories: selection.memories.iter().filter_map(memory).collect(),
        pointers: selection.pointers.iter().map(read).collect(),
        pointer,
    }
}

fn report(group: &Group, frame: usize, selection: &Selection, divisor: usize) -> BankReport {
    let first = |frame: usize| &group.frames[&frame].objects[0];
    let memory = |&(frame, row): &(usize, usize)| {
        let object = first(frame);
        ReadMemory { frame, row, is_prompted: object.is_prompted_memory, is_present: object.is_present }
    };
    let pointer =
        |&(frame, distance): &(usize, usize)| ReadPointer { frame, origin: first(frame).origin, distance };
    BankReport {
        frame,
        objects: group.objects.clone(),
        memories: selection.memories.iter().map(memory).collect(),
        pointers: selection.pointers.iter().map(pointer).collect(),
        divisor,
    }
}
