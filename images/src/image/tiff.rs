//! A look at the directory of a TIFF file before its decoder, which believes what it says.

use std::io::{Cursor, Read, Seek, SeekFrom};

/// The bytes of a value of each type, from 1 on; 0 for a type that there is not.
const SIZES: [u64; 18] = [1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8];

/// `true` if no entry of the first directory is larger than the whole file. The decoder would allocate what an entry declares,
/// up to 256 MiB, while it reads the header. What is not a directory is left to the decoder.
pub(super) fn entries_fit(bytes: &[u8]) -> bool {
    let mut reader = Cursor::new(bytes);
    directory(&mut reader)
        .is_none_or(|mut entries| entries.all(|entry| entry.value_bytes <= bytes.len() as u64))
}

/// The place of the photometric interpretation of a file with a palette, and two bytes that say grey.
pub fn palette_photometric(reader: &mut (impl Read + Seek)) -> Option<(u64, [u8; 2])> {
    let entry = directory(reader)?.find(|entry| entry.tag == 262)?;
    (entry.first == [3, 0] || entry.first == [0, 3])
        .then(|| (entry.value_at, entry.first.map(|byte| byte / 3)))
}

/// An entry of a directory.
struct Entry {
    tag: u64,
    /// The size of its values.
    value_bytes: u64,
    /// The place of the entry's value, or of the reference to it.
    value_at: u64,
    /// The bytes there.
    first: [u8; 2],
}

/// The entries of the first directory.
fn directory<R: Read + Seek>(reader: &mut R) -> Option<impl Iterator<Item = Entry> + use<'_, R>> {
    let mut bytes = move |at: u64, length: usize| -> Option<[u8; 8]> {
        let mut digits = [0; 8];
        reader.seek(SeekFrom::Start(at)).ok()?;
        reader.read_exact(&mut digits[..length]).ok()?;
        Some(digits)
    };
    let is_little = match bytes(0, 2)?[..2] {
        [b'I', b'I'] => true,
        [b'M', b'M'] => false,
        _ => return None,
    };
    let mut number = move |at: u64, length: usize| -> Option<(u64, [u8; 2])> {
        let digits = bytes(at, length)?;
        let join = |number: u64, digit: &u8| (number << 8) | u64::from(*digit);
        let digits = &digits[..length];
        let number = if is_little { digits.iter().rev().fold(0, join) } else { digits.iter().fold(0, join) };
        Some((number, [digits[0], digits[1]]))
    };
    // BigTIFF has wider numbers: those of an offset, of the number of entries, and of an entry.
    let (offset_at, wide, count_bytes, entry_bytes) = match number(2, 2)?.0 {
        42 => (4, 4, 2, 12),
        43 => (8, 8, 8, 20),
        _ => return None,
    };
    let start = number(offset_at, wide)?.0;
    let count = number(start, count_bytes)?.0;
    let first = start.checked_add(count_bytes as u64)?;
    let entry = move |index: u64| {
        let at = index.checked_mul(entry_bytes)?.checked_add(first)?;
        let kind = usize::try_from(number(at.checked_add(2)?, 2)?.0).ok()?;
        let size = kind.checked_sub(1).and_then(|kind| SIZES.get(kind)).unwrap_or(&0);
        let value_at = at.checked_add(4 + wide as u64)?;
        Some(Entry {
            tag: number(at, 2)?.0,
            value_bytes: number(at.checked_add(4)?, wide)?.0.saturating_mul(*size),
            value_at,
            first: number(value_at, 2)?.1,
        })
    };
    // The entries end with the file.
    Some((0..count).map_while(entry))
}

#[cfg(test)]
mod tests {
    use super::entries_fit;

    /// A file whose directory has one entry.
    fn file(is_little: bool, is_big: bool, kind: u16, count: u32) -> Vec<u8> {
        let number = |value: u64, length: usize| {
            if is_little {
                value.to_le_bytes()[..length].to_vec()
            } else {
                value.to_be_bytes()[8 - length..].to_vec()
            }
        };
        let wide = if is_big { 8 } else { 4 };
        let head = match is_big {
            true => [number(43, 2), number(8, 2), number(0, 2), number(16, 8), number(1, 8)].concat(),
            false => [number(42, 2), number(8, 4), number(1, 2)].concat(),
        };
        let entry = [number(258, 2), number(kind.into(), 2), number(count.into(), wide), number(0, wide)];
        [if is_little { b"II".to_vec() } else { b"MM".to_vec() }, head, entry.concat(), vec![0; 64]].concat()
    }

    #[test]
    fn entries_larger_than_the_file_are_refused() {
        for (is_little, is_big) in [(true, false), (false, false), (true, true), (false, true)] {
            for (kind, count, expected) in [
                (1, 10, true),
                (1, 218_104_064, false),
                (3, 40, true),
                (3, 1000, false),
                (12, 10, true),
                (12, 20, false),
                (18, 1 << 30, false),
                (0, u32::MAX, true),
                (99, u32::MAX, true),
            ] {
                let file = file(is_little, is_big, kind, count);
                assert_eq!(entries_fit(&file), expected, "{is_little}, {is_big}, {kind}, {count}");
                for length in 0..file.len() {
                    // It ends anywhere.
                    entries_fit(&file[..length]);
                }
            }
        }
    }
}
