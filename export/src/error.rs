//! What can go wrong in an export, as one opaque type.

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

/// The result of everything fallible in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure an [`Error`] is, for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option that makes no sense for this checkpoint: a block that does not exist, an odd image size.
    InvalidArgument,
    /// The configuration contradicts itself, or a key is missing or of the wrong type.
    InvalidConfig,
    /// A weights file is damaged, or a tensor is missing, unknown, mis-shaped or not finite.
    InvalidCheckpoint,
    /// A manifest or an exported folder is damaged.
    InvalidData,
    /// The operating system refused a read or a write.
    Io,
    /// Whoever watches the progress asked for an end.
    Cancelled,
    /// The graph builder was asked for something that has no meaning; a fault of this crate.
    Graph,
}

/// An error of the exporter: a kind, one line of text, and what caused it.
///
/// The text reads `what, where: why` and names the file, tensor, key or node it is about.
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

    /// The same error, its text preceded by the file it is about.
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
