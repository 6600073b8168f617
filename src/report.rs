//! What the programs say about detections: JSON and a table.

mod frame;
mod table;

use std::io::{self, Write};

use ocelli_tracking::BoundingBox;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use frame::{FrameReport, TrackRecord};
pub use table::{TableOptions, write_table};

use crate::detection::Detection;
use crate::mask::Mask;

/// Everything `demo-image --json` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One entry for each picture, in the order they were given.
    pub images: Vec<ImageReport>,
}

/// What was found in one picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageReport {
    /// The file as it was named.
    pub file: String,
    /// The picture's width in pixels, as it is shown (after EXIF rotation).
    pub width: u32,
    /// The picture's height in pixels.
    pub height: u32,
    /// The surest first.
    pub detections: Vec<DetectionRecord>,
    /// How long each stage took.
    pub timing_ms: Timings,
}

/// One detection as JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectionRecord {
    /// Which of the prompts, from 0.
    pub class_id: usize,
    /// The prompt's words.
    pub label: String,
    /// 0 to 1, written with five decimals.
    #[serde(serialize_with = "with_five_decimals")]
    pub score: f32,
    /// In pixels of the original image, written with two decimals.
    #[serde(rename = "box", serialize_with = "with_two_decimals")]
    pub bbox: BoundingBox,
    /// Which pixels, where masks were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Mask>,
    /// The same as polygons `[[[x, y], …], …]` in place of the mask, where that was asked for; see [`Mask::polygons`].
    /// JSON has them as COCO does, each a list `[x1, y1, x2, y2, …]`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "flat_polygons")]
    pub polygons: Option<Vec<Vec<[f32; 2]>>>,
}

impl From<&Detection> for DetectionRecord {
    fn from(detection: &Detection) -> Self {
        Self {
            class_id: detection.class_id,
            label: detection.label.to_string(),
            score: detection.score,
            bbox: detection.bbox,
            mask: detection.mask.clone(),
            polygons: None,
        }
    }
}

/// Polygons as COCO's files have them.
mod flat_polygons {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    type Polygons = Option<Vec<Vec<[f32; 2]>>>;

    pub fn serialize<S: Serializer>(polygons: &Polygons, serializer: S) -> Result<S::Ok, S::Error> {
        let flat: Option<Vec<&[f32]>> =
            polygons.as_ref().map(|polygons| polygons.iter().map(|ring| ring.as_flattened()).collect());
        flat.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Polygons, D::Error> {
        let flat = Option::<Vec<Vec<f32>>>::deserialize(deserializer)?;
        let pairs = |ring: &Vec<f32>| match ring.as_chunks() {
            (points, []) => Ok(points.to_vec()),
            _ => Err(de::Error::custom("a polygon has an even number of coordinates")),
        };
        flat.map(|flat| flat.iter().map(pairs).collect()).transpose()
    }
}

/// Named durations in milliseconds, in the order in which they happened; JSON has them as an object, with two
/// decimals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timings(Vec<(String, f64)>);

impl Timings {
    /// Adds a stage; a name that is there already gets its time added to.
    pub fn add(&mut self, stage: &str, milliseconds: f64) {
        match self.0.iter_mut().find(|(name, _)| name == stage) {
            Some((_, sum)) => *sum += milliseconds,
            None => self.0.push((stage.into(), milliseconds)),
        }
    }

    /// The time of one stage.
    pub fn stage(&self, stage: &str) -> Option<f64> {
        self.iter().find(|(name, _)| *name == stage).map(|(_, milliseconds)| milliseconds)
    }

    /// All stages in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, milliseconds)| (name.as_str(), *milliseconds))
    }
}

impl Report {
    /// Writes the report as JSON on one line, which ends.
    ///
    /// # Errors
    /// Where `writer` fails.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut writer, self)?;
        writer.write_all(b"\n")
    }
}

/// Rounded in `f64`, whose shortest form has no more digits than asked for.
fn rounded(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

fn with_five_decimals<S: Serializer>(score: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    rounded(f64::from(*score), 1e5).serialize(serializer)
}

fn with_two_decimals<S: Serializer>(bbox: &BoundingBox, serializer: S) -> Result<S::Ok, S::Error> {
    bbox.to_xyxy().map(|edge| rounded(f64::from(edge), 1e2)).serialize(serializer)
}

impl Serialize for Timings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (stage, milliseconds) in self.iter() {
            map.serialize_entry(stage, &rounded(milliseconds, 1e2))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Timings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Timings;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object of milliseconds")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Timings, A::Error> {
                let mut timings = Timings::default();
                while let Some((stage, milliseconds)) = map.next_entry()? {
                    timings.0.push((stage, milliseconds));
                }
                Ok(timings)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests;
