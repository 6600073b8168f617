//! A video that was cut off or damaged must not pass for a whole one. Decoders stop at the end of a truncated file without an error,
//! and pass over damage; only the container's structure reveals that data is missing. ISO base media (MP4, MOV), Matroska (MKV,
//! WebM) and AVI are supported.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// At most this many elements are looked at: a day of fragments has 200 000.
const MAX_ELEMENTS: usize = 1 << 20;
/// The longest head of a box or an element that matters.
const HEAD: u64 = 16;

const SEGMENT: u64 = 0x1853_8067;
const CLUSTER: u64 = 0x1f43_b675;
const BLOCK_GROUP: u64 = 0xa0;

/// The damage to a file, by its container's structure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Container {
    /// Bytes that the structure announces but the file does not have.
    pub(crate) missing_bytes: u64,
    /// The index is missing, or the size was never filled in: the writer did not finish.
    pub(crate) unfinished: bool,
    /// The byte at which the structure is damaged: frames behind it may be missing.
    pub(crate) damaged_at: Option<u64>,
}

impl Container {
    /// Reads a file's structure; `None` if it is not a supported container.
    pub(crate) fn inspect(path: &Path) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let container = match head_at(&mut file, length, 0)?.as_slice() {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..] => riff(&mut file, length)?,
            [0x1a, 0x45, 0xdf, 0xa3, ..] => matroska(&mut file, length, MAX_ELEMENTS)?,
            [_, _, _, _, b'f', b't', b'y', b'p', ..]
            | [_, _, _, _, b'm', b'o', b'o', b'v', ..]
            | [_, _, _, _, b'm', b'd', b'a', b't', ..]
            | [_, _, _, _, b'w', b'i', b'd', b'e', ..] => iso(&mut file, length)?,
            _ => return Ok(None),
        };
        Ok(Some(container))
    }
}

/// Boxes of ISO/IEC 14496-12.
fn iso(file: &mut File, length: u64) -> io::Result<Container> {
    let mut container = Container { unfinished: true, ..Container::default() };
    let mut at: u64 = 0;
    for _ in 0..MAX_ELEMENTS {
        if length.saturating_sub(at) < 8 {
            break;
        }
        let head = head_at(file, length, at)?;
        let kind = &head[4..8];
        if !kind.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ' || *byte == 0xa9) {
            // Some recorders leave padding after the last box.
            break;
        }
        let (header, size) = match big_endian(&head[..4]) {
            0 => (8, length - at),
            1 if head.len() == 16 => (16, big_endian(&head[8..16])),
            size => (8, size),
        };
        if size < header {
            break;
        }
        container.unfinished &= kind != b"moov";
        at = at.saturating_add(size);
        container.missing_bytes = at.saturating_sub(length);
    }
    Ok(container)
}

/// Elements of RFC 9559, on RFC 8794: damaged where one is not readable, or exceeds the one that contains it. Of more elements
/// than `most` the rest counts as whole.
fn matroska(file: &mut File, length: u64, most: usize) -> io::Result<Container> {
    let mut container = Container { unfinished: true, ..Container::default() };
    let mut at = 0;
    // Where the elements that contain this place end, if their sizes are known.
    let mut ends: Vec<u64> = Vec::new();
    for _ in 0..most {
        ends.retain(|end| at < *end);
        let head = head_at(file, length, at)?;
        let Some((id, size, header)) = element(&head) else {
            // The end of a file, which may be cut off, or what follows the segment, which is not part of the video.
            container.damaged_at = (head.len() >= 12 && !ends.is_empty()).then_some(at);
            break;
        };
        let content = at.saturating_add(header);
        let end = size.map(|size| content.saturating_add(size));
        if id == SEGMENT {
            container.unfinished = size.is_none();
            container.missing_bytes = end.map_or(0, |end| end.saturating_sub(length));
        }
        let exceeds = end.zip(ends.last()).is_some_and(|(end, outer)| end > *outer);
        let is_entered = [SEGMENT, CLUSTER, BLOCK_GROUP].contains(&id);
        // Of those that are passed over none may leave out its size.
        if exceeds || (!is_entered && end.is_none()) {
            container.damaged_at = Some(at);
            break;
        }
        ends.extend(end.filter(|_| is_entered));
        at = end.filter(|_| !is_entered).unwrap_or(content);
    }
    Ok(container)
}

/// An element's id, the size of its content (`None` if unknown) and the size of its header.
fn element(bytes: &[u8]) -> Option<(u64, Option<u64>, u64)> {
    let id_length = bytes.first()?.leading_zeros() as usize + 1;
    let id = bytes.get(..id_length).filter(|_| id_length <= 4).map(big_endian)?;
    let bytes = &bytes[id_length..];
    let size_length = bytes.first()?.leading_zeros() as usize + 1;
    let size = bytes.get(..size_length).filter(|_| size_length <= 8).map(big_endian)?;
    let all_ones = (1 << (7 * size_length)) - 1;
    let size = size & all_ones;
    Some((id, (size != all_ones).then_some(size), (id_length + size_length) as u64))
}

/// Chunks of AVI; files over 1 GB have several.
fn riff(file: &mut File, length: u64) -> io::Result<Container> {
    let mut container = Container::default();
    let mut at: u64 = 0;
    for _ in 0..MAX_ELEMENTS {
        let head = head_at(file, length, at)?;
        if head.len() < 12 || &head[..4] != b"RIFF" {
            break;
        }
        let size = head[4..8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        if size == 0 {
            container.unfinished = true;
            break;
        }
        at += 8 + size + size % 2;
        container.missing_bytes = at.saturating_sub(length);
    }
    Ok(container)
}

/// The bytes at a place of a file of this length, fewer at its end.
fn head_at(file: &mut File, length: u64, start: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Corrupt sizes lead beyond the end of the file, where some systems cannot seek.
    if start < length {
        file.seek(SeekFrom::Start(start))?;
        file.take(HEAD).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
