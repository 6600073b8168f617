//! The error type of the ocelli crates: a kind, one line of text, and the underlying error.
//!
//! Each crate re-exports it, so a program that uses several of them handles one type:
//!
//! ```
//! use ocelli_error::{Error, ErrorKind};
//!
//! fn check(threads: usize) -> ocelli_error::Result<()> {
//!     if threads == 0 {
//!         return Err(Error::argument("threads", threads, "at least 1"));
//!     }
//!     Ok(())
//! }
//!
//! let error = check(0).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::InvalidArgument);
//! assert_eq!(error.to_string(), "threads is 0: expected at least 1");
//! assert_eq!(error.parameter(), Some("threads"));
//! ```

#![forbid(unsafe_code)]

use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

/// The result type of the ocelli crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes types that are read by `FromStr` and written by `Display` convertible from and into `String`, with an [`Error`]: as serde's
/// `try_from` and `into` ask for.
#[macro_export]
macro_rules! written_as_text {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = $crate::Error;

            fn try_from(text: String) -> $crate::Result<Self> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    )*};
}

/// Reads an enum by `FromStr` from the names that serde gives its variants, and shows it with them. The error names the parameter,
/// and what was expected.
#[macro_export]
macro_rules! read_by_name {
    ($kind:ty, $parameter:literal, $expected:literal) => {
        impl ::std::fmt::Display for $kind {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::serde::Serialize::serialize(self, f)
            }
        }

        impl ::std::str::FromStr for $kind {
            type Err = $crate::Error;

            fn from_str(name: &str) -> $crate::Result<Self> {
                let text = ::serde::de::value::StrDeserializer::<::serde::de::value::Error>::new(name);
                ::serde::Deserialize::deserialize(text)
                    .map_err(|_| $crate::Error::argument($parameter, format_args!("{name:?}"), $expected))
            }
        }
    };
}

/// `Display` as one line of text: `display_as!(Type, it => "{} of {}", it.part, it.all)`.
#[macro_export]
macro_rules! display_as {
    ($kind:ty, $this:ident => $($text:tt)+) => {
        impl ::std::fmt::Display for $kind {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $this = self;
                ::std::write!(f, $($text)+)
            }
        }
    };
}

/// Returns an [`InvalidArgument`](ErrorKind::InvalidArgument) error from the function, with a text as of `format!`.
#[macro_export]
macro_rules! refuse {
    ($($message:tt)+) => {
        return Err($crate::Error::invalid_argument(::std::format!($($message)+)))
    };
}

/// The kind of an [`Error`], for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed an invalid argument: an empty text prompt, a threshold of 7, a tensor of the wrong shape.
    InvalidArgument,
    /// A file is corrupt, unsupported, or not what its name says: a truncated image, a checkpoint without a tensor.
    InvalidData,
    /// Two inputs do not belong together: a text cache of another model, an engine of another GPU.
    Mismatch,
    /// A library, driver or feature is missing or too old; the message has the remedy.
    Unavailable,
    /// The operating system reported an error of a read or a write.
    Io,
    /// An engine failed while it ran.
    Execution,
    /// The caller cancelled the operation.
    Cancelled,
    /// A bug in the crate that reports it.
    Internal,
}

/// An error: a kind, one line of text, and the underlying error if there is one.
///
/// The text reads `what, where: why` and names the file, tensor, parameter or prompt. It includes the text of the
/// underlying error, which [`source`](StdError::source) returns for code that inspects it.
pub struct Error {
    kind: ErrorKind,
    message: String,
    parameter: Option<&'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without an underlying error. Line breaks in the message become `; `.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        let lines = message.as_ref().lines().map(str::trim).filter(|line| !line.is_empty());
        Self { kind, message: lines.collect::<Vec<_>>().join("; "), parameter: None, source: None }
    }

    /// An [`InvalidArgument`](ErrorKind::InvalidArgument) error.
    pub fn invalid_argument(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// An [`InvalidData`](ErrorKind::InvalidData) error.
    pub fn invalid_data(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::InvalidData, message)
    }

    /// A [`Mismatch`](ErrorKind::Mismatch) error.
    pub fn mismatch(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::Mismatch, message)
    }

    /// An [`Unavailable`](ErrorKind::Unavailable) error.
    pub fn unavailable(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// An [`Execution`](ErrorKind::Execution) error.
    pub fn execution(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::Execution, message)
    }

    /// A [`Cancelled`](ErrorKind::Cancelled) error.
    pub fn cancelled(message: impl AsRef<str>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// An [`InvalidArgument`](ErrorKind::InvalidArgument) error about the value of a parameter:
    /// `parameter is value: expected …`.
    pub fn argument(parameter: &'static str, value: impl fmt::Display, expected: impl fmt::Display) -> Self {
        let message = format!("{parameter} is {value}: expected {expected}");
        Self::invalid_argument(message).about(parameter)
    }

    /// Checks that the value of a parameter is from 0 to 1; NaN is not.
    ///
    /// # Errors
    /// As [`argument`](Self::argument).
    pub fn check_share(parameter: &'static str, value: f32) -> Result<()> {
        match value {
            0.0..=1.0 => Ok(()),
            _ => Err(Self::argument(parameter, value, "a number from 0 to 1")),
        }
    }

    /// Names the parameter that the error is about, or that is its remedy. It does not change the text: programs add how
    /// their users spell it.
    #[must_use]
    pub fn about(mut self, parameter: &'static str) -> Self {
        self.parameter = Some(parameter);
        self
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

    /// Puts the file that the error is about in front of the text.
    #[must_use]
    pub fn at(self, path: &Path) -> Self {
        let message = Self::new(self.kind, format!("{}: {}", path.display(), self.message)).message;
        Self { message, ..self }
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The parameter that the error is about, or that is its remedy, as the library names it: `class_chunk`.
    pub fn parameter(&self) -> Option<&'static str> {
        self.parameter
    }
}

display_as!(Error, it => "{}", it.message);

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
    fn the_underlying_error_is_returned() {
        let cause = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "no");
        let error = Error::io("cannot read", Path::new("x"), cause);
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::PermissionDenied));
        assert_eq!(error.at(Path::new("y")).to_string(), "y: cannot read, x: no");
    }

    #[test]
    fn the_parameter_stays() {
        let error = Error::argument("imgsz", 0, "1 to 9").with_source(fmt::Error).at(Path::new("y"));
        assert_eq!(
            (error.kind(), error.to_string().as_str(), error.parameter()),
            (ErrorKind::InvalidArgument, "y: imgsz is 0: expected 1 to 9", Some("imgsz"))
        );
    }
}
