//! Programs ask which library they run with.

use std::ffi::{CStr, c_char};

/// The version of the interface that this header describes. `ocelli_abi_version()` returns that of the library; both are
/// equal unless the program runs with a library that is not compatible.
pub const OCELLI_ABI_VERSION: u32 = 0;

/// The version of the library's interface. It is also the number in the library's name, `libocelli.so.0`, and rises when
/// programs have to be compiled again.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_abi_version() -> u32 {
    OCELLI_ABI_VERSION
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}
