//! Annotated frames as raw bytes, for pipes.

use std::io::Write;
use std::str::FromStr;

use super::lines::write_error;
use super::{Images, Sink};
use crate::frame_view::swap_red_and_blue;
use crate::outcome::FrameOutcome;
use ocelli_error::{Error, Result};

/// The order of the colours in a raw frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawOrder {
    /// Blue first: FFmpeg's `bgr24`.
    Bgr,
    /// Red first: FFmpeg's `rgb24`.
    Rgb,
}

impl FromStr for RawOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_lowercase().as_str() {
            "bgr" | "bgr24" => Ok(Self::Bgr),
            "rgb" | "rgb24" => Ok(Self::Rgb),
            _ => Err(format!("unknown colour order {text}: the options are bgr and rgb")),
        }
    }
}

/// Writes annotated frames one after the other, three bytes per pixel, without headers.
///
/// The reader has to know the frames' size, so a frame whose size differs from the first one's is an error.
pub struct RawWriter<W> {
    name: String,
    order: RawOrder,
    writer: W,
    size: Option<(u32, u32)>,
    swapped: Vec<u8>,
}

impl<W: Write + Send> RawWriter<W> {
    /// Writes to `writer`; `name` stands for it in error messages.
    pub fn new(name: impl Into<String>, order: RawOrder, writer: W) -> Self {
        Self { name: name.into(), order, writer, size: None, swapped: Vec::new() }
    }
}

impl<W: Write + Send> Sink for RawWriter<W> {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(image) = &outcome.annotated else { return Ok(()) };
        let size = (image.width(), image.height());
        let first = *self.size.get_or_insert(size);
        if first != size {
            return Err(Error::mismatch(format!(
                "cannot write frame {}, {}: its size is {}x{}, expected {}x{} as before",
                outcome.index, self.name, size.0, size.1, first.0, first.1
            )));
        }
        let rgb = image.as_rgb8();
        let bytes = match self.order {
            RawOrder::Rgb => rgb,
            RawOrder::Bgr => {
                self.swapped.resize(rgb.len(), 0);
                swap_red_and_blue(rgb, &mut self.swapped);
                &self.swapped
            }
        };
        let written = self.writer.write_all(bytes).and_then(|()| self.writer.flush());
        written.map_err(|e| write_error(&format!("cannot write frame {}", outcome.index), &self.name, e))
    }
}

#[cfg(test)]
mod tests {
    use ocelli_error::ErrorKind;

    use super::*;
    use crate::image::Image;

    fn outcome(width: u32) -> FrameOutcome {
        let pixels = (0..3 * width).map(|byte| byte as u8).collect();
        let annotated = Image::from_rgb8(width, 1, pixels).expect("a row of pixels");
        FrameOutcome { annotated: Some(annotated), ..FrameOutcome::default() }
    }

    #[test]
    fn bytes_are_written_in_the_requested_order() {
        for (order, expected) in [(RawOrder::Rgb, [0, 1, 2, 3, 4, 5]), (RawOrder::Bgr, [2, 1, 0, 5, 4, 3])] {
            let mut bytes = Vec::new();
            let mut sink = RawWriter::new("memory", order, &mut bytes);
            sink.write(&outcome(2)).expect("writing to memory works");
            let error = sink.write(&outcome(3)).expect_err("the size changed");
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert_eq!(bytes, expected, "{order:?}");
        }
    }
}
