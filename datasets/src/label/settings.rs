//! The settings of labelling, and the options of the files.

use std::fmt;
use std::str::FromStr;

use ocelli_export::contract::Manifest;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::label::images::hash_of;
use ocelli::{
    Error, Model, Result, classes::Class, classes::ClassMap, postprocess::PostProcessOptions,
    source::InputOptions, tiles::Tiling,
};

/// The format of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// `labels/*.txt` with one box per line, `images/`, `data.yaml` and `classes.txt`.
    Yolo,
    /// The same with one polygon per line.
    #[serde(alias = "yoloseg")]
    YoloSeg,
    /// `annotations.json`, and one file of the same kind for each split.
    Coco,
    /// Pascal VOC: `voc/` with `Annotations/*.xml`, `JPEGImages/` and `ImageSets/Main/`.
    #[serde(alias = "pascal-voc")]
    Voc,
    /// `masks/`: a folder for each image with a PNG for each instance, white where its mask is.
    Masks,
    /// `youtube_vis.json`: the videos, and for each object a list with a mask, a box and an area, or `null`, for each image of
    /// its video.
    #[serde(alias = "ytvis")]
    YoutubeVis,
}

impl Format {
    /// `true` if the format needs masks.
    pub fn needs_masks(self) -> bool {
        !matches!(self, Self::Yolo | Self::Voc)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name that the state of a data set has.
        self.serialize(f)
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::deserialize(name.trim().to_lowercase().into_deserializer());
        known.map_err(|_: serde::de::value::Error| {
            Error::invalid_argument(format!(
                "format {name}: no such format; the formats are yolo, yolo-seg, coco, voc, masks, youtube-vis"
            ))
        })
    }
}

/// The way images are added to the data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ImageMode {
    /// Symbolic links. With COCO's format, whose loaders refuse links that leave the data set, hard links if the file
    /// system allows them.
    #[default]
    Link,
    /// Copies.
    Copy,
    /// Not at all: `annotations.json` has the paths of the original files. YOLO's and VOC's formats need links or copies.
    None,
}

impl FromStr for ImageMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::deserialize(name.into_deserializer());
        known.map_err(|_: serde::de::value::Error| {
            Error::invalid_argument(format!("{name:?}: expected link, copy or none"))
        })
    }
}

/// The way objects are followed through the frames of a video.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Tracking {
    /// By their boxes, with [`ByteTracker`](ocelli::tracking::ByteTracker). The labels of a frame are those that an image would
    /// get; each instance starts a track or continues one.
    Boxes,
    /// By the model's memory of them, in a [pipeline](ocelli::options::PipelineOptions::memory), which decides which objects
    /// there are:
    /// of the thresholds and suppressions of the settings, none applies.
    Memory {
        /// Objects start, and are kept alive, by detections above this score; `None`: by SAM 3's thresholds.
        confidence: Option<f32>,
    },
}

impl fmt::Display for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boxes => f.write_str("bytetrack"),
            Self::Memory { confidence: None } => f.write_str("memory"),
            Self::Memory { confidence: Some(score) } => write!(f, "memory from {score}"),
        }
    }
}

/// The settings that determine the labels. Runs with the same settings find the same instances in an image.
#[derive(Clone, Debug)]
pub struct LabelSettings {
    /// The classes.
    pub classes: ClassMap,
    /// Instances above this score are kept, 0 to 1. A class may have its own threshold.
    pub confidence: f32,
    /// Of boxes of one class that overlap by more than this IoU, the one with the highest score is kept. A class may have its
    /// own limit.
    pub nms: f32,
    /// The same limit for boxes of different classes; `None` keeps all.
    pub class_agnostic_nms: Option<f32>,
    /// Instances with fewer pixels are left out. A class may have its own limit.
    pub min_area: f64,
    /// Instances have masks.
    pub masks: bool,
    /// The way objects are followed, if the images are frames of videos.
    pub tracking: Option<Tracking>,
    /// Options for opening the videos.
    pub input: InputOptions,
    /// The tiles of large images, if there are any.
    pub tiling: Option<Tiling>,
}

impl LabelSettings {
    /// The default settings for these classes, without masks.
    pub fn new(classes: ClassMap) -> Self {
        Self {
            classes,
            confidence: 0.3,
            nms: 0.7,
            class_agnostic_nms: None,
            min_area: 0.0,
            masks: false,
            tracking: None,
            input: InputOptions::default(),
            tiling: None,
        }
    }

    /// The post-processing options of the detector: the thresholds of the phrases, and the largest suppression limit of any
    /// class.
    pub fn post_processing(&self) -> PostProcessOptions {
        let mut options = PostProcessOptions {
            confidence: self.confidence,
            nms: None,
            class_agnostic_nms: self.class_agnostic_nms,
            ..PostProcessOptions::default()
        };
        let mut prompt = 0;
        for class in &self.classes.classes {
            for _ in &class.phrases {
                if let Some(threshold) = class.threshold {
                    options.class_confidence.insert(prompt, threshold);
                }
                prompt += 1;
            }
            // Prompts with exemplars follow the phrases, and their number depends on the image: they get the lowest threshold
            // here and the threshold of their class later.
            if !class.exemplars.is_empty() {
                let threshold = class.threshold.unwrap_or(self.confidence);
                options.confidence = options.confidence.min(threshold);
            }
            let nms = class.nms.unwrap_or(self.nms);
            options.nms = Some(options.nms.unwrap_or(0.0).max(nms));
        }
        options
    }

    /// Checks the settings and the options of the files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument), with the name of the option.
    pub fn check(&self, options: &DataSetOptions) -> Result<()> {
        options.check()?;
        if self.min_area.is_nan() || self.min_area < 0.0 {
            return Err(Error::argument("min_area", self.min_area, "a number of pixels"));
        }
        let mut in_need = [Format::YoloSeg, Format::Masks, Format::YoutubeVis].into_iter();
        in_need.find(|format| options.has(*format) && !self.masks).map_or(Ok(()), |format| {
            let message = format!("format {format} needs masks, but masks is false in the label settings");
            Err(Error::invalid_argument(message).about("no_masks"))
        })
    }

    /// Checks that a model can follow objects as these settings want it.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) for [`Tracking::Memory`] with a model without a tracker;
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if a class
    /// has several phrases or exemplars, or images are searched in tiles then.
    pub fn check_tracking(&self, model: &Model) -> Result<()> {
        if !matches!(self.tracking, Some(Tracking::Memory { .. })) {
            return Ok(());
        }
        if self.tiling.is_some() {
            let message =
                "tile: the memory tracker follows what it sees in whole frames: leave one of them out";
            return Err(Error::invalid_argument(message).about("tile"));
        }
        if !model.manifest().has_tracker() {
            let message = format!(
                "memory tracker, {}: this model has no tracker; name a checkpoint that has one, such as Meta's sam3.pt or \
                 facebook/sam3, and do not leave it out",
                model.folder().display()
            );
            return Err(Error::mismatch(message));
        }
        let is_one_phrase = |class: &&Class| class.phrases.len() == 1 && class.exemplars.is_empty();
        self.classes.classes.iter().find(|class| !is_one_phrase(class)).map_or(Ok(()), |class| {
            let why = "the memory tracker follows what one phrase finds: expected one, and no exemplars";
            Err(Error::invalid_argument(format!("class \"{}\": {why}", class.name)))
        })
    }

    /// Everything that determines the labels, including the model, for the first line of the journal.
    pub(super) fn describe(&self, model: &Manifest) -> Value {
        let of_half: &[&str] =
            if model.precision.is_half() { &["mixed_precision", "keep_fp32"] } else { &[] };
        let model = serde_json::to_value(model).unwrap_or_default();
        // File names, hashes and the version of the exporter differ between exports of the same model.
        let relevant =
            ["weights_sha256", "imgsz", "precision", "prompting", "skip_blocks", "mask_blocks", "pruning"];
        let model: serde_json::Map<String, Value> = relevant
            .iter()
            .chain(of_half)
            .filter_map(|&key| model.get(key).map(|value| (key.to_owned(), value.clone())))
            .collect();
        let mut described = json!({
            "model": model,
            "confidence": self.confidence,
            "nms": self.nms,
            "class-agnostic-nms": self.class_agnostic_nms,
            "min-area": self.min_area,
            "masks": self.masks,
            "classes": self.classes.classes,
            "merge": self.classes.merge,
        });
        if let Some(tracking) = self.tracking {
            described["tracker"] = tracking.to_string().into();
        }
        if let Some(stream) = self.input.stream {
            described["stream"] = stream.into();
        }
        for (key, value) in &self.input.ffmpeg {
            // Some are secrets.
            described["ffmpeg-option"][key] = format!("{:016x}", hash_of(value, 0)).into();
        }
        if let Some(tiling) = self.tiling {
            described["tile"] = tiling.size.to_string().into();
            described["tile-overlap"] = tiling.overlap.into();
        }
        described
    }
}

/// The options of the files of a data set. They do not change the labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSetOptions {
    /// The formats, without duplicates.
    pub formats: Vec<Format>,
    /// COCO's segmentation is polygons instead of run lengths.
    pub polygons: bool,
    /// The way images are added to the data set.
    #[serde(rename = "pictures")]
    pub images: ImageMode,
    /// The share of the images for validation, at least 0 and below 1.
    pub validation_share: f64,
    /// Number of images of each kind on the review pages; `None` writes no pages and no list.
    pub review: Option<usize>,
    /// Images with an instance below this score are listed for review.
    pub review_below: f32,
}

impl Default for DataSetOptions {
    fn default() -> Self {
        Self {
            formats: vec![Format::Yolo],
            polygons: false,
            images: ImageMode::default(),
            validation_share: 0.1,
            review: None,
            review_below: 0.5,
        }
    }
}

impl DataSetOptions {
    /// The default options for these formats. Unless `images` says how, images are added for formats whose trainers find labels
    /// beside them, and if they are frames of videos, which are nowhere else.
    pub fn new(mut formats: Vec<Format>, images: Option<ImageMode>, are_frames: bool) -> Self {
        formats.sort_unstable();
        formats.dedup();
        let mut options = Self { formats, ..Self::default() };
        let default = if are_frames || options.needs_images() { ImageMode::Link } else { ImageMode::None };
        options.images = images.unwrap_or(default);
        options
    }

    /// `true` if a trainer finds labels beside the images only.
    fn needs_images(&self) -> bool {
        !self.yolo_folders().is_empty() || self.has(Format::Voc)
    }

    pub(super) fn has(&self, format: Format) -> bool {
        self.formats.contains(&format)
    }

    /// The folder of each YOLO format. With both formats, polygons get a folder of their own, because both have `labels/`
    /// and `images/`.
    pub(super) fn yolo_folders(&self) -> Vec<(&'static str, Format)> {
        let of_polygons = if self.has(Format::Yolo) { "segments/" } else { "" };
        let all = [("", Format::Yolo), (of_polygons, Format::YoloSeg)];
        all.into_iter().filter(|(_, format)| self.has(*format)).collect()
    }

    fn check(&self) -> Result<()> {
        if self.formats.is_empty() {
            return Err(Error::invalid_argument("formats is empty: expected at least one format"));
        }
        let share = self.validation_share;
        if !(0.0..1.0).contains(&share) {
            return Err(Error::argument("validation_share", share, "a number from 0 to below 1"));
        }
        Error::check_share("review_below", self.review_below)?;
        if self.images == ImageMode::None && self.needs_images() {
            let message = "images is none: trainers find the labels of YOLO and VOC beside the images only; link or copy the images";
            return Err(Error::invalid_argument(message).about("no_images"));
        }
        Ok(())
    }
}
/// More decoders only wait for the disk.
const MAX_WORKERS: usize = 64;
/// For each device: they keep up with any engine.
const WORKERS: usize = 4;

/// The threads that decode images for this many devices: the given number, or as many as keep up.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for none and too many.
pub fn workers(given: Option<usize>, devices: usize) -> Result<usize> {
    match given {
        Some(workers) if !(1..=MAX_WORKERS).contains(&workers) => {
            Err(Error::argument("workers", workers, format!("1 to {MAX_WORKERS}")))
        }
        Some(workers) => Ok(workers),
        None => {
            let most = (devices * WORKERS).min(MAX_WORKERS);
            Ok(std::thread::available_parallelism().map_or(1, |cores| cores.get().min(most)))
        }
    }
}
