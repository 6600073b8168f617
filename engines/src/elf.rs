//! Detects truncated ELF files.
//!
//! The loader of Linux maps a library without checking the file's length: access to the missing part of a truncated copy
//! then ends the process with SIGBUS.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The length that a 64-bit little-endian ELF file needs for the segments it declares, and its actual length, if it is
/// truncated. `None` for complete files and for other formats, which the loader judges.
pub(crate) fn shortfall(path: &Path) -> Option<(u64, u64)> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut header = [0; 64];
    file.read_exact(&mut header).ok()?;
    if header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    // Offsets and sizes in the file and program headers: System V ABI, chapters 4 and 5.
    let (table, entry, count) = (u64_at(&header, 32)?, u16_at(&header, 54)?, u16_at(&header, 56)?);
    let mut needed = table.checked_add(u64::from(entry) * u64::from(count))?;
    if needed <= length && usize::from(entry) >= 40 {
        file.seek(SeekFrom::Start(table)).ok()?;
        let mut entries = vec![0; usize::from(entry) * usize::from(count)];
        file.read_exact(&mut entries).ok()?;
        for entry in entries.chunks_exact(usize::from(entry)) {
            needed = needed.max(u64_at(entry, 8)?.checked_add(u64_at(entry, 32)?)?);
        }
    }
    (needed > length).then_some((needed, length))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of an ELF file with two segments, which end at 4000 and 3000.
    fn library(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 2;
        for (segment, offset, size) in [(64, 1000_u64, 3000_u64), (120, 500, 2500)] {
            bytes[segment + 8..][..8].copy_from_slice(&offset.to_le_bytes());
            bytes[segment + 32..][..8].copy_from_slice(&size.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn files_without_a_part_of_a_segment_are_truncated() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cases = [
            ("whole", library(4096), None),
            ("exactly the segments", library(4000), None),
            ("a byte less", library(3999), Some((4000, 3999))),
            ("within the table", library(100), Some((176, 100))),
            ("within the header", library(50), None),
            ("another format", vec![7; 4096], None),
            ("nothing", Vec::new(), None),
        ];
        let mut wrong = Vec::new();
        for (name, bytes, expected) in cases {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("a file");
            if shortfall(&path) != expected {
                wrong.push(format!("{name}: expected {expected:?}, got {:?}", shortfall(&path)));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
