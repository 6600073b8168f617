use std::io::Cursor;
use std::path::PathBuf;

use ::image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use ocelli_error::ErrorKind;
use tiff::encoder::{TiffEncoder, colortype};

use super::*;
use crate::preprocess::{PreprocessConfig, Preprocessor};

const SIZE: (u32, u32) = (150, 97);

fn picture() -> RgbImage {
    RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| Rgb([(x * 5) as u8, (y * 3) as u8, (x * y) as u8]))
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).expect("the encoder takes it and memory does not fail");
    bytes.into_inner()
}

/// A TIFF file with strips of some rows.
fn striped(rows: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut bytes).expect("memory does not fail");
    let mut image = encoder.new_image::<colortype::RGB8>(SIZE.0, SIZE.1).expect("a size");
    image.rows_per_strip(rows).expect("nothing was written yet");
    image.write_data(picture().as_raw()).expect("all pixels");
    bytes.into_inner()
}

/// Files, whether they are read in parts, and the folder that holds them.
fn files() -> (tempfile::TempDir, Vec<(PathBuf, bool)>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rgb = DynamicImage::ImageRgb8(picture());
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
fn parts_of_a_file_are_those_of_the_decoded_picture() {
    let (_folder, files) = files();
    // Down, along a row, up again.
    let regions = [(0, 0, 40, 30), (100, 0, 50, 30), (10, 24, 40, 30), (110, 67, 40, 30), (0, 5, 150, 92)];
    let mut wrong = Vec::new();
    for (path, in_parts) in files {
        let whole = Image::open(&path).expect("it is an image");
        let mut parts = PictureFile::open(&path).expect("it is an image");
        if parts.is_in_parts() != in_parts || parts.size() != SIZE {
            wrong.push(format!("{}: {} {:?}", path.display(), parts.is_in_parts(), parts.size()));
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
fn the_reduced_picture_is_preprocessed_as_the_whole() {
    let (_folder, files) = files();
    let mut wrong = Vec::new();
    for side in [28, 97, 150, 200] {
        let mut preprocessor = Preprocessor::new(PreprocessConfig::new(side)).expect("a side");
        let [mut expected, mut found] = [(); 2].map(|()| vec![0.0; preprocessor.output_len()]);
        for (path, _) in &files {
            preprocessor.run_into(&Image::open(path).expect("an image"), &mut expected).expect("it fits");
            let mut parts = PictureFile::open(path).expect("it is an image");
            preprocessor.run_into(parts.whole(side as u32).expect("it reads"), &mut found).expect("it fits");
            if found != expected {
                wrong.push(format!("{} at {side}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
    let mut file = [b"II*\0".as_slice(), &(8 + data.len() as u32).to_le_bytes(), &data].concat();
    let entries: Vec<(u16, u16, Vec<u32>)> = vec![
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
    ];
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
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bands.tif");
    std::fs::write(&path, file).expect("it can be written");
    let mut parts = PictureFile::open(&path).expect("it is an image");
    assert!(parts.is_in_parts());
    let part = parts.region(Region { x: 10, y: 12, width: 25, height: 8 }).and_then(|part| part.to_image());
    let expected: Vec<u8> =
        (12..20).flat_map(|y| (10..35).flat_map(move |x| [x as u8, y as u8, (x + y) as u8])).collect();
    assert_eq!(part.expect("it is inside").into_rgb8(), expected);
}

#[test]
fn corrupt_files_are_one_line() {
    let (folder, _) = files();
    let at = |name: &str| folder.path().join(name);
    for (name, part) in [("rgb.png", 0.5), ("strips.tif", 0.5), ("rgb.jpg", 0.3)] {
        let bytes = std::fs::read(at(name)).expect("it was written");
        let cut = at(&format!("cut-{name}"));
        std::fs::write(&cut, &bytes[..(bytes.len() as f64 * part) as usize]).expect("it can be written");
        let found = PictureFile::open(&cut).and_then(|mut parts| parts.whole(28).map(|_| ()));
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
        let error = PictureFile::open(&path).map(|_| ()).expect_err("no image");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
