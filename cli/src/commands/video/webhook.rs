//! `--webhook`: events as HTTP requests, which never hold up the frames.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::usage;

/// Events that may wait; further ones are left out and counted.
const QUEUE: usize = 256;
/// How long a request may take, and how long the end of a run waits for those that are left.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before each further attempt.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Sends events on a thread of its own.
pub struct Webhook {
    url: String,
    queue: Option<SyncSender<Vec<u8>>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    offered: u64,
    delivered: Arc<AtomicU64>,
    error: Arc<Mutex<Option<String>>>,
}

impl Webhook {
    /// Starts the thread; the first event opens a connection.
    ///
    /// # Errors
    /// If the URL is not one of HTTP.
    pub fn start(url: &str) -> anyhow::Result<Self> {
        if !url.starts_with("http://") {
            let why = "expected http://…; for https, name a relay in your network";
            return Err(usage(format!("--webhook, {url}: {why}")));
        }
        let (queue, waiting) = sync_channel::<Vec<u8>>(QUEUE);
        let (end, ended) = sync_channel::<()>(0);
        let (delivered, error) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let (to, count, last) = (url.to_owned(), Arc::clone(&delivered), Arc::clone(&error));
        std::thread::spawn(move || {
            let _end = end;
            let agent: ureq::Agent =
                ureq::Agent::config_builder().timeout_global(Some(REQUEST_TIMEOUT)).build().into();
            for event in waiting {
                match send(&agent, &to, &event) {
                    Ok(()) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(why) => *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(why),
                }
            }
        });
        Ok(Self { url: url.to_owned(), queue: Some(queue), ended, offered: 0, delivered, error })
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
            tracing::warn!(
                "--webhook, {}: {lost} of {} events were not delivered: {why}",
                self.url,
                self.offered
            );
        }
    }
}

/// Sends an event, again after a pause if that may help.
fn send(agent: &ureq::Agent, url: &str, event: &[u8]) -> Result<(), String> {
    let mut pauses = PAUSES.iter();
    loop {
        let error = match agent.post(url).header("content-type", "application/json").send(event) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let is_refusal = matches!(error, ureq::Error::StatusCode(status) if (400..500).contains(&status));
        match pauses.next().filter(|_| !is_refusal) {
            Some(pause) => std::thread::sleep(*pause),
            None => return Err(error.to_string()),
        }
    }
}
