//! A recording has what SAM 3.1's network keeps of its buckets: here it is kept in the same form.

use ocelli_tracking::masklets::{
    BankReport, BitMask, EncodeBatch, EncodeObject, FrameReport, Identity, LogitMask, MaskPromptBatch,
    MemoryKind, MemorySlot, ObjectId, PointPrompt, PointerSlot, TrackBatch, exclusive_foreground,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The pointers of a bucket: the frame and 1000, a half for those of mask prompts, a quarter for those of
/// clicks; 0 for an empty place.
type Pointers = [f64; 16];

/// A memory: the places of the objects that it shows and of those that were given, and whether it was made of
/// prompts.
#[derive(Clone, Default)]
struct Memory {
    present: BTreeSet<usize>,
    given: BTreeSet<usize>,
    is_prompted: bool,
}

/// The memories and pointers that a bucket read.
struct Read {
    object: ObjectId,
    /// With their frames and rows.
    memories: Vec<(usize, usize, Memory)>,
    pointers: Vec<Pointers>,
}

/// The slots of the network, and the requests of the current frame.
#[derive(Default)]
pub struct BucketBank {
    memories: BTreeMap<MemorySlot, Memory>,
    pointers: BTreeMap<PointerSlot, Pointers>,
    read: Vec<Read>,
    /// The last write of each object.
    written: BTreeMap<ObjectId, Value>,
}

impl BucketBank {
    pub fn track(&mut self, batch: &TrackBatch) {
        for bucket in &batch.buckets {
            let memories = bucket.memories.iter();
            self.read.push(Read {
                object: bucket.objects[0].0,
                memories: memories
                    .map(|read| (read.frame, read.row, self.memories[&read.slot].clone()))
                    .collect(),
                pointers: bucket.pointers.iter().map(|read| self.pointers[&read.slot]).collect(),
            });
        }
        for bucket in &batch.buckets {
            let mut pointers = Pointers::default();
            bucket.objects.iter().for_each(|&(_, place)| pointers[place] = 1000.0 + batch.frame as f64);
            self.pointers.insert(bucket.pointer, pointers);
        }
    }

    pub fn prompt(&mut self, batch: &MaskPromptBatch<'_>) {
        if batch.is_new {
            let slots = batch.prompts.iter().map(|prompt| prompt.pointer);
            self.pointers.extend(slots.map(|slot| (slot, Pointers::default())));
        }
        for prompt in batch.prompts {
            let pointers = self.pointers.entry(prompt.pointer).or_default();
            pointers[prompt.place] = 1000.5 + batch.frame as f64;
        }
    }

    pub fn click(&mut self, prompt: &PointPrompt<'_>) {
        if prompt.is_new {
            self.pointers.insert(prompt.pointer, Pointers::default());
        }
        let pointers = self.pointers.entry(prompt.pointer).or_default();
        pointers[prompt.place] = 1000.25 + prompt.frame as f64;
    }

    pub fn encode(&mut self, batch: &EncodeBatch<'_>, patch_grid: usize) {
        let is_prompted = batch.kind == MemoryKind::Prompted;
        let masks: Vec<&LogitMask> = batch.objects.iter().map(|object| object.mask).collect();
        let areas: Vec<usize> = if is_prompted {
            exclusive_foreground(&masks, 14 * patch_grid).iter().map(BitMask::area).collect()
        } else {
            let side = 16 * patch_grid;
            let area = |object: &EncodeObject<'_>| object.mask.resized_positive(side, side).area();
            batch.objects.iter().map(|object| if object.keeps_mask { area(object) } else { 0 }).collect()
        };
        self.memories.extend(batch.objects.iter().map(|object| (object.slot, Memory::default())));
        for (object, area) in batch.objects.iter().zip(areas) {
            let memory = self.memories.entry(object.slot).or_default();
            memory.is_prompted = is_prompted;
            memory.present.extend(object.is_present.then_some(object.place));
            memory.given.extend(object.is_given.then_some(object.place));
            let write = write(is_prompted, &json!(area), object.is_present, object.is_given);
            self.written.insert(object.id, write);
        }
    }

    /// Gives a step the keys of SAM 3.1.
    pub fn describe(&mut self, step: &mut Value, report: &FrameReport) {
        let read = std::mem::take(&mut self.read);
        let of_now = |values: &Value, missing: Value| -> Map<String, Value> {
            let value =
                |id: &ObjectId| values.get(id.to_string()).cloned().unwrap_or_else(|| missing.clone());
            report.objects.iter().map(|id| (id.to_string(), value(id))).collect()
        };
        for (key, missing) in [("keep_alive", Value::Null), ("last_occluded", json!(-1))] {
            step[key] = json!(of_now(&step[key], missing));
        }
        let known = |value: fn(&Identity) -> Value| -> BTreeMap<ObjectId, Value> {
            report.objects.iter().map(|id| (*id, value(&report.identities[id]))).collect()
        };
        step["born"] = json!(known(|identity| json!(identity.first_frame)));
        step["unmatched_count"] = json!(known(|identity| json!(identity.unmatched)));
        step["confirm"] = json!(known(|identity| json!(identity.matched_in_a_row)));
        step["pairs"] = report.shared.iter().map(|((a, b), count)| json!([a, b, count])).collect();
        let mut ids = report.objects.clone();
        ids.sort_unstable();
        step["ids"] = json!(ids);
        ids.retain(|id| !report.identities[id].is_confirmed);
        step["unconfirmed"] = json!(ids);
        step["bank"] = report.banks.iter().map(|bank| describe_bank(bank, &read)).collect();
        step["encode"] = json!(std::mem::take(&mut self.written));
        step["states"] = (0..report.groups.len()).map(|index| describe_state(report, index)).collect();
        if let Some(step) = step.as_object_mut() {
            step.retain(|key, _| {
                !["empty", "groups", "cond", "hidden", "born_memory_area"].contains(&key.as_str())
            });
        }
    }
}

fn write(is_prompted: bool, area: &Value, is_present: bool, is_given: bool) -> Value {
    json!({"stored": is_prompted, "area": area, "present": is_present, "conditional": is_given})
}

fn describe_bank(bank: &BankReport, read: &[Read]) -> Value {
    let buckets: Vec<&Read> = read.iter().filter(|read| bank.objects.contains(&read.object)).collect();
    let places = |index: usize, of: fn(&Memory) -> &BTreeSet<usize>| -> Vec<&BTreeSet<usize>> {
        buckets.iter().map(|bucket| of(&bucket.memories[index].2)).collect()
    };
    let memory = |(index, (frame, row, memory)): (usize, &(usize, usize, Memory))| {
        let (present, given) =
            (places(index, |memory| &memory.present), places(index, |memory| &memory.given));
        json!([frame, row, present, given, u8::from(memory.is_prompted)])
    };
    let pointers = |(index, pointer): (usize, &ocelli_tracking::masklets::ReadPointer)| {
        let tags: Vec<&Pointers> = buckets.iter().map(|bucket| &bucket.pointers[index]).collect();
        json!([tags, pointer.distance])
    };
    json!({
        "ids": bank.objects,
        "mem": buckets[0].memories.iter().enumerate().map(memory).collect::<Vec<_>>(),
        "ptr": bank.pointers.iter().enumerate().map(pointers).collect::<Vec<_>>(),
        "div": bank.divisor,
    })
}

fn describe_state(report: &FrameReport, index: usize) -> Value {
    let free = report.free_places[index];
    let mut buckets: BTreeMap<usize, [i64; 16]> = BTreeMap::new();
    for (id, place) in report.groups[index].iter().zip(&report.places[index]) {
        buckets.entry(place / 16).or_insert([-2; 16])[place % 16] = i64::from(*id);
    }
    let last = buckets.values_mut().next_back();
    last.into_iter().for_each(|bucket| bucket[16 - free..].fill(-1));
    let conditioning = &report.conditioning_frames[index];
    let others = report.frames[index].iter().filter(|frame| !conditioning.contains(frame));
    json!({
        "ids": report.groups[index],
        "buckets": buckets.values().collect::<Vec<_>>(),
        "available": free,
        "cond": conditioning,
        "non": others.collect::<Vec<_>>(),
    })
}

/// The last write of each object among the writes of a recorded step. A memory of objects that start when the
/// conditioning frame of their state is passed again is thrown away, and not asked of the network.
pub fn last_writes(step: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let has = |value: &Value, item: &Value| list(value).contains(item);
    let mut last = Map::new();
    for entry in list(&step["encode"]) {
        let is_again = list(&entry["ids"]).iter().any(|id| has(&step["trk"], id));
        let is_conditioning = list(&step["states"]).iter().any(|state| {
            list(&entry["ids"]).iter().any(|id| has(&state["ids"], id)) && has(&state["cond"], &step["f"])
        });
        let is_stored = entry["stored"] == true;
        if is_stored && is_again && is_conditioning {
            continue;
        }
        for (id, area) in list(&entry["ids"]).iter().zip(list(&entry["area"])) {
            let (present, given) = (has(&entry["present"], id), has(&entry["conditional"], id));
            last.insert(id.to_string(), write(is_stored, &area, present, given));
        }
    }
    Value::Object(last)
}
