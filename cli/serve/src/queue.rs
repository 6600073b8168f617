//! The queue in front of the engine: clients take turns, and what nobody waits for any more is skipped.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, PoisonError};

use ocelli::locked;

/// Jobs of several clients. A client with many jobs does not delay another with one: their jobs alternate. The jobs of one
/// client keep their order. How many there are is limited by the slots that requests hold.
pub(crate) struct Queue<J> {
    /// `true` if nobody waits for it any more.
    is_abandoned: fn(&J) -> bool,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    /// The clients that have jobs, with these, the next one first.
    turns: VecDeque<(IpAddr, VecDeque<J>)>,
    is_closed: bool,
}

impl<J> Queue<J> {
    pub fn new(is_abandoned: fn(&J) -> bool) -> Self {
        let state = State { turns: VecDeque::new(), is_closed: false };
        Self { is_abandoned, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a job; it is dropped if the queue is closed.
    pub fn push(&self, client: IpAddr, job: J) {
        let mut state = locked(&self.state);
        if state.is_closed {
            return;
        }
        match state.turns.iter_mut().find(|(other, _)| *other == client) {
            Some((_, jobs)) => jobs.push_back(job),
            None => state.turns.push_back((client, VecDeque::from([job]))),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next job; `None` once the queue is closed.
    pub fn pop(&self) -> Option<J> {
        let mut state = locked(&self.state);
        loop {
            if state.is_closed {
                return None;
            }
            while let Some((client, mut jobs)) = state.turns.pop_front() {
                let job = jobs.pop_front();
                if !jobs.is_empty() {
                    state.turns.push_back((client, jobs));
                }
                if let Some(job) = job.filter(|job| !(self.is_abandoned)(job)) {
                    return Some(job);
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The number of jobs that somebody waits for.
    pub fn len(&self) -> usize {
        let state = locked(&self.state);
        let jobs = state.turns.iter().flat_map(|(_, jobs)| jobs);
        jobs.filter(|job| !(self.is_abandoned)(job)).count()
    }

    /// Drops all jobs and ends those who wait for one.
    pub fn close(&self) {
        let mut state = locked(&self.state);
        state.is_closed = true;
        state.turns.clear();
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_abandoned_jobs_are_skipped() {
        let queue = Queue::new(|job: &(u8, bool)| job.1);
        let client = |number: u8| IpAddr::from([127, 0, 0, number]);
        for job in 0..4 {
            queue.push(client(1), (job, job == 1));
        }
        queue.push(client(2), (10, false));
        queue.push(client(3), (20, true));
        queue.push(client(2), (11, false));
        assert_eq!(queue.len(), 5);
        let order: Vec<u8> = (0..5).filter_map(|_| queue.pop()).map(|job| job.0).collect();
        assert_eq!(order, [0, 10, 11, 2, 3]);
        queue.close();
        assert_eq!(queue.pop(), None);
    }
}
