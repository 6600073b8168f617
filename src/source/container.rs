//! Properties of a video file that OpenCV does not report: missing bytes, rotation, duration, sound.
//!
//! Decoders stop at the end of a truncated file without an error; only the container's structure reveals that data is
//! missing. ISO base media (MP4, MOV), Matroska (MKV, WebM) and AVI are supported.

mod index;
mod iso;
mod matroska;
mod riff;

pub(crate) use index::{FrameIndex, frame_times};

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// At most this much of a header is read.
const MAX_HEADER_BYTES: u64 = 256 << 20;
/// At most this many elements are looked at: a day of fragments has 200 000.
const MAX_ELEMENTS: usize = 1 << 20;

/// Properties of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Container {
    /// Bytes that the structure announces but the file does not have.
    pub(crate) missing_bytes: u64,
    /// The index is missing, or the size was never filled in: the writer did not finish.
    pub(crate) unfinished: bool,
    /// The byte at which the structure is damaged.
    pub(crate) damaged_at: Option<u64>,
    /// Clockwise quarter turns that make the decoded pictures upright.
    pub(crate) quarter_turns: Option<u8>,
    /// The duration of the first video track.
    pub(crate) duration: Option<Duration>,
    /// Whether there is a sound track.
    pub(crate) has_sound: bool,
    /// Whether the header's frame count is exact, not estimated from the duration.
    pub(crate) counts_frames: bool,
}

impl Container {
    /// Reads a file's structure; `None` if it is not a supported container.
    pub(crate) fn inspect(path: &Path) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let container = match bytes_at(&mut file, 0, 12)?.as_slice() {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' '] => riff::inspect(&mut file, length)?,
            [0x1a, 0x45, 0xdf, 0xa3, ..] => matroska::inspect(&mut file, length)?,
            [_, _, _, _, b'f', b't', b'y', b'p', ..]
            | [_, _, _, _, b'm', b'o', b'o', b'v', ..]
            | [_, _, _, _, b'm', b'd', b'a', b't', ..]
            | [_, _, _, _, b'w', b'i', b'd', b'e', ..] => iso::inspect(&mut file, length)?,
            _ => return Ok(None),
        };
        Ok(Some(container))
    }
}

/// Up to `length` bytes from `start`.
fn bytes_at(file: &mut File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Corrupt sizes lead beyond the end of the file, where some systems cannot seek.
    if start >= file.metadata()?.len() {
        return Ok(bytes);
    }
    file.seek(SeekFrom::Start(start))?;
    file.take(length.min(MAX_HEADER_BYTES)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
