//! Entries of COCO's files as tools write them: what is evaluated is read, and everything else is ignored.
//!
//! Ids may be text with digits. An area that is not a number is computed, a crowd flag that is missing or null is 0, and a
//! segmentation that cannot be read is left out where there is a box.

use hotcoco::COCO;
use hotcoco::types::{Annotation, Category, Dataset, Image, Segmentation};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// The parts of an annotation file that are evaluated.
#[derive(Deserialize)]
pub(super) struct File {
    images: Option<Vec<ImageEntry>>,
    annotations: Option<Vec<Entry>>,
    categories: Option<Vec<CategoryEntry>>,
}

#[derive(Deserialize)]
struct ImageEntry {
    id: Option<Scalar>,
    file_name: Option<Scalar>,
    width: Option<Scalar>,
    height: Option<Scalar>,
}

#[derive(Deserialize)]
struct CategoryEntry {
    id: Option<Scalar>,
    name: Option<Scalar>,
}

/// An annotation or a result.
#[derive(Deserialize)]
pub(super) struct Entry {
    id: Option<Scalar>,
    image_id: Option<Scalar>,
    category_id: Option<Scalar>,
    #[serde(default, deserialize_with = "four_numbers")]
    bbox: Option<[f64; 4]>,
    area: Option<Scalar>,
    iscrowd: Option<Scalar>,
    segmentation: Option<Outline>,
    score: Option<Scalar>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Whole(u64),
    Number(f64),
    Flag(bool),
    Text(String),
    Other(IgnoredAny),
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

impl Scalar {
    fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Flag(flag) => Some(f64::from(u8::from(*flag))),
            Self::Text(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            Self::Other(_) => None,
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Whole(number) => Some(number.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.clone()),
            Self::Flag(_) | Self::Other(_) => None,
        }
    }

    /// An integer from 0: as it is, as a fraction that is none, or as text.
    fn id(&self) -> Option<u64> {
        match self {
            Self::Whole(id) => Some(*id),
            Self::Text(text) if text.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
                text.trim().parse().ok()
            }
            Self::Number(number) => hotcoco::types::id_from_f64(*number),
            Self::Flag(_) | Self::Text(_) | Self::Other(_) => None,
        }
    }
}

fn id(value: Option<&Scalar>, name: &str) -> Result<u64, String> {
    value.and_then(Scalar::id).ok_or_else(|| format!("expected \"{name}\" with an integer from 0"))
}

impl Entry {
    /// The annotation, and whether its segmentation cannot be read.
    pub(super) fn into_annotation(self) -> Result<(Annotation, bool), String> {
        let flag = match &self.iscrowd {
            None => 0.0,
            Some(Scalar::Text(text)) if text.is_empty() => 0.0,
            Some(flag) => {
                flag.number().filter(|flag| flag.fract() == 0.0).ok_or("expected \"iscrowd\" of 0 or 1")?
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
            id: self.id.as_ref().and_then(Scalar::id).unwrap_or(0),
            image_id: id(self.image_id.as_ref(), "image_id")?,
            category_id: id(self.category_id.as_ref(), "category_id")?,
            bbox: self.bbox,
            area: self.area.as_ref().and_then(Scalar::number),
            iscrowd: flag != 0.0,
            segmentation,
            score: self.score.as_ref().and_then(Scalar::number),
            ..Annotation::default()
        };
        Ok((annotation, is_unreadable))
    }
}

impl File {
    /// The data set, and what is wrong with the first segmentation that cannot be read.
    pub(super) fn into_dataset(self) -> Result<(Dataset, Option<String>), String> {
        let at = |what: &str, place: usize| {
            let what = what.to_owned();
            move |why: String| format!("{what} {}: {why}", place + 1)
        };
        let side =
            |side: &Option<Scalar>| side.as_ref().and_then(Scalar::id).and_then(|side| side.try_into().ok());
        let image = |(place, one): (usize, ImageEntry)| {
            let (width, height) = (side(&one.width).unwrap_or(0), side(&one.height).unwrap_or(0));
            let file_name = one.file_name.as_ref().and_then(Scalar::text).unwrap_or_default();
            let id = id(one.id.as_ref(), "id").map_err(at("image", place))?;
            Ok(Image { id, file_name, width, height, ..Image::default() })
        };
        let category = |(place, one): (usize, CategoryEntry)| {
            let id = id(one.id.as_ref(), "id").map_err(at("category", place))?;
            let name = one.name.as_ref().and_then(Scalar::text);
            let name = name.unwrap_or_else(|| COCO::placeholder_cat_name(id));
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
            has_ids &= entry.id.as_ref().is_some_and(|id| id.id().is_some());
            let (annotation, is_unreadable) = entry.into_annotation().map_err(at("annotation", place))?;
            if is_unreadable && unreadable.is_none() {
                let why = "its segmentation is neither polygons nor run lengths".to_owned();
                unreadable = Some(at("annotation", place)(why));
            }
            dataset.annotations.push(annotation);
        }
        if !has_ids {
            (1..).zip(&mut dataset.annotations).for_each(|(id, annotation)| annotation.id = id);
        }
        Ok((dataset, unreadable))
    }
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
