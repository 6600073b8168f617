//! C has no exceptions: functions return a status, and each thread keeps its last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ocelli::{Error, ErrorKind, Result};

/// What a function returns. Of a value other than `OCELLI_OK`, `OCELLI_NOT_READY` and `OCELLI_ENDED`, `ocelli_last_error`
/// has the text.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ocelli_status {
    /// Done.
    OCELLI_OK = 0,
    /// The caller passed an invalid argument: a null pointer, a handle that was freed, a threshold of 7.
    OCELLI_INVALID_ARGUMENT = 1,
    /// A file is corrupt, unsupported, or not what its name says.
    OCELLI_INVALID_DATA = 2,
    /// Two inputs do not belong together: a text cache of another model.
    OCELLI_MISMATCH = 3,
    /// A library, driver or feature is missing or too old; the text has the remedy.
    OCELLI_UNAVAILABLE = 4,
    /// The operating system reported an error of a read or a write.
    OCELLI_IO = 5,
    /// An engine failed while it ran.
    OCELLI_EXECUTION = 6,
    /// The operation was cancelled: the pipeline was freed while a thread waited for it.
    OCELLI_CANCELLED = 7,
    /// A bug in the library.
    OCELLI_INTERNAL = 8,
    /// No error: there is no result yet, or no room for a frame.
    OCELLI_NOT_READY = 9,
    /// No error: the pipeline was closed, or the run of a session has ended, and all results were received.
    OCELLI_ENDED = 10,
}

use ocelli_status::*;

impl ocelli_status {
    fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidArgument => OCELLI_INVALID_ARGUMENT,
            ErrorKind::InvalidData => OCELLI_INVALID_DATA,
            ErrorKind::Mismatch => OCELLI_MISMATCH,
            ErrorKind::Unavailable => OCELLI_UNAVAILABLE,
            ErrorKind::Io => OCELLI_IO,
            ErrorKind::Execution => OCELLI_EXECUTION,
            ErrorKind::Cancelled => OCELLI_CANCELLED,
            _ => OCELLI_INTERNAL,
        }
    }
}

thread_local! {
    static LAST: RefCell<(ocelli_status, CString)> = RefCell::new((OCELLI_OK, CString::default()));
}

/// Keeps an error as the last one of this thread.
pub(crate) fn record(error: &Error) -> ocelli_status {
    let status = ocelli_status::of(error.kind());
    // A message may quote what the caller passed.
    let text: Vec<u8> = error.to_string().into_bytes().into_iter().filter(|&byte| byte != 0).collect();
    // Fails while the thread ends, when nobody can ask for the text any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = (status, CString::new(text).unwrap_or_default()));
    status
}

/// An error about what the caller passed.
pub(crate) fn invalid(message: impl AsRef<str>) -> Error {
    Error::invalid_argument(message)
}

/// The body of every function: keeps its error, and turns a panic into one.
pub(crate) fn entry(body: impl FnOnce() -> Result<ocelli_status>) -> ocelli_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => record(&error),
        Err(panic) => {
            record(&Error::new(ErrorKind::Internal, format!("panic: {}", ocelli::panic_message(&*panic))))
        }
    }
}

/// As [`entry`], for a body that has no status of its own.
pub(crate) fn done(body: impl FnOnce() -> Result<()>) -> ocelli_status {
    entry(|| body().map(|()| OCELLI_OK))
}

/// As [`done`], for a function that returns a value in a place of the caller, which is checked before the work starts.
pub(crate) fn filled<T>(
    place: Result<&mut MaybeUninit<T>>,
    body: impl FnOnce() -> Result<T>,
) -> ocelli_status {
    done(|| {
        let place = place?;
        place.write(body()?);
        Ok(())
    })
}

/// As [`entry`], for a function that returns a value, and `failed` after an error.
pub(crate) fn value<T>(failed: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut returned = failed;
    done(|| {
        returned = body()?;
        Ok(())
    });
    returned
}

/// The text of the last error on this thread: one line that says what failed, on which input, and what to do. Empty if
/// there was none. Valid until another function fails on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The status of the last error on this thread, `OCELLI_OK` if there was none: for functions that return a value.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_last_status() -> ocelli_status {
    LAST.try_with(|last| last.borrow().0).unwrap_or(OCELLI_OK)
}

/// The name of a status, such as "invalid argument"; "unknown status" for another number.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_status_name(status: u32) -> *const c_char {
    const NAMES: [&CStr; 11] = [
        c"ok",
        c"invalid argument",
        c"invalid data",
        c"mismatch",
        c"unavailable",
        c"io",
        c"execution",
        c"cancelled",
        c"internal",
        c"not ready",
        c"ended",
    ];
    NAMES.get(status as usize).copied().unwrap_or(c"unknown status").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        LAST.with(|last| last.borrow().1.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(done(|| panic!("number {}", 7)), OCELLI_INTERNAL);
        assert_eq!((last_error().as_str(), ocelli_last_status()), ("panic: number 7", OCELLI_INTERNAL));
        assert_eq!(value(3, || panic!("plain")), 3);
        assert_eq!(last_error(), "panic: plain");
    }

    #[test]
    fn an_error_stays_on_its_thread() {
        assert_eq!(done(|| Err(invalid("a\0b"))), OCELLI_INVALID_ARGUMENT);
        assert_eq!(last_error(), "ab");
        let other = std::thread::spawn(|| (last_error(), ocelli_last_status())).join();
        assert_eq!(other.ok(), Some((String::new(), OCELLI_OK)));
        assert_eq!(done(|| Ok(())), OCELLI_OK);
        assert_eq!(last_error(), "ab");
    }

    #[test]
    fn every_status_has_a_name() {
        for status in 0..=OCELLI_ENDED as u32 {
            assert_ne!(ocelli_status_name(status), ocelli_status_name(99), "{status}");
        }
    }
}
