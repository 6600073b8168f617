//! Limits how many frames are between the first stage and the last.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::threads::locked;

/// Counts the frames that have entered and not left.
pub(super) struct Gate {
    inside: Mutex<usize>,
    left: Condvar,
}

/// The place of a frame inside; dropping it makes room.
pub(super) struct Ticket(Arc<Gate>);

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inside: Mutex::new(0), left: Condvar::new() })
    }

    /// Waits until fewer than `limit` frames are inside; `None` once `keep_waiting` is false. Both are looked at again when a
    /// frame leaves, and when a thread [wakes](Self::wake) those that wait.
    pub(super) fn enter(
        self: &Arc<Self>,
        limit: impl Fn() -> usize,
        keep_waiting: impl Fn() -> bool,
    ) -> Option<Ticket> {
        let mut inside = locked(&self.inside);
        while *inside >= limit() {
            if !keep_waiting() {
                return None;
            }
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        *inside += 1;
        Some(Ticket(self.clone()))
    }

    /// Threads that wait look again whether they should.
    pub(super) fn wake(&self) {
        drop(locked(&self.inside));
        self.left.notify_all();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *locked(&self.0.inside) -= 1;
        self.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_frame_that_leaves_makes_room() {
        let gate = Gate::new();
        let first = gate.enter(|| 2, || false).expect("there is room");
        let second = gate.enter(|| 2, || false).expect("there is room");
        assert!(gate.enter(|| 2, || false).is_none());
        drop(first);
        let third = gate.enter(|| 2, || false).expect("one has left");
        assert!(gate.enter(|| 1, || false).is_none(), "the limit may fall");
        drop((second, third));
        assert!(gate.enter(|| 1, || false).is_some());
    }

    #[test]
    fn who_waits_is_woken_and_looks_again() {
        let (gate, keep_waiting) = (Gate::new(), Arc::new(AtomicBool::new(true)));
        let _inside = gate.enter(|| 1, || true).expect("there is room");
        let (sender, end) = std::sync::mpsc::channel();
        let (same, keep) = (gate.clone(), keep_waiting.clone());
        std::thread::spawn(move || sender.send(same.enter(|| 1, || keep.load(Relaxed)).is_none()));
        assert!(end.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        keep_waiting.store(false, Relaxed);
        gate.wake();
        assert_eq!(end.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
