//! The pixels of a camera's message.

use std::time::Duration;

use ocelli::{Error, ErrorKind, FrameView, Image, PixelFormat, Result};

/// The encodings that [`view`] takes.
pub const ENCODINGS: [&str; 8] = ["rgb8", "bgr8", "mono8", "8UC3", "8UC1", "nv12", "rgba8", "bgra8"];

/// A message's pixels and what they are.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'a> {
    /// The encoding, one of [`ENCODINGS`].
    pub encoding: &'a str,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes from one row to the next.
    pub step: usize,
    /// The pixels, top row first.
    pub data: &'a [u8],
    /// Time when they were taken.
    pub timestamp: Duration,
}

impl<'a> Pixels<'a> {
    /// Pixels whose rows follow each other without padding.
    pub fn packed(
        encoding: &'a str,
        (width, height): (u32, u32),
        data: &'a [u8],
        timestamp: Duration,
    ) -> Self {
        let columns = width as usize;
        let step = match encoding {
            "rgb8" | "bgr8" | "8UC3" => 3 * columns,
            "rgba8" | "bgra8" => 4 * columns,
            "nv12" => columns.next_multiple_of(2),
            _ => columns,
        };
        Self { encoding, width, height, step, data, timestamp }
    }
}

/// A frame for the detector. It borrows the message's pixels; those with four bytes, which are converted into `converted`,
/// are the exception.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for another encoding, [`ErrorKind::InvalidArgument`] if the pixels are too few.
pub fn view<'a>(pixels: Pixels<'a>, converted: &'a mut Vec<u8>) -> Result<FrameView<'a>> {
    let Pixels { encoding, width, height, step, data, timestamp } = pixels;
    let format = match encoding {
        "rgb8" | "rgba8" => PixelFormat::Rgb8,
        // OpenCV's names say nothing of the order; it is that of OpenCV.
        "bgr8" | "8UC3" | "bgra8" => PixelFormat::Bgr8,
        "mono8" | "8UC1" => PixelFormat::Gray8,
        "nv12" => PixelFormat::Nv12,
        other => {
            let known = ENCODINGS.join(", ");
            let message = format!("image with the encoding {other:?}: expected one of {known}");
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
    };
    let mut frame = FrameView { data, width, height, stride: step, format, timestamp };
    if matches!(encoding, "rgba8" | "bgra8") {
        without_alpha(width as usize, height as usize, step, data, converted)?;
        frame = FrameView { data: converted, stride: 3 * width as usize, ..frame };
    }
    frame.check()?;
    Ok(frame)
}

fn without_alpha(width: usize, height: usize, step: usize, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
    let row = 4 * width;
    let needed = step.checked_mul(height.saturating_sub(1)).and_then(|bytes| bytes.checked_add(row));
    if step < row || needed.is_none_or(|needed| data.len() < needed) {
        let message = format!(
            "image of {width}x{height} with four bytes a pixel: {} bytes are too few for a step of {step}",
            data.len()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    into.clear();
    into.reserve(3 * width * height);
    for row in data.chunks(step).take(height).map(|padded| &padded[..row]) {
        into.extend(row.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]));
    }
    Ok(())
}

/// A copy of a frame to draw in; `None` for the formats of video decoders.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if the pixels are too few.
pub fn to_image(frame: FrameView<'_>) -> Result<Option<Image>> {
    frame.check()?;
    let bytes = if frame.format == PixelFormat::Gray8 { 1 } else { 3 } * frame.width as usize;
    let rows = frame.data.chunks(frame.stride).take(frame.height as usize).map(|row| &row[..bytes]);
    let mut rgb = Vec::with_capacity(3 * frame.width as usize * frame.height as usize);
    match frame.format {
        PixelFormat::Rgb8 => rows.for_each(|row| rgb.extend_from_slice(row)),
        PixelFormat::Bgr8 => {
            rows.for_each(|row| {
                rgb.extend(row.chunks_exact(3).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]));
            });
        }
        PixelFormat::Gray8 => rows.for_each(|row| rgb.extend(row.iter().flat_map(|&value| [value; 3]))),
        _ => return Ok(None),
    }
    Image::from_rgb8(frame.width, frame.height, rgb).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_become_frames_or_an_error_that_names_the_cause() {
        let data: Vec<u8> = (0..32).collect();
        // encoding, width, height, step, bytes, expected: format, stride and first bytes, or a part of the error
        let cases = [
            ("rgb8", 2, 2, 8, 16, Ok((PixelFormat::Rgb8, 8, [0, 1, 2, 3]))),
            ("bgr8", 2, 2, 6, 12, Ok((PixelFormat::Bgr8, 6, [0, 1, 2, 3]))),
            ("8UC3", 2, 2, 6, 12, Ok((PixelFormat::Bgr8, 6, [0, 1, 2, 3]))),
            ("mono8", 2, 2, 3, 6, Ok((PixelFormat::Gray8, 3, [0, 1, 2, 3]))),
            ("nv12", 2, 2, 4, 10, Ok((PixelFormat::Nv12, 4, [0, 1, 2, 3]))),
            ("rgba8", 2, 2, 12, 20, Ok((PixelFormat::Rgb8, 6, [0, 1, 2, 4]))),
            ("bgra8", 2, 2, 8, 16, Ok((PixelFormat::Bgr8, 6, [0, 1, 2, 4]))),
            ("bgra8", 2, 2, 8, 15, Err("too few")),
            ("rgba8", 2, 2, 7, 32, Err("too few")),
            ("rgb8", 2, 2, 6, 11, Err("too few")),
            ("rgb8", 0, 2, 6, 32, Err("at least one pixel")),
            ("rgba8", 2, 0, 8, 32, Err("at least one pixel")),
            ("rgba8", u32::MAX, u32::MAX, usize::MAX, 32, Err("too few")),
            ("bayer_rggb8", 2, 2, 2, 32, Err("bayer_rggb8")),
        ];
        let mut failures = Vec::new();
        for (encoding, width, height, step, bytes, expected) in cases {
            let pixels =
                Pixels { encoding, width, height, step, data: &data[..bytes], timestamp: Duration::ZERO };
            let mut converted = Vec::new();
            let found = view(pixels, &mut converted)
                .map(|frame| (frame.format, frame.stride, [0, 1, 2, 3].map(|at| frame.data[at])))
                .map_err(|error| error.to_string());
            let as_expected = match (&found, expected) {
                (Ok(found), Ok(expected)) => *found == expected,
                (Err(error), Err(part)) => error.contains(part),
                _ => false,
            };
            if !as_expected {
                failures.push(format!("{encoding} {width}x{height}, step {step}, {bytes} bytes: {found:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn frames_are_copied_to_draw_in() {
        let data = [1, 2, 3, 4, 5, 6, 0, 7, 8, 9, 10, 11, 12];
        let frame = |format, stride| FrameView {
            data: &data,
            width: 2,
            height: 2,
            stride,
            format,
            timestamp: Duration::ZERO,
        };
        let cases = [
            (PixelFormat::Rgb8, 7, vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            (PixelFormat::Bgr8, 7, vec![3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10]),
            (PixelFormat::Gray8, 3, vec![1, 1, 1, 2, 2, 2, 4, 4, 4, 5, 5, 5]),
        ];
        for (format, stride, expected) in cases {
            let image =
                to_image(frame(format, stride)).expect("enough pixels").expect("a format with colours");
            assert_eq!(image.as_rgb8(), expected, "{format:?}");
        }
        assert!(to_image(frame(PixelFormat::Nv12, 2)).expect("enough pixels").is_none());
    }
}
