//! From the encoder-decoder's raw outputs to boxes with scores.
//!
//! Each class on its own goes through threshold, scaling, clipping and suppression ([`PostProcessor::push_class`]). What
//! compares classes, that is class-agnostic suppression, limit and order, follows after all classes
//! ([`PostProcessor::finish_into`]). So the result does not depend on the number of classes in a chunk.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use ocelli_tracking::{BoundingBox, suppress};

use ocelli_error::{Error, Result};

/// Thresholds and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct PostProcessOptions {
    /// A query is kept if its score is above this, 0 to 1. Default 0.3.
    pub confidence: f32,
    /// Thresholds by class id that replace `confidence`. Default: none.
    pub class_confidence: BTreeMap<usize, f32>,
    /// Of two boxes of one class with an IoU above this, 0 to 1, the one with the lower score is dropped; `None` keeps both.
    /// Default 0.7.
    pub nms: Option<f32>,
    /// The same for boxes of any classes, after `nms`. Default `None`: an instance can belong to two classes.
    pub class_agnostic_nms: Option<f32>,
    /// The most detections of an image; those with the highest scores are kept. Default `None`: no limit.
    pub max_detections: Option<usize>,
}

impl Default for PostProcessOptions {
    fn default() -> Self {
        Self {
            confidence: 0.3,
            class_confidence: BTreeMap::new(),
            nms: Some(0.7),
            class_agnostic_nms: None,
            max_detections: None,
        }
    }
}

impl PostProcessOptions {
    /// Checks the thresholds and the limit.
    pub(crate) fn validate(&self) -> Result<()> {
        Error::check_share("confidence", self.confidence)?;
        Error::check_share("nms", self.nms.unwrap_or(1.0))?;
        Error::check_share("class_agnostic_nms", self.class_agnostic_nms.unwrap_or(1.0))?;
        if self.max_detections == Some(0) {
            return Err(Error::argument("max_detections", 0, "at least 1"));
        }
        match self.class_confidence.iter().find(|(_, threshold)| !(0.0..=1.0).contains(*threshold)) {
            None => Ok(()),
            Some((class_id, threshold)) => Err(Error::invalid_argument(format!(
                "confidence of class {class_id} is {threshold}: expected a number from 0 to 1"
            ))
            .about("confidence")),
        }
    }

    fn confidence_of(&self, class_id: usize) -> f32 {
        self.class_confidence.get(&class_id).copied().unwrap_or(self.confidence)
    }
}

/// The encoder-decoder's outputs for a class of an image.
#[derive(Clone, Copy, Debug)]
pub struct ClassOutputs<'a> {
    /// The class.
    pub class_id: usize,
    /// Its label.
    pub label: &'a str,
    /// `[query]`, how well a query matches the class.
    pub logits: &'a [f32],
    /// `[query, xyxy]`, as fractions of the image's sides, not clipped.
    pub boxes: &'a [f32],
    /// A logit, whether the image has any instance of the class; infinite if nothing says so.
    pub presence: f32,
}

/// A query that is kept; `class_id` and `query` identify its mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The class, from 0.
    pub class_id: usize,
    /// The query, from 0.
    pub query: usize,
    /// sigmoid(logit) · sigmoid(presence), 0 to 1.
    pub score: f32,
    /// Pixels of the original image, clipped to it.
    pub bbox: BoundingBox,
}

impl Candidate {
    /// The order of results: the higher score first, then the lower class id, then the lower query.
    fn order(&self, other: &Self) -> Ordering {
        let by_score = other.score.total_cmp(&self.score);
        by_score.then(self.class_id.cmp(&other.class_id)).then(self.query.cmp(&other.query))
    }
}

/// Turns raw outputs into candidates. The buffers are reused.
#[derive(Debug)]
pub struct PostProcessor {
    options: PostProcessOptions,
    image_width: f32,
    image_height: f32,
    /// Candidates of the classes pushed so far.
    kept: Vec<Candidate>,
    /// Candidates of the current class.
    class: Vec<Candidate>,
}

impl PostProcessor {
    /// Creates a post-processor.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a threshold outside 0 to 1.
    pub fn new(options: PostProcessOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self { options, image_width: 0.0, image_height: 0.0, kept: Vec::new(), class: Vec::new() })
    }

    /// The thresholds and limits.
    pub fn options(&self) -> &PostProcessOptions {
        &self.options
    }

    /// Starts an image of `width` × `height` pixels, without candidates.
    pub fn begin(&mut self, width: u32, height: u32) {
        self.image_width = width as f32;
        self.image_height = height as f32;
        self.kept.clear();
    }

    /// Adds the candidates of a class: score, threshold, scaling, clipping and suppression.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if there is no box for each query,
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a score or the box of a kept query
    /// is not finite. Nothing of such a class is kept.
    pub fn push_class(&mut self, raw: &ClassOutputs<'_>) -> Result<()> {
        let ClassOutputs { class_id, label, logits, boxes, presence } = *raw;
        if boxes.len() != 4 * logits.len() {
            return Err(Error::mismatch(format!(
                "encoder-decoder output, boxes: expected {} values for {} queries, got {}; the graph belongs to another model, \
                 export this one again",
                4 * logits.len(),
                logits.len(),
                boxes.len()
            )));
        }
        let not_a_number = |what: &str| {
            Error::execution(format!(
                "encoder-decoder output, class {class_id} \"{label}\": the engine returned a {what} that is not finite; if \
                 the model runs in half precision, export it in fp32"
            ))
        };
        let presence = sigmoid(presence);
        if presence.is_nan() {
            return Err(not_a_number("presence"));
        }
        let threshold = self.options.confidence_of(class_id);
        self.class.clear();
        for (query, (&logit, &edges)) in logits.iter().zip(boxes.as_chunks::<4>().0).enumerate() {
            let score = sigmoid(logit) * presence;
            if score.is_nan() {
                return Err(not_a_number("logit"));
            }
            if score <= threshold {
                continue;
            }
            let whole = BoundingBox::from(edges);
            if !whole.is_finite() {
                return Err(not_a_number("box"));
            }
            let bbox = whole
                .scaled(self.image_width, self.image_height)
                .clip_to(self.image_width, self.image_height);
            if bbox.has_area() {
                self.class.push(Candidate { class_id, query, score, bbox });
            }
        }
        self.class.sort_unstable_by(Candidate::order);
        if let Some(iou) = self.options.nms {
            suppress(&mut self.class, iou, |candidate| candidate.bbox);
        }
        self.kept.append(&mut self.class);
        // A candidate beyond the limit now is beyond it at the end, unless class-agnostic suppression comes between.
        if let (Some(most), None) = (self.options.max_detections, self.options.class_agnostic_nms)
            && self.kept.len() > most
        {
            self.kept.sort_unstable_by(Candidate::order);
            self.kept.truncate(most);
        }
        Ok(())
    }

    /// The candidates of the image so far.
    pub fn pending(&self) -> &[Candidate] {
        &self.kept
    }

    /// `true` if pending candidates stay whatever other classes have: there is neither a limit nor class-agnostic suppression.
    pub fn is_final(&self) -> bool {
        self.options.max_detections.is_none() && self.options.class_agnostic_nms.is_none()
    }

    /// Finishes the image: class-agnostic suppression, order, limit. `candidates` is cleared first.
    pub fn finish_into(&mut self, candidates: &mut Vec<Candidate>) {
        candidates.clear();
        candidates.append(&mut self.kept);
        candidates.sort_unstable_by(Candidate::order);
        if let Some(iou) = self.options.class_agnostic_nms {
            suppress(candidates, iou, |candidate| candidate.bbox);
        }
        candidates.truncate(self.options.max_detections.unwrap_or(usize::MAX));
    }
}

pub(crate) fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

#[cfg(test)]
mod tests;
