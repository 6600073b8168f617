//! Entries of `torch.save` are stored in a zip archive without compression, so a tensor is a byte range of the file.

use std::collections::HashMap;
use std::io::Cursor;

use ::zip::{CompressionMethod, ZipArchive};

/// `true` if a file starts as an archive does.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// The byte range of an entry; none if it is compressed or encrypted.
pub(super) type Entry = Option<(usize, usize)>;

/// The entries by name.
pub(super) fn entries(bytes: &[u8]) -> Result<HashMap<String, Entry>, String> {
    let mut archive = ZipArchive::new(Cursor::new(bytes))
        .map_err(|why| format!("no zip directory ({why}); the download may be incomplete"))?;
    if archive.has_duplicate_names() {
        return Err("a name is there twice in the zip directory".into());
    }
    let mut found = HashMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|why| format!("entry {index}: {why}"))?;
        let name = entry.name().map_err(|why| format!("entry {index}: {why}"))?.into_owned();
        let size = entry.size();
        let is_stored = entry.compression() == CompressionMethod::Stored && size == entry.compressed_size();
        let start = entry.data_start().filter(|_| is_stored && !entry.encrypted());
        let range = start.map(|start| {
            let end = start.checked_add(size).filter(|end| *end <= bytes.len() as u64);
            end.map(|end| (start as usize, end as usize)).ok_or(format!("entry {name} is beyond the end"))
        });
        found.insert(name, range.transpose()?);
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
