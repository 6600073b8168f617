//! `ocelli.evaluate`.

use std::path::PathBuf;

use ocelli::{Cancellation, Detector, Error, Image, Prompts, Result, StageTimes};
use ocelli_datasets::eval::{
    EvalReport, ModelReport, Overlap, Predictions, Protocol, TimingSummary, Truth, TruthBuilder,
    average_precision, precision_recall,
};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions, vocabulary};
use pyo3::prelude::*;

use crate::error::invalid;
use crate::export::{parsed, report};
use crate::options::{self, DetectorOptions};
use crate::waiting::job;

/// The seed of `ocelli eval --scenes`.
const SEED: u64 = 1;

/// The keyword arguments of `ocelli.evaluate`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct EvaluateArguments {
    annotations: Option<PathBuf>,
    images: Option<PathBuf>,
    scenes: Option<u32>,
    predictions: Option<PathBuf>,
    protocol: String,
    masks: bool,
    confidence: f32,
    max_images: Option<usize>,
    save_predictions: Option<PathBuf>,
}

/// Evaluates a model, or predictions, and returns the report of `ocelli eval --json`.
#[pyfunction]
pub(crate) fn evaluate(
    py: Python<'_>,
    arguments: EvaluateArguments,
    detector: DetectorOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let report = job(py, arguments, detector, progress, run)?;
    serde_json::to_string(&report).map_err(|failure| invalid(py, &failure.to_string()))
}

/// The ground truth, and where its pictures are.
struct Task {
    truth: Truth,
    description: String,
    scenes: Option<SceneGenerator>,
    ids: Vec<u64>,
}

fn run(
    arguments: &EvaluateArguments,
    options: &DetectorOptions,
    progress: Option<&Py<PyAny>>,
    cancellation: &Cancellation,
) -> Result<EvalReport> {
    let confidence = Some(arguments.confidence);
    ocelli::options::DetectorOptions { confidence, ..Default::default() }.check()?;
    let protocol: Protocol = parsed("protocol", &arguments.protocol)?;
    if protocol == Protocol::BoxToMask {
        return Err(options::invalid(
            "protocol",
            "box-to-mask is evaluated by the program: ocelli eval --protocol box-to-mask",
        ));
    }
    let task = open(arguments)?;
    let mut report = EvalReport {
        truth: task.description.clone(),
        protocol: None,
        images: 0,
        instances: 0,
        classes: task.truth.categories().len(),
        failed: Vec::new(),
        models: Vec::new(),
        difference: None,
        peak_memory_mib: None,
    };
    let mut model = ModelReport::default();
    let (predictions, ids) = match &arguments.predictions {
        Some(path) => {
            model.name = path.display().to_string();
            (Predictions::open(path, &task.truth)?, task.ids)
        }
        None => {
            let builder = options.builder()?.with_post_processing(protocol.post_processing());
            let mut detector =
                builder.with_masks(arguments.masks).with_cancellation(cancellation.clone()).build()?;
            (model.name, model.engine) = (options.model_name(), Some(detector.engine().to_owned()));
            report.protocol = Some(protocol);
            let found = detect_all(&mut detector, &task, arguments, progress, cancellation)?;
            (model.timing_ms, report.failed) = (TimingSummary::of(&found.times), found.failed);
            (found.predictions, found.ids)
        }
    };
    if let Some(path) = &arguments.save_predictions {
        predictions.write(path)?;
    }
    let predictions = predictions.of_images(&ids);
    (report.images, report.instances) = (ids.len(), task.truth.count_instances(&ids));
    model.detections = predictions.len();
    model.bbox = Some(average_precision(&task.truth, &predictions, &ids, Overlap::Boxes)?);
    if arguments.masks {
        model.segm = Some(average_precision(&task.truth, &predictions, &ids, Overlap::Masks)?);
    }
    model.at_confidence = Some(precision_recall(&task.truth, &predictions, &ids, arguments.confidence)?);
    report.models.push(model);
    Ok(report)
}

fn open(arguments: &EvaluateArguments) -> Result<Task> {
    let refuse = |message: &str| Err(Error::invalid_argument(message));
    let (truth, description, scenes) = match (arguments.scenes, &arguments.annotations) {
        (Some(0), _) => return refuse("scenes is 0: expected at least 1"),
        (Some(_), Some(_)) => return refuse("scenes and annotations: expected one of them"),
        (None, None) => return refuse("nothing to evaluate: name annotations and images, or scenes"),
        (Some(count), None) => {
            let generator = SceneGenerator::new(SEED, SceneOptions::default())?;
            let truth = draw_truth(&generator, count)?;
            (truth, format!("{count} drawn scenes, seed {SEED}"), Some(generator))
        }
        (None, Some(path)) => {
            if arguments.images.is_none() && arguments.predictions.is_none() {
                return refuse("no images: name their folder, or a results file as predictions");
            }
            (Truth::open(path)?, path.display().to_string(), None)
        }
    };
    let mut ids = truth.image_ids();
    ids.truncate(arguments.max_images.unwrap_or(usize::MAX));
    Ok(Task { truth, description, scenes, ids })
}

fn draw_truth(generator: &SceneGenerator, count: u32) -> Result<Truth> {
    let mut truth = TruthBuilder::new(vocabulary().iter().copied());
    for number in 0..count {
        let scene = generator.scene(u64::from(number));
        let image = truth.add_image(format!("scene {number:04}"), scene.image.width(), scene.image.height());
        for object in scene.objects {
            let class = vocabulary().iter().position(|name| *name == object.label);
            let class = class.expect("scenes contain the vocabulary only");
            truth.add_instance(image, class, object.bbox, Some(object.mask));
        }
    }
    truth.build()
}

/// What was found in all pictures.
#[derive(Default)]
struct Found {
    predictions: Predictions,
    /// The pictures that could be read.
    ids: Vec<u64>,
    failed: Vec<String>,
    times: Vec<StageTimes>,
}

fn detect_all(
    detector: &mut Detector,
    task: &Task,
    arguments: &EvaluateArguments,
    progress: Option<&Py<PyAny>>,
    cancellation: &Cancellation,
) -> Result<Found> {
    let categories = task.truth.categories();
    let prompts = Prompts::new(categories.iter().map(|category| category.name.as_str()))?;
    let category_ids: Vec<u64> = categories.iter().map(|category| category.id).collect();
    detector.prepare(&prompts)?;
    let mut all = Found::default();
    for (number, &id) in task.ids.iter().enumerate() {
        cancellation.check()?;
        let annotated = task.truth.images().iter().find(|image| image.id == id);
        let (name, size) =
            annotated.map_or(("", (0, 0)), |image| (&*image.file_name, (image.width, image.height)));
        let image = match (&task.scenes, &arguments.images) {
            (Some(generator), _) => Ok(generator.scene(id - 1).image),
            (None, folder) => Image::open(folder.as_deref().unwrap_or_else(|| ".".as_ref()).join(name)),
        };
        // Annotations of another size are of another picture.
        let image = image.ok().filter(|image| size == (0, 0) || size == (image.width(), image.height()));
        match image {
            Some(image) => {
                if all.times.is_empty() {
                    detector.detect(&image, &prompts)?;
                }
                let found = detector.detect(&image, &prompts)?;
                all.times.push(found.times);
                all.predictions.push_detections(id, &found.items, &category_ids);
                all.ids.push(id);
            }
            None => all.failed.push(name.to_owned()),
        }
        report(progress, number + 1, task.ids.len(), name)?;
    }
    if all.ids.is_empty() {
        return Err(Error::invalid_data(format!("none of {} images could be read", task.ids.len())));
    }
    Ok(all)
}
