//! Masks in PNGs whose pixels are numbers of objects.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use png::{BitDepth, ColorType, Transformations};

use super::Mask;
use crate::image::MAX_PIXELS;
use crate::rows::packed;
use ocelli_error::{Error, Result};

/// More are an image, not masks.
const MAX_OBJECTS: usize = 1024;

/// Reads the masks of a PNG with a palette, or a grey one of 8 or 16 bits, whose pixels are numbers of objects, and 0 where there
/// is none: the annotations of DAVIS and YouTube-VOS. The numbers of a palette count, not its colours.
///
/// # Errors
/// [`ErrorKind::Io`](ocelli_error::ErrorKind::Io) if the file cannot be read,
/// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is no such PNG.
pub fn read_mask_png(path: &Path) -> Result<Vec<(u16, Mask)>> {
    let file = File::open(path).map_err(|error| Error::io("cannot read the masks", path, error))?;
    let corrupt =
        |why: String| Error::invalid_data(format!("cannot read the masks, {}: {why}", path.display()));
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(|error| corrupt(error.to_string()))?;
    let (width, height) = (reader.info().width, reader.info().height);
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(corrupt(format!("{width}×{height} are too many pixels")));
    }
    let (color, depth) = reader.output_color_type();
    if !matches!(color, ColorType::Indexed | ColorType::Grayscale) {
        return Err(corrupt("expected a palette or grey pixels, whose values are numbers of objects".into()));
    }
    let bytes = reader.output_buffer_size().ok_or_else(|| corrupt("it is too large".into()))?;
    let mut data = vec![0; bytes];
    let frame = reader.next_frame(&mut data).map_err(|error| corrupt(error.to_string()))?;
    let mut numbers = Vec::with_capacity(width as usize * height as usize);
    for row in data.chunks_exact(frame.line_size).take(height as usize) {
        numbers.extend((0..width as usize).map(|x| value(row, x, depth)));
    }
    let mut objects: BTreeSet<u16> = numbers.iter().copied().collect();
    objects.remove(&0);
    if objects.len() > MAX_OBJECTS {
        return Err(corrupt(format!("it has {} objects: expected at most {MAX_OBJECTS}", objects.len())));
    }
    let mask = |object: u16| {
        let bitmap: Vec<u8> = numbers.iter().map(|&number| u8::from(number == object)).collect();
        Ok((object, Mask::from_bitmap(&bitmap, width, height)?))
    };
    objects.into_iter().map(mask).collect()
}

/// A sample of a row.
fn value(row: &[u8], x: usize, depth: BitDepth) -> u16 {
    match depth {
        BitDepth::Sixteen => u16::from_be_bytes([row[2 * x], row[2 * x + 1]]),
        small => packed(row, x, small as usize).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_depth_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cases: [(&str, ColorType, BitDepth, &[u8], Result<&[(u16, u64)], &str>); 6] = [
            (
                "palette",
                ColorType::Indexed,
                BitDepth::Eight,
                &[0, 7, 7, 2, 0, 255],
                Ok(&[(2, 1), (7, 2), (255, 1)]),
            ),
            ("grey", ColorType::Grayscale, BitDepth::Eight, &[1; 6], Ok(&[(1, 6)])),
            (
                "wide",
                ColorType::Grayscale,
                BitDepth::Sixteen,
                &[1, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0],
                Ok(&[(3, 1), (256, 2)]),
            ),
            (
                "two bits",
                ColorType::Indexed,
                BitDepth::Two,
                &[0b0110_0000, 0b1100_0100],
                Ok(&[(1, 2), (2, 1), (3, 1)]),
            ),
            ("one bit", ColorType::Grayscale, BitDepth::One, &[0b1010_0000, 0b0000_0000], Ok(&[(1, 2)])),
            ("colours", ColorType::Rgb, BitDepth::Eight, &[9; 18], Err("expected a palette or grey pixels")),
        ];
        for (name, color, depth, data, expected) in cases {
            let path = folder.path().join(name);
            let file = File::create(&path).expect("it can be written to");
            let mut encoder = png::Encoder::new(file, 3, 2);
            encoder.set_color(color);
            encoder.set_depth(depth);
            if color == ColorType::Indexed {
                let colors = if depth == BitDepth::Eight { 256 } else { 4 };
                encoder.set_palette(vec![200; 3 * colors]);
            }
            encoder.write_header().and_then(|mut writer| writer.write_image_data(data)).expect("a valid PNG");
            match (read_mask_png(&path), expected) {
                (Ok(found), Ok(expected)) => {
                    let areas: Vec<_> = found.iter().map(|(number, mask)| (*number, mask.area())).collect();
                    assert_eq!(areas, expected, "{name}");
                }
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{name}: {error}"),
                (found, expected) => panic!("{name}: {found:?}, expected {expected:?}"),
            }
        }
        std::fs::write(folder.path().join("text"), "no PNG").expect("it can be written to");
        for name in ["text", "none"] {
            let error = read_mask_png(&folder.path().join(name)).expect_err("it is no PNG").to_string();
            assert!(error.contains("cannot read the masks") && error.contains(name), "{error}");
        }
    }
}
