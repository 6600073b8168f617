//! What a video file's own structure says, where the decoder does not: whether bytes are missing, which way up it is
//! shown, how long it lasts, whether it has sound.
//!
//! Decoders read what is there and end without a word where a file is cut; only the structure knows that more was
//! meant to come. ISO base media (MP4, MOV), Matroska (MKV, WebM) and AVI are known.

mod iso;
mod matroska;
mod riff;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// Headers larger than this are not looked into.
const MAX_HEADER_BYTES: u64 = 256 << 20;

/// What is known of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Container {
    /// Bytes that its structure announces and the file does not have.
    pub missing_bytes: u64,
    /// It has no index, or its size was never filled in: whoever wrote it did not finish.
    pub unfinished: bool,
    /// Quarter turns clockwise that the decoded pictures need.
    pub quarter_turns: Option<u8>,
    /// How long the first video track is shown.
    pub duration: Option<Duration>,
    /// Whether there is sound.
    pub has_sound: bool,
    /// Whether its header counts frames, in place of estimating them by a duration.
    pub counts_frames: bool,
}

impl Container {
    /// Looks at a file's structure, without its pictures; nothing where it is none that is known.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn inspect(path: &Path) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut start = [0; 12];
        let read = read_up_to(&mut file, &mut start)?;
        file.rewind()?;
        let container = match &start[..read] {
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

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read(&mut buffer[read..])? {
            0 => break,
            n => read += n,
        }
    }
    Ok(read)
}

/// The bytes from `start`, as many of `length` as the file has.
fn bytes_at(file: &mut File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Damaged sizes lead to places that no file has, and some systems refuse to go there.
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
