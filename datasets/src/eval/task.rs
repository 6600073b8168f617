//! All contenders have the same task: what to look for, and what to compare.

use ocelli::{Error, Prompts, Result, options::DetectorOptions};

use super::{Contender, EvalImages, EvalReport, Overlap, Predictions, Protocol, Truth, difference_interval};
use crate::table::some;

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

    /// The detections of these categories.
    pub(super) fn predictions_of(&self, all: Predictions) -> Predictions {
        if self.options.classes.is_empty() { all } else { all.of_categories(&self.category_ids) }
    }

    /// The report of one contender, or of several on the same images.
    ///
    /// # Errors
    /// Those of [`average_precision`](super::average_precision).
    pub fn report(&self, images: &EvalImages, contenders: Vec<Contender>) -> Result<EvalReport> {
        let (truth, ids) = (&images.truth, &images.ids[..]);
        let of_classes = !self.options.classes.is_empty();
        let truth = if of_classes { &truth.of_categories(&self.category_ids)? } else { truth };
        let is_model = contenders.iter().any(Contender::is_model);
        let intervals = match &contenders[..] {
            [first, second] if !self.options.gives_boxes() => {
                let found = [&first.predictions, &second.predictions];
                let interval = |overlap| difference_interval(truth, found, ids, overlap);
                let boxes = interval(Overlap::Boxes)?;
                [boxes, if self.options.masks { interval(Overlap::Masks)? } else { None }]
            }
            _ => [None; 2],
        };
        let evaluate = |contender: Contender| contender.evaluate(&self.options, truth, ids);
        let report = EvalReport {
            truth: images.description.clone(),
            protocol: is_model.then_some(self.options.protocol),
            images: ids.len(),
            instances: truth.count_instances(ids),
            classes: truth.categories().len(),
            failed: images.failed.clone(),
            models: contenders.into_iter().map(evaluate).collect::<Result<_>>()?,
            ..EvalReport::default()
        };
        Ok(report.with_difference(intervals))
    }
}
