//! Models and files of detections are evaluated alike, as contenders.

use std::collections::HashSet;
use std::path::Path;

use ocelli::{Detector, Error, Image, Prompts, Result, StageTimes};
use sha2::{Digest, Sha256};

use super::{
    EvalOptions, EvalTask, ExemplarMasks, ImageResult, Instance, ModelReport, Overlap, Predictions, Protocol,
    TimingSummary, Truth, average_precision, precision_recall,
};

/// A model, or detections from a file, with the results so far.
#[derive(Default)]
pub struct Contender {
    /// A folder, a file, or `built-in`.
    pub name: String,
    detector: Option<Detector>,
    prompts: Option<Prompts>,
    is_warm: bool,
    /// The detections so far.
    pub predictions: Predictions,
    masks: ExemplarMasks,
    times: Vec<StageTimes>,
}

impl Contender {
    /// Reads a COCO results file.
    ///
    /// # Errors
    /// Those of [`Predictions::open`].
    pub fn predicted(path: &Path, truth: &Truth, task: &EvalTask) -> Result<Self> {
        let predictions = Predictions::open(path, truth)?.of_categories(&task.category_ids);
        Ok(Self { name: path.display().to_string(), predictions, ..Self::default() })
    }

    /// Prepares a detector for the task's [`prompts`](EvalTask::prompts).
    ///
    /// # Errors
    /// Those of [`Detector::prepare`], and of [`Detector::prepare_segment`] if boxes are given to a tracker.
    pub fn model(
        name: String,
        mut detector: Detector,
        prompts: Option<Prompts>,
        task: &EvalTask,
    ) -> Result<Self> {
        match &prompts {
            Some(prompts) => drop(detector.prepare(prompts)?),
            None if task.options.protocol == Protocol::BoxToMask => detector.prepare_segment()?,
            None => {}
        }
        Ok(Self { name, detector: Some(detector), prompts, ..Self::default() })
    }

    /// The model and its engine, as far as results depend on them; `None` if the detections are from a file.
    pub fn identity(&self) -> Option<String> {
        let detector = self.detector.as_ref()?;
        let manifest = serde_json::to_string(detector.model().manifest()).expect("a manifest is plain data");
        let hash: String = Sha256::digest(manifest).iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("{} {hash}", detector.engine()))
    }

    /// The engine of a model.
    pub fn engine(&self) -> Option<&str> {
        self.detector.as_ref().map(Detector::engine)
    }

    /// `true` if it detects.
    pub fn is_model(&self) -> bool {
        self.detector.is_some()
    }

    /// Detects in an image. `instances` are its annotated ones, which count if boxes are given.
    pub(super) fn detect(
        &mut self,
        image_id: u64,
        image: &Image,
        instances: Vec<Instance>,
        task: &EvalTask,
    ) -> Result<ImageResult> {
        let mut result = ImageResult::default();
        let Some(detector) = &mut self.detector else { return Ok(result) };
        let instances = ExemplarMasks::eligible(instances, image.width(), image.height());
        let failed =
            |error: Error| Error::new(error.kind(), format!("{}, image {image_id}: {error}", self.name));
        if task.options.gives_boxes() && instances.is_empty() {
            return Ok(result);
        }
        if task.options.protocol == Protocol::BoxToMask {
            let features = detector.encode(image).map_err(failed)?;
            let found = detector.segment(&features, &ExemplarMasks::objects(&instances)).map_err(failed)?;
            result.ious = ExemplarMasks::ious_of_masks(&instances, found.iter().map(|one| &one.mask))?;
            return Ok(result);
        }
        let prompts = match &self.prompts {
            None => &ExemplarMasks::prompts(&instances)?,
            Some(prompts) => prompts,
        };
        if !self.is_warm {
            detector.detect(image, prompts)?;
            self.is_warm = true;
        }
        let found = detector.detect(image, prompts).map_err(failed)?;
        if task.options.exemplars_from_truth {
            result.ious = ExemplarMasks::ious(&instances, &found.items)?;
        } else {
            result.found.push_detections(image_id, &found.items, &task.category_ids);
        }
        Ok(result.with_times(&found.times))
    }

    /// Keeps the result of an image.
    pub(super) fn add(&mut self, result: ImageResult) {
        self.times.extend(result.times());
        self.masks.record(&result.ious);
        self.predictions.append(result.found);
    }

    /// Computes all figures over the images with these ids; `truth` has the categories of the task.
    pub(super) fn evaluate(
        self,
        options: &EvalOptions,
        truth: &Truth,
        image_ids: &[u64],
    ) -> Result<ModelReport> {
        let is_model = self.is_model();
        let mut report = ModelReport {
            engine: self.engine().map(str::to_owned),
            name: self.name,
            timing_ms: TimingSummary::of(&self.times),
            ..ModelReport::default()
        };
        if options.gives_boxes() {
            report.from_truth_boxes = Some(self.masks);
            return Ok(report);
        }
        let predictions = self.predictions.of_images(image_ids);
        report.detections = predictions.len();
        if !is_model {
            let (with, wanted) = (predictions.image_ids(), image_ids.iter().collect::<HashSet<_>>());
            let images =
                truth.images().iter().filter(|one| wanted.contains(&one.id) && !with.contains(&one.id));
            report.without_detections = images.map(|image| image.file_name.clone()).collect();
        }
        report.bbox = Some(average_precision(truth, &predictions, image_ids, Overlap::Boxes)?);
        if options.masks {
            report.segm = Some(average_precision(truth, &predictions, image_ids, Overlap::Masks)?);
        }
        report.at_confidence = Some(precision_recall(truth, &predictions, image_ids, options.confidence)?);
        Ok(report)
    }
}
