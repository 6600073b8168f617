//! Pixels in Python's memory, without a copy where their rows are contiguous.

use std::time::Duration;

use ocelli::{FrameView, Image, PixelFormat};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};

/// An array of 8-bit pixels, kept alive and kept from being resized by its buffer.
pub(crate) struct Pixels {
    /// [height, width, colour]; a pixel's bytes are side by side, and a row's pixels are.
    buffer: PyBuffer<u8>,
    width: u32,
    height: u32,
    stride: usize,
    format: PixelFormat,
}

impl Pixels {
    /// Takes an array of shape [height, width, 3].
    ///
    /// # Errors
    /// `InvalidArgument` for another shape or element type, or another channel order than `rgb` and `bgr`.
    pub(crate) fn new(image: &Bound<'_, PyAny>, channel_order: &str) -> PyResult<Self> {
        let py = image.py();
        let format = match channel_order {
            "rgb" => PixelFormat::Rgb8,
            "bgr" => PixelFormat::Bgr8,
            other => {
                let message = format!("channel_order is {other:?}: expected \"rgb\" or \"bgr\"");
                return Err(invalid(py, &message));
            }
        };
        let refused = |_| {
            let described = describe(image);
            let message = format!(
                "image, {described}: expected an array of uint8 with shape (height, width, 3), a PIL image, or a path"
            );
            invalid(py, &message)
        };
        let mut buffer = PyBuffer::<u8>::get(image).map_err(refused)?;
        let sides = match *buffer.shape() {
            [height, width, 3] if height > 0 && width > 0 => {
                u32::try_from(height).ok().zip(u32::try_from(width).ok())
            }
            _ => None,
        };
        let Some((height, width)) = sides else {
            let message = format!(
                "image, {}: expected shape (height, width, 3) with at least one pixel; convert grey or transparent images \
                 to RGB first",
                describe(image)
            );
            return Err(invalid(py, &message));
        };
        let row = width as usize * 3;
        // A single row has any stride.
        let is_packed = |strides: &[isize]| match *strides {
            [rows, 3, 1] => height == 1 || usize::try_from(rows).is_ok_and(|rows| rows >= row),
            _ => false,
        };
        if !is_packed(buffer.strides()) {
            let copy = py.import("numpy")?.call_method1("ascontiguousarray", (image,))?;
            buffer = PyBuffer::get(&copy).map_err(refused)?;
        }
        let stride = if height == 1 { row } else { usize::try_from(buffer.strides()[0]).unwrap_or(row) };
        Ok(Self { buffer, width, height, stride, format })
    }

    /// A copy in RGB for another thread, made while this one has the GIL, so that Python code cannot write meanwhile.
    pub(crate) fn to_image(&self, py: Python<'_>) -> PyResult<Image> {
        self.view().to_image().or_raise(py)
    }

    /// The pixels as a frame at time zero.
    ///
    /// No other thread may write to them while the view is used.
    #[allow(unsafe_code, reason = "Python's buffers are borrowed through a pointer")]
    pub(crate) fn view(&self) -> FrameView<'_> {
        let length = self.stride * (self.height as usize - 1) + self.width as usize * 3;
        // SAFETY: `new` has checked that the buffer has `height` rows of `width * 3` bytes, `stride` bytes apart, so that
        // `length` bytes from its start are in it. The buffer is held until `self` is dropped, and Python neither frees nor
        // resizes memory with a buffer on it. That no other thread writes to the pixels while the view is used is the
        // caller's duty, which the documentation of `push` and `plot` names; a detector's thread gets a `copy` instead.
        let data = unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), length) };
        FrameView {
            data,
            width: self.width,
            height: self.height,
            stride: self.stride,
            format: self.format,
            timestamp: Duration::ZERO,
        }
    }
}

/// The kind of an object, for errors: `float32 array of shape (4, 4)`, else its type.
fn describe(image: &Bound<'_, PyAny>) -> String {
    let array = image.getattr("dtype").and_then(|dtype| Ok((dtype.str()?, image.getattr("shape")?.str()?)));
    match array {
        Ok((dtype, shape)) => format!("{dtype} array of shape {shape}"),
        Err(_) => image.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string()),
    }
}
