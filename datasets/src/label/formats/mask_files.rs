//! A PNG for each instance: white where its mask is, as large as the image.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;

use image::codecs::png::{CompressionType, FilterType, PngDecoder, PngEncoder};
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, LumaA};

use crate::label::Record;
use ocelli::{Error, Mask, Result, report::rounded};

/// The names of the classes in file names: without characters that file systems refuse, and different from each other also
/// where capitals make no difference. The names of the first classes do not depend on those that follow.
pub(crate) fn class_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let unique = |(id, name): (usize, &str)| {
        let name = ocelli::sink::folder_name(name);
        if taken.insert(name.to_lowercase()) {
            name
        } else {
            let numbered = format!("{name}_{id}");
            taken.insert(numbered.to_lowercase());
            numbered
        }
    };
    names.enumerate().map(unique).collect()
}

/// The file names and contents of an image's masks: `CLASS-0.png`, the instance of the class with the highest score, and so
/// on. The names of a class do not change if classes are added.
pub(crate) fn mask_files<'a>(
    record: &'a Record,
    names: &'a [String],
) -> impl Iterator<Item = (String, Result<Vec<u8>>)> + 'a {
    let mut numbers: HashMap<usize, usize> = HashMap::new();
    record.instances.iter().filter_map(move |instance| {
        let mask = record.mask(instance)?;
        let number = numbers.entry(instance.class).or_default();
        let file = format!("{}-{number}.png", names[instance.class]);
        *number += 1;
        Some((file, encoded(&mask)))
    })
}

/// The name of the class in the name of a mask; `None` if a file is none.
pub(crate) fn class_of(file: &str) -> Option<&str> {
    let (class, number) = file.strip_suffix(".png")?.rsplit_once('-')?;
    (!class.starts_with('.') && number.parse::<usize>().is_ok()).then_some(class)
}

/// The same for masks of the same class and pixels alone.
pub(crate) fn mask_text(class: usize, mask: &Mask) -> String {
    format!("{class} {}", mask.counts())
}

/// The mask in a PNG of any kind: the pixels of at least half brightness, times opacity.
///
/// # Errors
/// Why it is no mask of an image of this size.
pub(crate) fn decoded(bytes: &[u8], (width, height): (u32, u32)) -> Result<Mask, String> {
    let decoder = PngDecoder::new(Cursor::new(bytes)).map_err(|e| e.to_string())?;
    let (own_width, own_height) = decoder.dimensions();
    if (own_width, own_height) != (width, height) {
        return Err(format!(
            "it has {own_width} × {own_height} pixels, expected those of the image, {width} × {height}"
        ));
    }
    let image = DynamicImage::from_decoder(decoder).map_err(|e| e.to_string())?.into_luma_alpha16();
    let (mut most, mut is_transparent, mut is_opaque) = (0.0_f64, false, false);
    let pixel = |LumaA([luma, alpha]): &LumaA<u16>| {
        let brightness = f64::from(*luma) * f64::from(*alpha) / f64::from(u16::MAX);
        most = brightness.max(most);
        is_transparent |= *alpha == 0;
        is_opaque |= *alpha > 0;
        u8::from(brightness >= HALF)
    };
    let bitmap: Vec<u8> = image.pixels().map(pixel).collect();
    // Numbers of objects, or 1 for a mask, or a black shape.
    if most < HALF && (most > 0.0 || is_transparent && is_opaque) {
        let most = rounded(most / 257.0, 1e3);
        return Err(format!("its brightest pixel has {most}, expected 255 inside the mask"));
    }
    Mask::from_bitmap(&bitmap, width, height).map_err(|e| e.to_string())
}

/// Half of the brightness of white.
const HALF: f64 = 32768.0;

fn encoded(mask: &Mask) -> Result<Vec<u8>> {
    let mut pixels = mask.to_bitmap();
    pixels.iter_mut().for_each(|pixel| *pixel *= 255);
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::NoFilter);
    encoder
        .write_image(&pixels, mask.width(), mask.height(), ExtendedColorType::L8)
        .map_err(|e| Error::invalid_data(format!("cannot encode a mask: {e}")).with_source(e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes_differ() {
        let names = class_names(["a/b", "a:b", "dog", "Dog", "dog_3"].into_iter());
        let mut lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        lower.sort();
        lower.dedup();
        assert_eq!(lower.len(), names.len(), "{names:?}");
        assert_eq!(names[..3], class_names(["a/b", "a:b", "dog"].into_iter()));
        assert!(names.iter().all(|name| !name.contains(['/', ':'])), "{names:?}");
    }

    #[test]
    fn masks_of_every_kind_of_png_are_read() {
        use image::{DynamicImage as Any, ImageBuffer, ImageFormat};
        fn any<P: image::PixelWithColorType>(pixels: Vec<P::Subpixel>) -> Vec<u8>
        where
            [P::Subpixel]: image::EncodableLayout,
            Any: From<ImageBuffer<P, Vec<P::Subpixel>>>,
        {
            let mut bytes = Cursor::new(Vec::new());
            let image = ImageBuffer::<P, _>::from_raw(3, 1, pixels).expect("the size is right");
            Any::from(image).write_to(&mut bytes, ImageFormat::Png).expect("memory");
            bytes.into_inner()
        }
        // Three pixels, of which the one in the middle is in the mask.
        let palette = b"\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x03\x00\x00\x00\x01\x08\x03\x00\x00\x00\x2c\x3e\xe4\x86\x00\x00\x00\x06\x50\x4c\x54\x45\x00\x00\x00\xff\xff\xff\xa5\xd9\x9f\xdd\x00\x00\x00\x0c\x49\x44\x41\x54\x78\x9c\x63\x60\x60\x64\x00\x00\x00\x06\x00\x02\x98\xd5\x99\x92\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82";
        let cases = [
            ("grey", any::<image::Luma<u8>>(vec![127, 128, 0])),
            ("16 bits", any::<image::Luma<u16>>(vec![30000, 40000, 0])),
            ("opacity", any::<LumaA<u8>>(vec![255, 0, 255, 200, 0, 255])),
            ("colours", any::<image::Rgb<u8>>(vec![0, 0, 0, 255, 255, 255, 0, 0, 90])),
            ("both", any::<image::Rgba<u8>>(vec![255, 255, 255, 9, 250, 250, 250, 255, 0, 0, 0, 255])),
            ("a palette", palette.to_vec()),
        ];
        for (name, bytes) in cases {
            let mask = decoded(&bytes, (3, 1)).map(|mask| mask.to_bitmap());
            assert_eq!(mask, Ok(vec![0, 1, 0]), "{name}");
        }
        let dark = [
            any::<image::Luma<u8>>(vec![0, 0, 127]),
            any::<image::Luma<u16>>(vec![0, 1, 0]),
            any::<image::Rgb<u8>>(vec![0, 0, 0, 0, 0, 1, 0, 0, 0]),
            any::<LumaA<u8>>(vec![0, 0, 1, 128, 0, 0]),
            any::<LumaA<u8>>(vec![0, 0, 0, 255, 0, 0]),
        ];
        for bytes in dark {
            decoded(&bytes, (3, 1)).expect_err("no pixel is bright");
        }
        assert_eq!(decoded(&any::<image::Luma<u8>>(vec![0; 3]), (3, 1)).map(|mask| mask.area()), Ok(0));
    }
}
