//! What decides the labels, and what decides the files they are written to.

use std::fmt;
use std::str::FromStr;

use ocelli_export::contract::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::class_map::ClassMap;
use ocelli::postprocess::PostProcessOptions;
use ocelli::{Error, ErrorKind, Result};

/// A data set's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// `labels/*.txt` with a box a line, `images/`, `data.yaml`, `classes.txt`.
    Yolo,
    /// The same with a polygon a line.
    YoloSeg,
    /// `annotations.json`.
    Coco,
}

impl Format {
    /// Whether things need masks in it.
    pub fn needs_masks(self) -> bool {
        self != Self::Yolo
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yolo => "yolo",
            Self::YoloSeg => "yolo-seg",
            Self::Coco => "coco",
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name.trim().to_lowercase().as_str() {
            "yolo" => Ok(Self::Yolo),
            "yolo-seg" | "yoloseg" => Ok(Self::YoloSeg),
            "coco" => Ok(Self::Coco),
            _ => {
                let message =
                    format!("--format {name}: no such format; the formats are yolo, yolo-seg, coco");
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

/// How pictures come into the data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PictureMode {
    /// As symbolic links.
    #[default]
    Link,
    /// As copies.
    Copy,
    /// Not at all: `annotations.json` names the files where they are. YOLO's formats cannot do that.
    None,
}

/// What decides the labels. Two runs of the same settings find the same things in a picture.
#[derive(Clone, Debug)]
pub struct LabelSettings {
    /// The classes.
    pub classes: ClassMap,
    /// The score above which things are kept, where the class has none of its own; 0 to 1.
    pub confidence: f32,
    /// Of boxes of one class that overlap more than this IoU the best stays, where the class has none of its own.
    pub nms: f32,
    /// The same among boxes of all classes.
    pub class_agnostic_nms: Option<f32>,
    /// Things of fewer pixels are left out, where the class has no limit of its own.
    pub min_area: f64,
    /// Whether things get masks.
    pub masks: bool,
}

impl LabelSettings {
    /// These classes with the defaults of the command line, without masks.
    pub fn new(classes: ClassMap) -> Self {
        Self { classes, confidence: 0.3, nms: 0.7, class_agnostic_nms: None, min_area: 0.0, masks: false }
    }

    /// What the detector is to be told: thresholds of the phrases, and the most that any class wants of suppression.
    pub fn post_processing(&self) -> PostProcessOptions {
        let mut options = PostProcessOptions {
            score_threshold: self.confidence,
            nms_iou: None,
            class_agnostic_nms_iou: self.class_agnostic_nms,
            ..PostProcessOptions::default()
        };
        let mut prompt = 0;
        for class in &self.classes.classes {
            for _ in &class.phrases {
                if let Some(threshold) = class.threshold {
                    options.class_score_thresholds.insert(prompt, threshold);
                }
                prompt += 1;
            }
            // Prompts with examples come after all phrases, as many as a picture has: the lowest threshold lets them
            // through, and they are sifted afterwards.
            if !class.exemplars.is_empty() {
                let threshold = class.threshold.unwrap_or(self.confidence);
                options.score_threshold = options.score_threshold.min(threshold);
            }
            let nms = class.nms.unwrap_or(self.nms);
            options.nms_iou = Some(options.nms_iou.unwrap_or(0.0).max(nms));
        }
        options
    }

    /// Everything that decides the labels, the model included, for the journal's first line.
    pub(super) fn describe(&self, model: &Manifest) -> Value {
        let of_half: &[&str] =
            if model.precision.is_half() { &["mixed_precision", "keep_fp32"] } else { &[] };
        let model = serde_json::to_value(model).unwrap_or_default();
        // Names of files, their hashes and the exporter's version differ between exports of one model.
        let decisive =
            ["weights_sha256", "imgsz", "precision", "prompting", "skip_blocks", "mask_blocks", "pruning"];
        let model: serde_json::Map<String, Value> = decisive
            .iter()
            .chain(of_half)
            .filter_map(|&key| model.get(key).map(|value| (key.to_owned(), value.clone())))
            .collect();
        json!({
            "model": model,
            "confidence": self.confidence,
            "nms": self.nms,
            "class-agnostic-nms": self.class_agnostic_nms,
            "min-area": self.min_area,
            "masks": self.masks,
            "classes": self.classes.classes,
            "merge": self.classes.merge,
        })
    }
}

/// What decides the files of the data set; the labels are the same whatever it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSetOptions {
    /// The formats, each once.
    pub formats: Vec<Format>,
    /// COCO's segmentation as polygons instead of run lengths.
    pub polygons: bool,
    /// How pictures come into the data set.
    pub pictures: PictureMode,
    /// The share of the pictures that are for validation, from 0 to below 1.
    pub validation_share: f64,
    /// How many pictures the review pages show of each kind; none, and no list, with `None`.
    pub review: Option<usize>,
    /// Pictures with a thing that scores below this are listed for review.
    pub review_below: f32,
}

impl Default for DataSetOptions {
    fn default() -> Self {
        Self {
            formats: vec![Format::Yolo],
            polygons: false,
            pictures: PictureMode::default(),
            validation_share: 0.1,
            review: None,
            review_below: 0.5,
        }
    }
}

impl DataSetOptions {
    pub(super) fn has(&self, format: Format) -> bool {
        self.formats.contains(&format)
    }

    /// The folder of each YOLO format: polygons have one of their own where there are boxes as well, because both
    /// would be `labels/` beside `images/`.
    pub(super) fn yolo_folders(&self) -> Vec<(&'static str, Format)> {
        match (self.has(Format::Yolo), self.has(Format::YoloSeg)) {
            (true, true) => vec![("", Format::Yolo), ("segments/", Format::YoloSeg)],
            (true, false) => vec![("", Format::Yolo)],
            (false, true) => vec![("", Format::YoloSeg)],
            (false, false) => Vec::new(),
        }
    }

    /// Whether the options make sense together.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], naming the flag.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if self.formats.is_empty() {
            return refuse("--format names no format".into());
        }
        if !(0.0..1.0).contains(&self.validation_share) {
            let share = self.validation_share;
            return refuse(format!("--val-share is {share}: expected a number from 0 to below 1"));
        }
        if !(0.0..=1.0).contains(&self.review_below) {
            return refuse(format!("--review-below is {}: expected a number from 0 to 1", self.review_below));
        }
        if self.pictures == PictureMode::None && !self.yolo_folders().is_empty() {
            return refuse(
                "--no-pictures: trainers of the YOLO formats find labels beside images/ only; use --link or --copy"
                    .into(),
            );
        }
        Ok(())
    }
}
