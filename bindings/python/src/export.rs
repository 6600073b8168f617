//! `ocelli.export`.

use std::path::{Path, PathBuf};

use ocelli::{
    Cancellation, Error, Image, Result,
    atomic_file::folder_of,
    calibration::calibrate,
    classes::COCO_CLASSES,
    engine::{EngineFactory, EngineOptions},
    refuse,
};
use ocelli_datasets::label::list_images;
use ocelli_export::{Calibration, Checkpoint, CheckpointOptions, ExportOptions, export as export_model};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::options::{self, form};
use crate::results::to_json;
use crate::waiting::cancellable;

/// The keyword arguments of `ocelli.export` that `ExportOptions` does not have.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExportArguments {
    calibrate: Vec<PathBuf>,
    calibrate_classes: Vec<String>,
    tokenizer: Option<PathBuf>,
    base: Option<PathBuf>,
    norm_eps: Option<String>,
    text_padding: Option<String>,
}

impl ExportArguments {
    /// Measures the scales, with graphs in a temporary folder beside `output`.
    fn calibration(
        &self,
        checkpoint: &Checkpoint,
        exported: &ExportOptions,
        output: &Path,
        cancellation: &Cancellation,
        progress: Option<&Py<PyAny>>,
    ) -> Result<Calibration> {
        let files = list_images(&self.calibrate, true, &[])?;
        let mut classes = self.calibrate_classes.clone();
        if classes.is_empty() {
            classes = COCO_CLASSES.map(str::to_owned).to_vec();
        }
        let factory = EngineFactory::start(&EngineOptions::default())?;
        let images = files.iter().enumerate().map(|(at, file)| {
            cancellation.check_for("export")?;
            report(progress, at, files.len(), &file.to_string_lossy())?;
            Image::open(file)
        });
        calibrate(checkpoint, exported, &factory, folder_of(output), images, &classes)
    }

    fn checkpoint_options(&self) -> Result<CheckpointOptions> {
        let norm_eps = self.norm_eps.as_deref().map(|name| parsed("norm_eps", name));
        let text_padding = self.text_padding.as_deref().map(|name| parsed("text_padding", name));
        Ok(CheckpointOptions {
            tokenizer: self.tokenizer.clone(),
            base: self.base.clone(),
            norm_eps: norm_eps.transpose()?.unwrap_or_default(),
            text_padding: text_padding.transpose()?.unwrap_or_default(),
        })
    }
}

pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|why: T::Err| options::invalid(name, &why.to_string()))
}

/// Exports a checkpoint and returns the content of `model.json`; `options` are `ExportOptions` as JSON. `progress` is called with the number of files that are
/// done, the number of all, and the name of the next.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    checkpoint: PathBuf,
    output: PathBuf,
    options: &str,
    arguments: ExportArguments,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (mut exported, opening): (ExportOptions, _) =
        (form(py, options)?, arguments.checkpoint_options().or_raise(py)?);
    let calibrates = !arguments.calibrate.is_empty();
    let precision = ExportOptions::precision_for(exported.precision, calibrates, exported.target);
    exported.precision = precision.or_raise(py)?;
    let manifest = cancellable(py, move |cancellation| {
        if !checkpoint.exists() {
            refuse!("no checkpoint, {}: no such folder or file", checkpoint.display());
        }
        let checkpoint = opening.open(&checkpoint)?;
        if calibrates {
            let progress = progress.as_ref();
            let found = arguments.calibration(&checkpoint, &exported, &output, cancellation, progress)?;
            exported.calibration = Some(found);
        }
        export_model(&checkpoint, &exported, &output, |step| {
            cancellation.check_for("export")?;
            report(progress.as_ref(), step.done, step.total, step.file)
        })
    })?;
    let manifest = manifest.or_raise(py)?;
    to_json(py, &manifest)
}

/// Calls Python's progress function. What it raises ends the work.
pub(crate) fn report(progress: Option<&Py<PyAny>>, done: usize, total: usize, what: &str) -> Result<()> {
    let Some(progress) = progress else { return Ok(()) };
    Python::attach(|py| match progress.call1(py, (done, total, what)) {
        Ok(_) => Ok(()),
        Err(failure) => {
            let text = crate::error::from_exception(py, "progress", &failure);
            Err(Error::cancelled(text.to_string()))
        }
    })
}
