//! SAM 3.1: sixteen objects share the memories of a bucket.

use ocelli::Detector;
use ocelli::engines::{ElementType, Engine, RowWriter, Tensor};
use ocelli::export::contract::{file, tensor};
use safetensors::SafeTensors;

use super::{GRID, Given, Inputs, POINTERS, Parts, WIDTH, first, floats, integers, load, on, outputs, timed};

/// Places of a bucket.
const BUCKET: usize = 16;

pub(super) fn add_inputs(inputs: &mut Inputs, objects: usize, memories: usize) {
    let buckets = objects.div_ceil(BUCKET);
    inputs.noise("bank", &[buckets * memories, GRID * GRID, WIDTH], 1.5);
    inputs.noise("images", &[memories, GRID * GRID, WIDTH], 1.5);
    inputs.integers("slots", &[buckets, memories], 0..(buckets * memories) as i64);
    inputs.integers("image_slots", &[buckets, memories], (0..buckets).flat_map(|_| 0..memories as i64));
    inputs.times(buckets, memories);
    inputs.noise("pointers", &[buckets, POINTERS, BUCKET, WIDTH], 1.5);
}

/// The inputs, and what `features` computes of them.
pub(super) struct Buckets {
    features: Box<dyn Engine>,
    step: Box<dyn Engine>,
    planes: Box<dyn Engine>,
    encoder: Box<dyn Engine>,
    writer: RowWriter,
    given: Given,
    images: Tensor,
    image_slots: Vec<i64>,
    of_frame: [Tensor; 6],
    of_objects: [Tensor; 4],
    of_masks: [Tensor; 2],
    memory: Tensor,
}

impl Buckets {
    pub(super) fn new(detector: &Detector, tensors: &SafeTensors<'_>) -> anyhow::Result<Self> {
        let step = load(detector, file::MUX_STEP)?;
        let device = step.device();
        let [memory] = outputs(device.as_ref());
        Ok(Self {
            features: load(detector, file::MUX_FEATURES)?,
            planes: load(detector, file::MUX_PLANES)?,
            encoder: load(detector, file::MUX_MEMORY)?,
            writer: RowWriter::default(),
            given: Given::new(tensors, device.as_ref())?,
            images: on(device.as_ref(), floats(tensors, "images")?)?,
            image_slots: integers(tensors, "image_slots")?,
            of_frame: outputs(device.as_ref()),
            of_objects: outputs(device.as_ref()),
            of_masks: outputs(device.as_ref()),
            memory,
            step,
        })
    }

    /// Which places have an object.
    fn valid(objects: usize) -> anyhow::Result<Tensor> {
        let buckets = objects.div_ceil(BUCKET);
        Ok(Tensor::new(
            &[buckets, BUCKET],
            (0..buckets * BUCKET).map(|place| place < objects).collect::<Vec<_>>(),
        )?)
    }
}

impl Parts for Buckets {
    fn features(&mut self) -> anyhow::Result<(f64, f64)> {
        let [fine, middle, memory_pixel, query, image, image_query] = &mut self.of_frame;
        let mut outputs = [
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::MEMORY_PIXEL, memory_pixel),
            (tensor::QUERY_0, query),
            (tensor::IMAGE, image),
            (tensor::IMAGE_QUERY, image_query),
        ];
        timed(&mut self.features, &[(tensor::HIDDEN, &self.given.hidden)], &mut outputs)
    }

    fn step(&mut self, objects: usize, memories: usize) -> anyhow::Result<(f64, f64)> {
        let buckets = objects.div_ceil(BUCKET);
        let table = |numbers: &[i64]| self.given.table(numbers, buckets, memories);
        let (slots, image_slots, times) =
            (table(&self.given.slots)?, table(&self.image_slots)?, table(&self.given.times)?);
        let (pointers, offsets) =
            (first(&self.given.pointers, buckets)?, first(&self.given.offsets, buckets)?);
        let (valid, objects) =
            (Self::valid(objects)?, Tensor::i64(&[objects], (0..objects as i64).collect())?);
        let [fine, middle, _, query, _, image_query] = &self.of_frame;
        let inputs = [
            (tensor::QUERY_0, query),
            (tensor::IMAGE_QUERY, image_query),
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::BANK, &self.given.bank),
            (tensor::IMAGES, &self.images),
            (tensor::SLOTS, &slots),
            (tensor::IMAGE_SLOTS, &image_slots),
            (tensor::SLOT_TIMES, &times),
            (tensor::POINTERS, &pointers),
            (tensor::POINTER_OFFSETS, &offsets),
            (tensor::VALID, &valid),
            (tensor::OBJECTS, &objects),
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

    /// As a session does: the planes of each object by itself.
    fn encode(&mut self, objects: usize) -> anyhow::Result<(f64, f64)> {
        let Self { planes: graph, writer, of_masks: [plane, planes], given, .. } = self;
        let (side, pixels) = (4 * GRID, 16 * GRID * GRID);
        planes.reset_to(ElementType::F32, &[objects, 4 * side, 4 * side])?;
        let (mut ms, mut cpu_ms) = (0.0, 0.0);
        for (index, mask) in given.masks.as_f32()?.chunks_exact(pixels).take(objects).enumerate() {
            let mask = Tensor::f32(&[1, side, side], mask.to_vec())?;
            let (wall, cores) =
                timed(graph, &[(tensor::MASKS, &mask)], &mut [(tensor::PLANES, &mut *plane)])?;
            writer.write(planes, plane, &[(index, 0)])?;
            (ms, cpu_ms) = (ms + wall, cpu_ms + cores);
        }
        let valid = Self::valid(objects)?;
        let order =
            (0..valid.shape().iter().product()).map(|place| if place < objects { place as i64 } else { 0 });
        let order = Tensor::i64(valid.shape(), order.collect())?;
        let flags = |flag: bool| Tensor::new(&[objects], vec![flag; objects]);
        let (present, conditional) = (flags(true)?, flags(false)?);
        let inputs = [
            (tensor::MEMORY_PIXEL, &self.of_frame[2]),
            (tensor::PLANES, &self.of_masks[1]),
            (tensor::ORDER, &order),
            (tensor::VALID, &valid),
            (tensor::PRESENT, &present),
            (tensor::CONDITIONAL, &conditional),
        ];
        let (wall, cores) = timed(&mut self.encoder, &inputs, &mut [(tensor::MEMORY, &mut self.memory)])?;
        Ok((ms + wall, cpu_ms + cores))
    }

    fn scores(&self) -> &Tensor {
        &self.of_objects[1]
    }
}
