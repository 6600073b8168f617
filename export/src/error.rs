//! The error type of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

/// The result of the functions in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure an [`Error`] is, for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option is invalid for this checkpoint: a block that does not exist, an image size that is not a multiple of the
    /// patch size.
    InvalidArgument,
    /// The configuration is inconsistent, or a key is missing or of the wrong type.
    InvalidConfig,
    /// A weights file is corrupt, or a tensor is missing, unknown, of the wrong shape or not finite.
    InvalidCheckpoint,
    /// A manifest or an exported folder is corrupt.
    InvalidData,
    /// The operating system reported an error of a read or a write.
    Io,
    /// The progress callback cancelled the export.
    Cancelled,
    /// The graph builder found an invalid operation; a bug in this crate.
    Graph,
}

/// An error of the exporter: a kind, a message of one line, and the cause.
///
/// The message reads `what, where: why` and names the file, tensor, key or node.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with its cause, which [`source`](StdError::source) returns.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of reading or writing `path`; the message includes the system's reason.
    pub fn io(what: &str, path: &Path, source: std::io::Error) -> Self {
        let message = format!("{what}, {}: {source}", path.display());
        Self::new(ErrorKind::Io, message).with_source(source)
    }

    /// The same error, its message preceded by the file.
    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.message = format!("{}: {}", path.display(), self.message);
        self
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
