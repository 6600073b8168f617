//! Annotated frames as raw bytes, for a pipe.

use std::io::Write;
use std::str::FromStr;

use super::lines::explain;
use super::{FrameOutcome, Pictures, Sink};
use crate::error::{Error, ErrorKind, Result};

/// Which colour comes first in a raw frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawOrder {
    /// Blue: ffmpeg's `bgr24`.
    Bgr,
    /// Red: ffmpeg's `rgb24`.
    Rgb,
}

impl FromStr for RawOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_lowercase().as_str() {
            "bgr" | "bgr24" => Ok(Self::Bgr),
            "rgb" | "rgb24" => Ok(Self::Rgb),
            _ => Err(format!("no such order of colours, {text}: there are bgr and rgb")),
        }
    }
}

/// Writes annotated frames one after the other, three bytes a pixel and nothing between.
///
/// All have the size of the first, which whoever reads it has been told; a frame of another size is an error.
pub struct RawWriter<W> {
    name: String,
    order: RawOrder,
    writer: W,
    size: Option<(u32, u32)>,
    swapped: Vec<u8>,
}

impl<W: Write + Send> RawWriter<W> {
    /// Writes to anything; `name` is what messages call it.
    pub fn new(name: impl Into<String>, order: RawOrder, writer: W) -> Self {
        Self { name: name.into(), order, writer, size: None, swapped: Vec::new() }
    }
}

impl<W: Write + Send> Sink for RawWriter<W> {
    fn pictures(&self) -> Pictures {
        Pictures { annotated: true, ..Pictures::default() }
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let Some(picture) = &outcome.annotated else { return Ok(()) };
        let size = (picture.width(), picture.height());
        let first = *self.size.get_or_insert(size);
        if first != size {
            let message = format!(
                "cannot write frame {}, {}: it is {}x{}, those before {}x{}",
                outcome.index, self.name, size.0, size.1, first.0, first.1
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let rgb = picture.as_rgb8();
        let bytes = match self.order {
            RawOrder::Rgb => rgb,
            RawOrder::Bgr => {
                self.swapped.resize(rgb.len(), 0);
                for (to, from) in self.swapped.chunks_exact_mut(3).zip(rgb.chunks_exact(3)) {
                    to.copy_from_slice(&[from[2], from[1], from[0]]);
                }
                &self.swapped
            }
        };
        self.writer.write_all(bytes).and_then(|()| self.writer.flush()).map_err(|e| {
            let message = format!("cannot write frame {}, {}: {}", outcome.index, self.name, explain(&e));
            Error::new(ErrorKind::Io, message).with_source(e)
        })
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;

    fn outcome(width: u32) -> FrameOutcome {
        let pixels = (0..3 * width).map(|byte| byte as u8).collect();
        let annotated = Image::from_rgb8(width, 1, pixels).expect("a row of pixels");
        FrameOutcome { annotated: Some(annotated), ..FrameOutcome::default() }
    }

    #[test]
    fn bytes_in_the_order_asked_for() {
        for (order, expected) in [(RawOrder::Rgb, [0, 1, 2, 3, 4, 5]), (RawOrder::Bgr, [2, 1, 0, 5, 4, 3])] {
            let mut bytes = Vec::new();
            let mut sink = RawWriter::new("memory", order, &mut bytes);
            sink.write(&outcome(2)).expect("memory takes it");
            let error = sink.write(&outcome(3)).expect_err("the size changed");
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            assert_eq!(bytes, expected, "{order:?}");
        }
    }
}
