//! SAM 3: each object has memories of its own.

use ocelli::Detector;
use ocelli::engines::{Engine, Tensor};
use ocelli::export::contract::{file, tensor};
use safetensors::SafeTensors;

use super::{GRID, Given, Inputs, POINTERS, Parts, WIDTH, first, load, on, outputs, timed};

/// The width of a memory.
const MEMORY: usize = 64;

pub(super) fn add_inputs(inputs: &mut Inputs, objects: usize, memories: usize) {
    inputs.noise("bank", &[objects * memories, GRID * GRID, MEMORY], 1.5);
    inputs.integers("slots", &[objects, memories], 0..(objects * memories) as i64);
    inputs.times(objects, memories);
    inputs.noise("pointers", &[objects, POINTERS, WIDTH], 1.5);
}

/// The inputs, and what `features` computes of them.
pub(super) struct Objects {
    features: Box<dyn Engine>,
    step: Box<dyn Engine>,
    encoder: Box<dyn Engine>,
    given: Given,
    of_frame: [Tensor; 5],
    of_objects: [Tensor; 4],
    memory: Tensor,
}

impl Objects {
    pub(super) fn new(detector: &Detector, tensors: &SafeTensors<'_>) -> anyhow::Result<Self> {
        let step = load(detector, file::TRACK_STEP)?;
        let device = step.device();
        let [memory] = outputs(device.as_ref());
        Ok(Self {
            features: load(detector, file::TRACK_FEATURES)?,
            encoder: load(detector, file::MEMORY_ENCODER)?,
            given: Given::new(tensors, device.as_ref())?,
            of_frame: outputs(device.as_ref()),
            of_objects: outputs(device.as_ref()),
            memory,
            step,
        })
    }
}

impl Parts for Objects {
    fn features(&mut self) -> anyhow::Result<(f64, f64)> {
        let [fine, middle, pixel, memory_pixel, query] = &mut self.of_frame;
        let mut outputs = [
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::PIXEL, pixel),
            (tensor::MEMORY_PIXEL, memory_pixel),
            (tensor::QUERY_0, query),
        ];
        timed(&mut self.features, &[(tensor::HIDDEN, &self.given.hidden)], &mut outputs)
    }

    fn step(&mut self, objects: usize, memories: usize) -> anyhow::Result<(f64, f64)> {
        let slots = self.given.table(&self.given.slots, objects, memories)?;
        let times = self.given.table(&self.given.times, objects, memories)?;
        let (pointers, offsets) =
            (first(&self.given.pointers, objects)?, first(&self.given.offsets, objects)?);
        let [fine, middle, .., query] = &self.of_frame;
        let inputs = [
            (tensor::QUERY_0, query),
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::BANK, &self.given.bank),
            (tensor::SLOTS, &slots),
            (tensor::SLOT_TIMES, &times),
            (tensor::POINTERS, &pointers),
            (tensor::POINTER_OFFSETS, &offsets),
        ];
        let [masks, score, iou, pointer] = &mut self.of_objects;
        let mut outputs = [
            (tensor::MASKS, masks),
            (tensor::OBJECT_SCORE, score),
            (tensor::IOU, iou),
            (tensor::POINTER, pointer),
        ];
        timed(&mut self.step, &inputs, &mut outputs)
    }

    fn encode(&mut self, objects: usize) -> anyhow::Result<(f64, f64)> {
        let masks = on(self.encoder.device().as_ref(), first(&self.given.masks, objects)?)?;
        let flags = |flag: bool| Tensor::new(&[objects], vec![flag; objects]);
        let (keep, present, binary) = (flags(true)?, flags(true)?, flags(false)?);
        let prompts = Tensor::zeros::<f32>(&[1, 16 * GRID, 16 * GRID]);
        let inputs = [
            (tensor::MEMORY_PIXEL, &self.of_frame[3]),
            (tensor::MASKS, &masks),
            (tensor::KEEP, &keep),
            (tensor::PRESENT, &present),
            (tensor::BINARY, &binary),
            (tensor::PROMPTS, &prompts),
        ];
        timed(&mut self.encoder, &inputs, &mut [(tensor::MEMORY, &mut self.memory)])
    }

    fn scores(&self) -> &Tensor {
        &self.of_objects[1]
    }
}
