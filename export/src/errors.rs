//! The errors of files and options.

use ocelli_error::Error;

/// A file is corrupt, or not what its name says.
pub(crate) fn invalid(message: impl AsRef<str>) -> Error {
    Error::invalid_data(message)
}

/// An option is invalid, or two contradict each other.
pub(crate) fn refused(message: impl AsRef<str>) -> Error {
    Error::invalid_argument(message)
}
