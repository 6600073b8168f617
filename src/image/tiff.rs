//! A look at the directory of a TIFF file before its decoder, which believes what it says.

/// The bytes of a value of each type, from 1 on; 0 for a type that there is not.
const SIZES: [u64; 18] = [1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8];

/// Whether no entry of the first directory is larger than the whole file. The decoder would allocate what an entry declares,
/// up to 256 MiB, while it reads the header. What is not a directory is left to the decoder.
pub(super) fn entries_fit(bytes: &[u8]) -> bool {
    directory(bytes).is_none_or(|mut sizes| sizes.all(|size| size <= bytes.len() as u64))
}

/// The size of the values of each entry, in bytes.
fn directory(bytes: &[u8]) -> Option<impl Iterator<Item = u64>> {
    let is_little = match bytes.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let number = move |at: u64, length: usize| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let digits = bytes.get(at..at.checked_add(length)?)?;
        let join = |number: u64, digit: &u8| (number << 8) | u64::from(*digit);
        Some(if is_little { digits.iter().rev().fold(0, join) } else { digits.iter().fold(0, join) })
    };
    // BigTIFF has wider numbers: those of an offset, of the number of entries, and of an entry.
    let (offset_at, wide, count_bytes, entry_bytes) = match number(2, 2)? {
        42 => (4, 4, 2, 12),
        43 => (8, 8, 8, 20),
        _ => return None,
    };
    let start = number(offset_at, wide)?;
    let count = number(start, count_bytes)?;
    let first = start.checked_add(count_bytes as u64)?;
    let entry = move |index: u64| {
        let at = index.checked_mul(entry_bytes)?.checked_add(first)?;
        let kind = usize::try_from(number(at.checked_add(2)?, 2)?).ok()?;
        let size = kind.checked_sub(1).and_then(|kind| SIZES.get(kind)).unwrap_or(&0);
        Some(number(at.checked_add(4)?, wide)?.saturating_mul(*size))
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
