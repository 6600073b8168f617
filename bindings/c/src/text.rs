//! Strings and other pointers that C passes.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::path::PathBuf;

use ocelli::Result;

use crate::status::invalid;

/// A string that must be there.
///
/// # Errors
/// `InvalidArgument` for a null pointer, and for bytes that are not UTF-8.
///
/// # Safety
/// `from` is null or points to a string that ends with NUL and does not change while the result is used.
pub(crate) unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    let text = unsafe { optional_text(from, what) }?;
    text.ok_or_else(|| invalid(format!("{what} is null: expected a string")))
}

/// A string; `None` for a null pointer.
///
/// # Errors
/// `InvalidArgument` for bytes that are not UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(from: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so it is a string that ends with NUL.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(Some).map_err(|failure| {
        invalid(format!("{what}, {:?}: byte {} is not UTF-8", text.to_string_lossy(), failure.valid_up_to()))
    })
}

/// A path; `None` for a null pointer. On Unix it need not be UTF-8.
///
/// # Errors
/// On other systems `InvalidArgument` for bytes that are not UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_path(from: *const c_char, what: &str) -> Result<Option<PathBuf>> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        let _ = what;
        if from.is_null() {
            return Ok(None);
        }
        // SAFETY: not null, so it is a string that ends with NUL.
        let bytes = unsafe { CStr::from_ptr(from) }.to_bytes();
        Ok(Some(std::ffi::OsStr::from_bytes(bytes).into()))
    }
    #[cfg(not(unix))]
    {
        // SAFETY: the caller's promise.
        Ok(unsafe { optional_text(from, what) }?.map(PathBuf::from))
    }
}

/// `count` values of C; an empty slice if there are none.
///
/// # Errors
/// `InvalidArgument` for a null pointer to more than nothing, and for more bytes than memory can have.
///
/// # Safety
/// `from` is null or points to `count` values that do not change while the result is used.
pub(crate) unsafe fn values<'a, T>(from: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(invalid(format!("{what} is null: expected {count} values")));
    }
    let bytes = count.checked_mul(size_of::<T>());
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) || !from.is_aligned() {
        return Err(invalid(format!("{what}: there cannot be {count} values at this address")));
    }
    // SAFETY: not null, aligned, no larger than an object can be, and `count` values by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// The choice that a number of an enum stands for.
pub(crate) fn chosen<T: Copy>(name: &str, number: u32, choices: &[(u32, T)], expected: &str) -> Result<T> {
    let chosen = choices.iter().find(|(known, _)| *known == number).map(|(_, choice)| *choice);
    chosen.ok_or_else(|| invalid(format!("{name} is {number}: expected {expected}")))
}

/// Checks that there is a place for a result before the work starts.
///
/// # Errors
/// `InvalidArgument` for a null pointer.
pub(crate) fn check_place<T>(to: *mut T, what: &str) -> Result<()> {
    if to.is_null() {
        return Err(invalid(format!("{what} is null: expected where to write it")));
    }
    Ok(())
}

/// A place for a result.
///
/// # Safety
/// `to` is null or points to a value that is the caller's to be written while the result is used.
pub(crate) unsafe fn place<'a, T>(to: *mut T, what: &str) -> Result<&'a mut MaybeUninit<T>> {
    check_place(to, what)?;
    // SAFETY: not null, and the caller's to be written.
    Ok(unsafe { &mut *to.cast() })
}

/// Writes a value where the caller wants it; null wants none.
///
/// # Safety
/// If it is not null, it is the caller's to be written.
pub(crate) unsafe fn write_if_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(value) };
    }
}

/// A string for C. Characters of NUL, which cannot come from C, are left out.
pub(crate) fn c_string(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}
