//! The memory of objects: memories in one tensor, pointers in host memory.

use ocelli_engines::{Device, ElementType, RowWriter, Tensor};
use ocelli_tracking::masklets::{MemorySlot, PointerSlot};

use ocelli_error::{Error, ErrorKind, Result};

/// The rows of the first allocation: what one object needs for a few frames.
const FIRST_ROWS: usize = 8;

/// The memories and pointers of the objects of one session, by slot. It grows by doubling; a session names no more slots
/// than it needs at once.
pub(super) struct MemoryBank {
    /// `[S, P·P, memory width]`, on the device of the engines if they share one.
    memories: Tensor,
    device: Option<Device>,
    /// P·P and the width of a memory.
    row: [usize; 2],
    /// D.
    width: usize,
    /// `[slot, D]`.
    pointers: Vec<f32>,
    writer: RowWriter,
}

impl MemoryBank {
    pub(super) fn new(device: Option<Device>, row: [usize; 2], width: usize) -> Self {
        Self {
            memories: Tensor::empty(),
            device,
            row,
            width,
            pointers: Vec::new(),
            writer: RowWriter::rounding(),
        }
    }

    pub(super) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// `[S, P·P, memory width]`.
    pub(super) fn memories(&self) -> &Tensor {
        &self.memories
    }

    /// The number of memories that fit.
    pub(super) fn rows(&self) -> usize {
        if self.memories.is_empty() { 0 } else { self.memories.shape()[0] }
    }

    /// Writes the rows of `memory` `[B, P·P, memory width]` into these slots, in this order. They are rounded to bfloat16, as the
    /// reference keeps memories, but on NVIDIA GPUs.
    pub(super) fn write_memories(&mut self, slots: &[MemorySlot], memory: &Tensor) -> Result<()> {
        let Some(last) = slots.iter().max() else { return Ok(()) };
        if memory.shape() != [slots.len(), self.row[0], self.row[1]] {
            return Err(mismatch("memories", memory));
        }
        self.grow(last.0 + 1)?;
        if self.memories.device().is_some() || memory.device().is_some() {
            let rows: Vec<_> = slots.iter().enumerate().map(|(row, slot)| (slot.0, row)).collect();
            return self.writer.write(&mut self.memories, memory, &rows);
        }
        let count = self.row[0] * self.row[1];
        let (target, source) = (self.memories.as_f32_mut()?, memory.as_f32()?);
        for (slot, source) in slots.iter().zip(source.chunks_exact(count)) {
            let target = &mut target[slot.0 * count..][..count];
            target.iter_mut().zip(source).for_each(|(target, value)| *target = to_bf16(*value));
        }
        Ok(())
    }

    /// Writes a memory `[P·P, memory width]` that is in host memory into a slot.
    pub(super) fn set_memory(&mut self, slot: MemorySlot, memory: &Tensor) -> Result<()> {
        let row = Tensor::f32(&[1, self.row[0], self.row[1]], memory.as_f32()?.to_vec());
        self.write_memories(&[slot], &row.map_err(|_| mismatch("memories", memory))?)
    }

    /// One memory, in host memory.
    pub(super) fn memory(&self, slot: MemorySlot) -> Result<Tensor> {
        let row = self.memories.row(slot.0)?;
        let mut host = Tensor::empty();
        row.copy_to_host_into(&mut host)?;
        Ok(host)
    }

    /// Makes space for `least` memories.
    fn grow(&mut self, least: usize) -> Result<()> {
        let rows = self.rows();
        if rows >= least {
            return Ok(());
        }
        let more = least.max(2 * rows).max(FIRST_ROWS);
        let mut larger = self.device.clone().map_or_else(Tensor::empty, Tensor::on);
        larger.reset_to(ElementType::F32, &[more, self.row[0], self.row[1]])?;
        larger.copy_elements(0, &self.memories, 0, rows * self.row[0] * self.row[1])?;
        self.memories = larger;
        Ok(())
    }

    /// Writes row `index` of `pointers` `[B, D]` into the slot.
    pub(super) fn write_pointer(&mut self, slot: PointerSlot, pointers: &Tensor, index: usize) -> Result<()> {
        let width = self.width;
        let source = pointers.as_f32()?.get(index * width..(index + 1) * width);
        let source = source.ok_or_else(|| mismatch("pointers", pointers))?;
        let start = slot.0 * width;
        if self.pointers.len() < start + width {
            self.pointers.resize(start + width, 0.0);
        }
        self.pointers[start..][..width].copy_from_slice(source);
        Ok(())
    }

    /// One pointer; `None` if none was ever written there.
    pub(super) fn pointer(&self, slot: PointerSlot) -> Option<&[f32]> {
        self.pointers.get(slot.0 * self.width..(slot.0 + 1) * self.width)
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

/// Rounds to the nearest number of 8 bits, the even one on ties.
fn to_bf16(value: f32) -> f32 {
    if value.is_nan() {
        return value;
    }
    let bits = value.to_bits();
    f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
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

    #[test]
    fn a_bank_doubles_and_keeps_what_it_has() {
        let mut bank = MemoryBank::new(None, [2, 1], 3);
        let mut capacities = Vec::new();
        for slot in [0, 3, 8, 9, 40] {
            let value = slot as f32;
            bank.write_memories(&[MemorySlot(slot)], &rows(&[value, value + 0.5])).expect("it fits");
            capacities.push(bank.rows());
        }
        assert_eq!(capacities, [8, 8, 16, 16, 41]);
        for slot in [0, 3, 8, 9, 40] {
            assert_eq!(memory(&bank, slot), [slot as f32, slot as f32 + 0.5], "slot {slot}");
        }
        bank.write_memories(&[MemorySlot(2), MemorySlot(1)], &rows(&[1.0, 2.0, 3.0, 4.0])).expect("two rows");
        assert_eq!((memory(&bank, 2), memory(&bank, 1)), (vec![1.0, 2.0], vec![3.0, 4.0]));
        let error = bank.write_memories(&[MemorySlot(0), MemorySlot(1)], &rows(&[1.0, 2.0]));
        assert!(error.is_err(), "there is one row");
    }

    #[test]
    fn pointers_are_kept_by_slot() {
        let mut bank = MemoryBank::new(None, [2, 1], 3);
        let pointers = Tensor::f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("two pointers");
        bank.write_pointer(PointerSlot(2), &pointers, 1).expect("it has two");
        bank.write_pointer(PointerSlot(0), &pointers, 0).expect("it has two");
        assert_eq!(bank.pointer(PointerSlot(2)), Some(&[4.0, 5.0, 6.0][..]));
        assert_eq!(bank.pointer(PointerSlot(0)), Some(&[1.0, 2.0, 3.0][..]));
        assert_eq!(bank.pointer(PointerSlot(3)), None);
        assert!(bank.write_pointer(PointerSlot(0), &pointers, 2).is_err());
    }

    #[test]
    fn memories_are_rounded_to_16_bits() {
        let cases = [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.1 / 256.0, 1.0 + 2.0 / 256.0),
            (-0.1, -0.100_097_656),
            (0.0, 0.0),
        ];
        for (value, rounded) in cases {
            assert_eq!(to_bf16(value), rounded, "{value}");
        }
        assert!(to_bf16(f32::NAN).is_nan());
    }
}
