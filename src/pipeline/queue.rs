//! A bounded queue between two stages.
//!
//! The standard library's channels lack three things that a pipeline needs: dropping the oldest item in favour of the
//! newest, reporting how many items wait, and being closed from either end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::FramePolicy;
use super::stats::StatsRecorder;
use crate::threads::{Stage, locked};

/// A bounded queue of waiting items.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Notified when an item is added or removed, and when the queue is closed.
    changed: Condvar,
    capacity: usize,
    policy: FramePolicy,
    /// The stage that takes the items, and where its queue length is recorded.
    stage: Option<(Stage, StatsRecorder)>,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(capacity: usize, policy: FramePolicy) -> Self {
        let state = Mutex::new(State { items: VecDeque::with_capacity(capacity), closed: false });
        Self { state, changed: Condvar::new(), capacity, policy, stage: None }
    }

    /// A queue before `stage`, whose length is recorded in `stats`.
    pub(super) fn before(stage: Stage, capacity: usize, policy: FramePolicy, stats: &StatsRecorder) -> Self {
        stats.queue(stage, capacity);
        Self { stage: Some((stage, stats.clone())), ..Self::new(capacity, policy) }
    }

    /// The stage that takes the items; `None` if the caller of the pipeline does.
    pub(super) fn stage(&self) -> Option<Stage> {
        self.stage.as_ref().map(|(stage, _)| *stage)
    }

    /// Adds an item. If the queue is full, [`FramePolicy::All`] waits for room while `keep_waiting` is true ([`wake`](Self::wake)
    /// has it asked again), and
    /// [`FramePolicy::Latest`] removes and returns the oldest item. `Err` returns the new item: the queue is closed, or
    /// waiting was given up.
    pub(super) fn push(&self, item: T, keep_waiting: impl Fn() -> bool) -> Result<Option<T>, T> {
        let mut state = locked(&self.state);
        let mut replaced = None;
        while !state.closed && state.items.len() >= self.capacity {
            if self.policy == FramePolicy::Latest {
                replaced = state.items.pop_front();
            } else if keep_waiting() {
                state = self.wait(state, None);
            } else {
                return Err(item);
            }
        }
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        if let Some((stage, stats)) = &self.stage {
            stats.queued(*stage, state.items.len());
        }
        self.changed.notify_all();
        Ok(replaced)
    }

    /// Removes the oldest item, waiting for one; `None` once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        self.pop_timeout(Duration::MAX, || true)
    }

    /// As [`pop`](Self::pop), but waits at most `timeout`, and only while `keep_waiting` is true.
    pub(super) fn pop_timeout(&self, timeout: Duration, keep_waiting: impl Fn() -> bool) -> Option<T> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = locked(&self.state);
        while state.items.is_empty() && !state.closed {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) || !keep_waiting() {
                break;
            }
            state = self.wait(state, left);
        }
        let item = state.items.pop_front()?;
        if let Some((stage, stats)) = &self.stage {
            stats.unqueued(*stage, state.items.len());
        }
        self.changed.notify_all();
        Some(item)
    }

    /// Closes the queue: nothing can be added any more, but waiting items can still be taken.
    pub(super) fn close(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is room, the queue is closed, or `keep_waiting` is false.
    pub(super) fn wait_for_room(&self, keep_waiting: impl Fn() -> bool) {
        let mut state = locked(&self.state);
        while !state.closed && state.items.len() >= self.capacity && keep_waiting() {
            state = self.wait(state, None);
        }
    }

    /// `true` if an item added now would have to wait for room.
    pub(super) fn would_block(&self) -> bool {
        let state = locked(&self.state);
        self.policy == FramePolicy::All && !state.closed && state.items.len() >= self.capacity
    }

    /// The answer of `found` for a waiting item, if an item added now would replace the oldest one.
    pub(super) fn would_replace<R>(&self, found: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let state = locked(&self.state);
        let is_full = self.policy == FramePolicy::Latest && state.items.len() >= self.capacity;
        if is_full { state.items.iter().find_map(found) } else { None }
    }

    /// `true` if the queue is closed.
    pub(super) fn is_closed(&self) -> bool {
        locked(&self.state).closed
    }

    /// `true` if the queue is closed and empty.
    pub(super) fn is_ended(&self) -> bool {
        let state = locked(&self.state);
        state.closed && state.items.is_empty()
    }

    /// Threads that wait look again whether they should.
    pub(super) fn wake(&self) {
        drop(locked(&self.state));
        self.changed.notify_all();
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<T>>, time: Option<Duration>) -> MutexGuard<'s, State<T>> {
        match time {
            Some(time) => self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FramePolicy::{All, Latest};
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    #[test]
    fn items_leave_in_order_even_after_the_queue_is_closed() {
        let queue = Queue::new(3, All);
        for item in 0..3 {
            assert_eq!(queue.push(item, || true), Ok(None));
        }
        assert!(queue.would_block() && queue.would_replace(|_| Some(())).is_none());
        assert_eq!(queue.push(3, || false), Err(3), "the queue is full and waiting was given up");
        queue.close();
        assert_eq!(queue.push(4, || true), Err(4));
        assert!(!queue.is_ended() && !queue.would_block());
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1)));
        assert_eq!(queue.pop_timeout(NO_TIME, || true), Some(2));
        assert!(queue.is_ended());
        assert_eq!(queue.pop_timeout(Duration::MAX, || true), None);
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn with_the_latest_policy_a_new_item_replaces_the_oldest() {
        let stats = StatsRecorder::new();
        stats.stage(Stage::Backbone, Duration::ZERO);
        let queue = Queue::before(Stage::Backbone, 2, Latest, &stats);
        assert_eq!(
            (0..4).map(|i| queue.push(i, || false)).collect::<Vec<_>>(),
            [Ok(None), Ok(None), Ok(Some(0)), Ok(Some(1))]
        );
        let would_replace = |wanted| queue.would_replace(|&item| (item == wanted).then_some(item));
        assert_eq!((would_replace(3), would_replace(1)), (Some(3), None));
        assert_eq!((queue.pop(), queue.pop()), (Some(2), Some(3)));
        let seen = stats.snapshot().stages[0].queue.expect("the stage has a queue");
        assert_eq!((seen.depth, seen.max, seen.capacity, seen.mean), (0, 2, 2, 1.75));
        queue.close();
        assert_eq!(queue.push(4, || true), Err(4));
    }

    #[test]
    fn waiting_threads_wake_up() {
        let queue = Queue::new(1, All);
        assert_eq!(queue.pop_timeout(NO_TIME, || true), None);
        assert_eq!(queue.pop_timeout(Duration::MAX, || false), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for item in 0..100 {
                    queue.push(item, || true).expect("the queue is open");
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
