//! The memory of objects: memories on the devices that track them, pointers in host memory.

use std::collections::HashMap;

use half::bf16;
use ocelli_engines::{Device, ElementType, RowWriter, Tensor};
use ocelli_tracking::masklets::{MemorySlot, ObjectId, PointerSlot};

use ocelli_error::{Error, ErrorKind, Result};

/// The rows of the first allocation: what one object needs for a few frames.
const FIRST_ROWS: usize = 8;

/// The memories and pointers of the objects of one session, by slot. An object has all its memories on one device.
#[doc(hidden)]
pub struct MemoryBank {
    pub(super) devices: Vec<DeviceMemories>,
    /// Where the memory of each slot is.
    pub(super) places: Vec<Option<Place>>,
    pub(super) pointers: Pointers,
    /// The device of each object.
    pub(super) objects: HashMap<ObjectId, usize>,
}

/// Where a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: usize,
    pub(super) row: usize,
}

impl MemoryBank {
    /// A bank on these devices (`None`: host memory); `row` is P·P and the width of a memory, `width` is D.
    pub(super) fn new(
        devices: impl IntoIterator<Item = Option<Device>>,
        row: [usize; 2],
        width: usize,
    ) -> Self {
        Self {
            devices: devices.into_iter().map(|device| DeviceMemories::new(device, row)).collect(),
            places: Vec::new(),
            pointers: Pointers { width, values: Vec::new() },
            objects: HashMap::new(),
        }
    }

    /// The number of memories that fit, on all devices.
    pub fn rows(&self) -> usize {
        self.devices.iter().map(DeviceMemories::rows).sum()
    }

    /// The device of the memories, if it is one with its own memory.
    pub fn device(&self) -> Option<&Device> {
        self.devices.first().and_then(|memories| memories.device.as_ref())
    }

    /// A pointer that was written.
    pub fn pointer(&self, slot: PointerSlot) -> Option<&[f32]> {
        self.pointers.get(slot)
    }

    /// Replaces a pointer.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if it has another size.
    pub fn set_pointer(&mut self, slot: PointerSlot, pointer: &Tensor) -> Result<()> {
        self.pointers.write(slot, pointer, 0)
    }

    pub(super) fn place(&self, slot: MemorySlot) -> Option<Place> {
        self.places.get(slot.0).copied().flatten()
    }

    /// The row of a device where the memory of a slot is written. What the slot had on another device is free then.
    pub(super) fn claim(&mut self, slot: MemorySlot, device: usize) -> usize {
        let before = self.place(slot);
        if let Some(before) = before {
            if before.device == device {
                return before.row;
            }
            self.devices[before.device].free.push(before.row);
        }
        let memories = &mut self.devices[device];
        let row = memories.free.pop().unwrap_or(memories.used);
        memories.used = memories.used.max(row + 1);
        if self.places.len() <= slot.0 {
            self.places.resize(slot.0 + 1, None);
        }
        self.places[slot.0] = Some(Place { device, row });
        row
    }

    /// Writes a memory `[P·P, memory width]` that is in host memory into a slot.
    pub fn set_memory(&mut self, slot: MemorySlot, memory: &Tensor) -> Result<()> {
        let device = self.place(slot).map_or(0, |place| place.device);
        let [patches, width] = self.devices[device].shape;
        let memory = Tensor::f32(&[1, patches, width], memory.as_f32()?.to_vec())
            .map_err(|_| mismatch("memories", memory))?;
        let row = self.claim(slot, device);
        self.devices[device].write(&[row], &memory)
    }

    /// One memory, in host memory.
    pub fn memory(&self, slot: MemorySlot) -> Result<Tensor> {
        let place = self.place(slot).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("memory slot {} was never written", slot.0))
        })?;
        let row = self.devices[place.device].memories.row(place.row)?;
        let mut host = Tensor::empty();
        row.copy_to_host_into(&mut host)?;
        Ok(host)
    }
}

/// The memories on a device. They grow by doubling; a session names no more slots than it needs at once.
pub(super) struct DeviceMemories {
    /// `[S, P·P, memory width]`, on the device of the engines if they share one.
    pub(super) memories: Tensor,
    device: Option<Device>,
    /// P·P and the width of a memory.
    shape: [usize; 2],
    /// Rows that had a memory, and have none now.
    free: Vec<usize>,
    /// The rows that have had one.
    used: usize,
    writer: RowWriter,
}

impl DeviceMemories {
    fn new(device: Option<Device>, shape: [usize; 2]) -> Self {
        let writer = RowWriter::rounding();
        Self { memories: Tensor::empty(), device, shape, free: Vec::new(), used: 0, writer }
    }

    /// The number of memories that fit.
    fn rows(&self) -> usize {
        if self.memories.is_empty() { 0 } else { self.memories.shape()[0] }
    }

    /// Writes the rows of `memory` `[B, P·P, memory width]` into these rows, in this order. They are rounded to bfloat16, as the
    /// reference keeps memories, but on NVIDIA GPUs.
    pub(super) fn write(&mut self, rows: &[usize], memory: &Tensor) -> Result<()> {
        let Some(last) = rows.iter().max() else { return Ok(()) };
        if memory.shape() != [rows.len(), self.shape[0], self.shape[1]] {
            return Err(mismatch("memories", memory));
        }
        self.grow(last + 1)?;
        if self.memories.device().is_some() || memory.device().is_some() {
            let rows: Vec<_> = rows.iter().enumerate().map(|(source, row)| (*row, source)).collect();
            return self.writer.write(&mut self.memories, memory, &rows);
        }
        let count = self.shape[0] * self.shape[1];
        let (target, source) = (self.memories.as_mut_slice::<f32>()?, memory.as_f32()?);
        for (row, source) in rows.iter().zip(source.chunks_exact(count)) {
            let target = &mut target[row * count..][..count];
            target
                .iter_mut()
                .zip(source)
                .for_each(|(target, value)| *target = bf16::from_f32(*value).to_f32());
        }
        Ok(())
    }

    /// Makes space for `least` memories.
    fn grow(&mut self, least: usize) -> Result<()> {
        let rows = self.rows();
        if rows >= least {
            return Ok(());
        }
        let more = least.max(2 * rows).max(FIRST_ROWS);
        let mut larger = self.device.clone().map_or_else(Tensor::empty, Tensor::on);
        larger.reset_to(ElementType::F32, &[more, self.shape[0], self.shape[1]])?;
        larger.copy_elements(0, &self.memories, 0, rows * self.shape[0] * self.shape[1])?;
        self.memories = larger;
        Ok(())
    }
}

/// The pointers of objects, by slot.
pub(super) struct Pointers {
    /// D.
    width: usize,
    /// `[slot, D]`.
    values: Vec<f32>,
}

impl Pointers {
    /// Writes row `index` of `pointers` `[B, D]` into the slot.
    pub(super) fn write(&mut self, slot: PointerSlot, pointers: &Tensor, index: usize) -> Result<()> {
        let width = self.width;
        let source = pointers.as_f32()?.get(index * width..(index + 1) * width);
        let source = source.ok_or_else(|| mismatch("pointers", pointers))?;
        let start = slot.0 * width;
        if self.values.len() < start + width {
            self.values.resize(start + width, 0.0);
        }
        self.values[start..][..width].copy_from_slice(source);
        Ok(())
    }

    /// One pointer; `None` if none was ever written there.
    pub(super) fn get(&self, slot: PointerSlot) -> Option<&[f32]> {
        self.values.get(slot.0 * self.width..(slot.0 + 1) * self.width)
    }
}

fn mismatch(what: &str, tensor: &Tensor) -> Error {
    let message = format!(
        "tracker output, {what} {:?}: expected a row for each object; the graph belongs to another model, export this one \
         again",
        tensor.shape()
    );
    Error::new(ErrorKind::Mismatch, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Tensor {
        Tensor::f32(&[values.len() / 2, 2, 1], values.to_vec()).expect("rows of two")
    }

    fn memory(bank: &MemoryBank, slot: usize) -> Vec<f32> {
        let memory = bank.memory(MemorySlot(slot)).expect("the slot was written");
        memory.as_f32().expect("memories are f32").to_vec()
    }

    fn write(bank: &mut MemoryBank, device: usize, slots: &[usize], values: &[f32]) {
        let places: Vec<_> = slots.iter().map(|slot| bank.claim(MemorySlot(*slot), device)).collect();
        bank.devices[device].write(&places, &rows(values)).expect("it fits");
    }

    #[test]
    fn a_bank_doubles_and_keeps_what_it_has() {
        let mut bank = MemoryBank::new([None], [2, 1], 3);
        let mut capacities = Vec::new();
        for slot in [0, 3, 8, 9, 40, 1, 2, 4, 5] {
            let value = slot as f32;
            write(&mut bank, 0, &[slot], &[value, value + 0.5]);
            capacities.push(bank.rows());
        }
        assert_eq!(capacities, [8, 8, 8, 8, 8, 8, 8, 8, 16]);
        for slot in [0, 3, 8, 9, 40, 1, 2, 4, 5] {
            assert_eq!(memory(&bank, slot), [slot as f32, slot as f32 + 0.5], "slot {slot}");
        }
        write(&mut bank, 0, &[2, 1], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!((memory(&bank, 2), memory(&bank, 1)), (vec![1.0, 2.0], vec![3.0, 4.0]));
        let error = bank.devices[0].write(&[0, 1], &rows(&[1.0, 2.0]));
        assert!(error.is_err(), "there is one row");
        assert!(bank.memory(MemorySlot(7)).is_err(), "it was never written");
    }

    #[test]
    fn a_slot_that_another_device_writes_leaves_its_row_to_the_next() {
        let mut bank = MemoryBank::new([None, None], [2, 1], 3);
        write(&mut bank, 0, &[0, 1], &[1.0, 2.0, 3.0, 4.0]);
        write(&mut bank, 1, &[0], &[5.0, 6.0]);
        assert_eq!(bank.place(MemorySlot(0)), Some(Place { device: 1, row: 0 }));
        write(&mut bank, 0, &[2], &[7.0, 8.0]);
        assert_eq!(bank.place(MemorySlot(2)), Some(Place { device: 0, row: 0 }), "the row that was left");
        let all: Vec<_> = (0..3).map(|slot| memory(&bank, slot)).collect();
        assert_eq!(all, [[5.0, 6.0], [3.0, 4.0], [7.0, 8.0]]);
    }

    #[test]
    fn pointers_are_kept_by_slot() {
        let mut all = Pointers { width: 3, values: Vec::new() };
        let pointers = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("two pointers");
        all.write(PointerSlot(2), &pointers, 1).expect("it has two");
        all.write(PointerSlot(0), &pointers, 0).expect("it has two");
        assert_eq!(all.get(PointerSlot(2)), Some(&[4.0, 5.0, 6.0][..]));
        assert_eq!(all.get(PointerSlot(0)), Some(&[1.0, 2.0, 3.0][..]));
        assert_eq!(all.get(PointerSlot(3)), None);
        assert!(all.write(PointerSlot(0), &pointers, 2).is_err());
    }
}
