//! Structs that begin with their size, so that programs and libraries of different versions understand each other.

use std::mem::size_of;

use ocelli::{Result, refuse};

use crate::status::invalid;

/// No struct is larger; a larger size is a field that was not set.
const MAX_SIZE: usize = 4096;

/// A struct that C passes.
///
/// # Safety
/// It is `repr(C)`, its first field is `struct_size: usize`, it has no padding, and its other fields are numbers and
/// pointers, of which any bytes are valid.
pub(crate) unsafe trait Versioned: Copy {
    /// Its name in the header.
    const NAME: &'static str;
    /// Its size in the first version of the header.
    const FIRST: usize;
}

/// Declares structs that C passes: with all fields in the first version, or with those before a field that was added.
macro_rules! versioned {
    ($name:ident, before $added:ident) => {
        // SAFETY: declared with `repr(C)`, `struct_size` first, numbers and pointers only, and checked for padding below.
        unsafe impl $crate::sized::Versioned for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST: usize = std::mem::offset_of!(Self, $added);
        }
    };
    ($($name:ident),*) => {$(
        // SAFETY: declared with `repr(C)`, `struct_size` first, numbers and pointers only, and checked for padding below.
        unsafe impl $crate::sized::Versioned for $name {
            const NAME: &'static str = stringify!($name);
            const FIRST: usize = std::mem::size_of::<Self>();
        }
    )*};
}
pub(crate) use versioned;

/// All fields 0 or null.
pub(crate) const fn zeroed<T: Versioned>() -> T {
    // SAFETY: any bytes are valid by the promise of `Versioned`.
    unsafe { std::mem::MaybeUninit::zeroed().assume_init() }
}

/// As [`read`]; `default` for a null pointer.
///
/// # Errors
/// As [`read`], but for a null pointer.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_if_given<T: Versioned>(from: *const T, default: T) -> Result<T> {
    if from.is_null() {
        return Ok(default);
    }
    // SAFETY: the caller's promise.
    unsafe { read(from, default) }
}

/// Reads a struct. Fields that the caller does not have are those of `default`.
///
/// # Errors
/// `InvalidArgument` for a null pointer, a size that cannot be, and for fields that this library does not have and that
/// are not zero.
///
/// # Safety
/// `from` is null or points to a `usize` and to as many bytes as it says, which no other thread writes to.
pub(crate) unsafe fn read<T: Versioned>(from: *const T, default: T) -> Result<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_at::<T>(from) }?;
    let mut value = default;
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes can be read from `from` and `size_of::<T>()` bytes be written to `value`, a local variable, of
    // which any bytes are valid by the promise of `Versioned`.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), known) };
    // SAFETY: these bytes are among the `size` bytes that can be read.
    let unknown = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|&byte| byte != 0) {
        return Err(invalid(format!(
            "{}: the program sets fields that this library, version {}, does not have; use a newer library",
            T::NAME,
            env!("CARGO_PKG_VERSION")
        )));
    }
    Ok(value)
}

/// Fills in a struct of the caller, who has set its size. Fields that this library does not have become zero.
///
/// # Errors
/// `InvalidArgument` for a null pointer and a size that cannot be.
///
/// # Safety
/// `to` is null or points to a `usize` and to as many bytes as it says, which no other thread reads or writes.
pub(crate) unsafe fn write<T: Versioned>(to: *mut T, value: &T) -> Result<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_at::<T>(to) }?;
    // SAFETY: `size` bytes can be written.
    unsafe { write_with_size(to, size, value) };
    Ok(())
}

/// Fills in a struct of the caller whose size is passed, and its size.
///
/// # Safety
/// `to` is null or points to `size` bytes, which no other thread reads or writes.
pub(crate) unsafe fn start<T: Versioned>(to: *mut T, size: usize, value: &T) -> Result<()> {
    check(T::NAME, to.is_null(), size, T::FIRST)?;
    // SAFETY: `size` bytes can be written.
    unsafe { write_with_size(to, size, value) };
    Ok(())
}

/// # Safety
/// `to` points to `size` bytes that can be written, at least as many as a `usize` has.
unsafe fn write_with_size<T: Versioned>(to: *mut T, size: usize, value: &T) {
    let known = size.min(size_of::<T>());
    let bytes = to.cast::<u8>();
    // SAFETY: `size` bytes can be written from `to`, of which `known` are taken from `value`, the others are zero, and the
    // first field is the size.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), bytes, known);
        bytes.add(known).write_bytes(0, size - known);
        to.cast::<usize>().write_unaligned(size);
    }
}

/// # Safety
/// `at` is null or points to a `usize`.
unsafe fn size_at<T: Versioned>(at: *const T) -> Result<usize> {
    let is_null = at.is_null();
    // SAFETY: not null, so there is a `usize`.
    let size = if is_null { 0 } else { unsafe { at.cast::<usize>().read_unaligned() } };
    check(T::NAME, is_null, size, T::FIRST)?;
    Ok(size)
}

fn check(name: &str, is_null: bool, size: usize, first: usize) -> Result<()> {
    if is_null {
        return Err(invalid(format!("{name} is null: expected a pointer to a struct")));
    }
    if !(first..=MAX_SIZE).contains(&size) {
        refuse!("{name}, struct_size is {size}: expected sizeof({name}), at least {first}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Library {
        struct_size: usize,
        first: u64,
        added: u64,
    }

    // SAFETY: `repr(C)`, the size first, then a number, without padding; `added` was not in the first version.
    unsafe impl Versioned for Library {
        const NAME: &'static str = "Library";
        const FIRST: usize = 2 * size_of::<u64>();
    }

    const DEFAULT: Library = Library { struct_size: size_of::<Library>(), first: 1, added: 2 };

    fn read_words(words: &[u64]) -> Result<Library> {
        // SAFETY: every case below has the bytes that its first word says, or is refused for that word.
        unsafe { read(words.as_ptr().cast(), DEFAULT) }
    }

    #[test]
    fn programs_of_other_versions_are_understood() {
        // An older program, the same version, a newer one that does not use its new field.
        let cases: [(&[u64], u64, u64); 3] = [(&[16, 7], 7, 2), (&[24, 7, 8], 7, 8), (&[32, 7, 8, 0], 7, 8)];
        for (words, first, added) in cases {
            let found = read_words(words).map(|found| (found.first, found.added));
            assert_eq!(found.map_err(|error| error.to_string()), Ok((first, added)), "{words:?}");
        }
        for (words, expected) in [
            (&[32, 7, 8, 1][..], "newer library"),
            (&[15, 7, 8], "struct_size is 15"),
            (&[0, 7, 8], "struct_size is 0"),
            (&[u64::MAX, 7, 8], "at least 16"),
        ] {
            let error = read_words(words).expect_err("refused").to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
        // SAFETY: null is refused.
        assert!(unsafe { read(std::ptr::null(), DEFAULT) }.is_err());
    }

    #[test]
    fn no_more_is_written_than_the_caller_has() {
        for (size, expected) in [(16, [16, 1, 9, 9]), (24, [24, 1, 2, 9]), (32, [32, 1, 2, 0])] {
            let mut words: [u64; 4] = [size, 9, 9, 9];
            // SAFETY: four words.
            let written = unsafe { write(words.as_mut_ptr().cast(), &DEFAULT) };
            assert!(written.is_ok());
            assert_eq!(words, expected);
            let mut words = [9_u64; 4];
            // SAFETY: four words, and `size` is at most as much.
            let started = unsafe { start(words.as_mut_ptr().cast(), size as usize, &DEFAULT) };
            assert!(started.is_ok());
            assert_eq!(words, expected);
        }
        let mut words = [8_u64; 4];
        // SAFETY: refused for the size.
        assert!(unsafe { write(words.as_mut_ptr().cast(), &DEFAULT) }.is_err());
        assert_eq!(words, [8_u64; 4]);
    }
}
