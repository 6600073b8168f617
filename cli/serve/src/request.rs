//! JSON and forms ask the same of an image: classes, exemplars and thresholds become one question.

use std::borrow::Cow;
use std::collections::HashSet;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ocelli::options::DetectorOptions;
use ocelli::postprocess::PostProcessOptions;
use ocelli::tiles::{TileSize, Tiling};
use ocelli::{Prompt, Prompts, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::http::body::{Fields, read, text};
use crate::http::limits::{Limits, at_most, names, or_default, refuse, split_names};
use crate::http::problem::Problem;

/// A question about an image.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub prompts: Prompts,
    /// Its thresholds and limits replace those of the server.
    pub asked: Asked,
    pub tiles: AskedTiles,
}

/// The tiles that replace those of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskedTiles {
    size: Option<Option<TileSize>>,
    overlap: Option<f32>,
}

impl AskedTiles {
    /// These, and the server's for the rest.
    pub fn over(self, of_server: Option<Tiling>, limits: &Limits) -> Result<Option<Tiling>> {
        if self.size.is_none() && self.overlap.is_none() {
            return Ok(of_server);
        }
        let Some(size) = self.size.unwrap_or(of_server.map(|tiling| tiling.size)) else {
            return match self.overlap {
                None => Ok(None),
                Some(_) => refuse("tile_overlap belongs to tiles: expected a size in tile beside it".into()),
            };
        };
        let overlap = self.overlap.or(of_server.map(|tiling| tiling.overlap)).unwrap_or(Tiling::OVERLAP);
        Ok(Some(Tiling::new(size).with_overlap(overlap).with_most_tiles(limits.tiles)))
    }
}

/// The JSON form of a question.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// The image file in base64; a data URI is one as well.
    image: Option<String>,
    #[serde(default, deserialize_with = "names")]
    pub classes: Vec<String>,
    confidence: Option<f32>,
    nms: Option<f32>,
    class_agnostic_nms: Option<f32>,
    max_detections: Option<usize>,
    #[serde(default, deserialize_with = "or_default")]
    pub masks: bool,
    #[serde(default, deserialize_with = "or_default")]
    exemplars: Vec<ExemplarBox>,
    /// `none`, `auto` or a size such as `1024x768`.
    tile: Option<String>,
    tile_overlap: Option<f32>,
}

/// A box around an example.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExemplarBox {
    #[serde(rename = "box")]
    bbox: [f32; 4],
    /// By default it is.
    wanted: Option<bool>,
    class: Option<String>,
}

impl Asked {
    /// Its thresholds, and the server's for the rest, within the limits.
    pub fn over(&self, of_server: &PostProcessOptions, limits: &Limits) -> PostProcessOptions {
        PostProcessOptions {
            confidence: self.confidence.unwrap_or(of_server.confidence),
            nms: self.nms.or(of_server.nms),
            class_agnostic_nms: self.class_agnostic_nms.or(of_server.class_agnostic_nms),
            max_detections: Some(limits.detections(self.max_detections.or(of_server.max_detections))),
            ..of_server.clone()
        }
    }

    /// Refuses more classes and exemplars than the limits.
    pub fn check_counts(&self, limits: &Limits) -> Result<()> {
        at_most("exemplars", self.exemplars.len(), limits.exemplars, "")?;
        limits.check_classes(self.classes.len())
    }
}

/// A question about an image, from both forms of a request. The limits come first.
pub(crate) trait Asks: Sized + Send + 'static {
    /// The fields of a form.
    const FIELDS: Fields;
    /// The form of JSON.
    type Asked: Default + DeserializeOwned;

    /// The image file in base64, which JSON has.
    fn image(asked: &mut Self::Asked) -> &mut Option<String>;

    /// Takes a field of a form, other than `image` and `request`.
    fn set(asked: &mut Self::Asked, name: &str, value: &[u8], limits: &Limits) -> Result<(), Problem>;

    /// The question.
    fn of(asked: Self::Asked, limits: &Limits) -> Result<Self>;

    /// The image file and the question, from JSON.
    fn of_json(body: &[u8], limits: &Limits) -> Result<(Option<Bytes>, Self), Problem> {
        let mut asked: Self::Asked = read(body)?;
        let image = Self::image(&mut asked).take();
        let question = Self::of(asked, limits)?;
        Ok((image.map(|text| from_base64(&text)).transpose()?, question))
    }

    /// The same, from the fields of a form.
    fn of_form(fields: Vec<(String, Bytes)>, limits: &Limits) -> Result<(Option<Bytes>, Self), Problem> {
        let (mut image, mut asked) = (None, Self::Asked::default());
        for (name, value) in fields {
            match name.as_str() {
                "image" => image = Some(value),
                "request" => asked = read(&value)?,
                _ => Self::set(&mut asked, &name, &value, limits)?,
            }
        }
        if Self::image(&mut asked).is_some() {
            return Err(Problem::bad("request: expected the file in the field image, not in its JSON"));
        }
        Ok((image, Self::of(asked, limits)?))
    }
}

impl Asks for Question {
    const FIELDS: Fields = Fields(
        "image request confidence nms class_agnostic_nms max_detections masks tile tile_overlap",
        "classes exemplars",
    );
    type Asked = Asked;

    fn image(asked: &mut Asked) -> &mut Option<String> {
        &mut asked.image
    }

    fn set(asked: &mut Asked, name: &str, value: &[u8], limits: &Limits) -> Result<(), Problem> {
        let value = text(name, value)?;
        let wrong = |expected: &str| Problem::bad(format!("{name} is \"{value}\": expected {expected}"));
        let number = || value.trim().parse::<f32>().map_err(|_| wrong("a number from 0 to 1"));
        match name {
            "classes" => asked.classes.extend(split_names(value).map_err(Problem::bad)?),
            "confidence" => asked.confidence = Some(number()?),
            "nms" => asked.nms = Some(number()?),
            "class_agnostic_nms" => asked.class_agnostic_nms = Some(number()?),
            "max_detections" => {
                asked.max_detections =
                    Some(value.trim().parse().map_err(|_| wrong("a number of detections"))?);
            }
            "tile" => asked.tile = Some(value.trim().to_owned()),
            "tile_overlap" => asked.tile_overlap = Some(number()?),
            "masks" => asked.masks = value.trim().parse().map_err(|_| wrong("true or false"))?,
            "exemplars" => {
                let numbers =
                    || value.split(',').map(|one| one.trim().parse().ok()).collect::<Option<Vec<f32>>>();
                match numbers().and_then(|numbers| <[f32; 4]>::try_from(numbers).ok()) {
                    Some(bbox) => asked.exemplars.push(ExemplarBox { bbox, wanted: None, class: None }),
                    None => {
                        let list: Result<Vec<ExemplarBox>, _> = serde_json::from_str(value);
                        let expected = "x1,y1,x2,y2 in pixels, or a list such as [{\"box\": [1, 2, 30, 40], \"wanted\": false}]";
                        asked.exemplars.extend(list.map_err(|_| wrong(expected))?);
                    }
                }
            }
            _ => return Err(Problem::bad(format!("{name}: no such field"))),
        }
        Ok(asked.check_counts(limits)?)
    }

    fn of(asked: Asked, limits: &Limits) -> Result<Self> {
        let Asked { confidence, nms, class_agnostic_nms, max_detections, .. } = asked;
        let options =
            DetectorOptions { confidence, nms, class_agnostic_nms, max_detections, ..Default::default() };
        options.check()?;
        asked.check_counts(limits)?;
        let of_exemplars = asked.exemplars.iter().filter_map(|exemplar| exemplar.class.as_deref());
        limits.check_names(asked.classes.iter().map(String::as_str).chain(of_exemplars))?;
        let prompts = prompts(&asked.classes, &asked.exemplars)?;
        let size = match asked.tile.as_deref() {
            None => None,
            Some("none") => Some(None),
            Some(size) => Some(Some(size.parse()?)),
        };
        let tiles = AskedTiles { size, overlap: asked.tile_overlap };
        tiles.over(Some(Tiling::default()), limits)?.map_or(Ok(()), |tiling| tiling.check())?;
        Ok(Self { prompts, asked, tiles })
    }
}

/// Classes and exemplars as prompts. An exemplar belongs to the class that it names, else to the only one, else to a prompt
/// without text. Duplicates of a class are dropped; the model does not distinguish case.
fn prompts(classes: &[String], exemplars: &[ExemplarBox]) -> Result<Prompts> {
    let mut names = HashSet::new();
    let classes = classes.iter().map(Prompt::new);
    let classes: Vec<Prompt> = classes.filter(|class| names.insert(class.phrase().to_lowercase())).collect();
    if classes.is_empty() && exemplars.is_empty() {
        return refuse("classes is empty: expected a class, or a box around an example in exemplars".into());
    }
    let exemplars = exemplars.iter();
    let named = exemplars.map(|one| (one.bbox.into(), one.wanted.unwrap_or(true), one.class.as_deref()));
    Prompts::with_exemplars(classes, named)
}

/// The bytes of an image in base64, or of a data URI.
pub(crate) fn from_base64(text: &str) -> Result<Bytes, Problem> {
    let text = match text.strip_prefix("data:").map(|uri| uri.split_once(";base64,")) {
        None => text,
        Some(Some((_, data))) => data,
        Some(None) => return Err(Problem::bad("image: expected a data URI in base64")),
    };
    // Programs for mail, and `base64` itself, break it into lines.
    let text = if text.contains(|letter: char| letter.is_ascii_whitespace()) {
        Cow::Owned(text.split_ascii_whitespace().collect())
    } else {
        Cow::Borrowed(text)
    };
    let bytes = STANDARD.decode(&*text).map_err(|_| {
        let start: String = text.chars().take(20).collect();
        Problem::bad(format!("image is \"{start}\": expected the file in base64"))
    })?;
    Ok(bytes.into())
}
