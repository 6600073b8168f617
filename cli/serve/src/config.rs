//! The configuration of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ocelli::{Error, Result};

use crate::http::limits::Limits;

/// The name of the built-in model.
pub(crate) const BUILT_IN: &str = "built-in";

/// Address and settings of a server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The address; port 0 takes a free one. Default 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// The secret that every client has to know. An address that other machines reach needs one.
    pub token: Option<String>,
    /// Names of this machine, in addition to `localhost` and its addresses.
    pub hosts: Vec<String>,
    /// The limits of a client's requests.
    pub limits: Limits,
    /// The model's name, for people: `built-in`, or a path. Default `built-in`.
    pub model: String,
    /// The detector was built with masks. Default true.
    pub masks: bool,
    /// A labelled data set to look at and to correct.
    pub gallery: Option<PathBuf>,
    /// A folder whose videos, and folders of images, clients open in sessions.
    pub videos: Option<PathBuf>,
    /// The Label Studio whose images are fetched.
    pub label_studio: Option<LabelStudio>,
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
            videos: None,
            label_studio: None,
        }
    }
}

/// A shorter token could be guessed.
const MIN_TOKEN: usize = 12;

impl ServeConfig {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |name, message: String| Err(Error::invalid_argument(message).about(name));
        // Each stands for itself in addresses and cookies.
        let is_url_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let is_weak = |token: &String| token.len() < MIN_TOKEN || !token.bytes().all(is_url_safe);
        if self.token.is_none() && !self.listen.ip().is_loopback() {
            let expected = "which other machines reach: expected a token as well";
            return refuse("listen", format!("listen is {}, {expected}", self.listen));
        }
        if self.token.as_ref().is_some_and(is_weak) {
            let characters = "letters, digits and -._~, which need no escapes in an address";
            return refuse("token", format!("token: expected at least {MIN_TOKEN} {characters}"));
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_name = |host: &str| !host.is_empty() && host.bytes().all(is_letter);
        if let Some(host) = self.hosts.iter().find(|host| !is_name(host)) {
            let expected = "expected the name of this machine, without http:// and without a port";
            return refuse("host", format!("host \"{host}\": {expected}"));
        }
        self.limits.check()
    }
}

/// A token of 128 random bits.
///
/// # Errors
/// [`Unavailable`](ocelli::ErrorKind::Unavailable) if the system has no random numbers.
pub fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::unavailable(format!("cannot make a token: no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
