//! The directory of a zip archive: where the stored entries lie.
//!
//! Entries of `torch.save` are stored without compression, so a tensor is a byte range of the file. Archives above 4 GiB
//! are Zip64.

use std::collections::HashMap;

const LOCAL: &[u8; 4] = b"PK\x03\x04";
const CENTRAL: &[u8; 4] = b"PK\x01\x02";
const END: &[u8; 4] = b"PK\x05\x06";
const END_64: &[u8; 4] = b"PK\x06\x06";
const LOCATOR_64: &[u8; 4] = b"PK\x06\x07";
/// The longest comment after the end record.
const MAX_COMMENT: usize = 0xFFFF;

/// Whether a file starts as an archive does.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(LOCAL) || bytes.starts_with(END)
}

/// The byte range of an entry; none if it is compressed or encrypted.
pub(super) type Entry = Option<(usize, usize)>;

/// The entries by name.
pub(super) fn entries(bytes: &[u8]) -> Result<HashMap<String, Entry>, String> {
    let (count, start) = directory(bytes)?;
    let mut at = start;
    let mut found = HashMap::new();
    for _ in 0..count {
        let record = slice(bytes, at, 46)?;
        if !record.starts_with(CENTRAL) {
            return Err(format!("no entry of the zip directory at byte {at}"));
        }
        let [flags, method] = [u16_at(record, 8)?, u16_at(record, 10)?];
        let [name_size, extra_size, comment_size] =
            [28, 30, 32].map(|at| u16_at(record, at).map_or(0, usize::from));
        let name = String::from_utf8_lossy(slice(bytes, at + 46, name_size)?).into_owned();
        let extra = slice(bytes, at + 46 + name_size, extra_size)?;
        let mut sizes = [u32_at(record, 24)?, u32_at(record, 20)?, u32_at(record, 42)?].map(u64::from);
        widen(&mut sizes, extra)?;
        let [size, stored_size, local] = sizes;
        let range = if method == 0 && flags & 1 == 0 && size == stored_size {
            Some(data_range(bytes, local, size).map_err(|why| format!("entry {name}: {why}"))?)
        } else {
            None
        };
        if found.insert(name.clone(), range).is_some() {
            return Err(format!("entry {name} is there twice"));
        }
        at = at + 46 + name_size + extra_size + comment_size;
    }
    Ok(found)
}

/// The bytes of an entry that `torch.save` stores without compression.
pub(super) fn stored(entry: Entry, name: &str) -> Result<(usize, usize), String> {
    entry.ok_or_else(|| {
        format!(
            "entry {name} is compressed or encrypted, and torch.save stores its entries; unpack it and pack it without \
             compression (zip -0)"
        )
    })
}

/// The number of entries and the start of the directory.
fn directory(bytes: &[u8]) -> Result<(u64, usize), String> {
    let earliest = bytes.len().saturating_sub(22 + MAX_COMMENT);
    let end = bytes[earliest..].windows(4).rposition(|window| window == END).map(|at| at + earliest);
    let end = end.ok_or("the zip directory is missing; the download may be incomplete")?;
    let (mut count, mut start) = (u64::from(u16_at(bytes, end + 10)?), u64::from(u32_at(bytes, end + 16)?));
    if let Some(locator) = end.checked_sub(20).filter(|at| bytes[*at..].starts_with(LOCATOR_64)) {
        let record = to_usize(u64_at(bytes, locator + 8)?)?;
        if !slice(bytes, record, 4)?.starts_with(END_64) {
            return Err("the Zip64 directory is missing".into());
        }
        (count, start) = (u64_at(bytes, add(record, 32)?)?, u64_at(bytes, add(record, 48)?)?);
    }
    Ok((count, to_usize(start)?))
}

/// Replaces sizes of 32 bits that say "see the Zip64 field".
fn widen(sizes: &mut [u64; 3], mut extra: &[u8]) -> Result<(), String> {
    while extra.len() >= 4 {
        let [id, size] = [u16_at(extra, 0)?, u16_at(extra, 2)?];
        let field = slice(extra, 4, usize::from(size))?;
        if id == 1 {
            let mut at = 0;
            for value in sizes.iter_mut().filter(|value| **value == u64::from(u32::MAX)) {
                *value = u64_at(field, at)?;
                at += 8;
            }
            return Ok(());
        }
        extra = &extra[4 + usize::from(size)..];
    }
    Ok(())
}

/// The bytes of an entry whose header is at `local`.
fn data_range(bytes: &[u8], local: u64, size: u64) -> Result<(usize, usize), String> {
    let local = to_usize(local)?;
    let header = slice(bytes, local, 30)?;
    if !header.starts_with(LOCAL) {
        return Err(format!("no header at byte {local}"));
    }
    let skipped = 30 + usize::from(u16_at(header, 26)?) + usize::from(u16_at(header, 28)?);
    let start = add(local, skipped)?;
    let size = to_usize(size)?;
    slice(bytes, start, size)?;
    Ok((start, start + size))
}

fn to_usize(value: u64) -> Result<usize, String> {
    usize::try_from(value).map_err(|_| format!("a size of {value} bytes does not fit this computer"))
}

fn add(a: usize, b: usize) -> Result<usize, String> {
    a.checked_add(b).ok_or_else(|| "a position overflows".into())
}

fn slice(bytes: &[u8], start: usize, size: usize) -> Result<&[u8], String> {
    let end = add(start, size)?;
    bytes.get(start..end).ok_or_else(|| format!("bytes {start} to {end} are beyond the end"))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    Ok(slice(bytes, at, N)?.try_into().expect("the slice has N bytes"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, String> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, String> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, String> {
    array(bytes, at).map(u64::from_le_bytes)
}
