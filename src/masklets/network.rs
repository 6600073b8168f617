//! What a session asks for, computed by the graphs.

use ocelli_engines::Tensor;
use ocelli_export::contract::tensor;
use ocelli_tracking::masklets::{
    BitMask, Detection, EncodeBatch, LogitMask, MaskNetwork, MaskPromptBatch, MemoryKind, MemorySlot,
    PointPrompt, PointerSlot, TrackBatch, TrackObject, TrackedMask, prompted_masks,
};

use super::bank::MemoryBank;
use super::detect::MaskFrame;
use super::graphs::Graphs;
use crate::engine::EngineFactory;
use crate::model::Model;
use ocelli_error::{Error, ErrorKind, Result};

/// The largest logit of a mask prompt.
const MAX_PROMPT_LOGIT: f32 = 32.0;

/// The tracker's graphs with the current frame and their inputs and outputs, which are reused.
#[doc(hidden)]
pub struct MaskletNetwork {
    graphs: Graphs,
    /// The frame whose features are loaded.
    current: Option<usize>,
    /// Its detections, by class.
    detections: Vec<Vec<Detection>>,
    inputs: Inputs,
    outputs: Outputs,
}

/// Inputs in host memory.
#[derive(Default)]
struct Inputs {
    slots: Tensor,
    times: Tensor,
    pointers: Tensor,
    offsets: Tensor,
    masks: Tensor,
    keep: Tensor,
    present: Tensor,
    binary: Tensor,
    prompts: Tensor,
    points: Tensor,
    labels: Tensor,
    has_mask: Tensor,
}

#[derive(Default)]
struct Outputs {
    masks: Tensor,
    object_score: Tensor,
    iou: Tensor,
    pointer: Tensor,
    /// On the device of the bank.
    memory: Tensor,
}

impl MaskletNetwork {
    /// Loads the tracker of a model.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it has none; else as [`Model::load_graph`].
    pub fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let graphs = Graphs::load(model, factory)?;
        let outputs =
            Outputs { memory: graphs.device().map_or_else(Tensor::empty, Tensor::on), ..Outputs::default() };
        Ok(Self { graphs, current: None, detections: Vec::new(), inputs: Inputs::default(), outputs })
    }

    /// A bank for a session.
    pub fn bank(&self) -> Bank {
        let sizes = self.graphs.sizes;
        Bank(MemoryBank::new(self.graphs.device(), [sizes.grid * sizes.grid, sizes.memory], sizes.width))
    }

    pub(super) fn current(&self) -> Option<usize> {
        self.current
    }

    /// Forgets the current frame: the next one may have the same number.
    pub(super) fn forget_frame(&mut self) {
        self.current = None;
    }

    /// Makes a frame the current one.
    pub(super) fn set_frame(&mut self, number: usize, frame: &MaskFrame) -> Result<()> {
        self.current = None;
        if frame.hidden.is_empty() {
            let message =
                format!("frame {number} has no features: expected one that a MaskDetector has filled");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.graphs.run_features(&frame.hidden)?;
        self.detections.clone_from(&frame.detections);
        self.current = Some(number);
        Ok(())
    }

    /// The engine that tracks, for display.
    pub(super) fn description(&self) -> &str {
        self.graphs.step.description()
    }

    fn track(&mut self, batch: &TrackBatch, bank: &mut MemoryBank) -> Result<Vec<TrackedMask>> {
        let Self { graphs, inputs, outputs, .. } = self;
        let count = batch.objects.len();
        let Some(first) = batch.objects.first() else { return Ok(Vec::new()) };
        let (memories, pointers) = (first.memories.len(), first.pointers.len());
        let width = graphs.sizes.width;
        let is_equal =
            |object: &TrackObject| (object.memories.len(), object.pointers.len()) == (memories, pointers);
        if memories == 0 || !batch.objects.iter().all(is_equal) {
            return Err(mismatch(batch.frame, "expected a memory, and equally many of each object"));
        }
        let slots = inputs.slots.reset_i64(&[count, memories]);
        let times = inputs.times.reset_i64(&[count, memories]);
        let offsets = inputs.offsets.reset_f32(&[count, pointers]);
        let vectors = inputs.pointers.reset_f32(&[count, pointers, width]);
        for (index, object) in batch.objects.iter().enumerate() {
            for (place, memory) in object.memories.iter().enumerate() {
                if memory.slot.0 >= bank.rows() {
                    return Err(mismatch(batch.frame, "a memory was never written"));
                }
                slots[index * memories + place] = memory.slot.0 as i64;
                times[index * memories + place] = memory.row.min(graphs.sizes.last_time) as i64;
            }
            for (place, pointer) in object.pointers.iter().enumerate() {
                let source = bank.pointer(pointer.slot);
                let source = source.ok_or_else(|| mismatch(batch.frame, "a pointer was never written"))?;
                vectors[(index * pointers + place) * width..][..width].copy_from_slice(source);
                offsets[index * pointers + place] = pointer.offset;
            }
        }
        let features = &graphs.frame;
        graphs.step.run(
            &[
                (tensor::QUERY_0, &features.query_0),
                (tensor::HIGH_RES[0], &features.high_res[0]),
                (tensor::HIGH_RES[1], &features.high_res[1]),
                (tensor::BANK, bank.memories()),
                (tensor::SLOTS, &inputs.slots),
                (tensor::SLOT_TIMES, &inputs.times),
                (tensor::POINTERS, &inputs.pointers),
                (tensor::POINTER_OFFSETS, &inputs.offsets),
            ],
            &mut outputs.of_objects(),
        )?;
        for (index, object) in batch.objects.iter().enumerate() {
            bank.write_pointer(object.pointer, &outputs.pointer, index)?;
        }
        outputs.tracked(count, 4 * graphs.sizes.grid)
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>, bank: &mut MemoryBank) -> Result<()> {
        let Self { graphs, inputs, outputs, .. } = self;
        let side = 16 * graphs.sizes.grid;
        let masks = inputs.masks.reset_f32(&[batch.prompts.len(), side, side]);
        for (prompt, mask) in batch.prompts.iter().zip(masks.chunks_exact_mut(side * side)) {
            check_side(&prompt.mask, side)?;
            for (index, value) in mask.iter_mut().enumerate() {
                *value = f32::from(u8::from(prompt.mask.contains(index % side, index / side)));
            }
        }
        graphs.init.run(
            &[(tensor::PIXEL, &graphs.frame.pixel), (tensor::MASKS, &inputs.masks)],
            &mut [(tensor::POINTER, &mut outputs.pointer)],
        )?;
        for (index, prompt) in batch.prompts.iter().enumerate() {
            bank.write_pointer(prompt.pointer, &outputs.pointer, index)?;
        }
        Ok(())
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>, bank: &mut MemoryBank) -> Result<TrackedMask> {
        let Self { graphs, inputs, outputs, .. } = self;
        let (side, image) = (4 * graphs.sizes.grid, graphs.sizes.image as f32);
        let count = prompt.clicks.len();
        let points = inputs.points.reset_f32(&[1, count, 2]);
        for (point, click) in points.chunks_exact_mut(2).zip(prompt.clicks) {
            point.copy_from_slice(&[click.x * image, click.y * image]);
        }
        let labels = inputs.labels.reset_i64(&[1, count]);
        labels.iter_mut().zip(prompt.clicks).for_each(|(label, click)| *label = click.is_foreground.into());
        let mask = inputs.masks.reset_f32(&[1, side, side]);
        match prompt.previous {
            Some(previous) => {
                mask.iter_mut()
                    .zip(previous.values())
                    .for_each(|(value, logit)| *value = logit.clamp(-MAX_PROMPT_LOGIT, MAX_PROMPT_LOGIT));
            }
            None => mask.fill(0.0),
        }
        inputs.has_mask.reset::<bool>(&[])[0] = prompt.previous.is_some();
        let (engine, features) = graphs.points()?;
        engine.run(
            &[
                (tensor::PIXEL, &features.pixel),
                (tensor::HIGH_RES[0], &features.high_res[0]),
                (tensor::HIGH_RES[1], &features.high_res[1]),
                (tensor::POINTS, &inputs.points),
                (tensor::LABELS, &inputs.labels),
                (tensor::MASK_PROMPT, &inputs.masks),
                (tensor::HAS_MASK, &inputs.has_mask),
            ],
            &mut outputs.of_objects(),
        )?;
        bank.write_pointer(prompt.pointer, &outputs.pointer, 0)?;
        outputs.tracked(1, side)?.pop().ok_or_else(|| mismatch(prompt.frame, "the clicks have no mask"))
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>, bank: &mut MemoryBank) -> Result<()> {
        let Self { graphs, inputs, outputs, .. } = self;
        let (side, count) = (4 * graphs.sizes.grid, batch.objects.len());
        let masks: Vec<&LogitMask> = batch.objects.iter().map(|object| object.mask).collect();
        let values = inputs.masks.reset_f32(&[count, side, side]);
        for (target, mask) in values.chunks_exact_mut(side * side).zip(&masks) {
            target.copy_from_slice(mask.values());
        }
        let is_binary = batch.kind == MemoryKind::Prompted;
        let prompts = if is_binary {
            let (image, fine) = (graphs.sizes.image, 16 * graphs.sizes.grid);
            let target = inputs.prompts.reset_f32(&[count, fine, fine]);
            let prompts = prompted_masks(&masks, image, fine);
            target
                .chunks_exact_mut(fine * fine)
                .zip(&prompts)
                .for_each(|(t, p)| t.copy_from_slice(p.values()));
            &inputs.prompts
        } else {
            &graphs.no_prompts
        };
        inputs.keep.reset::<bool>(&[count]);
        inputs.present.reset::<bool>(&[count]);
        inputs.binary.reset::<bool>(&[count]).fill(is_binary);
        let keep = inputs.keep.as_mut_slice::<bool>()?;
        keep.iter_mut().zip(&batch.objects).for_each(|(keep, object)| *keep = object.keeps_mask);
        let present = inputs.present.as_mut_slice::<bool>()?;
        present.iter_mut().zip(&batch.objects).for_each(|(present, object)| *present = object.is_present);
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
        let slots: Vec<_> = batch.objects.iter().map(|object| object.slot).collect();
        bank.write_memories(&slots, &outputs.memory)
    }
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
                return Err(Error::new(ErrorKind::Execution, message));
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
    Err(Error::new(ErrorKind::Mismatch, message))
}

fn mismatch(frame: usize, why: &str) -> Error {
    Error::new(ErrorKind::Mismatch, format!("tracking frame {frame}: {why}"))
}

/// The memories and pointers of one session.
#[doc(hidden)]
pub struct Bank(pub(super) MemoryBank);

impl Bank {
    /// A memory `[1, P·P, memory width]`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such slot.
    pub fn memory(&self, slot: MemorySlot) -> Result<Tensor> {
        self.0.memory(slot)
    }

    /// Replaces a memory by one in host memory.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it has another size.
    pub fn set_memory(&mut self, slot: MemorySlot, memory: &Tensor) -> Result<()> {
        self.0.set_memory(slot, memory)
    }

    /// A pointer.
    pub fn pointer(&self, slot: PointerSlot) -> Option<&[f32]> {
        self.0.pointer(slot)
    }

    /// Replaces a pointer.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it has another size.
    pub fn set_pointer(&mut self, slot: PointerSlot, pointer: &Tensor) -> Result<()> {
        self.0.write_pointer(slot, pointer, 0)
    }

    /// The device of the memories; `None` for host memory.
    pub fn device(&self) -> Option<&ocelli_engines::Device> {
        self.0.device()
    }

    /// The number of memories that it has space for.
    pub fn rows(&self) -> usize {
        self.0.rows()
    }
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
    pub bank: &'n mut Bank,
    /// The class whose detections the session gets.
    pub class_id: usize,
    /// The frames.
    pub source: &'n mut dyn MaskFrames,
}

impl MaskNetwork for FrameNetwork<'_> {
    fn load(&mut self, frame: usize) -> Result<()> {
        if self.network.current() == Some(frame) {
            return Ok(());
        }
        self.network.set_frame(frame, self.source.frame(frame)?)
    }

    fn detect(&mut self, _frame: usize) -> Result<Vec<Detection>> {
        Ok(self.network.detections.get(self.class_id).cloned().unwrap_or_default())
    }

    fn track(&mut self, batch: &TrackBatch) -> Result<Vec<TrackedMask>> {
        self.network.track(batch, &mut self.bank.0)
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> Result<()> {
        self.network.prompt_masks(batch, &mut self.bank.0)
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> Result<TrackedMask> {
        self.network.prompt_points(prompt, &mut self.bank.0)
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>) -> Result<()> {
        self.network.encode(batch, &mut self.bank.0)
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
