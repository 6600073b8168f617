//! Events on their way to another program, which never hold up the frames.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Events that may wait; further ones are left out and counted.
const QUEUE: usize = 256;
/// How long the end of a run waits for the events that are left.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends events on a thread of its own.
pub struct Delivery {
    /// The flag and where it sends to, for messages.
    name: String,
    queue: Option<SyncSender<Vec<u8>>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    offered: u64,
    delivered: Arc<AtomicU64>,
    error: Arc<Mutex<Option<String>>>,
}

impl Delivery {
    /// Starts a thread that calls `send` for one event after the other; it is dropped after the last one.
    pub fn start(name: String, mut send: impl FnMut(&[u8]) -> Result<(), String> + Send + 'static) -> Self {
        let (queue, waiting) = sync_channel::<Vec<u8>>(QUEUE);
        let (end, ended) = sync_channel::<()>(0);
        let (delivered, error) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let (count, last) = (Arc::clone(&delivered), Arc::clone(&error));
        std::thread::spawn(move || {
            let _end = end;
            for event in waiting {
                match send(&event) {
                    Ok(()) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(why) => *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why),
                }
            }
            drop(send);
        });
        Self { name, queue: Some(queue), ended, offered: 0, delivered, error }
    }

    /// Sends an event as soon as the earlier ones are sent, or leaves it out if too many wait.
    pub fn offer(&mut self, event: Vec<u8>) {
        self.offered += 1;
        if let Some(queue) = &self.queue {
            // What does not fit was not delivered, which the end reports.
            drop(queue.try_send(event));
        }
    }

    /// Waits for the last events, and reports those that were not delivered.
    pub fn finish(&mut self) {
        if self.queue.take().is_none() {
            return;
        }
        // Ends early once the thread has ended.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
        let lost = self.offered - self.delivered.load(Ordering::Relaxed);
        if lost > 0 {
            let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            let why = error.as_deref().unwrap_or("events came faster than it took them");
            tracing::warn!("{}: {lost} of {} events were not delivered: {why}", self.name, self.offered);
        }
    }
}
