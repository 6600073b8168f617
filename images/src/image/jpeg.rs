//! Detects truncated JPEG files, which the decoder fills with grey without an error.

/// `true` if the file has an end-of-image marker outside of any segment.
///
/// Walks the markers (ITU-T T.81, annex B) without decoding anything.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    // After the start-of-image marker.
    let mut at = 2;
    while let Some((marker, end)) = next_marker(bytes, at) {
        at = end;
        match marker {
            END_OF_IMAGE => return true,
            // Restart and start-of-image markers, TEM: no segment follows.
            0x01 | 0xD0..=0xD8 => {}
            _ => {
                let Some(length) = bytes.get(at..at + 2) else { return false };
                // The length counts its own two bytes.
                at += usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
            }
        }
    }
    false
}

const END_OF_IMAGE: u8 = 0xD9;

/// The first marker from `at` on and where it ends; scan data and stray bytes are skipped.
fn next_marker(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let mut prefixed = false;
    for (index, &byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            0xFF => prefixed = true,
            // 0xFF 0x00 is the data byte 0xFF.
            0x00 => prefixed = false,
            _ if prefixed => return Some((byte, index + 1)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_complete;

    #[test]
    fn the_end_marker_counts_only_outside_of_segments() {
        let cases: [(&str, &[u8], bool); 8] = [
            ("nothing but the two ends", &[0xFF, 0xD8, 0xFF, 0xD9], true),
            ("no end", &[0xFF, 0xD8, 0xFF, 0xDA, 0, 2, 1, 2, 3], false),
            ("scan data, then the end", &[0xFF, 0xD8, 0xFF, 0xDA, 0, 2, 1, 0xFF, 0, 0xD9, 0xFF, 0xD9], true),
            ("a stuffed byte is no marker", &[0xFF, 0xD8, 0xFF, 0xDA, 0, 2, 1, 0xFF, 0, 0xD9], false),
            (
                "an end inside a thumbnail",
                &[0xFF, 0xD8, 0xFF, 0xE1, 0, 4, 0xFF, 0xD9, 0xFF, 0xDA, 0, 2],
                false,
            ),
            ("fill bytes before a marker", &[0xFF, 0xD8, 0xFF, 0xFF, 0xFF, 0xD9], true),
            ("restart markers", &[0xFF, 0xD8, 0xFF, 0xDA, 0, 2, 5, 0xFF, 0xD0, 6, 0xFF, 0xD9, 9, 9], true),
            ("cut inside a segment's length", &[0xFF, 0xD8, 0xFF, 0xE0, 0], false),
        ];
        let failed: Vec<_> =
            cases.iter().filter(|(_, bytes, expected)| is_complete(bytes) != *expected).collect();
        assert!(failed.is_empty(), "{failed:?}");
    }
}
