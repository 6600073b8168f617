//! Image files to 8-bit RGB.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use ::image::error::ImageFormatHint;
use ::image::metadata::Orientation;
use ::image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::limits::{MAX_FILE_BYTES, MAX_PIXELS, TRUNCATED, check_size, guarded, invalid, no_memory};
use super::{Image, jpeg, tiff};
use crate::rows::{FileRows, Refused, TiffRows, append_rgb, high_byte, tiff_size};
use ocelli_error::{Error, Result, refuse};

/// The most that a decoder may allocate besides the pixels: metadata, of which a file of a few megabytes can hold gigabytes.
const MAX_METADATA_BYTES: u64 = 32 << 20;

/// The most that a decoder may allocate for each pixel: 8 bytes, twice.
const MAX_BYTES_PER_PIXEL: u64 = 8 * 2;

const FORMATS: &str = "PNG, JPEG, WebP, BMP, TIFF, GIF or PNM";

/// Reads and decodes a file.
pub(super) fn open(path: &Path) -> Result<Image> {
    let name = path.display().to_string();
    let failed = |error| Error::io("cannot read the image", path, error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        refuse!("cannot read the image, {name}: it is a folder; name a file in it");
    }
    let mut bytes = Vec::new();
    // One byte above the limit reveals a file that is too large, even an endless one such as /dev/zero.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    decode(&bytes, &name)
}

/// Decodes a file in memory; errors call it `name`.
pub(super) fn decode(bytes: &[u8], name: &str) -> Result<Image> {
    let format = recognise(bytes).map_err(|why| invalid(name, &why))?;
    guarded(name, || decode_as(format, bytes, name))
}

fn decode_as(format: ImageFormat, bytes: &[u8], name: &str) -> Result<Image> {
    let failed = |error: ImageError| invalid(name, &reason(&error)).with_source(error);

    let (width, height) = declared_size(bytes, format, name)?;
    check_size(width, height, MAX_PIXELS).map_err(|why| invalid(name, &why))?;
    if format == ImageFormat::Tiff {
        match TiffRows::new(Cursor::new(bytes)) {
            Ok(rows) => return upright_tiff(rows, name),
            Err(Refused::NotInRows) => {}
            Err(refused) => return Err(refused.about(name)),
        }
    }
    let mut decoder = decoder(bytes, format, u64::from(width) * u64::from(height)).map_err(failed)?;

    let orientation = orientation(&mut decoder);
    // The decoder's pixels and their conversion: an allocation that fails within would end the program.
    let needed = decoder.total_bytes().saturating_add(u64::from(width) * u64::from(height) * 3);
    let is_there =
        usize::try_from(needed).is_ok_and(|needed| Vec::<u8>::new().try_reserve_exact(needed).is_ok());
    if !is_there {
        return Err(invalid(name, &no_memory(needed)));
    }
    let mut image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    if format == ImageFormat::Jpeg && !jpeg::is_complete(bytes) {
        return Err(invalid(name, TRUNCATED));
    }
    image.apply_orientation(orientation);
    Image::from_rgb8(image.width(), image.height(), into_rgb8(image))
}

/// The image of a TIFF file's rows, turned as the file says.
fn upright_tiff(rows: TiffRows<Cursor<&[u8]>>, name: &str) -> Result<Image> {
    let (width, height) = rows.size();
    let orientation = u8::try_from(rows.orientation).ok().and_then(Orientation::from_exif);
    let pixels = rows.into_pixels().map_err(|refused| refused.about(name))?;
    let mut image = DynamicImage::from(Image::from_rgb8(width, height, pixels)?);
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    Ok(image.into())
}

/// Width and height that the header of a file in memory declares, at the cost of reading the header; errors call it `name`.
pub(super) fn size_of(bytes: &[u8], name: &str) -> Result<(u32, u32)> {
    let format = recognise(bytes).map_err(|why| invalid(name, &why))?;
    guarded(name, || declared_size(bytes, format, name))
}

fn declared_size(bytes: &[u8], format: ImageFormat, name: &str) -> Result<(u32, u32)> {
    if format == ImageFormat::Tiff {
        return tiff_size(bytes).map_err(|refused| refused.about(name));
    }
    let decoder = decoder(bytes, format, 0);
    decoder
        .map(|decoder| decoder.dimensions())
        .map_err(|error| invalid(name, &reason(&error)).with_source(error))
}

/// A decoder that has read the header, and allocates no more than the metadata and this many pixels may need.
fn decoder(bytes: &[u8], format: ImageFormat, pixels: u64) -> Result<impl ImageDecoder, ImageError> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_METADATA_BYTES + pixels * MAX_BYTES_PER_PIXEL);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    reader.into_decoder()
}

/// The format of the content, or why it is not supported.
fn recognise(bytes: &[u8]) -> Result<ImageFormat, String> {
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20));
    }
    match ::image::guess_format(bytes) {
        Ok(ImageFormat::Tiff) if !tiff::entries_fit(bytes) => Err(TRUNCATED.into()),
        Ok(format) if format.reading_enabled() => Ok(format),
        Ok(format) => Err(format!("{format:?} files are not supported; convert it to PNG or JPEG")),
        // ISO base media files: .heic and .avif of phones.
        Err(_) if bytes.get(4..8) == Some(b"ftyp") => {
            Err("HEIF, AVIF and video files are not supported; convert it to PNG or JPEG".into())
        }
        // A code stream, and its container.
        Err(_) if bytes.starts_with(&[0xff, 0x0a]) || bytes.get(4..8) == Some(b"JXL ") => {
            Err("JPEG XL files are not supported; convert it to PNG or JPEG".into())
        }
        Err(_) => Err(format!("not an image: expected {FORMATS}")),
    }
}

/// The EXIF orientation; an image with corrupt metadata is taken as upright.
fn orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    match decoder.orientation() {
        Ok(Orientation::NoTransforms) | Err(_) => {}
        Ok(orientation) => return orientation,
    }
    // The prefix of JPEG does not belong into other formats, but some programs write it there.
    let exif = decoder.exif_metadata().ok().flatten().unwrap_or_default();
    exif.strip_prefix(b"Exif\0\0").and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms)
}

/// 8-bit RGB: [height, width, rgb].
pub(super) fn into_rgb8(image: DynamicImage) -> Vec<u8> {
    let channels = usize::from(image.color().channel_count());
    let mut rgb = Vec::new();
    if let DynamicImage::ImageRgb8(image) = image {
        return image.into_raw();
    } else if let Some(image) = image.as_flat_samples_u8() {
        append_rgb(image.samples, channels, |level| level, &mut rgb);
    } else if let Some(image) = image.as_flat_samples_u16() {
        append_rgb(image.samples, channels, high_byte, &mut rgb);
    } else if let Some(image) = image.as_flat_samples_f32() {
        // A NaN becomes 0.
        append_rgb(image.samples, channels, |v| (v.clamp(0.0, 1.0) * 255.0).round() as u8, &mut rgb);
    } else {
        // The enum is non-exhaustive.
        return image.into_rgb8().into_raw();
    }
    rgb
}

/// The message of the decoder on one line.
fn reason(error: &ImageError) -> String {
    match error {
        ImageError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => TRUNCATED.into(),
        ImageError::Unsupported(error)
            if error.format_hint() == ImageFormatHint::Exact(ImageFormat::Tiff) =>
        {
            "its samples, planes or compression are not supported; save it with 8-bit RGB, such as by \
             `gdal_translate -ot Byte -scale` or `tiff2rgba`"
                .into()
        }
        ImageError::Limits(_) => "decoding needs more memory than an image of this size should".into(),
        other => other.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    const ALL: [ImageFormat; 7] = [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
        ImageFormat::Gif,
        ImageFormat::Pnm,
    ];

    fn pattern(width: u32, height: u32) -> DynamicImage {
        let pixel = |x: u32, y: u32| ::image::Rgb([(x * 5) as u8, (y * 3) as u8, (x * y) as u8]);
        DynamicImage::ImageRgb8(::image::RgbImage::from_fn(width, height, pixel))
    }

    fn encode(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).expect("the encoder takes 8-bit images and memory does not fail");
        bytes.into_inner()
    }

    #[test]
    fn every_format_is_read_and_truncated_files_are_errors() {
        let drawn = pattern(50, 40);
        let mut failures = Vec::new();
        for format in ALL {
            let bytes = encode(&drawn, format);
            match Image::decode(&bytes, "whole") {
                Ok(image) if (image.width(), image.height()) == (50, 40) => {}
                other => failures.push(format!("{format:?} whole: {other:?}")),
            }
            for part in [0.2, 0.5, 0.9] {
                let cut = (bytes.len() as f64 * part) as usize;
                match Image::decode(&bytes[..cut], "short.bin") {
                    Err(error)
                        if error.kind() == ErrorKind::InvalidData
                            && error.to_string().contains("short.bin: ")
                            && error.to_string().lines().count() == 1 => {}
                    other => failures.push(format!("{format:?} cut to {cut} of {}: {other:?}", bytes.len())),
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn deep_grey_and_transparent_pixels_become_rgb8() {
        use ::image::{ImageBuffer, LumaA, Rgb, Rgba};
        let cases: [(&str, DynamicImage, [u8; 3]); 9] = [
            ("l8", ImageBuffer::from_pixel(2, 2, ::image::Luma([9u8])).into(), [9, 9, 9]),
            ("la8", ImageBuffer::from_pixel(2, 2, LumaA([9u8, 0])).into(), [9, 9, 9]),
            ("rgba8", ImageBuffer::from_pixel(2, 2, Rgba([1u8, 2, 3, 0])).into(), [1, 2, 3]),
            ("l16", ImageBuffer::from_pixel(2, 2, ::image::Luma([0x12FFu16])).into(), [0x12; 3]),
            ("la16", ImageBuffer::from_pixel(2, 2, LumaA([0xFFFFu16, 5])).into(), [255; 3]),
            ("rgb16", ImageBuffer::from_pixel(2, 2, Rgb([0x0100u16, 0x02FF, 0xFFFF])).into(), [1, 2, 255]),
            ("rgba16", ImageBuffer::from_pixel(2, 2, Rgba([0x0100u16, 0x0200, 0, 9])).into(), [1, 2, 0]),
            ("rgb32f", ImageBuffer::from_pixel(2, 2, Rgb([0.5f32, -1.0, 7.0])).into(), [128, 0, 255]),
            ("rgba32f", ImageBuffer::from_pixel(2, 2, Rgba([f32::NAN, 1.0, 0.0, 0.0])).into(), [0, 255, 0]),
        ];
        let mut failures = Vec::new();
        for (name, image, expected) in cases {
            let rgb = into_rgb8(image);
            if rgb != expected.repeat(4) {
                failures.push(format!("{name}: expected {expected:?}, came {:?}", &rgb[..3]));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn of_an_animation_the_first_frame_counts() {
        use ::image::codecs::gif::GifEncoder;
        use ::image::{Frame, Rgba, RgbaImage};
        let mut bytes = Vec::new();
        let frames =
            [[255, 0, 0, 255], [0, 255, 0, 255]].map(|colour| RgbaImage::from_pixel(4, 2, Rgba(colour)));
        GifEncoder::new(&mut bytes).encode_frames(frames.map(Frame::new)).expect("it can be encoded");
        let first = Image::decode(&bytes, "x.gif").expect("it is an image");
        assert_eq!(
            (first.width(), first.height(), first.as_rgb8()),
            (4, 2, [255, 0, 0].repeat(8).as_slice())
        );
    }

    #[test]
    fn errors_name_files_that_are_not_images() {
        let bomb = b"P6\n60000 60000\n255\n\0\0\0".as_slice();
        let cases: [(&str, &[u8], &str); 9] = [
            ("empty.jpg", b"", "empty"),
            ("text.jpg", b"Dear reader, this is text.\n", "not an image"),
            ("phone.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIF"),
            ("icon.ico", b"\0\0\x01\0\x01\0", "Ico"),
            ("bomb.ppm", bomb, "too large"),
            ("long.ppm", b"P5\n70000 1\n255\n\0", "too large"),
            ("none.ppm", b"P6\n0 0\n255\n", ""),
            ("one.png", b"\x89PNG\r\n\x1a\n", ""),
            ("one.jpg", &[0xFF, 0xD8, 0xFF], ""),
        ];
        let mut failures = Vec::new();
        for (name, bytes, part) in cases {
            match Image::decode(bytes, name) {
                Err(error)
                    if error.kind() == ErrorKind::InvalidData
                        && error.to_string().starts_with(&format!("cannot read the image, {name}: "))
                        && error.to_string().contains(part)
                        && error.to_string().lines().count() == 1 => {}
                other => failures.push(format!("{name}: {other:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn a_decoder_that_panics_is_an_error_of_the_file() {
        let error = guarded::<()>("x.jpg", || panic!("an index out of range")).expect_err("it fails");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().starts_with("cannot read the image, x.jpg: the decoder fails"), "{error}");
        // Found by fuzzing: the decoder's AVX2 code panics at this sampling.
        let found = include_bytes!("../../../tests/fuzz/seeds/jpeg/sampling-2x3.jpg");
        drop(Image::decode(found, "sampling-2x3.jpg"));
    }

    #[test]
    fn errors_name_paths_that_are_not_files() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let missing = folder.path().join("missing.png");
        let error = Image::open(&missing).expect_err("the file does not exist");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("missing.png"), "{error}");

        let error = Image::open(folder.path()).expect_err("a folder is not an image");
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");

        let named_wrong = folder.path().join("really_a_png.jpg");
        std::fs::write(&named_wrong, encode(&pattern(3, 2), ImageFormat::Png))
            .expect("the folder is writable");
        assert_eq!(
            Image::open(&named_wrong).expect("the content decides").as_rgb8(),
            pattern(3, 2).as_bytes()
        );
    }
}
