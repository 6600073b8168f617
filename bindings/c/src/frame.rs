//! Images in the caller's memory.

use std::time::Duration;

use ocelli::{FrameView, PixelFormat, Result};

use crate::sized;
use crate::text::{chosen, values};

/// How the pixels of a frame are stored.
#[repr(C)]
pub enum ocelli_pixel_format {
    /// Three bytes per pixel: red, green, blue.
    OCELLI_RGB8 = 0,
    /// Three bytes per pixel: blue, green, red, as in OpenCV.
    OCELLI_BGR8 = 1,
    /// A plane of luma, one byte per pixel, followed by a plane of interleaved blue and red chroma, one pair per 2 x 2
    /// pixels, with the same stride. BT.601, limited range.
    OCELLI_NV12 = 2,
    /// One byte per pixel: grey.
    OCELLI_GRAY8 = 3,
}

/// An image in the caller's memory, which the library reads only during the call that it is passed to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_frame {
    /// sizeof(ocelli_frame).
    pub struct_size: usize,
    /// The pixels, top row first.
    pub data: *const u8,
    /// Bytes at `data`.
    pub data_size: usize,
    /// Bytes from the start of one row to the next; 0 if rows follow each other without padding.
    pub stride: usize,
    /// When the image was taken, in nanoseconds of any clock that never runs backwards.
    pub timestamp_ns: u64,
    /// Width in pixels, at least 1.
    pub width: u32,
    /// Height in pixels, at least 1.
    pub height: u32,
    /// An ocelli_pixel_format.
    pub format: u32,
    /// Zero.
    pub reserved: u32,
}

use ocelli_pixel_format::*;

sized::versioned!(ocelli_frame);

impl ocelli_frame {
    /// Describes an image that the library has.
    pub(crate) fn of(image: &ocelli::Image) -> Self {
        let data = image.as_rgb8();
        Self {
            data: data.as_ptr(),
            data_size: data.len(),
            stride: image.width() as usize * 3,
            width: image.width(),
            height: image.height(),
            ..sized::zeroed()
        }
    }
}

/// Reads a frame. Whether its pixels fit into its memory is checked by what works on it.
///
/// # Errors
/// `InvalidArgument` for a null pointer, a wrong size and an unknown pixel format.
///
/// # Safety
/// `from` is null or points to as many bytes as its first field says; `data` points to `data_size` bytes. Nobody writes to
/// them while the view is used.
pub(crate) unsafe fn view<'a>(from: *const ocelli_frame) -> Result<FrameView<'a>> {
    // SAFETY: the caller's promise.
    let frame = unsafe { sized::read(from, sized::zeroed()) }?;
    let (width, bytes) = (frame.width as usize, 3 * frame.width as usize);
    let formats = [
        (OCELLI_RGB8 as u32, (PixelFormat::Rgb8, bytes)),
        (OCELLI_BGR8 as u32, (PixelFormat::Bgr8, bytes)),
        (OCELLI_NV12 as u32, (PixelFormat::Nv12, width.next_multiple_of(2))),
        (OCELLI_GRAY8 as u32, (PixelFormat::Gray8, width)),
    ];
    let expected = "OCELLI_RGB8, OCELLI_BGR8, OCELLI_NV12 or OCELLI_GRAY8";
    let (format, row) = chosen("ocelli_frame, format", frame.format, &formats, expected)?;
    // SAFETY: the caller's promise.
    let data = unsafe { values(frame.data, frame.data_size, "ocelli_frame, data") }?;
    Ok(FrameView {
        data,
        width: frame.width,
        height: frame.height,
        stride: if frame.stride == 0 { row } else { frame.stride },
        format,
        timestamp: Duration::from_nanos(frame.timestamp_ns),
    })
}
