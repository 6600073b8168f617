//! What is evaluated: a model, or detections from a file.

use std::path::{Path, PathBuf};

use ocelli::{Detector, Error, Image, ModelSource, Prompts, StageTimes};
use ocelli_datasets::eval::{
    ExemplarMasks, Instance, ModelReport, Overlap, Predictions, Protocol, TimingSummary, Truth,
    average_precision, precision_recall,
};

use super::EvalArgs;
use crate::{LogArgs, ModelArgs, class_names, load, usage};

/// What is detected in every image.
pub struct Task {
    prompts: Prompts,
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
            let prompts = Prompts::new(categories.iter().map(|category| category.name.as_str()))?;
            let category_ids = categories.iter().map(|category| category.id).collect();
            return Ok(Self { prompts, category_ids, all: true });
        }
        let (mut phrases, mut category_ids) = (Vec::new(), Vec::new());
        for class in class_names(&args.classes, &LogArgs::default())? {
            let (phrase, name) = class.split_once('=').unwrap_or((&class, &class));
            let (phrase, name) = (phrase.trim(), name.trim());
            let Some(category) = categories.iter().find(|category| category.name == name) else {
                let some: Vec<&str> = categories.iter().take(8).map(|category| &*category.name).collect();
                let more = if categories.len() > some.len() { ", …" } else { "" };
                return Err(usage(format!(
                    "--classes, {name}: no such category; the annotations have {}{more}",
                    some.join(", ")
                )));
            };
            phrases.push(phrase.to_owned());
            category_ids.push(category.id);
        }
        Ok(Self { prompts: Prompts::new(phrases)?, category_ids, all: false })
    }

    /// The ground truth of these categories.
    pub fn truth_of(&self, truth: &Truth) -> anyhow::Result<Truth> {
        Ok(if self.all { truth.clone() } else { truth.of_categories(&self.category_ids)? })
    }
}

/// A model, or detections from a file.
pub struct Contender {
    name: String,
    detector: Option<Detector>,
    warm: bool,
    predictions: Predictions,
    masks: ExemplarMasks,
    times: Vec<StageTimes>,
}

/// Opens each model or results file that the arguments name.
pub fn open(args: &EvalArgs, truth: &Truth, task: &Task, log: &LogArgs) -> anyhow::Result<Vec<Contender>> {
    if let Some(path) = &args.predictions {
        if args.exemplars_from_truth {
            return Err(usage("--exemplars-from-truth needs a model: remove --predictions"));
        }
        return Ok(vec![Contender::predicted(path, truth, task)?]);
    }
    if args.compare.is_empty() {
        let name =
            args.model.model.as_ref().map_or_else(|| BUILT_IN.into(), |path| path.display().to_string());
        return Ok(vec![Contender::model(name, args, &args.model, task, log)?]);
    }
    let open = |path: &PathBuf| {
        if path.is_file() {
            if args.gives_boxes() {
                return Err(usage("annotated boxes are given to models, and --compare names a results file"));
            }
            return Contender::predicted(path, truth, task);
        }
        let built_in = path.as_os_str() == BUILT_IN && !path.exists();
        let model = ModelArgs { model: (!built_in).then(|| path.clone()), ..args.model.clone() };
        Contender::model(path.display().to_string(), args, &model, task, log)
    };
    args.compare.iter().map(open).collect()
}

/// Name of the built-in model in reports and in `--compare`.
const BUILT_IN: &str = ModelSource::BUILT_IN;

impl Contender {
    fn predicted(path: &Path, truth: &Truth, task: &Task) -> anyhow::Result<Self> {
        let predictions = Predictions::open(path, truth)?;
        let predictions = if task.all { predictions } else { predictions.of_categories(&task.category_ids) };
        Ok(Self::new(path.display().to_string(), None, predictions))
    }

    fn model(
        name: String,
        args: &EvalArgs,
        model: &ModelArgs,
        task: &Task,
        log: &LogArgs,
    ) -> anyhow::Result<Self> {
        if args.protocol == Protocol::BoxToMask {
            model.check_tracker("--protocol box-to-mask")?;
        }
        let mut builder = args
            .screen
            .apply(model.detector()?)
            .with_post_processing(args.protocol.post_processing())
            .with_masks(args.masks || args.gives_boxes());
        if let Some(imgsz) = args.imgsz {
            builder = builder.with_imgsz(imgsz);
        }
        if let Some(classes) = args.class_chunk {
            builder = builder.with_class_chunk(classes);
        }
        let (mut detector, loading) = load(builder, log)?;
        match args.protocol {
            Protocol::BoxToMask => detector.prepare_segment()?,
            _ if args.exemplars_from_truth => {}
            _ => drop(detector.prepare(&task.prompts)?),
        }
        drop(loading);
        Ok(Self::new(name, Some(detector), Predictions::default()))
    }

    fn new(name: String, detector: Option<Detector>, predictions: Predictions) -> Self {
        let (masks, times) = (ExemplarMasks::default(), Vec::new());
        Self { name, detector, warm: false, predictions, masks, times }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine of a model.
    pub fn engine(&self) -> Option<&str> {
        self.detector.as_ref().map(Detector::engine)
    }

    pub fn is_model(&self) -> bool {
        self.detector.is_some()
    }

    pub fn predictions(&self) -> &Predictions {
        &self.predictions
    }

    /// Detects in an image, if this is a model, and keeps the detections.
    pub fn detect(
        &mut self,
        image_id: u64,
        image: &Image,
        instances: &[Instance],
        task: &Task,
        args: &EvalArgs,
    ) -> anyhow::Result<()> {
        let Some(detector) = &mut self.detector else { return Ok(()) };
        let instances = ExemplarMasks::eligible(instances.to_vec(), image.width(), image.height());
        let failed =
            |error: Error| Error::new(error.kind(), format!("{}, image {image_id}: {error}", self.name));
        if args.gives_boxes() && instances.is_empty() {
            return Ok(());
        }
        if args.protocol == Protocol::BoxToMask {
            let features = detector.encode(image).map_err(failed)?;
            let found = detector.segment(&features, &ExemplarMasks::objects(&instances)).map_err(failed)?;
            return Ok(self.masks.add_masks(&instances, found.iter().map(|one| &one.mask))?);
        }
        let prompts = match args.exemplars_from_truth {
            true => &ExemplarMasks::prompts(&instances)?,
            false => &task.prompts,
        };
        if !self.warm {
            detector.detect(image, prompts)?;
            self.warm = true;
        }
        let found = detector.detect(image, prompts).map_err(failed)?;
        self.times.push(found.times);
        if args.exemplars_from_truth {
            self.masks.add(&instances, &found.items)?;
        } else {
            self.predictions.push_detections(image_id, &found.items, &task.category_ids);
        }
        Ok(())
    }

    /// Computes all figures.
    pub fn evaluate(self, args: &EvalArgs, truth: &Truth, image_ids: &[u64]) -> anyhow::Result<ModelReport> {
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
        report.bbox = Some(average_precision(truth, &predictions, image_ids, Overlap::Boxes)?);
        if args.masks {
            report.segm = Some(average_precision(truth, &predictions, image_ids, Overlap::Masks)?);
        }
        report.at_confidence = Some(precision_recall(truth, &predictions, image_ids, args.confidence)?);
        Ok(report)
    }
}
