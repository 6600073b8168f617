//! Options of a detector.

use std::path::PathBuf;

use ocelli::{
    DetectorBuilder, EngineKind, Error, ErrorKind, ModelSource, Result,
    engine::shared_threads,
    stages::{Screening, TextCacheFile},
    tiles::Tiling,
};
use ocelli_export::contract::Precision;
use pyo3::prelude::*;

/// The keyword arguments of `ocelli.Detector`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DetectorOptions {
    model: Option<PathBuf>,
    engine: String,
    precision: Option<String>,
    imgsz: Option<usize>,
    masks: bool,
    confidence: Option<f32>,
    nms: Option<f32>,
    class_agnostic_nms: Option<f32>,
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
    /// Whether a model is named.
    pub(crate) fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// The confidence that was given.
    pub(crate) fn confidence(&self) -> Option<f32> {
        self.confidence
    }

    /// The limits of suppression that were given: within a class, and across classes.
    pub(crate) fn nms(&self) -> (Option<f32>, Option<f32>) {
        (self.nms, self.class_agnostic_nms)
    }

    /// The name of the model for reports.
    pub(crate) fn model_name(&self) -> String {
        self.model.as_ref().map_or_else(|| ModelSource::BUILT_IN.into(), |path| path.display().to_string())
    }

    /// The tiles of large pictures, if there are any.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a wrong size or overlap.
    pub(crate) fn tiling(&self) -> Result<Option<Tiling>> {
        let Some(tile) = &self.tile else { return Ok(None) };
        let tiling = Tiling::new(tile.parse()?).with_overlap(self.tile_overlap);
        tiling.check().map(|()| Some(tiling))
    }

    /// A builder with these options for each device that `engine` names.
    ///
    /// # Errors
    /// As [`builder`](Self::builder), and for different engines, and engine files with several devices.
    pub(crate) fn builders(&self) -> Result<Vec<DetectorBuilder>> {
        let kinds = EngineKind::list(&self.engine)?;
        if kinds.len() > 1 && (self.trt.is_some() || self.trt_enc_dec.is_some()) {
            return Err(invalid("engine", "engine files run on one GPU: name one, or leave the files out"));
        }
        let threads = shared_threads(self.threads, kinds.len());
        kinds.into_iter().map(|kind| self.builder_on(kind, threads)).collect()
    }

    /// A builder with these options, for one device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options out of range, [`ErrorKind::Unavailable`] for an engine that this build
    /// lacks.
    pub(crate) fn builder(&self) -> Result<DetectorBuilder> {
        self.builder_on(self.engine.parse()?, self.threads)
    }

    fn builder_on(&self, kind: EngineKind, threads: Option<usize>) -> Result<DetectorBuilder> {
        for (name, value) in [
            ("confidence", self.confidence),
            ("nms", self.nms),
            ("class_agnostic_nms", self.class_agnostic_nms),
            ("screen", self.screen_threshold),
        ] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                let message = format!("{name} is {value}: expected a number from 0 to 1");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        if self.max_detections == Some(0) {
            let message = "max_detections is 0: expected at least 1";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let mut builder = ocelli_verify::tensorrt::with_tensorrt(
            ocelli::Detector::builder().with_engine(kind),
            kind,
            &format!("engine {kind}"),
            self.tensorrt.as_deref(),
        )?
        .with_model(self.model.clone().map_or(ModelSource::Builtin, ModelSource::named))
        .with_masks(self.masks)
        .with_class_agnostic_nms(self.class_agnostic_nms)
        .with_max_detections(self.max_detections)
        .with_tiling(self.tiling()?)
        .with_cpu_fallback(self.allow_partial)
        .with_tf32(self.tf32);
        builder = match self.precision.as_deref() {
            None => builder,
            Some("auto") => builder.with_fast_precision(),
            Some(name) => {
                let precision = name.parse::<Precision>();
                builder.with_precision(precision.map_err(|why| invalid("precision", &why.to_string()))?)
            }
        };
        match (self.screen_threshold, self.screen) {
            (Some(threshold), _) => builder = builder.with_screening(Screening::At(threshold)),
            (None, true) => builder = builder.with_screening(Screening::Calibrated),
            (None, false) => {}
        }
        if let Some(imgsz) = self.imgsz {
            builder = builder.with_imgsz(imgsz);
        }
        if let Some(confidence) = self.confidence {
            builder = builder.with_confidence(confidence);
        }
        if let Some(nms) = self.nms {
            builder = builder.with_nms(nms);
        }
        if let Some(classes) = self.class_chunk {
            builder = builder.with_class_chunk(classes);
        }
        if let Some(threads) = threads {
            builder = builder.with_threads(threads);
        }
        if let Some(path) = &self.text_cache {
            builder = builder.with_text_cache(TextCacheFile::File(path.clone()));
        }
        if let Some(path) = &self.tokenizer {
            builder = builder.with_tokenizer(path);
        }
        if let Some(path) = &self.onnxruntime {
            builder = builder.with_onnxruntime(path);
        }
        if let Some(path) = &self.openvino {
            builder = builder.with_openvino(path);
        }
        if let Some(path) = &self.tensorrt {
            builder = builder.with_tensorrt_library(path);
        }
        if let Some(engine) = &self.trt {
            builder = builder.with_trt_backbone(engine);
        }
        if let Some(engine) = &self.trt_enc_dec {
            builder = builder.with_trt_encoder_decoder(engine);
        }
        Ok(builder)
    }
}

/// An error about a named option.
pub(crate) fn invalid(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{name}: {why}"))
}
