//! Requests to the hub: what is worth another try, and what an answer that refuses means.

use std::cell::Cell;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ureq::http::{HeaderMap, StatusCode};

use super::{HubName, home, variable};
use crate::Cancellation;
use crate::cancellation::CancelHook;
use ocelli_error::{Error, Result};

/// The longest time for a connection, an answer or the next bytes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most times in a row that a request may bring nothing.
const TRIES: u32 = 5;
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// One revision of a repository on a server.
pub(super) struct Hub<'a> {
    agent: ureq::Agent,
    pub(super) endpoint: String,
    token: Option<String>,
    pub(super) name: &'a HubName,
    pub(super) report: &'a dyn Fn(&str),
    pub(super) cancellation: &'a Cancellation,
    /// Bytes that all requests brought.
    received: Cell<u64>,
}

/// An event of a request, from the thread that waits for it.
enum Event {
    Started(StatusCode, HeaderMap),
    Bytes(Vec<u8>),
    Ended,
    Failed(String),
    Cancelled,
}

/// Why a request brought no more.
pub(super) enum Trouble {
    /// Worth another try, after a pause that the server may have asked for.
    Again(String, Option<Duration>),
    Final(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl<'a> Hub<'a> {
    pub(super) fn new(
        name: &'a HubName,
        report: &'a dyn Fn(&str),
        cancellation: &'a Cancellation,
    ) -> Result<Self> {
        if ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().filter_map(variable).any(|on| is_on(&on)) {
            return Err(Error::unavailable(format!(
                "cannot open the model, {}: it is not in the cache, and HF_HUB_OFFLINE is set; unset it, or download the \
                 model first: ocelli pull {0}",
                name.repository
            )));
        }
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let agent = ureq::Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .http_status_as_error(false)
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .user_agent(concat!("ocelli/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self { agent, endpoint, token: token(), name, report, cancellation, received: Cell::new(0) })
    }

    /// Repeats a request until it ends, or [`TRIES`] in a row have brought nothing.
    pub(super) fn persist(&self, mut attempt: impl FnMut() -> Result<(), Trouble>) -> Result<()> {
        let mut failures = 0;
        loop {
            let before = self.received.get();
            let (why, pause) = match attempt() {
                Ok(()) => return Ok(()),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Again(why, pause)) => (why, pause),
            };
            failures = if self.received.get() > before { 1 } else { failures + 1 };
            if failures >= TRIES {
                return Err(Error::unavailable(format!(
                    "cannot download {} from {}: {why}; try again, what is there is kept",
                    self.name.repository, self.endpoint
                )));
            }
            let pause = pause.unwrap_or(Duration::from_millis(250 << failures)).min(LONGEST_PAUSE);
            (self.report)(&format!("{why}; trying again in {:.0} s", pause.as_secs_f64().max(1.0)));
            if self.cancellation.wait(pause) {
                return Err(cancelled());
            }
        }
    }

    /// Asks for an address from a byte on. The bytes come from a thread, so that Ctrl-C and a stall end the wait.
    pub(super) fn request(&self, url: &str, from: u64) -> Result<Body, Trouble> {
        let (sender, events) = sync_channel(4);
        let mut request = self.agent.get(url).header("Accept-Encoding", "identity");
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let wakes = sender.clone();
        let hook = self.cancellation.on_cancel(move || drop(wakes.try_send(Event::Cancelled)));
        std::thread::spawn(move || receive(request, &sender));
        let body = Body { events, start: 0, _hook: hook };
        match body.next(self)? {
            Event::Started(status, headers) => {
                let start = self.check(status, &headers, from)?;
                Ok(Body { start, ..body })
            }
            _ => Err(Trouble::Again("the server sent nothing".into(), None)),
        }
    }

    /// The byte that an answer starts with.
    fn check(&self, status: StatusCode, headers: &HeaderMap, from: u64) -> Result<u64, Trouble> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let HubName { repository, revision, .. } = self.name;
        let page = format!("{}/{repository}", self.endpoint);
        let refused = |why: String| {
            Trouble::Final(Error::invalid_argument(format!("cannot download {repository}: {why}")))
        };
        match (status.as_u16(), header("X-Error-Code")) {
            (206, _) => {
                let start =
                    header("Content-Range").strip_prefix("bytes ").and_then(|range| range.split('-').next());
                match start.and_then(|start| start.parse::<u64>().ok()) {
                    Some(start) if start == from => Ok(start),
                    _ => Err(answer("it starts at another byte").into()),
                }
            }
            (200, _) => Ok(0),
            // What is there is longer than the file.
            (416, _) => Err(answer("the file is shorter than what is there").into()),
            (_, "RevisionNotFound") => Err(refused(format!("it has no revision {revision}"))),
            (_, "EntryNotFound") => Err(refused("a file that it lists is not there".into())),
            (401 | 403, "GatedRepo") => {
                let login = match self.token {
                    Some(_) => "with the account of your token",
                    None => "then set HF_TOKEN to a token of your account, or log in with `hf auth login`",
                };
                Err(Error::unavailable(format!(
                    "cannot download {repository}: its owner grants access: accept the terms at {page}, {login}; litetext-s0 \
                     and efficientsam3-repvit-m need no permission"
                )).into())
            }
            (401 | 403 | 404, _) => Err(refused(format!(
                "there is no such repository, or it is private: {page}; no file or folder of this machine has the name, \
                     either, and `ocelli models` lists known ones"
            ))),
            (429 | 500..600, _) => {
                let pause = header("Retry-After").parse().ok().map(Duration::from_secs);
                Err(Trouble::Again(format!("the server answers {status}"), pause))
            }
            _ => Err(refused(format!("the server answers {status}"))),
        }
    }
}

/// The answer of a server.
pub(super) struct Body {
    events: Receiver<Event>,
    /// The first byte that it has of the content.
    pub(super) start: u64,
    _hook: CancelHook,
}

impl Body {
    fn next(&self, hub: &Hub<'_>) -> Result<Event, Trouble> {
        if hub.cancellation.is_cancelled() {
            return Err(cancelled().into());
        }
        // An answer may take as long as a connection and its first byte.
        match self.events.recv_timeout(2 * PATIENCE) {
            Ok(Event::Cancelled) => Err(cancelled().into()),
            Ok(Event::Failed(why)) => Err(Trouble::Again(format!("the connection failed: {why}"), None)),
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Trouble::Again("nothing came for a minute".into(), None))
            }
        }
    }

    pub(super) fn for_each(
        &self,
        hub: &Hub<'_>,
        mut with: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<(), Trouble> {
        loop {
            match self.next(hub)? {
                Event::Bytes(bytes) => {
                    with(&bytes)?;
                    hub.received.set(hub.received.get() + bytes.len() as u64);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Sends what a request brings until nobody listens.
fn receive(request: ureq::RequestBuilder<ureq::typestate::WithoutBody>, events: &SyncSender<Event>) {
    let receive = || -> std::io::Result<()> {
        let gone = |_| std::io::ErrorKind::BrokenPipe;
        let response = request.call().map_err(|e| std::io::Error::other(e.to_string()))?;
        events.send(Event::Started(response.status(), response.headers().clone())).map_err(gone)?;
        let mut body = response.into_body().into_reader();
        loop {
            let mut bytes = vec![0; CHUNK];
            let count = body.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            bytes.truncate(count);
            events.send(Event::Bytes(bytes)).map_err(gone)?;
        }
    };
    let last = receive().map_or_else(|e| Event::Failed(e.to_string()), |()| Event::Ended);
    drop(events.send(last));
}

pub(super) fn cancelled() -> Error {
    Error::cancelled("the download was cancelled; what is there is kept")
}

fn is_on(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&&*value.to_lowercase())
}

/// The token of the user, if there is one.
fn token() -> Option<String> {
    let of_file = || {
        if variable("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|on| is_on(&on)) {
            return None;
        }
        let path = variable("HF_TOKEN_PATH").map(Into::into).or_else(|| Some(home().ok()?.join("token")))?;
        std::fs::read_to_string(path).ok()
    };
    let token = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")).or_else(of_file)?;
    let token = token.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

pub(super) fn answer(why: &str) -> Error {
    Error::invalid_data(format!("an answer of the hub is not understood: {why}"))
}
