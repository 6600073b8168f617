//! The errors of files and options.

use ocelli_error::{Error, ErrorKind};

/// A file is corrupt, or not what its name says.
pub(crate) fn invalid(message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

/// An option is invalid, or two contradict each other.
pub(crate) fn refused(message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
