//! What is evaluated: a model, or detections from a file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ocelli::{Detector, Error, Image, ModelSource, Prompts, StageTimes, options::DetectorOptions};
use ocelli_datasets::eval::{
    ExemplarMasks, ImageResult, Instance, ModelReport, Overlap, Predictions, Protocol, TimingSummary, Truth,
    average_precision, precision_recall,
};
use sha2::{Digest, Sha256};

use super::EvalArgs;
use crate::{LogArgs, ModelArgs, class_names, detector, load};

/// What is detected in every image.
pub struct Task {
    phrases: Vec<String>,
    /// The category of each prompt.
    category_ids: Vec<u64>,
    /// Whether these are all categories of the ground truth.
    all: bool,
}

impl Task {
    /// The categories of `--classes`, else all.
    pub fn new(args: &EvalArgs, truth: &Truth) -> anyhow::Result<Self> {
        let categories = truth.categories();
        if args.classes.is_empty() {
            let phrases = categories.iter().map(|category| category.name.clone()).collect();
            let category_ids = categories.iter().map(|category| category.id).collect();
            return Ok(Self { phrases, category_ids, all: true });
        }
        let (mut phrases, mut category_ids) = (Vec::new(), Vec::new());
        for class in class_names(&args.classes, &LogArgs::default())? {
            let (phrase, name) = class.split_once('=').unwrap_or((&class, &class));
            let (phrase, name) = (phrase.trim(), name.trim());
            let Some(category) = categories.iter().find(|category| category.name == name) else {
                let some: Vec<&str> = categories.iter().take(8).map(|category| &*category.name).collect();
                let more = if categories.len() > some.len() { ", …" } else { "" };
                refuse!(
                    "--classes, {name}: no such category; the annotations have {}{more}",
                    some.join(", ")
                );
            };
            phrases.push(phrase.to_owned());
            category_ids.push(category.id);
        }
        Ok(Self { phrases, category_ids, all: false })
    }

    /// The text prompts of a model.
    fn prompts(&self, truth: &Truth) -> anyhow::Result<Prompts> {
        let is_searched = |id: &u64| self.category_ids.contains(id);
        let mut unnamed =
            truth.categories().iter().filter(|one| is_searched(&one.id) && truth.is_unnamed(one));
        if let Some(category) = unnamed.next() {
            refuse!(
                "category {} of the annotations has no name, and a model searches for names: add it, or name the others \
                 with --classes",
                category.id
            );
        }
        Ok(Prompts::new(self.phrases.iter().map(String::as_str))?)
    }

    /// What is searched for, in words.
    pub fn described(&self) -> Vec<String> {
        self.phrases.iter().zip(&self.category_ids).map(|(phrase, id)| format!("{phrase} {id}")).collect()
    }

    /// The ground truth of these categories.
    pub fn truth_of(&self, truth: &Truth) -> anyhow::Result<Truth> {
        Ok(if self.all { truth.clone() } else { truth.of_categories(&self.category_ids)? })
    }
}

/// A model, or detections from a file.
#[derive(Default)]
pub struct Contender {
    pub name: String,
    detector: Option<Detector>,
    prompts: Option<Prompts>,
    warm: bool,
    pub predictions: Predictions,
    masks: ExemplarMasks,
    times: Vec<StageTimes>,
}

/// Opens each model or results file that the arguments name.
pub fn open(args: &EvalArgs, truth: &Truth, task: &Task, log: &LogArgs) -> anyhow::Result<Vec<Contender>> {
    if let Some(path) = &args.predictions {
        if args.exemplars_from_truth {
            refuse!("--exemplars-from-truth needs a model: remove --predictions");
        }
        return Ok(vec![Contender::predicted(path, truth, task)?]);
    }
    if args.compare.is_empty() {
        let name =
            args.model.model.as_ref().map_or_else(|| BUILT_IN.into(), |path| path.display().to_string());
        return Ok(vec![Contender::model(name, args, &args.model, truth, task, log)?]);
    }
    let open = |path: &PathBuf| {
        if path.is_file() {
            if args.gives_boxes() {
                refuse!("annotated boxes are given to models, and --compare names a results file");
            }
            return Contender::predicted(path, truth, task);
        }
        let built_in = path.as_os_str() == BUILT_IN && !path.exists();
        let model = ModelArgs { model: (!built_in).then(|| path.clone()), ..args.model.clone() };
        Contender::model(path.display().to_string(), args, &model, truth, task, log)
    };
    args.compare.iter().map(open).collect()
}

/// Name of the built-in model in reports and in `--compare`.
const BUILT_IN: &str = ModelSource::BUILT_IN;

impl Contender {
    fn predicted(path: &Path, truth: &Truth, task: &Task) -> anyhow::Result<Self> {
        let predictions = Predictions::open(path, truth)?;
        let predictions = if task.all { predictions } else { predictions.of_categories(&task.category_ids) };
        Ok(Self { name: path.display().to_string(), predictions, ..Self::default() })
    }

    fn model(
        name: String,
        args: &EvalArgs,
        model: &ModelArgs,
        truth: &Truth,
        task: &Task,
        log: &LogArgs,
    ) -> anyhow::Result<Self> {
        let prompts = if args.gives_boxes() { None } else { Some(task.prompts(truth)?) };
        if args.protocol == Protocol::BoxToMask {
            model.check_tracker("--protocol box-to-mask")?;
        }
        let mut options = DetectorOptions {
            imgsz: args.imgsz,
            class_chunk: args.class_chunk,
            screening: args.screen.screen,
            masks: args.masks || args.gives_boxes(),
            ..model.options()?
        };
        options.set_post_processing(args.protocol.post_processing());
        let (mut detector, loading) = load(detector(options)?, log)?;
        match &prompts {
            Some(prompts) => drop(detector.prepare(prompts)?),
            None if args.protocol == Protocol::BoxToMask => detector.prepare_segment()?,
            None => {}
        }
        drop(loading);
        Ok(Self { name, detector: Some(detector), prompts, ..Self::default() })
    }

    /// The model and its engine, as far as results depend on them.
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

    pub fn is_model(&self) -> bool {
        self.detector.is_some()
    }

    /// Detects in an image.
    pub fn detect(
        &mut self,
        image_id: u64,
        image: &Image,
        instances: &[Instance],
        task: &Task,
        args: &EvalArgs,
    ) -> anyhow::Result<ImageResult> {
        let mut result = ImageResult::default();
        let Some(detector) = &mut self.detector else { return Ok(result) };
        let instances = ExemplarMasks::eligible(instances.to_vec(), image.width(), image.height());
        let failed =
            |error: Error| Error::new(error.kind(), format!("{}, image {image_id}: {error}", self.name));
        if args.gives_boxes() && instances.is_empty() {
            return Ok(result);
        }
        if args.protocol == Protocol::BoxToMask {
            let features = detector.encode(image).map_err(failed)?;
            let found = detector.segment(&features, &ExemplarMasks::objects(&instances)).map_err(failed)?;
            result.ious = ExemplarMasks::ious_of_masks(&instances, found.iter().map(|one| &one.mask))?;
            return Ok(result);
        }
        let prompts = match &self.prompts {
            None => &ExemplarMasks::prompts(&instances)?,
            Some(prompts) => prompts,
        };
        if !self.warm {
            detector.detect(image, prompts)?;
            self.warm = true;
        }
        let found = detector.detect(image, prompts).map_err(failed)?;
        if args.exemplars_from_truth {
            result.ious = ExemplarMasks::ious(&instances, &found.items)?;
        } else {
            result.found.push_detections(image_id, &found.items, &task.category_ids);
        }
        Ok(result.with_times(&found.times))
    }

    /// Keeps the result of an image.
    pub fn add(&mut self, result: ImageResult) {
        self.times.extend(result.times());
        self.masks.record(&result.ious);
        self.predictions.append(result.found);
    }

    /// Computes all figures.
    pub fn evaluate(self, args: &EvalArgs, truth: &Truth, image_ids: &[u64]) -> anyhow::Result<ModelReport> {
        let is_model = self.is_model();
        let mut report = ModelReport {
            engine: self.engine().map(str::to_owned),
            name: self.name,
            timing_ms: TimingSummary::of(&self.times),
            ..ModelReport::default()
        };
        if args.gives_boxes() {
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
        if args.masks {
            report.segm = Some(average_precision(truth, &predictions, image_ids, Overlap::Masks)?);
        }
        report.at_confidence = Some(precision_recall(truth, &predictions, image_ids, args.confidence)?);
        Ok(report)
    }
}
