//! `ocelli.label`.

use std::path::PathBuf;

use ocelli::classes::ClassMap;
use ocelli::{Cancellation, DetectorBuilder, Error, Result, refuse};
use ocelli_datasets::label::{
    DataSetOptions, Existing, ImageSet, LabelEvent, LabelJob, LabelSettings, SPILL_BYTES, Shard, Summary,
    find_images, workers,
};
use pyo3::prelude::*;
use serde_json::json;

use crate::export::{parsed, report};
use crate::options::DetectorOptions;
use crate::waiting::job;

/// The keyword arguments of `ocelli.label`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct LabelArguments {
    images: Vec<PathBuf>,
    classes: Vec<String>,
    class_map: Option<PathBuf>,
    output: PathBuf,
    formats: Vec<String>,
    image_mode: Option<String>,
    validation_share: f64,
    polygons: bool,
    masks: bool,
    min_area: f64,
    review: Option<usize>,
    review_below: f32,
    shard: Option<String>,
    restart: bool,
    discard_corrections: bool,
    low_memory: bool,
    workers: Option<usize>,
}

impl LabelArguments {
    fn data_set_options(&self) -> Result<DataSetOptions> {
        let formats = self.formats.iter().map(|name| name.parse()).collect::<Result<_>>()?;
        let images = self.image_mode.as_deref().map(|name| parsed("image_mode", name)).transpose()?;
        Ok(DataSetOptions {
            polygons: self.polygons,
            validation_share: self.validation_share,
            review: self.review,
            review_below: self.review_below,
            ..DataSetOptions::new(formats, images, false)
        })
    }

    fn settings(&self, detector: &DetectorOptions, data_set: &DataSetOptions) -> Result<LabelSettings> {
        let classes = match &self.class_map {
            Some(path) => ClassMap::open(path)?,
            None => ClassMap::from_names(self.classes.iter().cloned()),
        };
        let defaults = LabelSettings::new(classes);
        Ok(LabelSettings {
            confidence: detector.confidence.unwrap_or(defaults.confidence),
            nms: detector.nms.unwrap_or(defaults.nms),
            class_agnostic_nms: detector.class_agnostic_nms,
            min_area: self.min_area,
            masks: self.masks && data_set.formats.iter().any(|format| format.needs_masks()),
            tiling: detector.tiling()?,
            ..defaults
        })
    }
}

/// Labels images and returns a summary as JSON.
#[pyfunction]
pub(crate) fn label(
    py: Python<'_>,
    arguments: LabelArguments,
    detector: DetectorOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (summary, failures) = job(py, arguments, detector, progress, run)?;
    let files: Vec<String> = summary.files.iter().map(|file| file.display().to_string()).collect();
    let json = json!({
        "images": summary.images,
        "failed": summary.failed,
        "classes": summary.classes,
        "files": files,
        "kept": summary.kept,
        "failures": failures,
    });
    Ok(json.to_string())
}

/// Labels images. Returns the summary, and why images failed, by path.
fn run(
    arguments: &LabelArguments,
    detector: &DetectorOptions,
    progress: Option<&Py<PyAny>>,
    cancellation: &Cancellation,
) -> Result<(Summary, serde_json::Map<String, serde_json::Value>)> {
    if arguments.classes.is_empty() && arguments.class_map.is_none() {
        refuse!("no classes: expected at least one, or a class_map");
    }
    if detector.model.is_none() {
        refuse!(
            "model is missing: name the folder of a checkpoint or an exported model; the built-in model, which knows drawn \
             pictograms and finds nothing in photographs, is \"built-in\""
        );
    }
    let data_set = arguments.data_set_options()?;
    let settings = arguments.settings(detector, &data_set)?;
    settings.check(&data_set)?;
    let shard: Option<Shard> = arguments.shard.as_ref().map(|text| parsed("shard", text)).transpose()?;
    LabelJob::check_output(&arguments.output)?;
    let builders = detector.builders()?;
    let workers = workers(arguments.workers, builders.len())?;
    if arguments.low_memory && builders.len() > 1 {
        refuse!("low_memory runs on one device: name one with engine");
    }
    let build = |builder: DetectorBuilder| {
        let builder = builder.with_masks(settings.masks).with_cancellation(cancellation.clone());
        builder.with_post_processing(settings.post_processing_for(&arguments.output)).build()
    };
    let images = ImageSet::new(find_images(&arguments.images, &arguments.output)?);
    let mut detectors = builders.into_iter().map(build).collect::<Result<Vec<_>>>()?;
    let LabelArguments { restart, discard_corrections, .. } = *arguments;
    let existing = Existing { restart, discard_corrections };
    let output = &arguments.output;
    let mut job =
        LabelJob::open(output, detectors[0].model(), &settings, &data_set, images, shard, existing)?;
    let cancelled = || Err(Error::cancelled("label: cancelled; the same call continues from there"));
    let stop = || if cancellation.is_cancelled() { cancelled() } else { Ok(()) };
    let (todo, mut done) = (job.pending(), 0);
    let mut failures = serde_json::Map::new();
    let mut on_event = |event: LabelEvent<'_>| {
        match event {
            LabelEvent::Done { name, .. } => {
                done += 1;
                report(progress, done, todo, name)?;
            }
            LabelEvent::Failed { path, error } => {
                done += 1;
                let path = path.display().to_string();
                report(progress, done, todo, &path)?;
                failures.insert(path, error.to_string().into());
            }
            _ => {}
        }
        stop()
    };
    if todo > 0 && arguments.low_memory {
        job.run_in_low_memory(detectors.remove(0), SPILL_BYTES, &mut on_event)?;
    } else if todo > 0 {
        job.run(detectors, workers, &mut on_event)?;
    }
    Ok((job.finish(&mut || stop())?, failures))
}
