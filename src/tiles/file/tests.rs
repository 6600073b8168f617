use std::io::Cursor;
use std::path::PathBuf;

use ::image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use ocelli_error::ErrorKind;
use tiff::encoder::{TiffEncoder, colortype};

use super::*;
use crate::preprocess::{PreprocessConfig, Preprocessor};

const SIZE: (u32, u32) = (150, 97);

/// True if the file is read in parts, so that memory does not grow with its height.
fn is_in_parts(file: &TiledImage) -> bool {
    !matches!(file.0, Source::Whole(_))
}

fn drawn_image() -> RgbImage {
    RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| Rgb([(x * 5) as u8, (y * 3) as u8, (x * y) as u8]))
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).expect("the encoder takes it and memory does not fail");
    bytes.into_inner()
}

/// A TIFF file with strips of some rows.
fn striped(rows: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut bytes).expect("memory does not fail");
    let mut image = encoder.new_image::<colortype::RGB8>(SIZE.0, SIZE.1).expect("a size");
    image.rows_per_strip(rows).expect("nothing was written yet");
    image.write_data(drawn_image().as_raw()).expect("all pixels");
    bytes.into_inner()
}

/// Files, whether they are read in parts, and the folder that holds them.
fn files() -> (tempfile::TempDir, Vec<(PathBuf, bool)>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rgb = DynamicImage::ImageRgb8(drawn_image());
    let all = [
        ("rgb.png", encoded(&rgb, ImageFormat::Png), true),
        ("grey.png", encoded(&DynamicImage::ImageLuma8(rgb.to_luma8()), ImageFormat::Png), true),
        ("alpha.png", encoded(&DynamicImage::ImageRgba8(rgb.to_rgba8()), ImageFormat::Png), true),
        ("deep.png", encoded(&DynamicImage::ImageRgb16(rgb.to_rgb16()), ImageFormat::Png), true),
        ("strips.tif", striped(7), true),
        ("one-strip.tif", striped(SIZE.1), true),
        ("deep.tif", encoded(&DynamicImage::ImageRgb16(rgb.to_rgb16()), ImageFormat::Tiff), true),
        ("grey.tif", encoded(&DynamicImage::ImageLuma8(rgb.to_luma8()), ImageFormat::Tiff), true),
        ("rgb.jpg", encoded(&rgb, ImageFormat::Jpeg), false),
        ("rgb.bmp", encoded(&rgb, ImageFormat::Bmp), false),
    ];
    let written = all.map(|(name, bytes, in_parts)| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("it can be written");
        (path, in_parts)
    });
    (folder, written.into())
}

#[test]
fn parts_of_a_file_are_those_of_the_decoded_image() {
    let (_folder, files) = files();
    // Down, along a row, up again.
    let regions = [(0, 0, 40, 30), (100, 0, 50, 30), (10, 24, 40, 30), (110, 67, 40, 30), (0, 5, 150, 92)];
    let mut wrong = Vec::new();
    for (path, in_parts) in files {
        let whole = Image::open(&path).expect("it is an image");
        let mut parts = TiledImage::open(&path).expect("it is an image");
        if is_in_parts(&parts) != in_parts || parts.size() != SIZE {
            wrong.push(format!("{}: {} {:?}", path.display(), is_in_parts(&parts), parts.size()));
        }
        for (x, y, width, height) in regions {
            let region = Region { x, y, width, height };
            let expected = super::super::part_of((&whole).into(), region).and_then(|part| part.to_image());
            let found = parts.region(region).and_then(|part| part.to_image());
            if found.map(Image::into_rgb8).ok() != expected.map(Image::into_rgb8).ok() {
                wrong.push(format!("{}: {region:?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reduced_image_is_preprocessed_as_the_whole() {
    let (_folder, files) = files();
    let mut wrong = Vec::new();
    for side in [28, 97, 150, 200] {
        let mut preprocessor = Preprocessor::new(PreprocessConfig::new(side)).expect("a side");
        let [mut expected, mut found] = [(); 2].map(|()| vec![0.0; preprocessor.output_len()]);
        for (path, _) in &files {
            preprocessor.run_into(&Image::open(path).expect("an image"), &mut expected).expect("it fits");
            let mut parts = TiledImage::open(path).expect("it is an image");
            preprocessor.run_into(parts.whole(side as u32).expect("it reads"), &mut found).expect("it fits");
            if found != expected {
                wrong.push(format!("{} at {side}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A little-endian TIFF file: `data` from byte 8 on, and entries of a tag, a type (3: 16 bits, 4: 32 bits) and values.
fn tiff_file(data: &[u8], entries: &[(u16, u16, Vec<u32>)]) -> Vec<u8> {
    let mut file = [b"II*\0".as_slice(), &(8 + data.len() as u32).to_le_bytes(), data].concat();
    let mut after = file.len() as u32 + 2 + entries.len() as u32 * 12 + 4;
    let mut values = Vec::new();
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, numbers) in entries {
        let bytes: Vec<u8> = match kind {
            3 => numbers.iter().flat_map(|&number| (number as u16).to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        };
        file.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        file.extend((numbers.len() as u32).to_le_bytes());
        if bytes.len() <= 4 {
            file.extend([bytes.as_slice(), &[0; 4][bytes.len()..]].concat());
        } else {
            file.extend(after.to_le_bytes());
            after += bytes.len() as u32;
            values.extend(bytes);
        }
    }
    file.extend([0; 4]);
    file.extend(values);
    file
}

/// A TIFF file of one strip.
fn one_strip(
    data: &[u8],
    (width, height): (u32, u32),
    bits: &[u32],
    compression: u32,
    photometric: u32,
    more: &[(u16, u16, Vec<u32>)],
) -> Vec<u8> {
    let mut entries = vec![
        (256, 4, vec![width]),
        (257, 4, vec![height]),
        (258, 3, bits.to_vec()),
        (259, 3, vec![compression]),
        (262, 3, vec![photometric]),
        (273, 4, vec![8]),
        (277, 3, vec![bits.len() as u32]),
        (278, 4, vec![height]),
        (279, 4, vec![data.len() as u32]),
    ];
    entries.extend_from_slice(more);
    entries.sort_by_key(|entry| entry.0);
    tiff_file(data, &entries)
}

fn written(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("it can be written");
    path
}

#[test]
fn tiles_of_a_tiff_with_four_bands_are_read() {
    // Uncompressed tiles of 16 × 16 pixels with red, green, blue and infrared: the encoder writes strips only.
    let (width, height, side) = (40u32, 20u32, 16u32);
    let (columns, rows) = (width.div_ceil(side), height.div_ceil(side));
    let pixel = |x: u32, y: u32| [x as u8, y as u8, (x + y) as u8, 200];
    let mut data = Vec::new();
    let mut offsets = Vec::new();
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        offsets.push(8 + data.len() as u32);
        let all = (0..side).flat_map(|y| (0..side).map(move |x| (column * side + x, row * side + y)));
        data.extend(all.flat_map(|(x, y)| pixel(x, y)));
    }
    let file = tiff_file(
        &data,
        &[
            (256, 4, vec![width]),
            (257, 4, vec![height]),
            (258, 3, vec![8; 4]),
            (259, 3, vec![1]),
            (262, 3, vec![2]),
            (277, 3, vec![4]),
            (322, 4, vec![side]),
            (323, 4, vec![side]),
            (324, 4, offsets),
            (325, 4, vec![side * side * 4; (columns * rows) as usize]),
            (338, 3, vec![0]),
        ],
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = written(&folder, "bands.tif", &file);
    let mut parts = TiledImage::open(&path).expect("it is an image");
    assert!(is_in_parts(&parts));
    let part = parts.region(Region { x: 10, y: 12, width: 25, height: 8 }).and_then(|part| part.to_image());
    let expected: Vec<u8> =
        (12..20).flat_map(|y| (10..35).flat_map(move |x| [x as u8, y as u8, (x + y) as u8])).collect();
    assert_eq!(part.expect("it is inside").into_rgb8(), expected);
}

/// Kinds of TIFF files that every road reads alike, or refuses with what to do.
#[test]
fn every_road_reads_the_same_tiff_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let grey = |values: &[u8]| values.iter().flat_map(|&value| [value; 3]).collect::<Vec<u8>>();
    let floats = |values: [f32; 4]| values.map(f32::to_le_bytes).concat();
    // Red, green, blue, white; then other colours, which no pixel has.
    let palette = |colors: usize, scale: u32| {
        let shown = [[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]];
        let channel = |values: [u32; 4]| (0..colors).map(move |at| values.get(at).map_or(7, |v| v * scale));
        vec![(320, 3, shown.into_iter().flat_map(channel).collect::<Vec<u32>>())]
    };
    let colors = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255; 3]].concat();
    let plain = RgbImage::from_pixel(16, 16, Rgb([200, 30, 60]));
    let jpeg = encoded(&DynamicImage::ImageRgb8(plain.clone()), ImageFormat::Jpeg);
    let float = vec![(339, 3, vec![3])];
    let turned = vec![(274, 3, vec![6])];
    let cases: [(&str, Vec<u8>, Result<Vec<u8>, &str>); 12] = [
        ("palette-8", one_strip(&[0, 1, 2, 3], (2, 2), &[8], 1, 3, &palette(256, 257)), Ok(colors.clone())),
        ("palette-4", one_strip(&[0x01, 0x23], (2, 2), &[4], 1, 3, &palette(16, 257)), Ok(colors.clone())),
        ("palette-of-bytes", one_strip(&[0, 1, 2, 3], (2, 2), &[8], 1, 3, &palette(256, 1)), Ok(colors)),
        ("no-palette", one_strip(&[0, 1, 2, 3], (2, 2), &[8], 1, 3, &[]), Err("its palette has 0 values")),
        ("grey-4", one_strip(&[0x0F, 0x10], (2, 2), &[4], 1, 1, &[]), Ok(grey(&[0, 255, 17, 0]))),
        ("grey-1", one_strip(&[0x40, 0x80], (2, 2), &[1], 1, 1, &[]), Ok(grey(&[0, 255, 255, 0]))),
        ("white-is-0", one_strip(&[0x40, 0x80], (2, 2), &[1], 1, 0, &[]), Ok(grey(&[255, 0, 0, 255]))),
        ("turned", one_strip(&[1, 2, 3, 4], (2, 2), &[8], 1, 1, &turned), Ok(grey(&[3, 1, 4, 2]))),
        (
            "floats",
            one_strip(&floats([0.0, 1.0, 0.5, f32::NAN]), (2, 2), &[32], 1, 1, &float),
            Ok(grey(&[0, 255, 128, 0])),
        ),
        (
            "heights",
            one_strip(&floats([0.0, 3021.0, 0.5, 1.0]), (2, 2), &[32], 1, 1, &float),
            Err("it has the float 3021: expected 0 to 1; save it with 8 bits"),
        ),
        (
            "signed",
            one_strip(&[1, 2], (1, 1), &[16], 1, 1, &[(339, 3, vec![2])]),
            Err("save it with 8-bit RGB"),
        ),
        ("ycbcr", one_strip(&jpeg, (16, 16), &[8; 3], 7, 6, &[]), Ok(plain.into_raw())),
    ];
    let mut wrong = Vec::new();
    for (name, bytes, expected) in cases {
        let path = written(&folder, &format!("{name}.tif"), &bytes);
        let in_parts = TiledImage::open(&path).and_then(|mut parts| {
            let region = Region::whole(parts.size());
            parts.region(region).and_then(|part| part.to_image())
        });
        for (road, found) in [("whole", Image::open(&path)), ("parts", in_parts)] {
            let is_right = match (&found, &expected) {
                // JPEG is lossy.
                (Ok(found), Ok(expected)) => {
                    let near = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= if name == "ycbcr" { 3 } else { 0 };
                    let found = found.as_rgb8();
                    found.len() == expected.len() && found.iter().zip(expected).all(near)
                }
                (Err(error), Err(part)) => error.to_string().contains(part),
                _ => false,
            };
            if !is_right {
                let found = found.map(|image| image.as_rgb8()[..12].to_vec()).map_err(|e| e.to_string());
                wrong.push(format!("{name}, {road}: {found:?}, expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The CRC of PNG's chunks.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let step = |crc: u32, _| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
    let all = bytes.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step));
    (!all).to_be_bytes()
}

#[test]
fn small_files_that_declare_many_pixels_take_no_memory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let side = 65_000u16;
    let sides = [side.to_le_bytes(), side.to_le_bytes()].concat();
    let gif = [
        b"GIF89a",
        &*sides,
        &[0x80, 0, 0],
        &[0; 6],
        &[0x2C, 0, 0, 0, 0],
        &sides,
        &[0, 2, 2, 0x4C, 1, 0, 0x3B],
    ];
    let ppm = [format!("P6\n{side} {side}\n255\n").as_bytes(), &[0; 100]].concat();
    let small = DynamicImage::ImageRgb8(RgbImage::new(8, 8));
    let mut bmp = encoded(&small, ImageFormat::Bmp);
    bmp[18..26].copy_from_slice(&[u32::from(side).to_le_bytes(), u32::from(side).to_le_bytes()].concat());
    let mut jpeg = encoded(&small, ImageFormat::Jpeg);
    let start = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("a frame starts");
    jpeg[start + 5..start + 9].copy_from_slice(&[side.to_be_bytes(), side.to_be_bytes()].concat());
    let mut png = encoded(&small, ImageFormat::Png);
    let large = |png: &mut Vec<u8>, side: u32, is_interlaced: bool| {
        png[16..24].copy_from_slice(&[side.to_be_bytes(), side.to_be_bytes()].concat());
        png[28] = u8::from(is_interlaced);
        let sum = crc(&png[12..29]);
        png[29..33].copy_from_slice(&sum);
    };
    let mut tall_png = png.clone();
    large(&mut tall_png, 1 << 20, false);
    large(&mut png, side.into(), true);
    let strip = |width, height, compression, more: &[_]| {
        one_strip(&[0; 4], (width, height), &[8; 3], compression, 2, more)
    };
    let tile = |compression| {
        let tile = [(322, 4, vec![65_520]), (323, 4, vec![65_520]), (324, 4, vec![8]), (325, 4, vec![4])];
        let sizes = [(256, 4, vec![65_000]), (257, 4, vec![65_000]), (258, 3, vec![8; 3]), (277, 3, vec![3])];
        let kinds = [(259, 3, vec![compression]), (262, 3, vec![2])];
        let mut entries = [&sizes[..], &kinds, &tile].concat();
        entries.sort_by_key(|entry| entry.0);
        tiff_file(&[0; 4], &entries)
    };
    let cases = [
        (
            "tall.tif",
            strip(1, u32::MAX, 1, &[]),
            "1x4294967295 is too large: expected at most 65535 pixels a side",
        ),
        ("strip.tif", strip(60_000, 60_000, 1, &[]), "the file is truncated"),
        ("deflated.tif", strip(18_000, 18_000, 8, &[]), "the file is truncated"),
        ("lzw.tif", strip(18_000, 18_000, 5, &[]), "the file is truncated"),
        ("jpeg.tif", strip(60_000, 60_000, 7, &[]), "save it with smaller ones"),
        ("tile.tif", tile(1), "the file is truncated"),
        ("jpeg-tile.tif", tile(7), "save it with smaller ones"),
        ("turned.tif", strip(60_000, 60_000, 7, &[(274, 3, vec![6])]), "save it with smaller ones"),
        (
            "a.gif",
            gif.concat(),
            "65000x65000 is too large: expected at most 65535 pixels a side and 178 megapixels",
        ),
        ("a.ppm", ppm, "too large"),
        ("a.bmp", bmp, "too large"),
        ("a.jpg", jpeg, "too large"),
        ("interlaced.png", png, "too large"),
        ("tall.png", tall_png, "too large"),
    ];
    let mut wrong = Vec::new();
    for (name, bytes, part) in cases {
        let path = written(&folder, name, &bytes);
        assert!(bytes.len() < 1100, "{name} is small");
        let found = TiledImage::open(&path).and_then(|mut parts| parts.whole(28).map(|_| ()));
        match (found, Image::open(&path)) {
            (Err(found), Err(whole))
                if found.kind() == ErrorKind::InvalidData
                    && found.to_string().contains(&format!("{name}: "))
                    && found.to_string().contains(part)
                    && whole.kind() == ErrorKind::InvalidData => {}
            (found, whole) => wrong.push(format!("{name}: {found:?}, whole {whole:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn corrupt_files_are_one_line() {
    let (folder, _) = files();
    let at = |name: &str| folder.path().join(name);
    // The last one is whole but for its end mark.
    for (name, part) in [("rgb.png", 0.5), ("strips.tif", 0.5), ("rgb.jpg", 0.3), ("rgb.png", 1.0)] {
        let bytes = std::fs::read(at(name)).expect("it was written");
        let cut = at(&format!("cut-{name}"));
        let length = ((bytes.len() as f64 * part) as usize).min(bytes.len() - 12);
        std::fs::write(&cut, &bytes[..length]).expect("it can be written");
        let found = TiledImage::open(&cut).and_then(|mut parts| parts.whole(28).map(|_| ()));
        let error = found.expect_err(name);
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{text}");
        assert!(
            text.starts_with("cannot read the image, ") && text.contains(&format!("cut-{name}: ")),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    std::fs::write(at("empty.png"), b"").expect("it can be written");
    for path in [at("empty.png"), at("missing.tif"), folder.path().to_owned()] {
        let error = TiledImage::open(&path).map(|_| ()).expect_err("no image");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
