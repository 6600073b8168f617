//! Reports in the form of a recording.

use crate::replay::run_name;
use ocelli_tracking::masklets::{
    Action, BankReport, FrameReport, MaskletSession, ObjectId, PointerOrigin, ReadMemory, ReadPointer,
    ShownFrame,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A processed frame.
pub fn step(report: &FrameReport) -> Value {
    let never = |frame: &Option<usize>| frame.map_or(-1, |frame| frame as i64);
    let last_occluded: BTreeMap<ObjectId, i64> =
        report.last_occluded.iter().map(|(&id, frame)| (id, never(frame))).collect();
    let matches: BTreeMap<usize, &Vec<ObjectId>> =
        report.matches.iter().map(|(index, ids)| (*index, ids)).collect();
    let keep_alive: BTreeMap<ObjectId, i32> =
        report.identities.iter().filter_map(|(&id, identity)| Some((id, identity.keep_alive?))).collect();
    let mut step = json!({
        "f": report.frame,
        "rev": report.is_reverse,
        "bank": report.banks.iter().map(bank).collect::<Vec<_>>(),
        "det": report.detections,
        "trk": report.tracked,
        "trk_area": report.areas,
        "unmatched": report.unmatched,
        "empty": report.empty,
        "matches": matches,
        "recondition": report.recondition,
        "removed": report.removed,
        "new": report.born,
        "dropped": report.dropped,
        "ids": report.objects,
        "groups": report.groups,
        "cond": report.conditioning_frames,
        "keep_alive": keep_alive,
        "last_occluded": last_occluded,
        "hidden": report.hidden,
        "scores": rounded_map(&report.scores),
        "tracker_scores": rounded_map(&report.tracker_scores),
    });
    if !report.tracked.is_empty() {
        step["occluded"] = json!(report.occluded);
        step["shrunk"] = json!(report.shrunk);
        step["present"] = json!(report.present);
        step["memory_area"] = json!(report.memory_areas);
    }
    if !report.reconditioned.is_empty() {
        step["reconditioned"] = json!(report.reconditioned);
    }
    step
}

/// The memories and pointers that a group read.
pub fn bank(bank: &BankReport) -> Value {
    let memory = |memory: &ReadMemory| {
        let flags = u8::from(memory.is_prompted) + 2 * u8::from(memory.is_present);
        json!([memory.frame, memory.row, flags])
    };
    let pointer = |pointer: &ReadPointer| {
        let origin = match pointer.origin {
            PointerOrigin::Tracked => 0.0,
            PointerOrigin::Mask => 0.5,
            PointerOrigin::Click => 0.25,
        };
        json!([pointer.frame as f64 + origin, pointer.distance])
    };
    let memories: Vec<Value> = bank.memories.iter().map(memory).collect();
    let pointers: Vec<Value> = bank.pointers.iter().map(pointer).collect();
    let divisor = if pointers.is_empty() { Value::Null } else { json!(bank.divisor) };
    json!({"ids": bank.objects, "mem": memories, "ptr": pointers, "div": divisor})
}

/// Banks with memories and pointers in a fixed order: attention does not depend on it.
pub fn ordered(banks: &Value) -> Value {
    let mut banks = banks.clone();
    for bank in banks.as_array_mut().into_iter().flatten() {
        for key in ["mem", "ptr"] {
            if let Some(entries) = bank[key].as_array_mut() {
                entries.sort_by(|a, b| {
                    order(a).total_cmp(&order(b)).then(order_of(a, 1).total_cmp(&order_of(b, 1)))
                });
            }
        }
    }
    banks
}

fn order(entry: &Value) -> f64 {
    order_of(entry, 0)
}

fn order_of(entry: &Value, at: usize) -> f64 {
    entry[at].as_f64().unwrap_or(0.0)
}

/// A shown frame, which left after `at` frames were processed.
pub fn shown(frame: &ShownFrame, at: Option<usize>) -> Value {
    let objects = &frame.objects;
    let mut shown = json!({
        "f": frame.frame,
        "ids": objects.iter().map(|object| object.id).collect::<Vec<_>>(),
        "scores": objects.iter().map(|object| rounded(object.score, 5)).collect::<Vec<_>>(),
        "boxes": objects.iter().map(|object| object.bbox.map(|side| rounded(side, 6))).collect::<Vec<_>>(),
        "masks": objects.iter().map(|object| object.mask.runs()).collect::<Vec<_>>(),
    });
    if let Some(at) = at {
        shown["at"] = json!(at);
    }
    shown
}

/// The session after an operation.
pub fn after(session: &MaskletSession) -> Value {
    let history: Vec<Value> = session.history().iter().map(action).collect();
    json!({"ids": session.objects(), "removed": session.removed(), "history": history})
}

fn action(action: &Action) -> Value {
    match action {
        Action::Add { frame, id } => json!(["add", frame, [id]]),
        Action::Refine { frame, id } => json!(["refine", frame, [id]]),
        Action::Remove { id } => json!(["remove", null, [id]]),
        Action::Propagate { kind, start } => {
            let ids = match kind {
                ocelli_tracking::masklets::Propagation::Partial(ids) => json!(ids),
                _ => Value::Null,
            };
            json!([run_name(kind), start, ids])
        }
    }
}

fn rounded(value: f32, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (f64::from(value) * scale).round() / scale
}

fn rounded_map(values: &BTreeMap<ObjectId, f32>) -> Value {
    let entry = |(id, &value): (&ObjectId, &f32)| (id.to_string(), json!(rounded(value, 5)));
    Value::Object(values.iter().map(entry).collect::<Map<_, _>>())
}
