//! The configuration of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ocelli::{Error, ErrorKind, Result};

/// The name of the built-in model.
pub(crate) const BUILT_IN: &str = "built-in";

/// Where and what a server serves.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The address; port 0 takes a free one. Default 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// What every client has to know. An address that other machines reach needs one.
    pub token: Option<String>,
    /// Names of this machine, in addition to `localhost` and its addresses.
    pub hosts: Vec<String>,
    /// What a client may ask for.
    pub limits: Limits,
    /// The model's name, for people: `built-in`, or a path. Default `built-in`.
    pub model: String,
    /// Whether the detector was built with masks. Default true.
    pub masks: bool,
    /// A labelled data set to look at and to correct.
    pub gallery: Option<PathBuf>,
    /// The Label Studio whose pictures are fetched.
    pub label_studio: Option<LabelStudio>,
}

/// What a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request. Default 32 MiB.
    pub body_bytes: usize,
    /// Pixels of a picture. Default 50 million.
    pub pixels: u64,
    /// Classes of a request. Default 100.
    pub classes: usize,
    /// Exemplar boxes of a request. Default 32.
    pub exemplars: usize,
    /// Detections of an answer; of more, those with the highest scores are kept. Default 1000.
    pub detections: usize,
    /// Requests that wait or run at the same time, and as many whose bodies arrive; one more is answered with 503. One client has
    /// at most half of either. Default 64.
    pub queue: usize,
    /// Open connections. Default 512.
    pub connections: usize,
    /// The time of a request, from its first byte to its answer. Default 60 s.
    pub time: Duration,
}

/// A Label Studio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelStudio {
    /// Its address: `http://127.0.0.1:8080`.
    pub url: String,
    /// The access token of one of its users.
    pub token: Option<String>,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            token: None,
            hosts: Vec::new(),
            limits: Limits::default(),
            model: BUILT_IN.into(),
            masks: true,
            gallery: None,
            label_studio: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            pixels: 50_000_000,
            classes: 100,
            exemplars: 32,
            detections: 1000,
            queue: 64,
            connections: 512,
            time: Duration::from_secs(60),
        }
    }
}

/// A shorter token could be guessed.
const MIN_TOKEN: usize = 12;

impl ServeConfig {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        match &self.token {
            None if !self.listen.ip().is_loopback() => {
                return refuse(format!(
                    "listen is {}, which other machines reach: expected a token as well",
                    self.listen
                ));
            }
            Some(token) if token.len() < MIN_TOKEN || !token.bytes().all(is_url_safe) => {
                return refuse(format!(
                    "token: expected at least {MIN_TOKEN} letters, digits and -._~, which need no escapes in an address"
                ));
            }
            _ => {}
        }
        if let Some(host) = self.hosts.iter().find(|host| !is_host_name(host)) {
            return refuse(format!(
                "host \"{host}\": expected the name of this machine, without http:// and without a port"
            ));
        }
        let limits = &self.limits;
        for (name, value) in [
            ("queue", limits.queue),
            ("connections", limits.connections),
            ("max_bytes", limits.body_bytes),
            ("max_classes", limits.classes),
            ("max_pixels", usize::try_from(limits.pixels).unwrap_or(usize::MAX)),
        ] {
            if value == 0 {
                return refuse(format!("{name} is 0: expected at least 1"));
            }
        }
        if limits.time.is_zero() {
            return refuse("timeout is 0: expected a number of seconds above 0".into());
        }
        Ok(())
    }
}

/// Whether a character stands for itself in addresses and cookies.
fn is_url_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn is_host_name(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.bytes().all(is_letter)
}

/// A token of 128 random bits.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the system has no random numbers.
pub fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot make a token: no random numbers: {error}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
