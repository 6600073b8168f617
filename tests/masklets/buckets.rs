//! A golden session of SAM 3.1's tracker, whose objects share the memories of buckets.

use std::collections::BTreeMap;

use ocelli::export::contract::Target;
use ocelli::export::{Checkpoint, ExportOptions};
use ocelli::masklets::{
    DetectorPrompt, FrameNetwork, MaskFrame, MaskFrames, MaskletNetwork, Retention, RunDirection, VideoShape,
};
use ocelli::tracking::masklets::{
    DetectedMask, EncodeBatch, FrameReport, MaskNetwork, MaskPromptBatch, MaskletOptions, MaskletSession,
    MemorySlot, ObjectId, PointPrompt, PointerSlot, TrackBatch, TrackedMask,
};
use ocelli::{
    EngineKind, Model,
    engine::{EngineFactory, EngineOptions},
};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::replay::paint;
use crate::parity::exported::{Exported, Outcome, Runner};
use crate::parity::golden::{Golden, f32s};
use crate::parity::report::Report;

/// A tensor of the checkpoint that the session has in another form.
const BIAS: &str = "tracker.model.sam_mask_decoder.pred_obj_score_head.layers.2.bias";
/// The engine's error over the frames.
const TOLERANCE: f32 = 2e-3;
/// The error of rounding masks and memories to bfloat16.
const ROUNDING: f32 = 1.0 / 256.0;

/// The checkpoint of the golden with the session's bias.
fn export(golden: &Golden, runner: Runner, options: ExportOptions) -> Outcome<Exported> {
    let folder = tempfile::tempdir()?;
    let mut bytes = std::fs::read(golden.checkpoint.join("sam3.1.safetensors"))?;
    let (header, metadata) = SafeTensors::read_metadata(&bytes)?;
    let start = 8 + header + metadata.info(BIAS).ok_or("the checkpoint has no such bias")?.data_offsets.0;
    let bias = f32s(golden.tensor("bias"))[0].to_bits() >> 16;
    bytes[start..start + 2].copy_from_slice(&u16::try_from(bias)?.to_le_bytes());
    std::fs::write(folder.path().join("sam3.1.safetensors"), bytes)?;
    std::fs::copy(golden.checkpoint.join("tokenizer.json"), folder.path().join("tokenizer.json"))?;
    let options = ExportOptions { imgsz: Some(golden.number("image_size")), ..options };
    Exported::on(runner, &Checkpoint::open(&folder.path().join("sam3.1.safetensors"))?, &options)
}

/// The frames of the script, with what it draws.
struct Drawn<'g>(&'g Golden, MaskFrame);

impl MaskFrames for Drawn<'_> {
    fn frame(&mut self, number: usize) -> ocelli::Result<&MaskFrame> {
        let side = 4 * self.0.number("grid");
        let drawn = self.0.value("script")["det"][number].as_array().expect("a list of detections");
        let detection = |drawn: &Value| -> Outcome<DetectedMask> {
            let share = |edge: &Value| edge.as_f64().map(|edge| edge / side as f64);
            let edges = drawn[2][0].as_array().ok_or("no edges")?.iter().map(share).collect::<Vec<_>>();
            paint(side, &json!([drawn[0], edges, drawn[3]]))
        };
        let detections =
            drawn.iter().map(detection).collect::<Outcome<_>>().expect("the script is well-formed");
        let hidden = self.0.tensor(&format!("{number}.hidden")).clone();
        self.1 = MaskFrame::new(hidden, vec![detections]);
        Ok(&self.1)
    }
}

/// The network, and what the frame wrote of each object.
struct Watched<'n> {
    inner: FrameNetwork<'n>,
    memories: BTreeMap<ObjectId, MemorySlot>,
    pointers: BTreeMap<ObjectId, PointerSlot>,
    tracked: BTreeMap<ObjectId, TrackedMask>,
}

impl MaskNetwork for Watched<'_> {
    fn load(&mut self, frame: usize) -> ocelli::Result<()> {
        self.tracked.clear();
        self.inner.load(frame)
    }

    fn detect(&mut self, frame: usize) -> ocelli::Result<Option<Vec<DetectedMask>>> {
        self.inner.detect(frame)
    }

    fn track(&mut self, batch: &TrackBatch) -> ocelli::Result<Vec<TrackedMask>> {
        let tracked = self.inner.track(batch)?;
        self.tracked.extend(batch.objects().zip(tracked.iter().cloned()));
        for bucket in &batch.buckets {
            self.pointers.extend(bucket.objects.iter().map(|(id, _)| (*id, bucket.pointer)));
        }
        Ok(tracked)
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> ocelli::Result<()> {
        self.pointers.extend(batch.prompts.iter().map(|prompt| (prompt.id, prompt.pointer)));
        // Their masks are those that were given.
        batch.prompts.iter().for_each(|prompt| drop(self.tracked.remove(&prompt.id)));
        self.inner.prompt_masks(batch)
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> ocelli::Result<TrackedMask> {
        self.inner.prompt_points(prompt)
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>) -> ocelli::Result<()> {
        self.memories.extend(batch.objects.iter().map(|object| (object.id, object.slot)));
        self.inner.encode(batch)
    }
}

/// The objects of each bucket with their places in it.
fn of_buckets(ids: &[ObjectId], places: &[usize]) -> Vec<Vec<(usize, ObjectId)>> {
    let mut buckets: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (id, place) in ids.iter().zip(places) {
        buckets.entry(place / 16).or_default().push((place % 16, *id));
    }
    buckets.into_values().collect()
}

/// The decisions of a step, by the golden's names.
fn decisions(found: &FrameReport) -> Vec<(&'static str, Value)> {
    let mut ids = found.objects.clone();
    ids.sort_unstable();
    let unconfirmed = ids.iter().filter(|id| !found.identities[id].is_confirmed);
    let unconfirmed: Vec<_> = unconfirmed.collect();
    let places: Vec<_> =
        found.groups.iter().zip(&found.places).map(|(ids, places)| of_buckets(ids, places)).collect();
    let matches: BTreeMap<_, _> = found.matches.iter().cloned().collect();
    vec![
        ("det", json!(found.detections)),
        ("trk", json!(found.tracked)),
        ("matches", json!(matches)),
        ("unmatched", json!(found.unmatched)),
        ("reconditioned", json!(found.reconditioned)),
        ("removed", json!(found.removed)),
        ("new", json!(found.born)),
        ("ids", json!(ids)),
        ("present", json!(found.present)),
        ("shrunk", json!(found.shrunk)),
        ("occluded", json!(found.occluded)),
        ("unconfirmed", json!(unconfirmed)),
        ("groups", json!(found.groups)),
        ("places", json!(places)),
    ]
}

/// As [`of_buckets`], of a golden's buckets, whose free places are −1 and −2.
fn with_places(buckets: &Value) -> Value {
    let of_bucket = |bucket: &Value| -> Value {
        let places = bucket.as_array().expect("sixteen places").iter().enumerate();
        places.filter(|(_, id)| id.as_i64() >= Some(0)).map(|(place, id)| json!([place, id])).collect()
    };
    buckets.as_array().expect("a list of buckets").iter().map(of_bucket).collect()
}

fn compare(
    report: &mut Report,
    golden: &Golden,
    step: usize,
    found: &FrameReport,
    network: &Watched<'_>,
) -> Outcome<()> {
    let expected = &golden.value("steps")[step];
    let states = expected["states"].as_array().ok_or("no states")?;
    let of_states = |name: &str| states.iter().map(|state| state[name].clone()).collect::<Value>();
    for (name, ours) in decisions(found) {
        let theirs = match name {
            "groups" => of_states("ids"),
            "places" => states.iter().map(|state| with_places(&state["buckets"])).collect(),
            // Before there are objects, nothing is said of them.
            _ => expected.get(name).cloned().unwrap_or_else(|| json!([])),
        };
        report.expect(format!("step {step}: {name} {ours}, not {theirs}"), ours == theirs);
    }
    let bank = &network.inner.bank;
    for (index, state) in states.iter().enumerate() {
        let close = |report: &mut Report, name: &str, place: usize, ours: &[f32]| {
            let reference = golden.tensor(&format!("{step}.{index}.{name}"));
            let rows = reference.shape()[0];
            let row = &f32s(reference)[place * (reference.len() / rows)..][..reference.len() / rows];
            let rounding = match name {
                // An engine's error can round a number to either of two neighbours.
                "memory" => 2.0 * ROUNDING,
                // A score follows from the memories of earlier frames.
                "masks" | "object_score" => ROUNDING,
                _ => 0.0,
            };
            // A score near 0 is as exact as others.
            let least = if name == "object_score" { 1.0 } else { 1e-6_f32 };
            let largest = row.iter().fold(least, |most, value| most.max(value.abs()));
            let far = ours.iter().zip(row).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f32::max);
            report.expect(
                format!("step {step}, state {index}: {name} {place} is {far:.1e} away"),
                ours.len() == row.len() && far <= TOLERANCE + rounding,
            );
        };
        let ids: Vec<ObjectId> = serde_json::from_value(state["ids"].clone())?;
        for (place, id) in ids.iter().enumerate() {
            if let Some(tracked) = network.tracked.get(id) {
                close(report, "object_score", place, &[tracked.object_score]);
                close(report, "masks", place, tracked.mask.values());
            }
        }
        let buckets: Vec<Vec<i64>> = serde_json::from_value(state["buckets"].clone())?;
        for (place, bucket) in buckets.iter().enumerate() {
            let id = bucket.iter().find(|id| **id >= 0).ok_or("an empty bucket")?;
            let id = u32::try_from(*id)?;
            close(report, "memory", place, f32s(&bank.memory(network.memories[&id])?));
            let pointers = bank.pointer(network.pointers[&id]).ok_or("the pointers were not written")?;
            close(report, "pointers", place, pointers);
        }
    }
    Ok(())
}

fn replay(
    report: &mut Report,
    golden: &Golden,
    (runner, kind): (Runner, EngineKind),
    devices: usize,
    options: ExportOptions,
) -> Outcome<()> {
    let exported = export(golden, runner, options)?;
    let model = Model::open(&exported.path(""))?;
    let factory =
        EngineFactory::start(&EngineOptions { kind, threads: Some(1), ..EngineOptions::default() })?;
    let mut network = MaskletNetwork::load(&model, &factory)?;
    (1..devices).try_for_each(|_| network.add_device(&model, &factory))?;
    let mut bank = network.bank();
    let mut source = Drawn(golden, MaskFrame::default());
    let inner = FrameNetwork { network: &mut network, bank: &mut bank, class_id: 0, source: &mut source };
    let (memories, pointers, tracked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut watched = Watched { inner, memories, pointers, tracked };
    let side = 4 * golden.number("grid");
    let steps = golden.value("steps").as_array().map_or(0, Vec::len);
    // A software GPU takes minutes for these.
    let is_gpu = matches!(runner, Runner::WebGpu);
    let most_steps = if is_gpu { 10 } else { steps };
    let video = VideoShape { frames: Some(steps - 1), width: side, height: side };
    let mut options: MaskletOptions = model.masklet_options();
    options.max_objects = 40;
    let mut session = MaskletSession::new(video, Retention::Window, options)?;
    let first = session.prompt(DetectorPrompt::Text, 0, &mut watched)?;
    compare(report, golden, 0, first.report.as_ref().ok_or("no report")?, &watched)?;
    session.propagate(RunDirection::Forward, None, None)?;
    let (mut count, mut objects) = (1, vec![0; devices]);
    let device = watched.inner.bank.device().cloned();
    report.expect("the memories are on the device", device.is_some() == is_gpu);
    let copied = || device.as_ref().map_or(0, |device| device.transferred().to_host);
    // Of each object a mask, a pointer and a few scores, and not the memories, which are as large.
    let width = golden.tensor("1.0.pointers").shape()[2];
    let of_bucket = 16 * 4 * (side * side + width + 8) as u64;
    while count < most_steps {
        let before = copied();
        let Some(step) = session.advance(&mut watched)? else { break };
        let to_host = copied() - before;
        let groups = &step.report.as_ref().ok_or("no report")?.places;
        let buckets: usize =
            groups.iter().map(|places| places.iter().max().map_or(0, |last| last / 16 + 1)).sum();
        let most = buckets as u64 * of_bucket;
        report.expect(
            format!("step {count}: {to_host} bytes of {buckets} buckets came to the host"),
            to_host <= most,
        );
        compare(report, golden, count, step.report.as_ref().ok_or("no report")?, &watched)?;
        count += 1;
        let now = watched.inner.network.objects();
        objects.iter_mut().zip(now).for_each(|(most, now)| *most = now.max(*most));
    }
    // A bucket was there: an object that joins one elsewhere counts for a frame.
    report.expect(format!("every device has objects: {objects:?}"), objects.iter().all(|most| *most > 3));
    report.expect(format!("{count} steps, not {most_steps}"), count == most_steps);
    Ok(())
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn a_session_of_buckets_equals_the_reference() {
    let (golden, mut report) = (Golden::of_bucket_session(), Report::default());
    let engines = [(Runner::OnnxRuntime, EngineKind::Cpu), (Runner::Embedded, EngineKind::Embedded)];
    for (engine, devices) in engines.into_iter().zip([1, 2]) {
        for target in engine.0.targets() {
            let options = ExportOptions { target: *target, ..ExportOptions::default() };
            report.check(format!("{engine:?}, {target:?}, devices: {devices}"), |report| {
                replay(report, &golden, engine, devices, options)
            });
        }
    }
    report.finish("a session of buckets");
}

/// The memories of buckets stay on the device: what comes back of a frame are masks, pointers and scores.
#[test]
#[ignore = "needs a software GPU: tests/fetch-software-gpu.sh"]
fn webgpu_keeps_the_memories_of_buckets_on_the_device() {
    let (golden, mut report) = (Golden::of_bucket_session(), Report::with_tolerance(1e-3));
    let options = ExportOptions { target: Target::TensorRt, ..ExportOptions::default() };
    report.check("buckets on webgpu".to_owned(), |report| {
        replay(report, &golden, (Runner::WebGpu, EngineKind::WebGpu { ordinal: 0 }), 1, options)
    });
    report.finish("memories of buckets on WebGPU");
}
