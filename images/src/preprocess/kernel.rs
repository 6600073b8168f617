//! The preprocessing kernel and what it is launched with.

use super::weights::PassWeights;
use super::{PreprocessConfig, Rounding};
use crate::frame_view::{FrameView, PixelFormat};
use ocelli_error::{Error, Result};

const SOURCE: &str = include_str!("kernel/preprocess.cu");

/// The source for one kind of rounding.
pub(super) fn source(rounding: Rounding) -> String {
    format!("#define ROUND_ONCE {}\n#line 1\n{SOURCE}", u8::from(rounding == Rounding::Once))
}

/// The index of the kernel for a format, in the order of the source.
pub(super) fn kernel_of(format: PixelFormat) -> usize {
    match format {
        PixelFormat::Rgb8 | PixelFormat::Bgr8 => 0,
        PixelFormat::Gray8 => 1,
        PixelFormat::Nv12 => 2,
    }
}

/// The weights of both passes for images of one size.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) size: (u32, u32),
    down_first: bool,
    /// The first pass, then the second.
    pub(super) passes: [PassWeights; 2],
}

impl Tables {
    pub(super) fn new(config: &PreprocessConfig, (width, height): (u32, u32)) -> Self {
        let down_first = ocelli_resize::is_down_first(width, height, config.imgsz);
        let lengths = if down_first { [height, width] } else { [width, height] };
        let passes = lengths.map(|length| PassWeights::new(length, config.imgsz, config.rounding));
        Self { size: (width, height), down_first, passes }
    }

    /// The fields of the kernel's structure that follow the addresses.
    pub(super) fn arguments(
        &self,
        config: &PreprocessConfig,
        format: PixelFormat,
        stride: usize,
    ) -> ([i32; 8], [f32; 6]) {
        let [first, second] = &self.passes;
        let integers = [
            self.size.0 as i32,
            self.size.1 as i32,
            stride as i32,
            config.imgsz as i32,
            first.digits as i32,
            second.digits as i32,
            i32::from(self.down_first),
            i32::from(format == PixelFormat::Bgr8),
        ];
        let [mean, std] = [config.mean, config.std].map(|rgb| rgb.map(|value| value * 255.0));
        (integers, [mean[0], mean[1], mean[2], std[0], std[1], std[2]])
    }
}

/// The stride and the bytes of an image to upload. Rows with much padding are copied to `packed`.
pub(super) fn rows<'a>(image: &FrameView<'a>, packed: &'a mut Vec<u8>) -> Result<(usize, &'a [u8])> {
    let (row, rows) = image.layout().expect("the frame was checked");
    let (stride, bytes) = if image.stride <= row + row / 8 {
        (image.stride, &image.data[..image.stride * (rows - 1) + row])
    } else {
        packed.clear();
        let lines = image.data.chunks(image.stride).take(rows);
        lines.for_each(|line| packed.extend_from_slice(&line[..row]));
        (row, &packed[..])
    };
    if i32::try_from(stride).is_err() || i32::try_from(rows).is_err() {
        let message = format!("preprocessing, {image:?}: expected sides below 2^31 bytes on a GPU");
        return Err(Error::invalid_argument(message));
    }
    Ok((stride, bytes))
}

#[cfg(test)]
mod tests;
