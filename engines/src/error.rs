//! What can go wrong in an engine, and in which of five ways.

use std::error::Error as StdError;
use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`]: what a program does about it differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A library, driver or provider is missing, too old or broken; the message says what to install or to name.
    Unavailable,
    /// The caller's mistake: a name, a type, a shape or an option that the engine does not have.
    InvalidArgument,
    /// The model file is missing, damaged, or holds what the engine cannot run.
    InvalidModel,
    /// The engine took the inputs and failed while running.
    Execution,
    /// The caller stopped the work.
    Cancelled,
}

/// An error of an engine: one line that says what failed, where and why.
///
/// The text of the cause is part of [`Display`](fmt::Display); [`source`](StdError::source) is there for code that
/// wants to look at its type, not to be printed a second time.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error; the message should read `what, where: why`. Line breaks become `; `.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        let lines = message.as_ref().lines().map(str::trim).filter(|line| !line.is_empty());
        Self { kind, message: lines.collect::<Vec<_>>().join("; "), source: None }
    }

    /// The same error with what caused it, for code that looks at [`source`](StdError::source).
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Which kind of failure this is.
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
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let error = Error::new(ErrorKind::Execution, "Load failed:\r\n  bad byte\n\n at 7\n");
        assert_eq!(error.to_string(), "Load failed:; bad byte; at 7");
    }

    #[test]
    fn the_cause_can_be_looked_at() {
        let cause = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "no");
        let error = Error::new(ErrorKind::InvalidModel, "x").with_source(cause);
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::PermissionDenied));
    }
}
