//! `--mqtt`: events as messages of an MQTT broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rumqttc::{Client, Connection, Event, MqttOptions, Packet, QoS};
use ureq::http::Uri;

use super::delivery::Delivery;
use crate::usage;

const PORT: u16 = 1883;
/// The variable with the password of the user that the URL names.
const PASSWORD: &str = "OCELLI_MQTT_PASSWORD";
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long an event may take until the broker has confirmed it, new connections included.
const EVENT_TIMEOUT: Duration = Duration::from_secs(8);
/// The pause before a new connection.
const PAUSE: Duration = Duration::from_millis(300);
/// Messages between this program and its connection.
const CHANNEL: usize = 16;

/// Starts the delivery; each event is a message of quality "at least once". The connection is opened at once.
///
/// # Errors
/// If the URL is not `mqtt://[user@]host[:port]/topic`.
pub fn start(url: &str) -> anyhow::Result<Delivery> {
    let refused =
        |why: &str| usage(format!("--mqtt, {url}: {why}; expected mqtt://[user@]host[:port]/topic"));
    // A topic has no fragment and no query, which a URL would end it with.
    if url.contains(['#', '+', '?']) {
        return Err(refused("# and + are for subscribers, and ? is not supported"));
    }
    let uri: Uri = url.parse().map_err(|_| refused("not a URL"))?;
    if uri.scheme_str() != Some("mqtt") {
        return Err(refused("not an address of MQTT"));
    }
    let authority = uri.authority().ok_or_else(|| refused("no host"))?;
    let topic = uri.path().trim_start_matches('/').to_owned();
    if topic.is_empty() {
        return Err(refused("no topic"));
    }
    let id = format!("ocelli-{}-{}", std::process::id(), started_at());
    let mut options = MqttOptions::new(id, authority.host(), authority.port_u16().unwrap_or(PORT));
    options.set_keep_alive(KEEP_ALIVE);
    if let Some((user, _)) = authority.as_str().rsplit_once('@') {
        if user.contains(':') {
            return Err(refused(&format!("others can read a password there; put it into {PASSWORD}")));
        }
        options.set_credentials(user, std::env::var(PASSWORD).unwrap_or_default());
    }
    let mut broker = Broker::connect(options, topic);
    Ok(Delivery::start(format!("--mqtt, {url}"), move |event| broker.send(event)))
}

/// Milliseconds of the clock, so that two programs of one number on two machines differ.
fn started_at() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis())
}

/// What the thread of the connection says.
enum Signal {
    Connected,
    Confirmed,
    Failed(String),
}

/// A connection, whose thread ends when this is dropped.
struct Broker {
    client: Client,
    topic: String,
    signals: Receiver<Signal>,
    is_connected: bool,
    /// Messages of this connection that the broker has not confirmed: those of events that took too long are among them.
    unconfirmed: usize,
    ends: Arc<AtomicBool>,
}

impl Broker {
    fn connect(options: MqttOptions, topic: String) -> Self {
        let (client, connection) = Client::new(options, CHANNEL);
        let (say, signals) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ends);
        thread::spawn(move || drive(connection, &say, &flag));
        Self { client, topic, signals, is_connected: false, unconfirmed: 0, ends }
    }

    /// Sends an event and waits until the broker has confirmed it.
    fn send(&mut self, event: &[u8]) -> Result<(), String> {
        let deadline = Instant::now() + EVENT_TIMEOUT;
        let mut error = "the broker did not answer".to_owned();
        if self.is_connected {
            self.publish(event)?;
        }
        loop {
            match self.signals.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Signal::Confirmed) => {
                    // In the order of the messages, so the last one is this event's.
                    self.unconfirmed = self.unconfirmed.saturating_sub(1);
                    if self.unconfirmed == 0 {
                        return Ok(());
                    }
                }
                // A new connection knows nothing of what was on its way.
                Ok(Signal::Connected) => {
                    (self.is_connected, self.unconfirmed) = (true, 0);
                    self.publish(event)?;
                }
                Ok(Signal::Failed(why)) => (self.is_connected, error) = (false, why),
                Err(RecvTimeoutError::Timeout) => return Err(error),
                Err(RecvTimeoutError::Disconnected) => return Err("the connection has ended".into()),
            }
        }
    }

    fn publish(&mut self, event: &[u8]) -> Result<(), String> {
        let sent = self.client.try_publish(&self.topic, QoS::AtLeastOnce, false, event);
        sent.map_err(|error| error.to_string())?;
        self.unconfirmed += 1;
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.client.try_disconnect());
    }
}

/// Keeps a connection open, and says what happens on it, until it ends.
fn drive(mut connection: Connection, say: &Sender<Signal>, ends: &AtomicBool) {
    for event in connection.iter() {
        let signal = match event {
            Ok(Event::Incoming(Packet::ConnAck(_))) => Signal::Connected,
            Ok(Event::Incoming(Packet::PubAck(_))) => Signal::Confirmed,
            Ok(_) => continue,
            Err(error) => Signal::Failed(error.to_string()),
        };
        let has_failed = matches!(signal, Signal::Failed(_));
        if say.send(signal).is_err() || (has_failed && ends.load(Ordering::Relaxed)) {
            return;
        }
        if has_failed {
            thread::sleep(PAUSE);
        }
    }
}
