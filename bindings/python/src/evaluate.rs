//! `ocelli.evaluate` and `ocelli.verify`.

use std::path::PathBuf;

use ocelli::{Cancellation, Result, refuse};
use ocelli_datasets::eval::{Contender, EvalImages, EvalOptions, EvalReport, EvalStep, EvalTask, Protocol};
use ocelli_verify::VerificationRequest;
use ocelli_verify::scenes::{SceneGenerator, SceneOptions, vocabulary};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::export::{parsed, report};
use crate::options::{self, DetectorOptions, form};
use crate::results::to_json;
use crate::waiting::{cancellable, job};

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
    to_json(py, &report)
}

/// Compares two ways of running a model, which a JSON form of [`VerificationRequest`] names, and returns the report of
/// `ocelli verify --json`.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, request: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let request: VerificationRequest = form(py, request)?;
    let compared = cancellable(py, move |cancellation| {
        request.run(cancellation, &|_| (), &mut |step| {
            cancellation.check_for("verify")?;
            let side = if step.reference { "reference" } else { "candidate" };
            report(progress.as_ref(), step.done, step.total, side)
        })
    })?;
    Ok(compared.or_raise(py)?.to_json().to_string())
}

fn run(
    arguments: &EvaluateArguments,
    options: &DetectorOptions,
    progress: Option<&Py<PyAny>>,
    cancellation: &Cancellation,
) -> Result<EvalReport> {
    let protocol: Protocol = parsed("protocol", &arguments.protocol)?;
    if protocol == Protocol::BoxToMask {
        return Err(options::invalid(
            "protocol",
            "box-to-mask is evaluated by the program: ocelli eval --protocol box-to-mask",
        ));
    }
    let mut images = open(arguments, cancellation)?;
    let task = EvalOptions {
        protocol,
        masks: arguments.masks,
        exemplars_from_truth: false,
        confidence: arguments.confidence,
        classes: Vec::new(),
    };
    let task = EvalTask::new(task, &images.truth)?;
    let mut contenders = Vec::new();
    if let Some(path) = &arguments.predictions {
        contenders.push(Contender::predicted(path, &images.truth, &task)?);
    } else {
        let prompts = task.prompts(&images.truth)?;
        let builder = options.builder()?.with_post_processing(protocol.post_processing());
        let detector = builder.with_masks(arguments.masks).with_cancellation(cancellation.clone()).build()?;
        contenders.push(Contender::model(options.model_name(), detector, prompts, &task)?);
        let (all, mut done) = (images.ids.len(), 0);
        let mut step = |name: &str, step: EvalStep<'_>| match step {
            EvalStep::Done => {
                done += 1;
                report(progress, done, all, name)
            }
            _ => cancellation.check_for("evaluate"),
        };
        if let Some(stop) = images.detect_all(&task, &mut contenders, None, &mut step)? {
            return Err(stop);
        }
    }
    if let Some(path) = &arguments.save_predictions {
        contenders[0].predictions.write(path)?;
    }
    task.report(&images, contenders)
}

fn open(arguments: &EvaluateArguments, cancellation: &Cancellation) -> Result<EvalImages> {
    let mut images = match (arguments.scenes, &arguments.annotations) {
        (Some(_), Some(_)) => {
            refuse!("scenes and annotations: expected one of them");
        }
        (None, None) => {
            refuse!("nothing to evaluate: name annotations and images, or scenes");
        }
        (Some(count), None) => {
            let generator = SceneGenerator::new(SEED, SceneOptions::default())?;
            let draw = move |number| {
                let scene = generator.scene(number);
                (scene.image, scene.objects.into_iter().map(|one| (one.label, one.bbox, one.mask)).collect())
            };
            let description = format!("{count} drawn scenes, seed {SEED}");
            EvalImages::drawn(vocabulary(), count, description, draw, || cancellation.check_for("evaluate"))?
        }
        (None, Some(path)) => {
            EvalImages::open(path, arguments.images.as_deref(), arguments.predictions.is_none())?
        }
    };
    images.ids.truncate(arguments.max_images.unwrap_or(usize::MAX));
    images.leave_out_missing()?;
    Ok(images)
}
