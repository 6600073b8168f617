//! A session decides and does not compute: the graphs compute what it asks for.

mod buckets;

use std::thread;

use ocelli_engines::Tensor;
use ocelli_export::contract::tensor;
use ocelli_tracking::masklets::{
    BitMask, DetectedMask, EncodeBatch, EncodeObject, LogitMask, MaskNetwork, MaskPrompt, MaskPromptBatch,
    MaskletOptions, MemoryKind, ObjectId, PointPrompt, PointerSlot, TrackBatch, TrackBucket, TrackedMask,
    prompted_masks,
};

use super::bank::{DeviceMemories, MemoryBank};
use super::detect::MaskFrame;
use super::graphs::Graphs;
use crate::detector::{Detector, PointInputs};
use crate::engine::EngineFactory;
use crate::model::Model;
use crate::prompt::EncodedObject;
use buckets::BUCKET;
use ocelli_error::{Error, ErrorKind, Result, refuse};

/// The largest logit of a mask prompt.
const MAX_PROMPT_LOGIT: f32 = 32.0;

/// The tracker's graphs with the current frame, on each device that tracks.
#[doc(hidden)]
pub struct MaskletNetwork {
    pub(super) devices: Vec<DeviceNetwork>,
    /// The frame whose features are loaded.
    pub(super) current: Option<usize>,
    /// Its detections, by class.
    detections: Vec<Option<Vec<DetectedMask>>>,
}

/// The graphs on one device, with their inputs and outputs, which are reused.
pub(super) struct DeviceNetwork {
    graphs: Graphs,
    inputs: Inputs,
    outputs: Outputs,
    /// The objects that it tracks, on the frame before and so far on this one.
    objects: [usize; 2],
}

/// Inputs in host memory.
#[derive(Default)]
struct Inputs {
    slots: Tensor,
    images: Tensor,
    valid: Tensor,
    objects: Tensor,
    times: Tensor,
    pointers: Tensor,
    offsets: Tensor,
    masks: Tensor,
    mask: Tensor,
    keep: Tensor,
    present: Tensor,
    binary: Tensor,
    prompts: Tensor,
    points: PointInputs,
}

#[derive(Default)]
struct Outputs {
    masks: Tensor,
    object_score: Tensor,
    iou: Tensor,
    pointer: Tensor,
    /// On the device of the bank, like the planes.
    memory: Tensor,
    planes: Tensor,
    plane: Tensor,
}

impl MaskletNetwork {
    /// Loads the tracker of a detector's model, on its engine.
    ///
    /// # Errors
    /// As [`load`](Self::load); [`ErrorKind::Mismatch`] if the options have another `patch_grid` than the model.
    pub fn of(detector: &Detector, options: &MaskletOptions) -> Result<Self> {
        let (model, grid) = (detector.model(), options.patch_grid);
        let network = Self::load(model, detector.engine_factory())?;
        if grid != model.manifest().grid() {
            let expected = model.manifest().grid();
            let message = format!("patch_grid is {grid}: expected {expected}, as the model has");
            return Err(Error::mismatch(message));
        }
        if options.life_cycle.bucket_size() != network.bucket_size() {
            let message = "life_cycle: expected that of the model, as its masklet_options have it";
            return Err(Error::mismatch(message));
        }
        Ok(network)
    }

    /// Loads the tracker of a model.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it has none; else as [`Model::load_graph`].
    pub fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let devices = vec![DeviceNetwork::load(model, factory)?];
        Ok(Self { devices, current: None, detections: Vec::new() })
    }

    /// Loads the tracker on another device as well. Objects, or with SAM 3.1 buckets of them, are tracked on the device that has the
    /// fewest when they appear.
    ///
    /// # Errors
    /// As [`load`](Self::load); [`ErrorKind::Mismatch`] for a model of other sizes.
    pub fn add_device(&mut self, model: &Model, factory: &EngineFactory) -> Result<()> {
        let new = DeviceNetwork::load(model, factory)?;
        if self.devices.iter().any(|device| device.graphs.sizes != new.graphs.sizes) {
            let message = "devices: the tracker of one is of another model; load the same model on each";
            return Err(Error::mismatch(message).about("devices"));
        }
        self.devices.push(new);
        Ok(())
    }

    /// A bank for a session.
    pub fn bank(&self) -> MemoryBank {
        let sizes = self.devices[0].graphs.sizes;
        let devices = self.devices.iter().map(|device| device.graphs.device()).collect();
        MemoryBank::new(devices, [sizes.grid * sizes.grid, sizes.memory], sizes.width, self.bucket_size())
    }

    /// The number of objects that share memories.
    fn bucket_size(&self) -> usize {
        if self.devices[0].graphs.buckets.is_some() { BUCKET } else { 1 }
    }

    /// Makes a frame the current one.
    pub(super) fn set_frame(&mut self, number: usize, frame: &MaskFrame) -> Result<()> {
        self.current = None;
        if frame.hidden.is_empty() {
            refuse!("frame {number} has no features: expected those of the backbone's last layer");
        }
        let all = self.devices.iter_mut().map(|device| (device, ()));
        at_once(all.collect(), |device, ()| device.graphs.run_features(&frame.hidden))?;
        self.devices.iter_mut().for_each(|device| device.objects = [device.objects[1], 0]);
        self.detections.clone_from(&frame.detections);
        self.current = Some(number);
        Ok(())
    }

    /// The device of an object: a new one gets the device with the fewest, in this network.
    fn device_of(&mut self, object: ObjectId, bank: &mut MemoryBank) -> usize {
        if let Some(device) = bank.objects.get(&object) {
            return *device;
        }
        let counts = self.devices.iter().map(DeviceNetwork::object_count).enumerate();
        let (device, _) = counts.min_by_key(|(_, count)| *count).expect("there is a device");
        self.devices[device].objects[1] += 1;
        bank.objects.insert(object, device);
        device
    }

    /// Splits objects, given by their ids in order, by device: the indices of those of each.
    fn split(&mut self, ids: impl Iterator<Item = ObjectId>, bank: &mut MemoryBank) -> Vec<Vec<usize>> {
        let mut groups = vec![Vec::new(); self.devices.len()];
        for (index, object) in ids.enumerate() {
            groups[self.device_of(object, bank)].push(index);
        }
        groups
    }

    /// The devices that have objects, each with something for them.
    fn with<T>(
        &mut self,
        groups: &[Vec<usize>],
        each: impl IntoIterator<Item = T>,
    ) -> Vec<(&mut DeviceNetwork, T)> {
        let devices = self.devices.iter_mut().zip(each).zip(groups);
        devices.filter(|(_, group)| !group.is_empty()).map(|(device, _)| device).collect()
    }

    /// Keeps the pointers of the last run, in these slots and places, for what was split by device. New slots have no others.
    fn write_pointers(
        &self,
        groups: &[Vec<usize>],
        places: &[Vec<(PointerSlot, usize)>],
        is_new: bool,
        bank: &mut MemoryBank,
    ) -> Result<()> {
        if is_new {
            places.iter().flatten().for_each(|(slot, _)| bank.pointers.clear(*slot));
        }
        for (device, group) in self.devices.iter().zip(groups) {
            let places = group.iter().flat_map(|index| &places[*index]);
            for (row, (slot, place)) in places.enumerate() {
                bank.pointers.write(*slot, *place, &device.outputs.pointer, row)?;
            }
        }
        Ok(())
    }
}

/// Buckets that a device tracks, with the bank that they read.
struct Tracked<'b> {
    frame: usize,
    buckets: Vec<&'b TrackBucket>,
    device: usize,
    bank: &'b MemoryBank,
}

impl DeviceNetwork {
    fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let graphs = Graphs::load(model, factory)?;
        let on_device = || graphs.device().map_or_else(Tensor::empty, Tensor::on);
        let (planes, plane) = (on_device(), on_device());
        let outputs = Outputs { memory: on_device(), planes, plane, ..Outputs::default() };
        Ok(Self { graphs, inputs: Inputs::default(), outputs, objects: [0; 2] })
    }

    pub(super) fn object_count(&self) -> usize {
        self.objects[0].max(self.objects[1])
    }

    /// The masks of each bucket.
    fn track(&mut self, tracked: &Tracked<'_>) -> Result<Vec<Vec<TrackedMask>>> {
        let Self { graphs, inputs, outputs, .. } = self;
        let Tracked { frame, buckets, device, bank } = tracked;
        let count = buckets.len();
        let Some(first) = buckets.first() else { return Ok(Vec::new()) };
        let (memories, pointers) = (first.memories.len(), first.pointers.len());
        let row = bank.pointers.row();
        let slots = inputs.slots.reset::<i64>(&[count, memories]);
        let times = inputs.times.reset::<i64>(&[count, memories]);
        let images = inputs.images.reset::<i64>(&[count, memories]);
        let offsets = inputs.offsets.reset_f32(&[count, pointers]);
        let vectors = match &graphs.buckets {
            None => inputs.pointers.reset_f32(&[count, pointers, row]),
            Some(_) => inputs.pointers.reset_f32(&[count, pointers, BUCKET, row / BUCKET]),
        };
        for (index, bucket) in buckets.iter().enumerate() {
            for (place, memory) in bucket.memories.iter().enumerate() {
                let at = bank.place(memory.slot).filter(|at| at.device == *device);
                let at = at.ok_or_else(|| mismatch(*frame, "a memory was never written"))?;
                slots[index * memories + place] = at.row as i64;
                times[index * memories + place] = memory.row.min(graphs.sizes.last_time) as i64;
                if let Some(known) = bank.images.get(*device) {
                    let image = known.row(memory.frame);
                    let image = image.ok_or_else(|| mismatch(*frame, "the image of a memory is gone"))?;
                    images[index * memories + place] = image as i64;
                }
            }
            for (place, pointer) in bucket.pointers.iter().enumerate() {
                let source = bank.pointers.get(pointer.slot);
                let source = source.ok_or_else(|| mismatch(*frame, "a pointer was never written"))?;
                vectors[(index * pointers + place) * row..][..row].copy_from_slice(source);
                offsets[index * pointers + place] = pointer.offset;
            }
        }
        inputs.set_places(buckets);
        let features = &graphs.frame;
        let mut given = vec![
            (tensor::QUERY_0, &features.query_0),
            (tensor::HIGH_RES[0], &features.decoder.high_res[0]),
            (tensor::HIGH_RES[1], &features.decoder.high_res[1]),
            (tensor::BANK, &bank.devices[*device].memories),
            (tensor::SLOTS, &inputs.slots),
            (tensor::SLOT_TIMES, &inputs.times),
            (tensor::POINTERS, &inputs.pointers),
            (tensor::POINTER_OFFSETS, &inputs.offsets),
        ];
        if let Some(images) = bank.images.get(*device) {
            given.extend([
                (tensor::IMAGE_QUERY, &features.image_query),
                (tensor::IMAGES, images.all()),
                (tensor::IMAGE_SLOTS, &inputs.images),
                (tensor::VALID, &inputs.valid),
                (tensor::OBJECTS, &inputs.objects),
            ]);
        }
        graphs.step.run(&given, &mut outputs.of_objects())?;
        let objects = buckets.iter().map(|bucket| bucket.objects.len());
        let mut tracked = outputs.tracked(objects.clone().sum(), 4 * graphs.sizes.grid)?.into_iter();
        Ok(objects.map(|count| tracked.by_ref().take(count).collect()).collect())
    }

    fn prompt_masks(&mut self, prompts: &[&MaskPrompt]) -> Result<()> {
        let Self { graphs, inputs, outputs, .. } = self;
        let side = 16 * graphs.sizes.grid;
        let masks = inputs.masks.reset_f32(&[prompts.len(), side, side]);
        for (prompt, mask) in prompts.iter().zip(masks.chunks_exact_mut(side * side)) {
            check_side(&prompt.mask, side)?;
            for (index, value) in mask.iter_mut().enumerate() {
                *value = f32::from(u8::from(prompt.mask.contains(index % side, index / side)));
            }
        }
        let (engine, features) = graphs.init()?;
        engine.run(
            &[(tensor::PIXEL, &features.pixel), (tensor::MASKS, &inputs.masks)],
            &mut [(tensor::POINTER, &mut outputs.pointer)],
        )
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> Result<TrackedMask> {
        let Self { graphs, inputs, outputs, .. } = self;
        let (side, image) = (4 * graphs.sizes.grid, graphs.sizes.image as f32);
        let clamped = |logit: &f32| logit.clamp(-MAX_PROMPT_LOGIT, MAX_PROMPT_LOGIT);
        let encoded = EncodedObject {
            points: prompt.clicks.iter().map(|click| [click.x * image, click.y * image]).collect(),
            labels: prompt.clicks.iter().map(|click| click.is_foreground.into()).collect(),
            mask: prompt.previous.map(|previous| previous.values().iter().map(clamped).collect()),
            is_ambiguous: false,
        };
        inputs.points.fill(&[&encoded], side);
        let (engine, features) = graphs.points()?;
        inputs.points.run(engine, features, &mut outputs.of_objects())?;
        outputs.tracked(1, side)?.pop().ok_or_else(|| mismatch(prompt.frame, "the clicks have no mask"))
    }

    /// Encodes masks, each with its prompt if it is one, into these rows of the memories.
    fn encode(
        &mut self,
        objects: &[(&EncodeObject<'_>, Option<&LogitMask>, usize)],
        memories: &mut DeviceMemories,
    ) -> Result<()> {
        let Self { graphs, inputs, outputs, .. } = self;
        let (side, count) = (4 * graphs.sizes.grid, objects.len());
        let values = inputs.masks.reset_f32(&[count, side, side]);
        for (target, (object, ..)) in values.chunks_exact_mut(side * side).zip(objects) {
            target.copy_from_slice(object.mask.values());
        }
        let is_binary = objects.iter().all(|(_, prompt, _)| prompt.is_some());
        let prompts = if is_binary {
            let fine = 16 * graphs.sizes.grid;
            let target = inputs.prompts.reset_f32(&[count, fine, fine]);
            let prompts = objects.iter().filter_map(|(_, prompt, _)| *prompt);
            target
                .chunks_exact_mut(fine * fine)
                .zip(prompts)
                .for_each(|(t, p)| t.copy_from_slice(p.values()));
            &inputs.prompts
        } else {
            &graphs.no_prompts
        };
        inputs.binary.reset::<bool>(&[count]).fill(is_binary);
        let keep = inputs.keep.reset::<bool>(&[count]);
        keep.iter_mut().zip(objects).for_each(|(keep, (object, ..))| *keep = object.keeps_mask);
        let present = inputs.present.reset::<bool>(&[count]);
        present.iter_mut().zip(objects).for_each(|(present, (object, ..))| *present = object.is_present);
        graphs.encoder.run(
            &[
                (tensor::MEMORY_PIXEL, &graphs.frame.memory_pixel),
                (tensor::MASKS, &inputs.masks),
                (tensor::KEEP, &inputs.keep),
                (tensor::PRESENT, &inputs.present),
                (tensor::BINARY, &inputs.binary),
                (tensor::PROMPTS, prompts),
            ],
            &mut [(tensor::MEMORY, &mut outputs.memory)],
        )?;
        let rows: Vec<_> = objects.iter().map(|(.., row)| *row).collect();
        memories.write(&rows, &outputs.memory)
    }
}

/// Runs a step on devices, on a thread for each but the last one. The results are in the order of the devices.
fn at_once<T: Send, R: Send>(
    mut devices: Vec<(&mut DeviceNetwork, T)>,
    step: impl Fn(&mut DeviceNetwork, T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let Some((last, given)) = devices.pop() else { return Ok(Vec::new()) };
    thread::scope(|scope| {
        let step = &step;
        let others: Vec<_> =
            devices.into_iter().map(|(device, given)| scope.spawn(move || step(device, given))).collect();
        let last = step(last, given);
        let joined = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "tracking on a device panicked")))
        });
        joined.collect::<Vec<_>>().into_iter().chain([last]).collect()
    })
}

/// Puts the results of devices into the order of the objects.
fn in_order<T>(groups: &[Vec<usize>], results: Vec<Vec<T>>) -> Vec<T> {
    let indices = groups.iter().filter(|group| !group.is_empty()).flatten();
    let mut all: Vec<_> = indices.zip(results.into_iter().flatten()).collect();
    all.sort_by_key(|(index, _)| **index);
    all.into_iter().map(|(_, result)| result).collect()
}

impl Outputs {
    fn of_objects(&mut self) -> [(&'static str, &mut Tensor); 4] {
        [
            (tensor::MASKS, &mut self.masks),
            (tensor::OBJECT_SCORE, &mut self.object_score),
            (tensor::IOU, &mut self.iou),
            (tensor::POINTER, &mut self.pointer),
        ]
    }

    /// The masks of the objects of the last run.
    fn tracked(&self, count: usize, side: usize) -> Result<Vec<TrackedMask>> {
        let (masks, scores, ious) = (self.masks.as_f32()?, self.object_score.as_f32()?, self.iou.as_f32()?);
        let objects = masks.chunks_exact(side * side).zip(scores).zip(ious).take(count);
        let tracked = objects.map(|((mask, &object_score), &iou)| {
            if !object_score.is_finite() || mask.iter().any(|logit| logit.is_nan()) {
                let message = "tracker output: the engine returned values that are not finite; if the model runs in half \
                               precision, export it in fp32";
                return Err(Error::execution(message));
            }
            Ok(TrackedMask { mask: LogitMask::new(side, side, mask.to_vec())?, object_score, iou })
        });
        tracked.collect()
    }
}

fn check_side(mask: &BitMask, side: usize) -> Result<()> {
    if (mask.width(), mask.height()) == (side, side) {
        return Ok(());
    }
    let message = format!(
        "a mask prompt has {} × {} pixels: expected {side} × {side}; set patch_grid to the model's",
        mask.width(),
        mask.height()
    );
    Err(Error::mismatch(message))
}

fn mismatch(frame: usize, why: &str) -> Error {
    Error::mismatch(format!("tracking frame {frame}: {why}"))
}

/// Provides frames by their numbers.
#[doc(hidden)]
pub trait MaskFrames {
    /// A frame, until the next one is asked for.
    ///
    /// # Errors
    /// If it cannot be read or computed.
    fn frame(&mut self, number: usize) -> Result<&MaskFrame>;
}

/// The network of one class, with frames from `source`.
#[doc(hidden)]
pub struct FrameNetwork<'n> {
    /// The graphs.
    pub network: &'n mut MaskletNetwork,
    /// The session's memories.
    pub bank: &'n mut MemoryBank,
    /// The class whose detections the session gets.
    pub class_id: usize,
    /// The frames.
    pub source: &'n mut dyn MaskFrames,
}

impl MaskNetwork for FrameNetwork<'_> {
    fn load(&mut self, frame: usize) -> Result<()> {
        if self.network.current == Some(frame) {
            return Ok(());
        }
        self.network.set_frame(frame, self.source.frame(frame)?)
    }

    fn detect(&mut self, _frame: usize) -> Result<Option<Vec<DetectedMask>>> {
        Ok(self.network.detections.get(self.class_id).cloned().flatten())
    }

    fn track(&mut self, batch: &TrackBatch) -> Result<Vec<TrackedMask>> {
        let Self { network, bank, .. } = self;
        let Some(first) = batch.buckets.first() else { return Ok(Vec::new()) };
        let (memories, pointers) = (first.memories.len(), first.pointers.len());
        let is_equal =
            |bucket: &TrackBucket| (bucket.memories.len(), bucket.pointers.len()) == (memories, pointers);
        if memories == 0 || !batch.buckets.iter().all(is_equal) {
            return Err(mismatch(batch.frame, "expected a memory, and equally many of each object"));
        }
        let of_bucket =
            |bucket: &TrackBucket| bucket.objects.iter().map(|(_, place)| (bucket.pointer, *place)).collect();
        let places: Vec<Vec<_>> = batch.buckets.iter().map(of_bucket).collect();
        if places.iter().flatten().any(|(_, place)| *place >= network.bucket_size()) {
            return Err(mismatch(batch.frame, "the model is SAM 3: expected a life_cycle of SAM 3"));
        }
        for bucket in &batch.buckets {
            if let Some(place) = bank.place(bucket.memories[0].slot) {
                bank.objects.extend(bucket.objects.iter().map(|(id, _)| (*id, place.device)));
            }
        }
        let groups = network.split(batch.buckets.iter().map(|bucket| bucket.objects[0].0), bank);
        for (device, group) in network.devices.iter_mut().zip(&groups) {
            device.objects[1] += group.iter().map(|index| places[*index].len()).sum::<usize>();
        }
        let objects = groups.iter().enumerate().map(|(device, group)| Tracked {
            frame: batch.frame,
            buckets: group.iter().map(|index| &batch.buckets[*index]).collect(),
            device,
            bank,
        });
        let tracked = at_once(network.with(&groups, objects), |device, tracked| device.track(&tracked))?;
        network.write_pointers(&groups, &places, true, bank)?;
        Ok(in_order(&groups, tracked).into_iter().flatten().collect())
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> Result<()> {
        let Self { network, bank, .. } = self;
        // Objects that share a bucket go to one device.
        let first = |prompt: &MaskPrompt| batch.prompts.iter().find(|other| other.pointer == prompt.pointer);
        let ids = batch.prompts.iter().map(|prompt| first(prompt).unwrap_or(prompt).id);
        let groups = network.split(ids, bank);
        at_once(network.with(&groups, &groups), |device, group| {
            device.prompt_masks(&group.iter().map(|index| &batch.prompts[*index]).collect::<Vec<_>>())
        })?;
        let places: Vec<_> =
            batch.prompts.iter().map(|prompt| vec![(prompt.pointer, prompt.place)]).collect();
        network.write_pointers(&groups, &places, batch.is_new, bank)
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> Result<TrackedMask> {
        let Self { network, bank, .. } = self;
        let device = network.device_of(prompt.id, bank);
        let device = &mut network.devices[device];
        let tracked = device.prompt_points(prompt)?;
        if prompt.is_new {
            bank.pointers.clear(prompt.pointer);
        }
        bank.pointers.write(prompt.pointer, prompt.place, &device.outputs.pointer, 0)?;
        Ok(tracked)
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>) -> Result<()> {
        let Self { network, bank, .. } = self;
        if network.bucket_size() > 1 {
            return network.encode_buckets(batch, bank);
        }
        let sizes = network.devices[0].graphs.sizes;
        let prompts = (batch.kind == MemoryKind::Prompted).then(|| {
            let masks: Vec<&LogitMask> = batch.objects.iter().map(|object| object.mask).collect();
            prompted_masks(&masks, sizes.image, 16 * sizes.grid)
        });
        let groups = network.split(batch.objects.iter().map(|object| object.id), bank);
        let mut encoded = Vec::with_capacity(groups.len());
        for (device, group) in groups.iter().enumerate() {
            let masks = |index: &usize| {
                let prompt = prompts.as_ref().map(|prompts| &prompts[*index]);
                (&batch.objects[*index], prompt, bank.claim(batch.objects[*index].slot, device))
            };
            encoded.push(group.iter().map(masks).collect::<Vec<_>>());
        }
        let with = bank.devices.iter_mut().zip(encoded);
        at_once(network.with(&groups, with), |device, (memories, objects)| {
            device.encode(&objects, memories)
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_are_not_finite_are_errors() {
        let outputs = |score: f32, logit: f32| Outputs {
            masks: Tensor::f32(&[1, 2, 2], vec![1.0, 1.0, logit, 1.0]).expect("4 logits"),
            object_score: Tensor::f32(&[1], vec![score]).expect("one score"),
            iou: Tensor::f32(&[1], vec![0.5]).expect("one number"),
            ..Outputs::default()
        };
        let tracked = outputs(2.0, -1.0).tracked(1, 2).expect("they are finite");
        assert_eq!((tracked.len(), tracked[0].object_score, tracked[0].mask.values()[2]), (1, 2.0, -1.0));
        for (score, logit) in [(f32::NAN, 0.0), (f32::INFINITY, 0.0), (1.0, f32::NAN)] {
            let error = outputs(score, logit).tracked(1, 2).expect_err("not finite");
            assert_eq!(error.kind(), ErrorKind::Execution, "{score} {logit}");
        }
    }
}
