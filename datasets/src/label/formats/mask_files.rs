//! A PNG for each instance: white where its mask is, as large as the image.

use std::collections::{HashMap, HashSet};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};

use crate::label::Record;
use ocelli::{Error, Mask, Result};

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
        let file = file_name(names, instance.class, *number);
        *number += 1;
        Some((file, encoded(&mask)))
    })
}

/// The file name of an instance: `number` counts within the class, from 0.
fn file_name(names: &[String], class: usize, number: usize) -> String {
    format!("{}-{number}.png", names[class])
}

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
}
