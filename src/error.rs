//! One opaque error type for the crate.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`], for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An invalid parameter: a blank prompt, a threshold of 7.
    InvalidArgument,
    /// A corrupt or unsupported file: a truncated image, a text cache that is not a safetensors file.
    InvalidData,
    /// Inputs that do not fit each other: a text cache of another model, an `imgsz` that the graphs were not exported for.
    Mismatch,
    /// A missing library, driver or feature; the message says what to install or change.
    Unavailable,
    /// A failed read or write.
    Io,
    /// An engine failed to run a graph.
    Engine,
    /// The operation was cancelled.
    Cancelled,
}

/// An error: a kind, one line of text, and the underlying error if there is one.
///
/// The text says what failed, on which file, tensor or parameter, and what was expected.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without an underlying error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the underlying error, which [`source`](StdError::source) returns. It does not change the text.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// A failed read or write of `path`; the text ends with the reason of the operating system.
    pub fn io(what: &str, path: &Path, source: std::io::Error) -> Self {
        let message = format!("{what}, {}: {source}", path.display());
        Self::new(ErrorKind::Io, message).with_source(source)
    }

    /// The kind of failure.
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
