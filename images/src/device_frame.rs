//! A frame in the memory of a GPU, as its video decoder leaves it there.

use std::sync::Arc;

use crate::image::Image;
use ocelli_engines::ForeignMemory;
use ocelli_error::{Result, refuse};

/// A frame of NV12 in the memory of an NVIDIA GPU: a plane of luma, and one of blue and red chroma with a pair for 2 × 2 pixels. Its
/// memory is given back when the last clone is dropped.
#[derive(Clone)]
pub struct DeviceFrame {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Luma, and the bytes from one row to the next.
    pub luma: (ForeignMemory, usize),
    /// Chroma, and the bytes from one row to the next.
    pub chroma: (ForeignMemory, usize),
    /// Their conversion to RGB.
    pub colours: Nv12Colours,
    /// Copies the frame to the host as RGB, `height × width × 3` bytes.
    pub to_rgb: Arc<ToRgb>,
}

/// See [`DeviceFrame::to_rgb`].
pub type ToRgb = dyn Fn(&mut [u8]) -> Result<()> + Send + Sync;

impl DeviceFrame {
    /// The GPU, as CUDA counts.
    pub fn ordinal(&self) -> usize {
        self.luma.0.ordinal()
    }

    /// Copies the frame to the host, into a buffer that is used again.
    ///
    /// # Errors
    /// Those of [`to_rgb`](Self::to_rgb), and
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a side is zero or too long.
    pub fn to_image_into(&self, image: &mut Image) -> Result<()> {
        (self.to_rgb)(image.reset_rgb8(self.width, self.height)?)
    }

    /// Checks that rows are at least as long as the width, and at most what a kernel can count.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if they are not, or a side is zero.
    pub fn check(&self) -> Result<()> {
        let row = (self.width as usize).next_multiple_of(2);
        let is_fit = |stride| stride >= row && i32::try_from(stride).is_ok();
        if self.width == 0 || self.height == 0 || !is_fit(self.luma.1) || !is_fit(self.chroma.1) {
            refuse!("{self:?}: expected at least one pixel, and strides from {row} to 2^31 bytes");
        }
        Ok(())
    }
}

ocelli_engines::debug_as!(DeviceFrame, it => "DeviceFrame({}x{} on GPU {}, strides {} and {})", it.width, it.height, it.ordinal(),
    it.luma.1, it.chroma.1);

/// The conversion of luma and chroma of 8 bits to RGB: the luma of black, then the shares of luma in all three, of red chroma
/// in red and green, and of blue chroma in green and blue, with 20 fractional bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nv12Colours(pub(crate) [i32; 6]);

impl Nv12Colours {
    /// From the coefficients of a matrix as FFmpeg has them, for chroma in limited range with 16 fractional bits: red from red
    /// chroma, blue from blue, and what blue and red take from green. `is_full`: luma and chroma have all 256 levels.
    pub fn from_coefficients([red, blue, green_from_blue, green_from_red]: [i32; 4], is_full: bool) -> Self {
        let share =
            |factor: i32| if is_full { (i64::from(factor) * 16 * 224 / 255) as i32 } else { factor * 16 };
        let (black, luma) = if is_full { (0, 1 << 20) } else { (16, ((1 << 20) * 255 + 219 / 2) / 219) };
        Self([black, luma, share(red), -share(green_from_red), -share(green_from_blue), share(blue)])
    }
}
