//! Options of a detector.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ocelli_export::contract::{Precision, Target, file};

use super::Detector;
use super::decode::PromptDecoder;
use super::encode::{ImageEncoder, ImageFeatures};
use super::text::TextEmbedder;
use crate::Cancellation;
use crate::engine::{EngineFactory, EngineKind, EngineOptions};
use crate::model::{Model, ModelRequest, ModelSource};
use crate::postprocess::{PostProcessOptions, PostProcessor};
use crate::tensorrt::{EngineFiles, NativeTensorRt};
use ocelli_error::{Error, ErrorKind, Result};

/// Classes decoded at once unless told otherwise; see the measurements in `benchmarks/README.md`.
const CLASS_CHUNK: usize = 4;

/// More threads than any machine has use for; the engine would try to start as many as it is told.
const MAX_THREADS: usize = 256;

/// Where text features are kept between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TextCacheFile {
    /// A file of the model's in the user's cache folder. Where it cannot be read or written, that is a warning in the
    /// log: the result is the same.
    #[default]
    Automatic,
    /// This file; it is made where it does not exist. Where it cannot be read or written, that is an error.
    File(PathBuf),
    /// Nowhere.
    None,
}

/// Makes a [`Detector`]; from [`Detector::builder`].
#[derive(Clone, Debug, Default)]
pub struct DetectorBuilder {
    request: ModelRequest,
    model: Option<Model>,
    engine: EngineOptions,
    factory: Option<EngineFactory>,
    post: PostProcessOptions,
    /// Whether the caller set these, in place of what `model.json` says.
    sets_confidence: bool,
    sets_nms: bool,
    class_chunk: Option<usize>,
    text_cache: TextCacheFile,
    semantic_maps: bool,
    cancellation: Cancellation,
    trt_backbone: Option<PathBuf>,
    trt_encoder_decoder: Option<PathBuf>,
    prepared: Option<PreparedEngines>,
    tensorrt_library: Option<PathBuf>,
}

impl DetectorBuilder {
    /// The model: built-in by default.
    #[must_use]
    pub fn with_model(mut self, source: ModelSource) -> Self {
        self.request.source = source;
        self
    }

    /// A model that is open already.
    #[must_use]
    pub fn with_open_model(mut self, model: Model) -> Self {
        self.model = Some(model);
        self
    }

    /// Pixels of the model's square input; the model's own by default.
    #[must_use]
    pub fn with_imgsz(mut self, imgsz: usize) -> Self {
        self.request.imgsz = Some(imgsz);
        self
    }

    /// In which numbers a checkpoint or the built-in model computes; 32-bit floating point by default.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.request.precision = Some(precision);
        self
    }

    /// Whether detections carry masks; off by default, and then nothing is computed for them.
    #[must_use]
    pub fn with_masks(mut self, masks: bool) -> Self {
        self.request.masks = masks;
        self
    }

    /// Whether there is a [`SemanticMap`](crate::SemanticMap) for each class that is found, pixel by pixel; off by
    /// default. It costs a pass of the mask head, which masks share.
    #[must_use]
    pub fn with_semantic_maps(mut self, maps: bool) -> Self {
        self.semantic_maps = maps;
        self
    }

    /// What runs the graphs.
    #[must_use]
    pub fn with_engine(mut self, kind: EngineKind) -> Self {
        self.engine.kind = kind;
        self
    }

    /// Makes the engines, in place of [`with_engine`](Self::with_engine) and what goes with it.
    #[must_use]
    pub fn with_engine_factory(mut self, factory: EngineFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Threads that work on one operator together; the number of physical cores by default.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.engine.threads = Some(threads);
        self
    }

    /// ONNX Runtime's library, where it is not to be searched for.
    #[must_use]
    pub fn with_onnxruntime(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.onnxruntime = Some(path.into());
        self
    }

    /// Whether nodes that the engine does not support run on the CPU, with a warning; off by default. Without it, building
    /// fails and the error lists the nodes.
    #[must_use]
    pub fn with_cpu_fallback(mut self, cpu_fallback: bool) -> Self {
        self.engine.cpu_fallback = cpu_fallback;
        self
    }

    /// Whether CUDA may compute products of f32 in TF32: several times as fast, and less exact; off by default.
    #[must_use]
    pub fn with_tf32(mut self, tf32: bool) -> Self {
        self.engine.tf32 = tf32;
        self
    }

    /// Runs the backbone as this TensorRT engine. Its sidecar names its model, unless [`with_model`](Self::with_model) does.
    #[must_use]
    pub fn with_trt_backbone(mut self, engine: impl Into<PathBuf>) -> Self {
        self.trt_backbone = Some(engine.into());
        self
    }

    /// Runs the encoder-decoder as this TensorRT engine, as [`with_trt_backbone`](Self::with_trt_backbone) does. It limits how
    /// many classes are decoded at once.
    #[must_use]
    pub fn with_trt_encoder_decoder(mut self, engine: impl Into<PathBuf>) -> Self {
        self.trt_encoder_decoder = Some(engine.into());
        self
    }

    /// TensorRT's library or the folder with it, for engine files; searched for by default.
    #[must_use]
    pub fn with_tensorrt_library(mut self, path: impl Into<PathBuf>) -> Self {
        self.tensorrt_library = Some(path.into());
        self
    }

    /// Runs engines that `prepare` makes from the model once it is resolved, exported for `target` if it has to be exported:
    /// what compiles a model ahead of time, such as
    /// [`cached_engines`](crate::tensorrt::cached_engines). Graphs that it does not compile run on ONNX Runtime's CPU provider.
    #[must_use]
    pub fn with_prepared_engines(
        mut self,
        target: Target,
        prepare: impl Fn(PrepareEngines<'_>) -> Result<EngineFactory> + Send + Sync + 'static,
    ) -> Self {
        self.prepared = Some(PreparedEngines { target, prepare: Arc::new(prepare) });
        self
    }

    /// All thresholds at once, in place of the model's own and of what was set before.
    #[must_use]
    pub fn with_post_processing(mut self, options: PostProcessOptions) -> Self {
        self.post = options;
        (self.sets_confidence, self.sets_nms) = (true, true);
        self
    }

    /// Detections above this score are kept, 0 to 1; by default the confidence in `model.json`, which is 0.3 unless edited.
    #[must_use]
    pub fn with_confidence(mut self, score_threshold: f32) -> Self {
        self.post.score_threshold = score_threshold;
        self.sets_confidence = true;
        self
    }

    /// Of two boxes of one class that overlap by more than this IoU, 0 to 1, the one with the lower score is dropped;
    /// `None` keeps both. By default the IoU in `model.json`, which is 0.7 unless edited.
    #[must_use]
    pub fn with_nms(mut self, iou: impl Into<Option<f32>>) -> Self {
        self.post.nms_iou = iou.into();
        self.sets_nms = true;
        self
    }

    /// As [`with_nms`](Self::with_nms), between boxes of all classes; off by default.
    #[must_use]
    pub fn with_class_agnostic_nms(mut self, iou: impl Into<Option<f32>>) -> Self {
        self.post.class_agnostic_nms_iou = iou.into();
        self
    }

    /// Classes decoded at once, at least 1: more need more memory. The result does not depend on it.
    #[must_use]
    pub fn with_class_chunk(mut self, classes: usize) -> Self {
        self.class_chunk = Some(classes);
        self
    }

    /// Where text features are kept between runs.
    #[must_use]
    pub fn with_text_cache(mut self, cache: TextCacheFile) -> Self {
        self.text_cache = cache;
        self
    }

    /// Whose wish ends the export of a checkpoint into the cache.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Finds the model, exporting it into the cache where that has not been done, and the engine's library.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that make no sense, [`ErrorKind::Unavailable`] where the engine's
    /// library is missing, [`ErrorKind::Mismatch`] for a model that cannot do what is asked or a text cache of another
    /// model, [`ErrorKind::Io`] and [`ErrorKind::InvalidData`] for files.
    pub fn build(self) -> Result<Detector> {
        self.build_reporting(&|_| ())
    }

    /// As [`build`](Self::build); `report` is told, in words, when something begins that takes long.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_reporting(mut self, report: &dyn Fn(&str)) -> Result<Detector> {
        let class_chunk = self.class_chunk.unwrap_or(CLASS_CHUNK);
        if class_chunk == 0 {
            let message = "--class-chunk is 0: at least one class is decoded at a time";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if let Some(threads) = self.engine.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
            let message = format!("--threads is {threads}: expected 1 to {MAX_THREADS}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // Thresholds of the caller are refused before a model is exported.
        PostProcessor::new(self.post.clone())?;
        let engines = self.open_engines()?;
        let factory = match self.factory {
            Some(factory) => factory,
            None if self.prepared.is_some() => {
                EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..self.engine.clone() })?
            }
            None => EngineFactory::start(&self.engine)?,
        };
        let factory = factory.with_class_chunk(class_chunk);
        // Engine files take precedence over engines that would be made from the model.
        let prepared = self.prepared.take().filter(|_| engines.is_none());
        self.request.target = prepared.as_ref().map_or_else(|| factory.target(), |prepared| prepared.target);
        if let (Some((engines, _)), None) = (&engines, &self.model) {
            engines.complete(&mut self.request)?;
        }
        let with_masks = self.request.masks;
        // Both come from the mask head, and need what it needs.
        self.request.masks |= self.semantic_maps;
        let masks = self.request.masks;
        let model = match self.model {
            Some(model) => model,
            None => Model::resolve(&self.request, report, &self.cancellation)?,
        };
        if masks && !model.file(file::MASK_HEAD).is_file() {
            let message =
                format!("masks, {}: this model was exported without them", model.folder().display());
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let (model, factory, class_chunk) = match (engines, prepared) {
            (None, None) => (model, factory, class_chunk),
            (None, Some(prepared)) => {
                let (rest, cancellation) = (factory, &self.cancellation);
                let request = PrepareEngines { model: &model, rest, class_chunk, cancellation, report };
                let factory = (prepared.prepare)(request)?;
                (model, factory, class_chunk)
            }
            (Some((engines, tensorrt)), _) => {
                let found = engines.in_place_of(model, tensorrt, factory, masks)?;
                let class_chunk = found.max_classes.map_or(class_chunk, |most| class_chunk.min(most));
                (found.model, found.factory, class_chunk)
            }
        };
        let thresholds = model.manifest().thresholds;
        if !self.sets_confidence {
            self.post.score_threshold = thresholds.confidence;
        }
        if !self.sets_nms {
            self.post.nms_iou = Some(thresholds.nms);
        }
        let post = PostProcessor::new(self.post)?;
        let text = TextEmbedder::new(&model, factory.clone(), &self.text_cache)?;
        let encoder = ImageEncoder::new(&model, factory.clone(), masks)?;
        let decoder =
            PromptDecoder::new(&model, factory.clone(), post, class_chunk, with_masks, self.semantic_maps);
        let engine = factory.description();
        let features = ImageFeatures::default();
        Ok(Detector { model, text, encoder, decoder, features, engine, factory })
    }

    /// The TensorRT engines that the caller named, checked by their files, and what runs them.
    fn open_engines(&self) -> Result<Option<(EngineFiles, NativeTensorRt)>> {
        let (backbone, encoder_decoder) = (self.trt_backbone.as_deref(), self.trt_encoder_decoder.as_deref());
        let (first, parameter) = match (backbone, encoder_decoder) {
            (Some(first), _) => (first, "trt_backbone"),
            (None, Some(first)) => (first, "trt_encoder_decoder"),
            (None, None) => return Ok(None),
        };
        let purpose = format!("{parameter} {}", first.display());
        let tensorrt = NativeTensorRt::new(&purpose, self.tensorrt_library.as_deref())?;
        Ok(Some((EngineFiles::open(backbone, encoder_decoder)?, tensorrt)))
    }
}

/// A model whose engines are to be made.
#[non_exhaustive]
pub struct PrepareEngines<'r> {
    /// The model.
    pub model: &'r Model,
    /// Runs the graphs for which no engines are made.
    pub rest: EngineFactory,
    /// The most classes that are decoded at once.
    pub class_chunk: usize,
    /// The caller's cancellation token.
    pub cancellation: &'r Cancellation,
    /// To be called with a line about each stage that takes long.
    pub report: &'r dyn Fn(&str),
}

#[derive(Clone)]
struct PreparedEngines {
    target: Target,
    prepare: Arc<dyn Fn(PrepareEngines<'_>) -> Result<EngineFactory> + Send + Sync>,
}

impl fmt::Debug for PreparedEngines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedEngines({:?})", self.target)
    }
}
