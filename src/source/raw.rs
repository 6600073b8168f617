//! Raw frames from a pipe: `ffmpeg … -f rawvideo -pix_fmt bgr24 - | …`.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use super::{FRAME_RATES, Source, SourceInfo, time_of};
use crate::frame::Frame;
use crate::frame_view::{FrameView, PixelFormat};
use crate::image::{MAX_PIXELS, MAX_SIDE};
use ocelli_error::{Error, ErrorKind, Result};

/// Names of pixel formats, FFmpeg's included; the first one of each is used for printing.
const PIXELS: [(&str, PixelFormat); 8] = [
    ("bgr", PixelFormat::Bgr8),
    ("rgb", PixelFormat::Rgb8),
    ("gray", PixelFormat::Gray8),
    ("nv12", PixelFormat::Nv12),
    ("bgr24", PixelFormat::Bgr8),
    ("rgb24", PixelFormat::Rgb8),
    ("grey", PixelFormat::Gray8),
    ("gray8", PixelFormat::Gray8),
];

/// Size, pixel format and frame rate of raw frames, parsed from `1280x720:bgr` or `640x480:nv12@25`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RawFormat {
    /// Width in pixels; even for [`PixelFormat::Nv12`].
    pub width: u32,
    /// Height in pixels; even for [`PixelFormat::Nv12`].
    pub height: u32,
    /// The pixel format.
    pub pixels: PixelFormat,
    /// Frames per second; 30 by default.
    pub frame_rate: f64,
}

impl RawFormat {
    /// Bytes per frame.
    pub fn frame_bytes(&self) -> usize {
        let rows = self.height as usize;
        self.row_bytes() * if self.pixels == PixelFormat::Nv12 { rows + rows / 2 } else { rows }
    }

    fn row_bytes(&self) -> usize {
        let channels = if matches!(self.pixels, PixelFormat::Bgr8 | PixelFormat::Rgb8) { 3 } else { 1 };
        self.width as usize * channels
    }
}

impl FromStr for RawFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "expected WIDTHxHEIGHT:PIXELS, such as 1280x720:bgr, and @FPS unless it is 30".to_owned();
        let (size, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (pixels, rate) = rest.split_once('@').unwrap_or((rest, "30"));
        let (width, height) = size.split_once(['x', 'X']).ok_or_else(wrong)?;
        let side = |text: &str| match text.parse::<u32>() {
            Ok(side) if (1..=MAX_SIDE).contains(&side) => Ok(side),
            Ok(side) => Err(format!("side of {side} pixels: expected 1 to {MAX_SIDE}")),
            Err(_) => Err(wrong()),
        };
        let (width, height) = (side(width)?, side(height)?);
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(format!("{width}x{height}: expected at most {} megapixels", MAX_PIXELS / 1_000_000));
        }
        let name = pixels.to_lowercase();
        let pixels = PIXELS.iter().find(|(known, _)| *known == name).map(|(_, pixels)| *pixels);
        let pixels = pixels
            .ok_or_else(|| format!("unknown pixel format {name}: the options are bgr, rgb, gray, nv12"))?;
        let frame_rate = rate.parse::<f64>().ok().filter(|rate| FRAME_RATES.contains(rate));
        let frame_rate = frame_rate.ok_or_else(|| {
            let (least, most) = (FRAME_RATES.start(), FRAME_RATES.end());
            format!("rate of {rate}: expected {least} to {most} frames per second")
        })?;
        if pixels == PixelFormat::Nv12 && (width % 2 != 0 || height % 2 != 0) {
            return Err(format!("nv12 of {width}x{height}: expected even sides"));
        }
        Ok(Self { width, height, pixels, frame_rate })
    }
}

impl fmt::Display for RawFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PIXELS.iter().find(|(_, pixels)| *pixels == self.pixels).map_or("", |(name, _)| name);
        write!(f, "{}x{}:{name}@{}", self.width, self.height, self.frame_rate)
    }
}

/// Raw frames from any reader. A truncated last frame is an error.
#[derive(Debug)]
pub struct RawFrames<R> {
    info: SourceInfo,
    format: RawFormat,
    reader: R,
    buffer: Vec<u8>,
    next: u64,
}

impl<R: Read + Send> RawFrames<R> {
    /// Reads frames of `format`; `name` stands for the stream in messages.
    pub fn new(name: impl Into<String>, format: RawFormat, reader: R) -> Self {
        let info = SourceInfo {
            name: name.into(),
            size: Some((format.width, format.height)),
            frame_rate: Some(format.frame_rate),
            ..SourceInfo::default()
        };
        Self { info, format, reader, buffer: vec![0; format.frame_bytes()], next: 0 }
    }

    /// Reads the next frame into the buffer.
    fn advance(&mut self, frame: &mut Frame) -> Result<bool> {
        let (name, format, number) = (&self.info.name, &self.format, self.next);
        let wanted = format.frame_bytes();
        self.buffer.clear();
        let read = self.reader.by_ref().take(wanted as u64).read_to_end(&mut self.buffer);
        match read {
            Ok(0) => return Ok(false),
            Ok(read) if read < wanted => {
                return Err(Error::invalid_data(format!(
                    "{name}, frame {number}: truncated after {read} of {wanted} bytes; does the sender write {format}?"
                )));
            }
            Ok(_) => {}
            Err(e) => {
                let message = format!("cannot read frame {number}, {name}: {e}");
                return Err(Error::new(ErrorKind::Io, message).with_source(e));
            }
        }
        frame.index = self.next;
        frame.time = time_of(self.next, self.format.frame_rate);
        self.next += 1;
        Ok(true)
    }
}

impl<R: Read + Send> Source for RawFrames<R> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if !self.advance(frame)? {
            return Ok(false);
        }
        let RawFormat { width, height, pixels: format, .. } = self.format;
        let stride = self.format.row_bytes();
        let view = FrameView { data: &self.buffer, width, height, stride, format, timestamp: frame.time };
        view.to_image_into(&mut frame.image)?;
        Ok(true)
    }

    fn skip(&mut self, frame: &mut Frame) -> Result<bool> {
        self.advance(frame)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn formats_are_parsed_and_printed() {
        let cases: [(&str, Result<(u32, u32, PixelFormat, f64), &str>); 15] = [
            ("1280x720:bgr", Ok((1280, 720, PixelFormat::Bgr8, 30.0))),
            ("5X3:RGB24@12.5", Ok((5, 3, PixelFormat::Rgb8, 12.5))),
            ("4x2:nv12", Ok((4, 2, PixelFormat::Nv12, 30.0))),
            ("4x2:grey", Ok((4, 2, PixelFormat::Gray8, 30.0))),
            ("4x2", Err("WIDTHxHEIGHT:PIXELS")),
            ("4:bgr", Err("WIDTHxHEIGHT:PIXELS")),
            ("0x2:bgr", Err("side of 0")),
            ("99999999x2:bgr", Err("side of 99999999")),
            ("4x2:yuv", Err("bgr, rgb, gray, nv12")),
            ("4x2:bgr@0", Err("rate of 0")),
            ("4x2:bgr@1e-300", Err("rate of 1e-300")),
            ("4x2:bgr@1e300", Err("rate of 1e300")),
            ("4x2:bgr@nan", Err("rate of nan")),
            ("65535x65535:bgr", Err("at most 178 megapixels")),
            ("5x2:nv12", Err("even")),
        ];
        for (text, expected) in cases {
            match (text.parse::<RawFormat>(), expected) {
                (Ok(f), Ok(expected)) => {
                    assert_eq!((f.width, f.height, f.pixels, f.frame_rate), expected, "{text}");
                    assert_eq!(f.to_string().parse(), Ok(f), "{text}");
                }
                (Err(e), Err(word)) => assert!(e.contains(word), "{text}: {e}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn pixels_become_rgb() {
        // Black, white, red and green in BT.601.
        let nv12 = [16, 16, 235, 235, 81, 81, 145, 145, 16, 16, 235, 235, 81, 81, 145, 145]
            .into_iter()
            .chain([128, 128, 128, 128, 90, 240, 54, 34])
            .collect::<Vec<u8>>();
        let cases: [(&str, Vec<u8>, [[u8; 3]; 4]); 4] = [
            ("4x1:bgr", (0..12).collect(), [[2, 1, 0], [5, 4, 3], [8, 7, 6], [11, 10, 9]]),
            ("4x1:rgb", (0..12).collect(), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]),
            ("4x1:gray", vec![1, 2, 3, 4], [[1; 3], [2; 3], [3; 3], [4; 3]]),
            ("8x2:nv12", nv12, [[0; 3], [255; 3], [255, 0, 0], [0, 255, 0]]),
        ];
        for (format, bytes, expected) in cases {
            let parsed: RawFormat = format.parse().expect("it is a format");
            let mut source = RawFrames::new("memory", parsed, bytes.as_slice());
            let mut frame = Frame::default();
            assert!(source.read_into(&mut frame).expect("the bytes are there"), "{format}");
            let step = parsed.width as usize / 4;
            let found: Vec<&[u8]> = frame.image.as_rgb8().chunks_exact(3).step_by(step).take(4).collect();
            for (found, expected) in found.iter().zip(expected) {
                let off = found.iter().zip(expected).map(|(a, b)| a.abs_diff(b)).max();
                assert!(off <= Some(1), "{format}: {found:?}, expected {expected:?}");
            }
            assert!(!source.read_into(&mut frame).expect("it ends on a frame"), "{format}");
        }
    }

    #[test]
    fn a_truncated_frame_is_an_error() {
        let format: RawFormat = "2x2:gray@10".parse().expect("it is a format");
        let mut source = RawFrames::new("stdin", format, &[1u8; 11][..]);
        let mut frame = Frame::default();
        for index in 0..2 {
            assert!(source.read_into(&mut frame).expect("it is whole"));
            assert_eq!((frame.index, frame.time), (index, Duration::from_millis(100 * index)));
        }
        let error = source.read_into(&mut frame).expect_err("3 bytes are not a whole frame");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        for word in ["stdin", "frame 2", "3 of 4 bytes", "2x2:gray"] {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
}
