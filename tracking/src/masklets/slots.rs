//! Slots of the network's bank.

/// Hands out indices, the ones that were given back first.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotPool {
    pub(super) free: Vec<usize>,
    /// The most indices that were ever in use at a time.
    pub(super) capacity: usize,
}

impl SlotPool {
    pub(crate) fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.capacity += 1;
            self.capacity - 1
        })
    }

    pub(crate) fn give_back(&mut self, slot: usize) {
        debug_assert!(slot < self.capacity && !self.free.contains(&slot), "slot {slot} is not in use");
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut pool = SlotPool::default();
        assert_eq!([pool.take(), pool.take(), pool.take()], [0, 1, 2]);
        pool.give_back(1);
        assert_eq!((pool.capacity(), pool.in_use()), (3, 2));
        assert_eq!([pool.take(), pool.take()], [1, 3]);
    }
}
