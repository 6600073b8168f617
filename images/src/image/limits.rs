//! The limits of image files, and the errors of files that cannot be read.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ocelli_error::{Error, Result};

/// The maximum number of pixels of an image file: PIL's limit for a "decompression bomb".
pub const MAX_PIXELS: u64 = 178_956_970;

/// The maximum side of an image file in pixels: the limit of JPEG.
pub const MAX_SIDE: u32 = 65_535;

/// The maximum size of an image file in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// Runs a decoder of another project. A panic of it is an error of the file: the images beside it can be read.
pub fn guarded<T>(name: &str, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        Err(invalid(name, "the decoder fails on this file; save it anew with another program"))
    })
}

/// The message about a file that needs memory that there is not.
pub fn no_memory(bytes: u64) -> String {
    format!("decoding takes {} MiB, which this machine cannot give", bytes >> 20)
}

/// The message about a file that ends early.
pub const TRUNCATED: &str = "the file is truncated; copy or download it again";

/// Refuses empty images and images that would fill the memory.
pub fn check_size(width: u32, height: u32, most_pixels: u64) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err(format!("{width}x{height} has no pixels"));
    }
    if width > MAX_SIDE || height > MAX_SIDE || u64::from(width) * u64::from(height) > most_pixels {
        return Err(format!(
            "{width}x{height} is too large: expected at most {MAX_SIDE} pixels a side and {} megapixels",
            most_pixels / 1_000_000
        ));
    }
    Ok(())
}

/// The error for a file that cannot be read.
pub fn invalid(name: &str, why: &str) -> Error {
    Error::invalid_data(format!("cannot read the image, {name}: {why}"))
}
