//! Events on their way to another program, which never hold up the frames.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ocelli::locked;

/// Events that may wait; further ones are left out and counted.
const QUEUE: usize = 256;
/// Time that the end of a run waits for the events that are left.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells whether events arrive. The first failure is reported at once, and so is the first event that arrives after it.
pub struct Health {
    name: String,
    is_down: bool,
}

impl Health {
    /// Takes how an event, or what events need, has ended: after a failure others may follow.
    pub fn report(&mut self, failure: Option<&str>) {
        if let Some(line) = self.change(failure) {
            tracing::warn!("{line}");
        }
    }

    /// The message, if this is news.
    fn change(&mut self, failure: Option<&str>) -> Option<String> {
        let was_down = std::mem::replace(&mut self.is_down, failure.is_some());
        match failure {
            Some(why) if !was_down => {
                Some(format!("{}: {why}; each event is tried for some seconds", self.name))
            }
            None if was_down => Some(format!("{}: events arrive again", self.name)),
            _ => None,
        }
    }
}

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
    /// Starts a thread that calls what `open` returns for one event after the other, and drops it after the last one.
    pub fn start<S: FnMut(&[u8], &mut Health) -> Result<(), String>>(
        name: String,
        open: impl FnOnce(&mut Health) -> S + Send + 'static,
    ) -> Self {
        let (queue, waiting) = sync_channel::<Vec<u8>>(QUEUE);
        let (end, ended) = sync_channel::<()>(0);
        let (delivered, error) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let (count, last) = (Arc::clone(&delivered), Arc::clone(&error));
        let mut health = Health { name: name.clone(), is_down: false };
        std::thread::spawn(move || {
            let _end = end;
            let mut send = open(&mut health);
            for event in waiting {
                let sent = send(&event, &mut health);
                health.report(sent.as_ref().err().map(String::as_str));
                match sent {
                    Ok(()) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(why) => *locked(&last) = Some(why),
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
        if self.queue.take().is_none() || self.offered == 0 {
            return;
        }
        // Ends early once the thread has ended.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
        let lost = self.offered - self.delivered.load(Ordering::Relaxed);
        if lost > 0 {
            let error = locked(&self.error);
            let why = error.as_deref().unwrap_or("events came faster than it took them");
            tracing::warn!("{}: {lost} of {} events were not delivered: {why}", self.name, self.offered);
        }
    }
}

/// The longest time of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses before each further attempt.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Starts the delivery of `--webhook`; the first event opens a connection.
///
/// # Errors
/// If the URL is not one of HTTP.
pub fn start_webhook(url: &str) -> anyhow::Result<Delivery> {
    if !url.starts_with("http://") {
        let why = "expected http://…; for https, name a relay in your network";
        refuse!("--webhook, {url}: {why}");
    }
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(REQUEST_TIMEOUT)).build().into();
    let to = url.to_owned();
    Ok(Delivery::start(format!("--webhook, {url}"), move |_| {
        move |event: &[u8], health: &mut Health| send(&agent, &to, event, health)
    }))
}

/// Sends an event, again after a pause if that may help.
fn send(agent: &ureq::Agent, url: &str, event: &[u8], health: &mut Health) -> Result<(), String> {
    let mut pauses = PAUSES.iter();
    loop {
        let error = match agent.post(url).header("content-type", "application/json").send(event) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let is_refusal = matches!(error, ureq::Error::StatusCode(status) if (400..500).contains(&status));
        match pauses.next().filter(|_| !is_refusal) {
            Some(pause) => {
                health.report(Some(&error.to_string()));
                std::thread::sleep(*pause);
            }
            None => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Health;

    #[test]
    fn a_failure_and_its_end_are_reported_once() {
        let mut health = Health { name: "--mqtt, x".into(), is_down: false };
        for (failure, expected) in [
            (None, None),
            (Some("refused"), Some("--mqtt, x: refused")),
            (Some("refused"), None),
            (None, Some("--mqtt, x: events arrive again")),
            (None, None),
            (Some("timed out"), Some("--mqtt, x: timed out")),
        ] {
            let line = health.change(failure);
            let is_expected = |line: &String| expected.is_some_and(|start| line.starts_with(start));
            assert_eq!(line.as_ref().is_some_and(is_expected), line.is_some(), "{failure:?}: {line:?}");
            assert_eq!(line.is_some(), expected.is_some(), "{failure:?}: {line:?}");
        }
    }
}
