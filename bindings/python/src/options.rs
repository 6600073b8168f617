//! Options of a detector.

use std::path::PathBuf;

use ocelli::{
    DetectorBuilder, Error, ModelSource, Result,
    engine::EngineOptions,
    stages::{Screening, TextCacheFile},
    tiles::Tiling,
};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

use crate::error;

/// The keyword arguments of `ocelli.Detector`.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DetectorOptions {
    pub(crate) model: Option<PathBuf>,
    engine: String,
    precision: Option<String>,
    imgsz: Option<usize>,
    masks: bool,
    pub(crate) confidence: Option<f32>,
    pub(crate) nms: Option<f32>,
    pub(crate) class_agnostic_nms: Option<f32>,
    max_detections: Option<usize>,
    class_chunk: Option<usize>,
    threads: Option<usize>,
    text_cache: Option<PathBuf>,
    tokenizer: Option<PathBuf>,
    onnxruntime: Option<PathBuf>,
    openvino: Option<PathBuf>,
    tensorrt: Option<PathBuf>,
    trt: Option<PathBuf>,
    trt_enc_dec: Option<PathBuf>,
    allow_partial: bool,
    tf32: bool,
    screen: bool,
    screen_threshold: Option<f32>,
    tile: Option<String>,
    tile_overlap: f32,
}

impl DetectorOptions {
    /// The name of the model for reports.
    pub(crate) fn model_name(&self) -> String {
        self.model.as_ref().map_or_else(|| ModelSource::BUILT_IN.into(), |path| path.display().to_string())
    }

    /// The tiles of large images, if there are any; [`builders`](Self::builders) checks the overlap.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for a size that is not read.
    pub(crate) fn tiling(&self) -> Result<Option<Tiling>> {
        let Some(tile) = &self.tile else { return Ok(None) };
        Ok(Some(Tiling::new(tile.parse()?).with_overlap(self.tile_overlap)))
    }

    /// The form that is filled in with these arguments.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for texts that are not read, such as the size of tiles.
    fn form(&self) -> Result<ocelli::options::DetectorOptions> {
        let args = self.clone();
        let screening = args.screen_threshold.map(Screening::At);
        let engine = EngineOptions {
            threads: args.threads,
            onnxruntime: args.onnxruntime,
            openvino: args.openvino,
            tensorrt: args.tensorrt,
            trt_backbone: args.trt,
            trt_encoder_decoder: args.trt_enc_dec,
            cpu_fallback: args.allow_partial,
            tf32: args.tf32,
            ..EngineOptions::default()
        };
        Ok(ocelli::options::DetectorOptions {
            model: args.model.map_or(ModelSource::Builtin, ModelSource::named),
            tokenizer: args.tokenizer,
            imgsz: args.imgsz,
            precision: args.precision.map(|name| name.parse()).transpose()?,
            engine,
            text_cache: args.text_cache.map_or(TextCacheFile::Automatic, TextCacheFile::File),
            confidence: args.confidence,
            nms: args.nms,
            class_agnostic_nms: args.class_agnostic_nms,
            max_detections: args.max_detections,
            class_chunk: args.class_chunk,
            masks: args.masks,
            screening: screening.or(args.screen.then_some(Screening::Calibrated)),
            tiling: self.tiling()?,
            ..Default::default()
        })
    }

    /// A builder with these options for each device that `engine` names.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for options out of range,
    /// [`Unavailable`](ocelli::ErrorKind::Unavailable) without the GPU of an engine that is
    /// built for it.
    pub(crate) fn builders(&self) -> Result<Vec<DetectorBuilder>> {
        self.form()?
            .for_devices(&self.engine)?
            .into_iter()
            .map(|options| ocelli_verify::tensorrt::detector(options, "engine"))
            .collect()
    }

    /// A builder with these options, for one device.
    pub(crate) fn builder(&self) -> Result<DetectorBuilder> {
        let mut form = self.form()?;
        form.engine.kind = self.engine.parse()?;
        form.check()?;
        ocelli_verify::tensorrt::detector(form, "engine")
    }
}

/// A form of the library that Python has filled in, as JSON with the names of its fields.
///
/// # Errors
/// `InvalidArgument` for another field, and for a value that a field does not have.
pub(crate) fn form<T: DeserializeOwned>(py: Python<'_>, json: &str) -> PyResult<T> {
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json));
    read.map_err(|failure| {
        let why = failure.inner().to_string();
        let why = why.split(" at line ").next().unwrap_or_default();
        error::invalid(py, &format!("{}: {why}", failure.path()))
    })
}

/// An error about a named option.
pub(crate) fn invalid(name: &str, why: &str) -> Error {
    Error::invalid_argument(format!("{name}: {why}"))
}
