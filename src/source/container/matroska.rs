//! Matroska and WebM (RFC 9559, on RFC 8794).

use std::fs::File;
use std::io;

use super::{Container, FrameIndex, MAX_ELEMENTS, big_endian, bytes_at};

const SEGMENT: u64 = 0x1853_8067;
const TRACKS: u64 = 0x1654_ae6b;
const TRACK_ENTRY: u64 = 0xae;
const TRACK_TYPE: u64 = 0x83;
const SOUND: u64 = 2;
const VIDEO: u64 = 1;
const TRACK_NUMBER: u64 = 0xd7;
const INFO: u64 = 0x1549_a966;
const TIMESTAMP_SCALE: u64 = 0x2a_d7b1;
const CLUSTER: u64 = 0x1f43_b675;
const TIMESTAMP: u64 = 0xe7;
const SIMPLE_BLOCK: u64 = 0xa3;
const BLOCK_GROUP: u64 = 0xa0;
const BLOCK: u64 = 0xa1;
/// A block whose frame is decoded, but not shown.
const INVISIBLE: u8 = 0x08;

pub(super) fn inspect(file: &mut File, length: u64) -> io::Result<Container> {
    let mut container = Container::default();
    let mut at: u64 = 0;
    // The header element, then the segment, which contains all others.
    for _ in 0..MAX_ELEMENTS {
        let Some((id, size, header)) = element(&bytes_at(file, at, 12)?) else { break };
        let content = at.saturating_add(header);
        if id == SEGMENT {
            container.unfinished = size.is_none();
            container.missing_bytes =
                size.map_or(0, |size| content.saturating_add(size).saturating_sub(length));
            container.has_sound = has_sound(file, content)?;
            return Ok(container);
        }
        let Some(size) = size else { break };
        at = content.saturating_add(size);
    }
    container.unfinished = true;
    Ok(container)
}

/// Searches the elements before the first frames for a sound track.
fn has_sound(file: &mut File, mut at: u64) -> io::Result<bool> {
    for _ in 0..MAX_ELEMENTS {
        let Some((id, size, header)) = element(&bytes_at(file, at, 12)?) else { break };
        let (content, Some(size)) = (at.saturating_add(header), size) else { break };
        match id {
            CLUSTER => break,
            TRACKS => {
                let tracks = bytes_at(file, content, size)?;
                let entries = elements(&tracks).filter(|(id, _)| *id == TRACK_ENTRY);
                let mut fields = entries.flat_map(|(_, entry)| elements(entry));
                return Ok(fields.any(|(id, value)| id == TRACK_TYPE && big_endian(value) == SOUND));
            }
            _ => at = content.saturating_add(size),
        }
    }
    Ok(false)
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

fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (id, size, header) = element(bytes)?;
        let end = (header as usize).checked_add(usize::try_from(size?).ok()?)?;
        let content = bytes.get(header as usize..end)?;
        bytes = &bytes[end..];
        Some((id, content))
    })
}

/// The times of the frames of the first video track in nanoseconds; unknown if there are `most` elements or more, damaged where
/// an element is not readable, or exceeds the one that contains it.
pub(super) fn frame_times(file: &mut File, most: usize) -> io::Result<FrameIndex<i128>> {
    let (mut at, mut scale, mut track) = (0, 1_000_000, None);
    let (mut cluster, mut times) = (0i128, Vec::new());
    // Where the elements that contain this place end, if their sizes are known.
    let mut ends: Vec<u64> = Vec::new();
    for _ in 0..most {
        ends.retain(|end| at < *end);
        let head = bytes_at(file, at, 12)?;
        let Some((id, size, header)) = element(&head) else {
            // The end of a file, which may be cut off, or what follows the segment, which is not part of the video.
            let is_whole = head.len() < 12 || ends.is_empty();
            return Ok(if is_whole { FrameIndex::Times(times) } else { FrameIndex::DamagedAt(at) });
        };
        let content = at.saturating_add(header);
        let end = size.map(|size| content.saturating_add(size));
        if end.zip(ends.last()).is_some_and(|(end, outer)| end > *outer) {
            return Ok(FrameIndex::DamagedAt(at));
        }
        // These are entered; everything else is read or passed over.
        if [SEGMENT, CLUSTER, BLOCK_GROUP].contains(&id) {
            ends.extend(end);
            at = content;
            continue;
        }
        // Of the others none may leave out its size.
        let (Some(size), Some(end)) = (size, end) else { return Ok(FrameIndex::DamagedAt(at)) };
        at = end;
        match id {
            INFO => {
                let info = bytes_at(file, content, size)?;
                let found = elements(&info).find(|(id, _)| *id == TIMESTAMP_SCALE);
                scale = found.map_or(scale, |(_, value)| i128::from(big_endian(value)));
            }
            TRACKS => {
                let tracks = bytes_at(file, content, size)?;
                let field =
                    |entry, wanted| elements(entry).find(|(id, _)| *id == wanted).map(|(_, v)| big_endian(v));
                let mut entries = elements(&tracks).filter(|(id, _)| *id == TRACK_ENTRY);
                track = entries.find_map(|(_, entry)| {
                    (field(entry, TRACK_TYPE) == Some(VIDEO)).then(|| field(entry, TRACK_NUMBER)).flatten()
                });
            }
            TIMESTAMP => cluster = i128::from(big_endian(&bytes_at(file, content, size.min(8))?)),
            SIMPLE_BLOCK | BLOCK => {
                let head = bytes_at(file, content, size.min(12))?;
                let Some(length) = head.first().map(|first| first.leading_zeros() as usize + 1) else {
                    continue;
                };
                let number = head.get(..length).map(|bytes| big_endian(bytes) & !(1 << (7 * length)));
                let Some([high, low, flags]) = head.get(length..length + 3) else { continue };
                if number.is_some() && number == track && flags & INVISIBLE == 0 {
                    let relative = i16::from_be_bytes([*high, *low]);
                    times.push((cluster + i128::from(relative)).saturating_mul(scale));
                }
            }
            _ => {}
        }
    }
    Ok(FrameIndex::Unknown)
}
