//! Entries of COCO's files as tools write them: what is evaluated is read, and everything else is ignored.
//!
//! Ids may be text with digits. An area that is not a number is computed, a crowd flag that is missing or null is 0, and a
//! segmentation that cannot be read is left out where there is a box.

use std::path::Path;

use hotcoco::COCO;
use hotcoco::types::{Annotation, Category, Dataset, Extra, Image, Segmentation};
use ocelli::{Error, Mask, Result};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The number of the object, in annotations of a video.
pub(crate) const TRACK: &str = "track_id";

/// The parts of an annotation file that are evaluated.
#[derive(Deserialize)]
pub(crate) struct File {
    images: Option<Vec<Named>>,
    annotations: Option<Vec<Entry>>,
    categories: Option<Vec<Named>>,
}

/// An image or a category.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    id: Value,
    /// Of a category.
    name: Value,
    /// Of an image, as its sides.
    file_name: Value,
    width: Value,
    height: Value,
}

/// An annotation or a result.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    id: Value,
    image_id: Value,
    category_id: Value,
    #[serde(deserialize_with = "four_numbers")]
    bbox: Option<[f64; 4]>,
    area: Value,
    iscrowd: Value,
    segmentation: Option<Outline>,
    score: Value,
    track_id: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outline {
    Known(Segmentation),
    /// One polygon without the list around it.
    Flat(Vec<f64>),
    Other(IgnoredAny),
}

/// A box; an empty list is none.
fn four_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 4]>, D::Error> {
    let numbers = Option::<Vec<f64>>::deserialize(deserializer)?.unwrap_or_default();
    match numbers.len() {
        0 => Ok(None),
        count => numbers.try_into().map(Some).map_err(|_| {
            D::Error::custom(format!("a bbox has {count} numbers, expected left, top, width and height"))
        }),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        value => value.as_f64(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        value => value.as_f64().map(|number| number.to_string()),
    }
}

/// An integer from 0: as it is, as a fraction that is none, or as text.
fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) if !text.trim().bytes().all(|byte| byte.is_ascii_digit()) => None,
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64().or_else(|| hotcoco::types::id_from_f64(value.as_f64()?)),
    }
}

fn id(value: &Value, name: &str) -> Result<u64, String> {
    integer(value).ok_or_else(|| format!("expected \"{name}\" with an integer from 0"))
}

impl Entry {
    /// The annotation, and whether its segmentation cannot be read.
    pub(super) fn into_annotation(self) -> Result<(Annotation, bool), String> {
        let flag = match &self.iscrowd {
            Value::Null => 0.0,
            Value::String(text) if text.is_empty() => 0.0,
            flag => {
                number(flag).filter(|flag| flag.fract() == 0.0).ok_or("expected \"iscrowd\" of 0 or 1")?
            }
        };
        let (segmentation, is_unreadable) = match self.segmentation {
            Some(Outline::Known(known)) => (Some(known), false),
            Some(Outline::Flat(points)) if points.len() >= 6 && points.len() % 2 == 0 => {
                (Some(Segmentation::Polygon(vec![points])), false)
            }
            Some(Outline::Flat(_) | Outline::Other(_)) => (None, true),
            None => (None, false),
        };
        let annotation = Annotation {
            id: integer(&self.id).unwrap_or(0),
            image_id: id(&self.image_id, "image_id")?,
            category_id: id(&self.category_id, "category_id")?,
            bbox: self.bbox,
            area: number(&self.area),
            iscrowd: flag != 0.0,
            segmentation,
            score: number(&self.score),
            extra: Extra::from_iter(integer(&self.track_id).map(|track| (TRACK.to_owned(), track.into()))),
            ..Annotation::default()
        };
        Ok((annotation, is_unreadable))
    }
}

impl File {
    /// `true` if it has the lists of images, annotations and categories.
    pub(crate) fn is_whole(&self) -> bool {
        self.images.is_some() && self.annotations.is_some() && self.categories.is_some()
    }

    /// The data set, and what is wrong with the first segmentation that cannot be read.
    pub(crate) fn into_dataset(self) -> Result<(Dataset, Option<String>), String> {
        let at = |what: &str, place: usize| {
            let what = what.to_owned();
            move |why: String| format!("{what} {}: {why}", place + 1)
        };
        let side = |side: &Value| integer(side).and_then(|side| side.try_into().ok()).unwrap_or(0);
        let image = |(place, one): (usize, Named)| {
            let (width, height) = (side(&one.width), side(&one.height));
            let file_name = text(&one.file_name).unwrap_or_default();
            let id = id(&one.id, "id").map_err(at("image", place))?;
            Ok(Image { id, file_name, width, height, ..Image::default() })
        };
        let category = |(place, one): (usize, Named)| {
            let id = id(&one.id, "id").map_err(at("category", place))?;
            let name = text(&one.name).unwrap_or_else(|| COCO::placeholder_cat_name(id));
            Ok(Category { id, name, ..Category::default() })
        };
        let images = self.images.unwrap_or_default().into_iter().enumerate().map(image);
        let categories = self.categories.unwrap_or_default().into_iter().enumerate().map(category);
        let mut dataset = Dataset {
            images: images.collect::<Result<_, String>>()?,
            categories: categories.collect::<Result<_, String>>()?,
            ..Dataset::default()
        };
        let mut unreadable = None;
        let mut has_ids = true;
        for (place, entry) in self.annotations.unwrap_or_default().into_iter().enumerate() {
            has_ids &= integer(&entry.id).is_some();
            let (annotation, is_unreadable) = entry.into_annotation().map_err(at("annotation", place))?;
            if is_unreadable && unreadable.is_none() {
                let why = "its segmentation is neither polygons nor run lengths".to_owned();
                unreadable = Some(at("annotation", place)(why));
            }
            dataset.annotations.push(annotation);
        }
        if !has_ids {
            number_annotations(&mut dataset);
        }
        Ok((dataset, unreadable))
    }
}

/// Parses the bytes of an annotation file.
///
/// # Errors
/// [`ErrorKind::InvalidData`](ocelli::ErrorKind::InvalidData) if they are none.
pub(crate) fn parse_file(bytes: &[u8], path: &Path) -> Result<File> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(invalid(
            path,
            "it is a list, as in a COCO results file; expected an object with images, annotations and categories",
        ));
    }
    parse(bytes).map_err(|e| invalid(path, &e.to_string()).with_source(e))
}

/// The error for a file that has no annotations of COCO.
pub(crate) fn invalid(path: &Path, why: &str) -> Error {
    Error::invalid_data(format!("invalid COCO annotations, {}: {why}", path.display()))
}

/// The segmentation that is a mask.
pub(super) fn run_lengths(mask: &Mask) -> Segmentation {
    Segmentation::CompressedRle { size: [mask.height(), mask.width()], counts: mask.counts().to_owned() }
}

/// Numbers the annotations from 1.
pub(super) fn number_annotations(dataset: &mut Dataset) {
    (1..).zip(&mut dataset.annotations).for_each(|(id, annotation)| annotation.id = id);
}

/// Parses JSON as Python writes it: with NaN and infinities, which are no numbers here, and after a byte order mark.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    serde_json::from_slice(bytes).or_else(|error| match without_non_finite(bytes) {
        Some(changed) => serde_json::from_slice(&changed),
        None => Err(error),
    })
}

/// The JSON with an empty text in place of NaN and infinities, if it has any.
fn without_non_finite(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut changed: Option<Vec<u8>> = None;
    let (mut at, mut in_text) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'N' | b'I' | b'-' if !in_text => {
                let words: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
                if let Some(word) = words.into_iter().find(|word| bytes[at..].starts_with(word)) {
                    let changed = changed.get_or_insert_with(|| bytes.to_vec());
                    changed[at..at + word.len()].fill(b' ');
                    changed[at..at + 2].fill(b'"');
                    at += word.len() - 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    changed
}
