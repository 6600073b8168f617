//! AVI: RIFF chunks, little-endian.

use std::fs::File;
use std::io;

use super::{Container, MAX_ELEMENTS, bytes_at};

pub(super) fn inspect(file: &mut File, length: u64) -> io::Result<Container> {
    let mut container = Container { counts_frames: true, ..Container::default() };
    let mut at: u64 = 0;
    // Files over 1 GB have several RIFF chunks.
    for _ in 0..MAX_ELEMENTS {
        if length.saturating_sub(at) < 12 {
            break;
        }
        let head = bytes_at(file, at, 12)?;
        if &head[..4] != b"RIFF" {
            break;
        }
        let size = little_endian(&head[4..8]);
        if size == 0 {
            container.unfinished = true;
            break;
        }
        let end = at + 8 + size + size % 2;
        container.missing_bytes = end.saturating_sub(length);
        at = end;
    }
    let first_list = bytes_at(file, 12, 8)?;
    if let Some(size) = first_list.get(4..8).filter(|_| first_list.starts_with(b"LIST")) {
        // Each stream header starts with the stream's kind.
        let lists = bytes_at(file, 20, little_endian(size))?;
        container.has_sound = lists.windows(12).any(|w| w.starts_with(b"strh") && w.ends_with(b"auds"));
    }
    Ok(container)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
