//! `ocelli.export`.

use std::collections::BTreeSet;
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
use ocelli_export::{
    Calibration, Checkpoint, CheckpointOptions, ExportOptions, Pruning, export as export_model,
};
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::options;
use crate::results::to_json;
use crate::waiting::cancellable;

/// The keyword arguments of `ocelli.export`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExportArguments {
    imgsz: Option<usize>,
    precision: String,
    calibrate: Vec<PathBuf>,
    calibrate_classes: Vec<String>,
    mixed_precision: Option<String>,
    keep_fp32: Vec<String>,
    target: String,
    prompt: String,
    detection_only: bool,
    screen: bool,
    skip_blocks: Vec<usize>,
    mask_blocks: Vec<String>,
    split_block: Option<usize>,
    force: bool,
    tokenizer: Option<PathBuf>,
    base: Option<PathBuf>,
    norm_eps: Option<String>,
    text_padding: Option<String>,
}

impl ExportArguments {
    fn export_options(&self) -> Result<ExportOptions> {
        let target = self.target.parse()?;
        let islands = self.mixed_precision.as_deref();
        Ok(ExportOptions {
            imgsz: self.imgsz,
            target,
            prompting: self.prompt.parse()?,
            precision: ExportOptions::precision_for(
                parsed("precision", &self.precision)?,
                !self.calibrate.is_empty(),
                target,
            )?,
            keep_fp32: all_parsed("keep_fp32", &self.keep_fp32)?,
            detection_only: self.detection_only,
            screen: self.screen,
            pruning: Pruning {
                skip_blocks: self.skip_blocks.iter().copied().collect(),
                mask_blocks: all_parsed("mask_blocks", &self.mask_blocks)?,
                split_block: self.split_block,
            },
            mixed_precision: islands.map(|name| parsed("mixed_precision", name)).transpose()?,
            force: self.force,
            ..ExportOptions::default()
        })
    }

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

fn all_parsed<T: Ord + std::str::FromStr<Err: std::fmt::Display>>(
    name: &str,
    texts: &[String],
) -> Result<BTreeSet<T>> {
    texts.iter().map(|text| parsed(name, text)).collect()
}

/// Exports a checkpoint and returns the content of `model.json`. `progress` is called with the number of files that are
/// done, the number of all, and the name of the next.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    checkpoint: PathBuf,
    output: PathBuf,
    arguments: ExportArguments,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (mut exported, opening) =
        (arguments.export_options().or_raise(py)?, arguments.checkpoint_options().or_raise(py)?);
    let manifest = cancellable(py, move |cancellation| {
        if !checkpoint.exists() {
            refuse!("no checkpoint, {}: no such folder or file", checkpoint.display());
        }
        let checkpoint = opening.open(&checkpoint)?;
        if !arguments.calibrate.is_empty() {
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
