//! Texts from and for libraries in C.

use std::ffi::{CStr, CString, c_char};

/// Copies a C string; `None` for null.
///
/// # Safety
/// `pointer` is null or points to a string that ends with a null byte.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// The text for C, or one line that says why it cannot be one.
pub(crate) fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("{text:?} has a null byte"))
}
