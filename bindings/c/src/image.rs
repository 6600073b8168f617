//! Image files.

use std::ffi::c_char;

use ocelli::Image;

use crate::frame::ocelli_frame;
use crate::handle::Registry;
use crate::sized;
use crate::status::{done, filled, invalid, ocelli_status};
use crate::text::{optional_path, place, values};

/// An image that was read from a file.
pub struct ocelli_image(());

static IMAGES: Registry<ocelli_image, Image> = Registry::new("image");

/// Reads an image file: JPEG, PNG, WebP, TIFF, BMP, GIF, PNM; turned as its EXIF data says.
///
/// Free the image with `ocelli_image_free`.
///
/// Pointers: `path` is a string; `image` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_image_open(
    path: *const c_char,
    image: *mut *mut ocelli_image,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(image, "image") }, || {
        // SAFETY: the caller passes a string.
        let path = unsafe { optional_path(path, "path") }?;
        let path = path.ok_or_else(|| invalid("path is null: expected a string"))?;
        Ok(IMAGES.add(Image::open(path)?))
    })
}

/// As `ocelli_image_open`, from the bytes of a file in memory.
///
/// Pointers: `bytes` points to `size` bytes; `image` points to a handle to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_image_decode(
    bytes: *const u8,
    size: usize,
    image: *mut *mut ocelli_image,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    filled(unsafe { place(image, "image") }, || {
        // SAFETY: the caller passes as many bytes.
        let bytes = unsafe { values(bytes, size, "bytes") }?;
        Ok(IMAGES.add(Image::decode(bytes, "image in memory")?))
    })
}

/// Fills in a frame with the pixels of an image, which are valid until the image is freed. Set `frame->struct_size` before.
///
/// Pointers: `frame` points to a struct whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_image_frame(
    image: *const ocelli_image,
    frame: *mut ocelli_frame,
) -> ocelli_status {
    done(|| {
        let image = IMAGES.find(image)?;
        // SAFETY: the caller's promise.
        unsafe { sized::write(frame, &ocelli_frame::of(&image)) }
    })
}

/// Frees an image; does nothing with a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ocelli_image_free(image: *mut ocelli_image) -> ocelli_status {
    done(|| IMAGES.remove(image).map(drop))
}
