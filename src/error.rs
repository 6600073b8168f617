//! What can go wrong, as one opaque type.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

/// The result of everything fallible in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure an [`Error`] is, for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something that makes no sense: an empty phrase, a threshold of 7.
    InvalidArgument,
    /// A file is damaged or is not what its name says: a truncated picture, a cache that is no safetensors.
    InvalidData,
    /// Two things do not belong together: a text cache of another model, an `imgsz` that the graphs do not have.
    Mismatch,
    /// A library, driver or feature is not there; the message says what to install or type.
    Unavailable,
    /// The operating system refused a read or a write.
    Io,
    /// An engine failed while it ran.
    Engine,
    /// The work was cancelled.
    Cancelled,
}

/// An error of the detector: a kind, one line of text, and what caused it.
///
/// The text reads `what, where: why` and names the file, tensor or phrase it is about.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without a cause of its own.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with what caused it; the cause is reachable through [`source`](StdError::source)
    /// and its text is not repeated in this one's.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An input or output failure at `path`; the system's reason is part of the text.
    pub fn io(what: &str, path: &Path, source: std::io::Error) -> Self {
        let message = format!("{what}, {}: {source}", path.display());
        Self::new(ErrorKind::Io, message).with_source(source)
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<ocelli_engines::Error> for Error {
    fn from(error: ocelli_engines::Error) -> Self {
        use ocelli_engines::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::Unavailable => ErrorKind::Unavailable,
            Kind::InvalidModel => ErrorKind::InvalidData,
            Kind::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Engine,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

impl From<ocelli_export::Error> for Error {
    fn from(error: ocelli_export::Error) -> Self {
        use ocelli_export::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::InvalidArgument => ErrorKind::InvalidArgument,
            Kind::Io => ErrorKind::Io,
            Kind::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::InvalidData,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

impl From<ocelli_tracking::Error> for Error {
    fn from(error: ocelli_tracking::Error) -> Self {
        use ocelli_tracking::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::InvalidArgument => ErrorKind::InvalidArgument,
            Kind::Io => ErrorKind::Io,
            _ => ErrorKind::InvalidData,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}
