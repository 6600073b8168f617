//! The preprocessing kernel and what it is launched with.

use super::PreprocessConfig;
use super::weights::PassWeights;
use crate::device_frame::{DeviceFrame, Nv12Colours};
use crate::frame_view::{FrameView, PixelFormat, nv12};
use ocelli_error::{Result, refuse};

pub(super) const SOURCE: &str = include_str!("kernel/preprocess.cu");

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
        let passes = lengths.map(|length| PassWeights::new(length, config.imgsz));
        Self { size: (width, height), down_first, passes }
    }

    /// The fields of the kernel's structure that follow the addresses.
    pub(super) fn arguments(&self, config: &PreprocessConfig, planes: &Planes) -> ([i32; 16], [f32; 6]) {
        let [first, second] = &self.passes;
        let Nv12Colours([black, luma, red_v, green_v, green_u, blue_u]) = planes.colours;
        let integers = [
            self.size.0 as i32,
            self.size.1 as i32,
            planes.stride as i32,
            config.imgsz as i32,
            first.digits as i32,
            second.digits as i32,
            i32::from(self.down_first),
            i32::from(planes.format == PixelFormat::Bgr8),
            planes.chroma_stride as i32,
            planes.chroma_top as i32,
            black,
            luma,
            red_v,
            green_v,
            green_u,
            blue_u,
        ];
        let [mean, std] = [config.mean, config.std].map(|rgb| rgb.map(|value| value * 255.0));
        (integers, [mean[0], mean[1], mean[2], std[0], std[1], std[2]])
    }
}

/// The layout of an image in memory: its own for chroma, which only NV12 has.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    pub(super) format: PixelFormat,
    stride: usize,
    chroma_stride: usize,
    /// The rows before the first one of chroma, from its address.
    chroma_top: u32,
    colours: Nv12Colours,
}

impl Planes {
    /// Of an image whose rows have this stride when they are uploaded; its chroma follows the luma.
    pub(super) fn of_view(image: &FrameView<'_>, stride: usize) -> Self {
        let (format, chroma_top, colours) = (image.format, image.height, nv12::COLOURS);
        Self { format, stride, chroma_stride: stride, chroma_top, colours }
    }

    pub(super) fn of_device(frame: &DeviceFrame) -> Self {
        let (format, colours) = (PixelFormat::Nv12, frame.colours);
        Self { format, stride: frame.luma.1, chroma_stride: frame.chroma.1, chroma_top: 0, colours }
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
        refuse!("preprocessing, {image:?}: expected sides below 2^31 bytes on a GPU");
    }
    Ok((stride, bytes))
}

#[cfg(test)]
mod tests;
