//! The memory of objects: memories on the devices that track them, pointers in host memory.

use std::collections::HashMap;

use half::bf16;
use ocelli_engines::{Device, ElementType, RowWriter, Tensor};
use ocelli_tracking::masklets::{MemorySlot, ObjectId, PointerSlot};

use ocelli_error::{Error, Result};

/// The rows of the first allocation: what one object needs for a few frames.
const FIRST_ROWS: usize = 8;

/// The memories and pointers of the objects of one session, by slot. An object has all its memories on one device,
/// with those that share its bucket.
#[doc(hidden)]
pub struct MemoryBank {
    pub(super) devices: Vec<DeviceMemories>,
    /// The place of the memory of each slot.
    pub(super) places: Vec<Option<Place>>,
    pub(super) pointers: Pointers,
    /// The device of each object.
    pub(super) objects: HashMap<ObjectId, usize>,
    /// Of SAM 3.1, those of each device.
    pub(super) images: Vec<Images>,
}

/// The images of the frames that have memories, which SAM 3.1 reads with them.
pub(super) struct Images {
    rows: DeviceMemories,
    /// The frame of each row.
    of_rows: Vec<usize>,
    /// The frame of each memory slot.
    of_slots: HashMap<MemorySlot, usize>,
}

impl Images {
    /// All of them, `[F, P·P, D]`.
    pub(super) fn all(&self) -> &Tensor {
        &self.rows.memories
    }

    /// The row of a frame.
    pub(super) fn row(&self, frame: usize) -> Option<usize> {
        self.of_rows.iter().position(|known| *known == frame)
    }

    /// Keeps the image `[1, P·P, D]` of a frame for the memories that have just been written into `slots`. It replaces one that
    /// no memory needs.
    pub(super) fn write(&mut self, frame: usize, image: &Tensor, slots: &[MemorySlot]) -> Result<()> {
        self.of_slots.extend(slots.iter().map(|slot| (*slot, frame)));
        if self.row(frame).is_some() {
            return Ok(());
        }
        let is_free = |known: &usize| !self.of_slots.values().any(|frame| frame == known);
        let row = self.of_rows.iter().position(is_free).unwrap_or(self.of_rows.len());
        self.of_rows.resize(self.of_rows.len().max(row + 1), frame);
        self.of_rows[row] = frame;
        self.rows.write(&[row], image)
    }
}

/// The place of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: usize,
    pub(super) row: usize,
}

impl MemoryBank {
    /// A bank on these devices (`None`: host memory); `row` is P·P and the width of a memory, `width` is D. A memory is that of
    /// `places` objects: 1, or 16 in SAM 3.1.
    pub(super) fn new(devices: Vec<Option<Device>>, row: [usize; 2], width: usize, places: usize) -> Self {
        let images = |device: &Option<Device>| {
            let rows = DeviceMemories::new(device.clone(), [row[0], width], false);
            Images { rows, of_rows: Vec::new(), of_slots: HashMap::new() }
        };
        Self {
            images: devices.iter().filter(|_| places > 1).map(images).collect(),
            devices: devices.into_iter().map(|device| DeviceMemories::new(device, row, true)).collect(),
            places: Vec::new(),
            pointers: Pointers { width, places, values: Vec::new() },
            objects: HashMap::new(),
        }
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
            if let Some(images) = self.images.get_mut(before.device) {
                images.of_slots.remove(&slot);
            }
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
}

/// The memories on a device. They grow by doubling; a session names no more slots than it needs at once.
pub(super) struct DeviceMemories {
    /// `[S, P·P, memory width]`, on the device of the engines if they share one.
    pub(super) memories: Tensor,
    pub(super) device: Option<Device>,
    /// P·P and the width of a memory.
    pub(super) shape: [usize; 2],
    /// Rows that had a memory, and have none now.
    free: Vec<usize>,
    /// The rows that have had one.
    used: usize,
    /// Rounds them to bfloat16, as the reference keeps memories, but on NVIDIA GPUs.
    rounds: bool,
    writer: RowWriter,
}

impl DeviceMemories {
    fn new(device: Option<Device>, shape: [usize; 2], rounds: bool) -> Self {
        let writer = if rounds { RowWriter::rounding() } else { RowWriter::default() };
        Self { memories: Tensor::empty(), device, shape, free: Vec::new(), used: 0, rounds, writer }
    }

    /// The number of memories that fit.
    pub(super) fn rows(&self) -> usize {
        if self.memories.is_empty() { 0 } else { self.memories.shape()[0] }
    }

    /// Writes the rows of `memory` `[B, P·P, memory width]` into these rows, in this order.
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
            target.copy_from_slice(source);
            if self.rounds {
                target.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
            }
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
    /// Pointers of a slot.
    places: usize,
    /// `[slot, place, D]`.
    values: Vec<f32>,
}

impl Pointers {
    /// Numbers of a slot.
    pub(super) fn row(&self) -> usize {
        self.places * self.width
    }

    /// The pointers of a slot, 0 if none was ever written there.
    fn slot(&mut self, slot: PointerSlot) -> &mut [f32] {
        let (start, row) = (slot.0 * self.row(), self.row());
        self.values.resize(self.values.len().max(start + row), 0.0);
        &mut self.values[start..][..row]
    }

    /// Makes all pointers of a slot 0.
    pub(super) fn clear(&mut self, slot: PointerSlot) {
        self.slot(slot).fill(0.0);
    }

    /// Writes row `index` of `pointers` `[B, D]` into a place of the slot.
    pub(super) fn write(
        &mut self,
        slot: PointerSlot,
        place: usize,
        pointers: &Tensor,
        index: usize,
    ) -> Result<()> {
        let width = self.width;
        let source = pointers.as_f32()?.get(index * width..(index + 1) * width);
        let source = source.ok_or_else(|| mismatch("pointers", pointers))?;
        self.slot(slot)[place * width..][..width].copy_from_slice(source);
        Ok(())
    }

    /// The pointers of a slot; `None` if none was ever written there.
    pub(super) fn get(&self, slot: PointerSlot) -> Option<&[f32]> {
        self.values.get(slot.0 * self.row()..(slot.0 + 1) * self.row())
    }
}

pub(super) fn mismatch(what: &str, tensor: &Tensor) -> Error {
    let message = format!(
        "tracker output, {what} {:?}: expected a row for each object; the graph belongs to another model, export this one \
         again",
        tensor.shape()
    );
    Error::mismatch(message)
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
        let mut bank = MemoryBank::new(vec![None], [2, 1], 3, 1);
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
        let mut bank = MemoryBank::new(vec![None, None], [2, 1], 3, 1);
        write(&mut bank, 0, &[0, 1], &[1.0, 2.0, 3.0, 4.0]);
        write(&mut bank, 1, &[0], &[5.0, 6.0]);
        assert_eq!(bank.place(MemorySlot(0)), Some(Place { device: 1, row: 0 }));
        write(&mut bank, 0, &[2], &[7.0, 8.0]);
        assert_eq!(bank.place(MemorySlot(2)), Some(Place { device: 0, row: 0 }), "the row that was left");
        let all: Vec<_> = (0..3).map(|slot| memory(&bank, slot)).collect();
        assert_eq!(all, [[5.0, 6.0], [3.0, 4.0], [7.0, 8.0]]);
    }

    #[test]
    fn pointers_are_kept_by_slot_and_place() {
        let pointers = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("two pointers");
        for (places, place) in [(1, 0), (2, 1)] {
            let mut all = Pointers { width: 3, places, values: Vec::new() };
            all.write(PointerSlot(2), place, &pointers, 1).expect("it has two");
            all.write(PointerSlot(0), place, &pointers, 0).expect("it has two");
            let row = |values: [f32; 3]| Some([vec![0.0; 3 * place], values.to_vec()].concat());
            let found = |all: &Pointers, slot| all.get(PointerSlot(slot)).map(<[f32]>::to_vec);
            assert_eq!(found(&all, 2), row([4.0, 5.0, 6.0]));
            assert_eq!((found(&all, 0), found(&all, 3)), (row([1.0, 2.0, 3.0]), None));
            assert!(all.write(PointerSlot(0), place, &pointers, 2).is_err());
            all.clear(PointerSlot(2));
            assert_eq!(found(&all, 2), Some(vec![0.0; 3 * places]));
        }
    }

    #[test]
    fn an_image_is_kept_while_a_memory_of_its_frame_is_in_use() {
        let mut bank = MemoryBank::new(vec![None], [2, 1], 1, 16);
        let images = &mut bank.images[0];
        let image = |frame: usize| Tensor::f32(&[1, 2, 1], vec![0.1, frame as f32]).expect("two patches");
        for (frame, slots) in
            [(0, vec![0, 1]), (1, vec![2]), (2, vec![1]), (3, vec![0]), (3, vec![4]), (4, vec![3])]
        {
            let slots: Vec<_> = slots.into_iter().map(MemorySlot).collect();
            images.write(frame, &image(frame), &slots).expect("it fits");
        }
        // No memory is left of frame 0.
        let rows: Vec<_> = (0..5).map(|frame| images.row(frame)).collect();
        assert_eq!(rows, [None, Some(1), Some(2), Some(0), Some(3)]);
        let kept = images.all().as_f32().expect("images are f32");
        assert_eq!((kept[0], kept[1], kept[3]), (0.1, 3.0, 1.0), "they are not rounded");
    }
}
