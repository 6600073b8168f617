//! Tests count the slots that a session uses.

use crate::masklets::MaskletSession;
use crate::masklets::slots::SlotPool;

impl SlotPool {
    /// The most indices that were ever in use at a time.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn in_use(&self) -> usize {
        self.capacity - self.free.len()
    }
}

impl MaskletSession {
    /// The memory slots and pointer slots that the network needs: the indices are below these.
    pub fn slot_counts(&self) -> [usize; 2] {
        [self.tracks.slots.memories.capacity(), self.tracks.slots.pointers.capacity()]
    }

    /// The memory slots and pointer slots in use.
    pub fn slots_in_use(&self) -> [usize; 2] {
        [self.tracks.slots.memories.in_use(), self.tracks.slots.pointers.in_use()]
    }
}
