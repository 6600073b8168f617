//! A bounded queue between two stages.
//!
//! Not a channel of the standard library, because three things are needed at once that no channel there has: the
//! newest taking the place of what waits, how many wait, and being closed from either end, or from outside.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::stats::{Stage, StatsRecorder};

/// How long a wait goes on before it looks whether it is still wanted.
const SLICE: Duration = Duration::from_millis(20);

/// What waits before a stage.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something was added, or the queue was closed.
    added: Condvar,
    /// Something was taken, or the queue was closed.
    taken: Condvar,
    capacity: usize,
    /// Whose queue it is, where that is counted.
    stage: Option<(Stage, StatsRecorder)>,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// What came of waiting for an item.
#[derive(Debug, PartialEq)]
pub(super) enum Popped<T> {
    Item(T),
    /// The queue is empty, and now nothing is added.
    Nothing,
    /// The queue is empty, and nothing ever will be added.
    Ended,
}

impl<T> Queue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let items = VecDeque::with_capacity(capacity);
        Self {
            state: Mutex::new(State { items, closed: false }),
            added: Condvar::new(),
            taken: Condvar::new(),
            capacity,
            stage: None,
        }
    }

    /// The same, telling `stats` what waits before `stage`.
    pub(super) fn before(stage: Stage, capacity: usize, stats: &StatsRecorder) -> Self {
        stats.queue(stage, capacity);
        Self { stage: Some((stage, stats.clone())), ..Self::new(capacity) }
    }

    /// Adds an item, waiting for room while `wanted`; gives it back where the queue is closed or it is not wanted.
    pub(super) fn push(&self, item: T, wanted: impl Fn() -> bool) -> Result<(), T> {
        let mut state = self.lock();
        while !state.closed && state.items.len() >= self.capacity {
            if !wanted() {
                return Err(item);
            }
            state = self.taken.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.add(state, item)
    }

    /// Adds an item; where there is no room, what has waited longest makes room and is given back.
    pub(super) fn push_latest(&self, item: T) -> Result<Option<T>, T> {
        let mut state = self.lock();
        let full = !state.closed && state.items.len() >= self.capacity;
        let replaced = if full { state.items.pop_front() } else { None };
        self.add(state, item).map(|()| replaced)
    }

    fn add(&self, mut state: MutexGuard<'_, State<T>>, item: T) -> Result<(), T> {
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        if let Some((stage, stats)) = &self.stage {
            stats.queued(*stage, state.items.len());
        }
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Takes the item that has waited longest, waiting for one; none when there will be no more.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                self.removed(state);
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`pop`](Self::pop), but waits for at most `timeout`, and only while `wanted`.
    pub(super) fn pop_timeout(&self, timeout: Duration, wanted: impl Fn() -> bool) -> Popped<T> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                self.removed(state);
                return Popped::Item(item);
            }
            if state.closed {
                return Popped::Ended;
            }
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() || !wanted() {
                return Popped::Nothing;
            }
            let slice = left.min(SLICE);
            state = self.added.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn removed(&self, state: MutexGuard<'_, State<T>>) {
        if let Some((stage, stats)) = &self.stage {
            stats.unqueued(*stage, state.items.len());
        }
        drop(state);
        self.taken.notify_one();
    }

    /// Nothing can be added any more; what waits can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.added.notify_all();
        self.taken.notify_all();
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.lock().items.len() >= self.capacity
    }

    /// Whether nothing can be added any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether it is closed and empty.
    pub(super) fn is_ended(&self) -> bool {
        let state = self.lock();
        state.closed && state.items.is_empty()
    }

    /// Whether an item that waits is like this.
    pub(super) fn any(&self, like: impl Fn(&T) -> bool) -> bool {
        self.lock().items.iter().any(like)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    #[test]
    fn items_leave_in_order_and_the_last_ones_after_closing() {
        let queue = Queue::new(3);
        for item in 0..3 {
            assert_eq!(queue.push(item, || true), Ok(()));
        }
        assert!(queue.is_full() && queue.any(|&item| item == 2));
        assert_eq!(queue.push(3, || false), Err(3), "no room, and nobody who wants to wait");
        queue.close();
        assert_eq!(queue.push(4, || true), Err(4));
        assert_eq!(queue.push_latest(4), Err(4));
        assert!(!queue.is_ended());
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1)));
        assert_eq!(queue.pop_timeout(NO_TIME, || true), Popped::Item(2));
        assert_eq!(queue.pop_timeout(Duration::MAX, || true), Popped::Ended);
        assert_eq!(queue.pop(), None);
        assert!(queue.is_ended());
    }

    #[test]
    fn the_newest_takes_the_place_of_the_oldest() {
        let stats = StatsRecorder::new();
        stats.stage(Stage::Backbone, Duration::ZERO);
        let queue = Queue::before(Stage::Backbone, 2, &stats);
        assert_eq!(
            (0..4).map(|i| queue.push_latest(i)).collect::<Vec<_>>(),
            [Ok(None), Ok(None), Ok(Some(0)), Ok(Some(1))]
        );
        assert_eq!((queue.pop(), queue.pop()), (Some(2), Some(3)));
        let seen = stats.snapshot().stages[0].queue.expect("it has a queue");
        assert_eq!((seen.depth, seen.max, seen.capacity, seen.mean), (0, 2, 2, 1.75));
    }

    #[test]
    fn whoever_waits_is_woken() {
        let queue = Queue::new(1);
        assert_eq!(queue.pop_timeout(NO_TIME, || true), Popped::Nothing);
        assert_eq!(queue.pop_timeout(Duration::MAX, || false), Popped::Nothing);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for item in 0..100 {
                    queue.push(item, || true).expect("it is open");
                }
                queue.close();
            });
            let mut next = 0;
            while let Some(item) = queue.pop() {
                assert_eq!(item, next);
                next += 1;
            }
            assert_eq!(next, 100);
        });
    }
}
