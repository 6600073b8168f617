//! All contenders have the same task: what to look for, which detections count, and what to compare.

use std::fmt;
use std::str::FromStr;

use ocelli::{Error, Prompts, Result, options::DetectorOptions, postprocess::PostProcessOptions};
use serde::Serialize;

use super::Truth;
use crate::table::some;

/// The rule by which detections count. Figures of different protocols cannot be compared.
///
/// With `practical` and `dart`, every class is looked for in every image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Protocol {
    /// As in practical use: scores above 0.01, suppression at an IoU of 0.7 within a class, the best 300 detections of an image.
    #[default]
    Practical,
    /// As in DART's paper: scores above 0, no suppression, the best 100 detections of an image.
    Dart,
    /// As in EfficientSAM3's evaluation: nothing is detected; the model's tracker is given the annotated box of each instance,
    /// and its mask is compared with the annotated one.
    BoxToMask,
}

impl Protocol {
    /// The post-processing options.
    pub fn post_processing(self) -> PostProcessOptions {
        let options = PostProcessOptions::default();
        match self {
            Self::BoxToMask => options,
            Self::Practical => {
                PostProcessOptions { confidence: 0.01, nms: Some(0.7), max_detections: Some(300), ..options }
            }
            Self::Dart => {
                PostProcessOptions { confidence: 0.0, nms: None, max_detections: Some(100), ..options }
            }
        }
    }

    /// A description for reports.
    pub fn description(self) -> &'static str {
        match self {
            Self::Practical => "practical: scores above 0.01, suppression 0.7, the best 300 of an image",
            Self::Dart => "dart: every score, no suppression, the best 100 of an image",
            Self::BoxToMask => "box-to-mask: the mask of each annotated box, by the tracker's mask decoder",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name that reports have.
        self.serialize(f)
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let all = [Self::Practical, Self::Dart, Self::BoxToMask];
        all.into_iter().find(|protocol| protocol.to_string() == name.to_lowercase()).ok_or_else(|| {
            let message = format!(
                "protocol {name}: no such protocol; the protocols are practical, dart and box-to-mask"
            );
            Error::invalid_argument(message).about("protocol")
        })
    }
}

/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct EvalOptions {
    /// The rule by which detections count.
    pub protocol: Protocol,
    /// Masks as well as boxes.
    pub masks: bool,
    /// Prompts are the annotated boxes of instances instead of names, and masks are what is compared.
    pub exemplars_from_truth: bool,
    /// Score threshold of precision and recall, 0 to 1.
    pub confidence: f32,
    /// The categories, all of the ground truth if empty; `PHRASE=CATEGORY` sets the text prompt of one.
    pub classes: Vec<String>,
}

impl EvalOptions {
    /// `true` if annotated boxes are given, and masks are what is compared.
    pub fn gives_boxes(&self) -> bool {
        self.exemplars_from_truth || self.protocol == Protocol::BoxToMask
    }
}

/// The prompts, their categories, and the options.
#[derive(Clone, Debug)]
pub struct EvalTask {
    /// The options as given.
    pub options: EvalOptions,
    phrases: Vec<String>,
    /// The category of each prompt.
    pub(super) category_ids: Vec<u64>,
}

impl EvalTask {
    /// Finds the categories in `truth`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for a category that does not exist, and a confidence out
    /// of range.
    pub fn new(options: EvalOptions, truth: &Truth) -> Result<Self> {
        DetectorOptions { confidence: Some(options.confidence), ..DetectorOptions::default() }.check()?;
        let categories = truth.categories();
        let (mut phrases, mut category_ids) = (Vec::new(), Vec::new());
        for class in &options.classes {
            let (phrase, name) = class.split_once('=').unwrap_or((class, class));
            let (phrase, name) = (phrase.trim(), name.trim());
            let Some(category) = categories.iter().find(|category| category.name == name) else {
                let known: Vec<&str> = categories.iter().map(|category| &*category.name).collect();
                let known = some(&known, 8);
                let message = format!("classes, {name}: no such category; the annotations have {known}");
                return Err(Error::invalid_argument(message).about("classes"));
            };
            phrases.push(phrase.to_owned());
            category_ids.push(category.id);
        }
        if options.classes.is_empty() {
            phrases = categories.iter().map(|category| category.name.clone()).collect();
            category_ids = categories.iter().map(|category| category.id).collect();
        }
        Ok(Self { options, phrases, category_ids })
    }

    /// The text prompts of a model; `None` if annotated boxes are given to it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if a category has no name.
    pub fn prompts(&self, truth: &Truth) -> Result<Option<Prompts>> {
        if self.options.gives_boxes() {
            return Ok(None);
        }
        let is_searched = |id: &u64| self.category_ids.contains(id);
        let mut unnamed =
            truth.categories().iter().filter(|one| is_searched(&one.id) && truth.is_unnamed(one));
        if let Some(category) = unnamed.next() {
            return Err(Error::invalid_argument(format!(
                "category {} of the annotations has no name, and a model searches for names: add it, or set classes \
                 without it",
                category.id
            )).about("classes"));
        }
        Prompts::new(self.phrases.iter().map(String::as_str)).map(Some)
    }

    /// The phrases with their categories, in words.
    pub fn described(&self) -> Vec<String> {
        self.phrases.iter().zip(&self.category_ids).map(|(phrase, id)| format!("{phrase} {id}")).collect()
    }
}
