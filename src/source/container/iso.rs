//! ISO base media files: MP4, MOV (ISO/IEC 14496-12).

use std::fs::File;
use std::io;
use std::time::Duration;

use super::{Container, MAX_ELEMENTS, big_endian, bytes_at};

pub(super) fn inspect(file: &mut File, length: u64) -> io::Result<Container> {
    let mut container = Container { unfinished: true, counts_frames: true, ..Container::default() };
    let mut at: u64 = 0;
    for _ in 0..MAX_ELEMENTS {
        if length.saturating_sub(at) < 8 {
            break;
        }
        let head = bytes_at(file, at, 16)?;
        let kind = &head[4..8];
        if !kind.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ' || *byte == 0xa9) {
            // Some recorders leave padding after the last box.
            break;
        }
        let Some((header, size)) = box_size(&head, length - at) else { break };
        if kind == b"moov" {
            container.unfinished = false;
            movie(&bytes_at(file, at.saturating_add(header), size - header)?, &mut container);
        }
        let end = at.saturating_add(size);
        container.missing_bytes = end.saturating_sub(length);
        at = end;
    }
    Ok(container)
}

/// Bytes of a box's header and of the whole box, of which `head` is the start; a size of zero reaches to the end of the file.
/// `None` if the box would be smaller than its header.
fn box_size(head: &[u8], remaining: u64) -> Option<(u64, u64)> {
    let (header, size) = match big_endian(&head[..4]) {
        0 => (8, remaining),
        1 if head.len() == 16 => (16, big_endian(&head[8..16])),
        size => (8, size),
    };
    (size >= header).then_some((header, size))
}

/// Kinds and contents of the boxes inside a box.
fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let size = big_endian(bytes.get(..4)?) as usize;
        let (header, size) = match size {
            1 => (16, usize::try_from(big_endian(bytes.get(8..16)?)).ok()?),
            0 => (8, bytes.len()),
            _ => (8, size),
        };
        let kind = bytes.get(4..8)?;
        let content = bytes.get(header..size)?;
        bytes = &bytes[size..];
        Some((kind, content))
    })
}

fn child<'b>(bytes: &'b [u8], kind: &[u8; 4]) -> Option<&'b [u8]> {
    boxes(bytes).find(|(found, _)| found == kind).map(|(_, content)| content)
}

fn movie(bytes: &[u8], container: &mut Container) {
    // Units per second of the tracks' durations.
    let time_scale = child(bytes, b"mvhd").and_then(|mvhd| {
        let place = if mvhd.first() == Some(&1) { 20..24 } else { 12..16 };
        mvhd.get(place).map(big_endian).filter(|scale| *scale > 0)
    });
    for (_, track) in boxes(bytes).filter(|(kind, _)| kind == b"trak") {
        let handler = child(track, b"mdia").and_then(|mdia| child(mdia, b"hdlr")).and_then(|h| h.get(8..12));
        match handler {
            Some(b"soun") => container.has_sound = true,
            Some(b"vide") if container.quarter_turns.is_none() => {
                let Some(header) = child(track, b"tkhd") else { continue };
                let wide = header.first() == Some(&1);
                let duration = header.get(if wide { 28..36 } else { 20..24 }).map(big_endian);
                // All bits set: unknown. Zero: the file is fragmented.
                let duration =
                    duration.filter(|d| *d > 0 && *d != u64::MAX && (wide || *d != u64::from(u32::MAX)));
                // A duration beyond the range of the type is as good as unknown.
                let seconds = duration.zip(time_scale).map(|(units, scale)| units as f64 / scale as f64);
                container.duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
                let matrix = header.get(if wide { 52.. } else { 40.. }).unwrap_or_default();
                container.quarter_turns = Some(quarter_turns(matrix));
            }
            _ => {}
        }
    }
}

/// Quarter turns clockwise of a transformation `[a b u; c d v; x y w]` in fixed point, y downwards.
fn quarter_turns(matrix: &[u8]) -> u8 {
    let number = |index: usize| matrix.get(4 * index..4 * index + 4).map_or(0, big_endian) as u32 as i32;
    let (a, b) = (number(0), number(1));
    match (a.unsigned_abs() >= b.unsigned_abs(), a < 0, b < 0) {
        (true, false, _) => 0,
        (true, true, _) => 2,
        (false, _, false) => 1,
        (false, _, true) => 3,
    }
}

/// The times of the samples of the first video track in nanoseconds, without those that the edit list leaves out; `None` for
/// a fragmented file, several edits, or an index that contradicts itself.
pub(super) fn frame_times(file: &mut File, length: u64) -> io::Result<Option<Vec<i128>>> {
    let mut at: u64 = 0;
    for _ in 0..MAX_ELEMENTS {
        if length.saturating_sub(at) < 8 {
            break;
        }
        let head = bytes_at(file, at, 16)?;
        let Some((header, size)) = box_size(&head, length - at) else { break };
        if &head[4..8] == b"moov" {
            return Ok(track_times(&bytes_at(file, at.saturating_add(header), size - header)?));
        }
        at = at.saturating_add(size);
    }
    Ok(None)
}

fn track_times(movie: &[u8]) -> Option<Vec<i128>> {
    if child(movie, b"mvex").is_some() {
        // The fragments have frames that this index does not list.
        return None;
    }
    let track = boxes(movie).filter(|(kind, _)| kind == b"trak").map(|(_, track)| track).find(|track| {
        let handler = child(track, b"mdia").and_then(|mdia| child(mdia, b"hdlr")).and_then(|h| h.get(8..12));
        handler == Some(b"vide")
    })?;
    let media = child(track, b"mdia")?;
    let header = child(media, b"mdhd")?;
    let scale = header.get(if header.first() == Some(&1) { 20..24 } else { 12..16 }).map(big_endian)?;
    let table = child(child(media, b"minf")?, b"stbl")?;
    let start = match child(track, b"edts").and_then(|edits| child(edits, b"elst")) {
        Some(list) => only_edit(list)?,
        None => i64::MIN,
    };
    if scale == 0 {
        return None;
    }
    let mut offsets = match child(table, b"ctts") {
        Some(list) => runs(list)?,
        None => Vec::new(),
    }
    .into_iter()
    .flat_map(|(count, offset)| std::iter::repeat_n(i64::from(offset as i32), count as usize));
    let (mut times, mut samples) = (Vec::new(), 0);
    let mut decoded: i64 = 0;
    for (count, step) in runs(child(table, b"stts")?)? {
        for _ in 0..count {
            samples += 1;
            if samples > MAX_ELEMENTS {
                return None;
            }
            let shown = decoded + offsets.next().unwrap_or(0);
            if shown >= start {
                times.push(i128::from(shown) * 1_000_000_000 / i128::from(scale));
            }
            decoded = decoded.checked_add(i64::from(step))?;
        }
    }
    Some(times)
}

/// Where the only edit begins, in units of the track; `None` if there are several.
fn only_edit(list: &[u8]) -> Option<i64> {
    let wide = list.first() == Some(&1);
    let count = list.get(4..8).map(big_endian)? as usize;
    let entries = list.get(8..)?.chunks_exact(if wide { 20 } else { 12 }).take(count);
    let starts = entries.map(|entry| match wide {
        true => big_endian(&entry[8..16]) as i64,
        false => i64::from(big_endian(&entry[4..8]) as u32 as i32),
    });
    // An empty edit delays the whole track.
    let mut starts = starts.filter(|start| *start >= 0);
    let start = starts.next().unwrap_or(i64::MIN);
    starts.next().is_none().then_some(start)
}

/// Pairs of a count and a value, after a version and the number of pairs.
fn runs(list: &[u8]) -> Option<Vec<(u32, u32)>> {
    let count = list.get(4..8).map(big_endian)? as usize;
    let pairs = list.get(8..)?.chunks_exact(8).take(count);
    Some(pairs.map(|pair| (big_endian(&pair[..4]) as u32, big_endian(&pair[4..]) as u32)).collect())
}
