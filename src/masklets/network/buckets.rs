//! In SAM 3.1 up to sixteen objects share the memories of a bucket, which changes the inputs of its graphs and the memories.

use ocelli_engines::{ElementType, Tensor};
use ocelli_export::contract::tensor;
use ocelli_tracking::masklets::{EncodeBatch, EncodeObject, MemoryKind, MemorySlot, TrackBucket};

use super::{DeviceNetwork, Inputs, MaskletNetwork, at_once};
use crate::masklets::bank::{DeviceMemories, MemoryBank};
use ocelli_error::Result;

/// The places of a bucket.
pub(super) const BUCKET: usize = 16;
/// The largest logit of a mask that an object does not keep.
const NOT_KEPT: f32 = -10.0;

impl Inputs {
    /// Sets the places of objects to be tracked.
    pub(super) fn set_places(&mut self, buckets: &[&TrackBucket]) {
        let of_bucket = |(index, bucket): (usize, &&TrackBucket)| -> Vec<usize> {
            bucket.objects.iter().map(|(_, place)| index * BUCKET + place).collect()
        };
        let places: Vec<usize> = buckets.iter().enumerate().flat_map(of_bucket).collect();
        let valid = self.valid.reset::<bool>(&[buckets.len(), BUCKET]);
        valid.fill(false);
        places.iter().for_each(|place| valid[*place] = true);
        let objects = self.objects.reset::<i64>(&[places.len()]);
        objects.iter_mut().zip(&places).for_each(|(object, place)| *object = *place as i64);
    }
}

impl MaskletNetwork {
    /// Encodes the masks of buckets. The image of the frame stays with their memories.
    pub(super) fn encode_buckets(&mut self, batch: &EncodeBatch<'_>, bank: &mut MemoryBank) -> Result<()> {
        let mut slots: Vec<_> = batch.objects.iter().map(|object| object.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        // A bucket is on the device of its eldest object.
        let ids = |slot: MemorySlot| {
            batch.objects.iter().filter(move |object| object.slot == slot).map(|object| object.id)
        };
        let eldest = slots.iter().map(|slot| ids(*slot).min().expect("slots are those of objects"));
        let groups = self.split(eldest, bank);
        let mut each = vec![(Vec::new(), Vec::new()); groups.len()];
        for (device, group) in groups.iter().enumerate() {
            for slot in group.iter().map(|index| slots[*index]) {
                bank.objects.extend(ids(slot).map(|id| (id, device)));
                each[device].0.push(slot);
                each[device].1.push(bank.claim(slot, device));
            }
        }
        let banks = bank.devices.iter_mut().zip(&mut bank.images).zip(each);
        at_once(self.with(&groups, banks), |device, ((memories, images), (slots, rows))| {
            device.encode_buckets(batch, &slots, &rows, memories)?;
            images.write(batch.frame, &device.graphs.frame.image, &slots)
        })?;
        Ok(())
    }
}

impl DeviceNetwork {
    /// Encodes masks of buckets of these slots, whose memories are these rows.
    fn encode_buckets(
        &mut self,
        batch: &EncodeBatch<'_>,
        slots: &[MemorySlot],
        rows: &[usize],
        memories: &mut DeviceMemories,
    ) -> Result<()> {
        let Self { graphs, inputs, outputs, .. } = self;
        let side = 4 * graphs.sizes.grid;
        let buckets = graphs.buckets.as_mut().expect("SAM 3.1 has them");
        let is_tracked = batch.kind == MemoryKind::Tracked;
        // Masks that were given exclude each other, wherever their buckets are.
        let is_needed = |object: &&EncodeObject<'_>| !is_tracked || slots.contains(&object.slot);
        let objects: Vec<&EncodeObject<'_>> = batch.objects.iter().filter(is_needed).collect();
        let count = objects.len();
        let values = inputs.masks.reset_f32(&[count, side, side]);
        for (target, object) in values.chunks_exact_mut(side * side).zip(&objects) {
            target.copy_from_slice(object.mask.values());
            if is_tracked && !object.keeps_mask {
                target.iter_mut().for_each(|value| *value = value.min(NOT_KEPT));
            }
        }
        if is_tracked {
            // One by one, as the session has decided between them: the graph would do so again.
            outputs.planes.reset_to(ElementType::F32, &[count, 4 * side, 4 * side])?;
            for (index, mask) in inputs.masks.as_f32()?.chunks_exact(side * side).enumerate() {
                inputs.mask.reset_f32(&[1, side, side]).copy_from_slice(mask);
                let plane = &mut [(tensor::PLANES, &mut outputs.plane)];
                buckets.planes.run(&[(tensor::MASKS, &inputs.mask)], plane)?;
                buckets.writer.write(&mut outputs.planes, &outputs.plane, &[(index, 0)])?;
            }
        } else {
            let planes = &mut [(tensor::PLANES, &mut outputs.planes)];
            buckets.planes_stored.run(&[(tensor::MASKS, &inputs.masks)], planes)?;
        }
        let order = inputs.slots.reset::<i64>(&[slots.len(), BUCKET]);
        let valid = inputs.valid.reset::<bool>(&[slots.len(), BUCKET]);
        order.fill(0);
        valid.fill(false);
        for (index, object) in objects.iter().enumerate() {
            let Some(bucket) = slots.iter().position(|slot| *slot == object.slot) else { continue };
            let place = bucket * BUCKET + object.place;
            (order[place], valid[place]) = (index as i64, true);
        }
        let flags = |tensor: &mut Tensor, flag: fn(&EncodeObject<'_>) -> bool| {
            let flags = tensor.reset::<bool>(&[count]);
            flags.iter_mut().zip(&objects).for_each(|(target, object)| *target = flag(object));
        };
        flags(&mut inputs.present, |object| object.is_present);
        flags(&mut inputs.keep, |object| object.is_given);
        graphs.encoder.run(
            &[
                (tensor::MEMORY_PIXEL, &graphs.frame.memory_pixel),
                (tensor::PLANES, &outputs.planes),
                (tensor::ORDER, &inputs.slots),
                (tensor::VALID, &inputs.valid),
                (tensor::PRESENT, &inputs.present),
                (tensor::CONDITIONAL, &inputs.keep),
            ],
            &mut [(tensor::MEMORY, &mut outputs.memory)],
        )?;
        memories.write(rows, &outputs.memory)
    }
}
