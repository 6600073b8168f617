//! Errors of the libraries as the exceptions of `ocelli._errors`.

use ocelli::source::without_secrets;
use ocelli::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The exception of an error: its class has the name of the kind.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = format!("{:?}", error.kind());
    let class = py.import("ocelli._errors").and_then(|module| {
        // A kind that Python does not know yet is an `Error`.
        module.getattr(&*name).or_else(|_| module.getattr("Error"))
    });
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, without_secrets(&error.to_string())),
        Err(failure) => failure,
    }
}

/// An exception for an argument that is not valid.
pub(crate) fn invalid(py: Python<'_>, message: &str) -> PyErr {
    exception(py, &Error::invalid_argument(message))
}

/// Turns results of the libraries into results of Python functions.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception to raise.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for ocelli::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// The error of the libraries for an exception that was raised while they called Python.
pub(crate) fn from_exception(py: Python<'_>, what: &str, failure: &PyErr) -> Error {
    let kind = match failure.get_type(py).name() {
        Ok(name) if name == "Unavailable" => ErrorKind::Unavailable,
        Ok(name) if name == "InvalidArgument" => ErrorKind::InvalidArgument,
        Ok(name) if name == "Mismatch" => ErrorKind::Mismatch,
        Ok(name) if name == "InvalidData" => ErrorKind::InvalidData,
        _ => ErrorKind::Io,
    };
    let text = failure
        .value(py)
        .str()
        .map_or_else(|_| "an exception".to_owned(), |text| without_secrets(&text.to_string()));
    let message = if what.is_empty() { text } else { format!("{what}: {text}") };
    Error::new(kind, message)
}
