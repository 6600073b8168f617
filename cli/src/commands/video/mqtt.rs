//! `--mqtt`: events as messages of an MQTT broker.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rumqttc::{Client, Connection, Event, MqttOptions, Outgoing, Packet, QoS};
use ureq::http::Uri;

use super::delivery::{Delivery, Health};
use crate::usage;

const PORT: u16 = 1883;
/// The variable with the password of the user that the URL names.
const PASSWORD: &str = "OCELLI_MQTT_PASSWORD";
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The longest time until the broker has confirmed an event, new connections included.
const EVENT_TIMEOUT: Duration = Duration::from_secs(8);
/// The pause before a new connection, and how long one that ends may take to say so.
const PAUSE: Duration = Duration::from_millis(300);
/// Messages between this program and its connection.
const CHANNEL: usize = 16;

/// Starts the delivery; each event is a message of quality "at least once". The connection is opened at once.
///
/// # Errors
/// If the URL is not `mqtt://[user@]host[:port]/topic`.
pub fn start(url: &str) -> anyhow::Result<Delivery> {
    let (options, topic) = address(url)?;
    Ok(Delivery::start(format!("--mqtt, {url}"), move |health| {
        let mut broker = Broker::connect(options, topic);
        if let Err(why) = broker.greet() {
            health.report(Some(&why));
        }
        move |event: &[u8], health: &mut Health| broker.send(event, |why| health.report(Some(why)))
    }))
}

/// Options to connect, and the topic.
pub(crate) fn address(url: &str) -> anyhow::Result<(MqttOptions, String)> {
    let refused =
        |why: &str| usage(format!("--mqtt, {url}: {why}; expected mqtt://[user@]host[:port]/topic"));
    // A topic has no fragment and no query, which a URL would end it with.
    if url.contains(['#', '+', '?']) {
        return Err(refused("# and + are for subscribers, and ? is not supported"));
    }
    let uri: Uri = url.parse().map_err(|_| refused("not a URL"))?;
    match uri.scheme_str() {
        Some("mqtt") => {}
        Some("mqtts" | "ssl" | "tls") => {
            return Err(refused("TLS is not supported; name a broker in your network that forwards to it"));
        }
        _ => return Err(refused("not an address of MQTT")),
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
    Ok((options, topic))
}

/// Milliseconds of the clock, so that two programs of one number on two machines differ.
fn started_at() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis())
}

/// A report of the thread of a connection.
enum Signal {
    Connected,
    Confirmed,
    Failed(String),
}

/// Why an event was not confirmed in time.
const NO_ANSWER: &str = "the broker did not answer";

/// A broker, to which a new connection is made when an event finds the last one lost.
struct Broker {
    options: MqttOptions,
    topic: String,
    link: Option<Link>,
}

impl Broker {
    fn connect(options: MqttOptions, topic: String) -> Self {
        let link = Some(Link::open(options.clone()));
        Self { options, topic, link }
    }

    /// Waits until the broker has answered for the first time; an error is why it has not.
    fn greet(&mut self) -> Result<(), String> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let answer = link.signals.recv_timeout(EVENT_TIMEOUT).map_err(|_| NO_ANSWER.to_owned());
        let greeted = answer.and_then(|signal| link.take(signal));
        if greeted.is_err() {
            self.link = None;
        }
        greeted
    }

    /// Sends an event and waits until the broker has confirmed it. `failed` gets why a connection was lost.
    fn send(&mut self, event: &[u8], mut failed: impl FnMut(&str)) -> Result<(), String> {
        let deadline = Instant::now() + EVENT_TIMEOUT;
        let (mut error, mut is_again) = (NO_ANSWER.to_owned(), false);
        loop {
            let link = self.link.get_or_insert_with(|| Link::open(self.options.clone()));
            match link.deliver(&self.topic, event, deadline) {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(error),
                Err(why) => (self.link, error) = (None, why),
            }
            // A connection that was lost between two events is no news if the next one works.
            if std::mem::replace(&mut is_again, true) {
                failed(&error);
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// One connection, with messages and confirmations of its own; it ends when it fails or this is dropped.
struct Link {
    client: Client,
    signals: Receiver<Signal>,
    is_connected: bool,
    /// Messages that the broker has not confirmed: those of events that took too long are among them.
    unconfirmed: usize,
}

impl Link {
    fn open(options: MqttOptions) -> Self {
        let (client, connection) = Client::new(options, CHANNEL);
        let (say, signals) = channel();
        thread::spawn(move || drive(connection, &say));
        Self { client, signals, is_connected: false, unconfirmed: 0 }
    }

    /// Returns true if the broker has confirmed the event in time; an error is why the connection is lost.
    fn deliver(&mut self, topic: &str, event: &[u8], deadline: Instant) -> Result<bool, String> {
        // What happened since the last event.
        while let Ok(signal) = self.signals.try_recv() {
            self.take(signal)?;
        }
        let mut is_published = false;
        loop {
            if self.is_connected && !is_published {
                let sent = self.client.try_publish(topic, QoS::AtLeastOnce, false, event);
                sent.map_err(|error| error.to_string())?;
                self.unconfirmed += 1;
                is_published = true;
            }
            // Confirmations come in the order of the messages, so the last one is this event's.
            if is_published && self.unconfirmed == 0 {
                return Ok(true);
            }
            match self.signals.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(signal) => self.take(signal)?,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => return Err("the connection has ended".into()),
            }
        }
    }

    fn take(&mut self, signal: Signal) -> Result<(), String> {
        match signal {
            Signal::Connected => self.is_connected = true,
            Signal::Confirmed => self.unconfirmed = self.unconfirmed.saturating_sub(1),
            Signal::Failed(why) => return Err(why),
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.client.try_disconnect().is_ok() && self.is_connected {
            // Until the broker is told: the program may end next.
            while self.signals.recv_timeout(PAUSE).is_ok() {}
        }
    }
}

/// Keeps a connection open, and reports what happens on it, until it fails or is closed.
fn drive(mut connection: Connection, say: &Sender<Signal>) {
    for event in connection.iter() {
        let signal = match event {
            Ok(Event::Incoming(Packet::ConnAck(_))) => Signal::Connected,
            Ok(Event::Incoming(Packet::PubAck(_))) => Signal::Confirmed,
            Ok(Event::Outgoing(Outgoing::Disconnect)) => return,
            Ok(_) => continue,
            Err(error) => Signal::Failed(error.to_string()),
        };
        let has_failed = matches!(signal, Signal::Failed(_));
        if say.send(signal).is_err() || has_failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
