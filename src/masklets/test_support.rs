//! Tests look into the memory of objects, and write into it.

use ocelli_engines::{Device, Tensor};
use ocelli_error::{Error, ErrorKind, Result};
use ocelli_tracking::masklets::{MemorySlot, PointerSlot};

use super::bank::{DeviceMemories, MemoryBank, mismatch};
use super::{MaskletNetwork, VideoSession};

impl MemoryBank {
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
        self.pointers.write(slot, 0, pointer, 0)
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

impl MaskletNetwork {
    /// The objects that each device tracks, on the frame before or on this one.
    pub fn objects(&self) -> Vec<usize> {
        self.devices.iter().map(super::network::DeviceNetwork::object_count).collect()
    }
}

impl VideoSession {
    /// The objects that each device follows, on the frame before or on this one.
    pub fn objects_on_devices(&self) -> Vec<usize> {
        self.network.objects()
    }
}
