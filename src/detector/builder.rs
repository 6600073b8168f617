//! The options of a detector.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ocelli_export::Pruning;
use ocelli_export::contract::{Precision, Target, file};

use super::Detector;
use super::decode::PromptDecoder;
use super::encode::{Backbone, ImagePreprocessor};
use super::features::ImageFeatures;
use super::masks::MaskOutputs;
use super::screen::Screening;
use super::segment::ObjectSegmenter;
use super::stages::{ImageEncoder, Stages};
use super::text::{TextCacheFile, TextEmbedder};
use super::tiled::TiledSearch;
use crate::Cancellation;
use crate::engine::{EngineFactory, EngineKind, EngineOptions, ModelFormat, PrepareEngines};
use crate::model::{Model, ModelRequest, ModelSource};
use crate::postprocess::{PostProcessOptions, PostProcessor};
use crate::tensorrt::{EngineFiles, NativeTensorRt};
use crate::tiles::Tiling;
use ocelli_error::{Error, ErrorKind, Result};

/// Classes that are decoded at once by default; `benchmarks/README.md` has the measurements.
const CLASS_CHUNK: usize = 4;

/// The most threads: more than any machine can use. Engines would start any number.
const MAX_THREADS: usize = 256;

impl Detector {
    /// Options of a detector; the defaults are those of `ocelli detect`.
    pub fn builder() -> DetectorBuilder {
        DetectorBuilder::default()
    }
}

/// Builds a [`Detector`]; created by [`Detector::builder`].
#[derive(Clone, Debug, Default)]
pub struct DetectorBuilder {
    request: ModelRequest,
    model: Option<Model>,
    engine: EngineOptions,
    factory: Option<EngineFactory>,
    post: PostProcessOptions,
    /// Whether the caller has set it; otherwise `model.json` does.
    is_confidence_set: bool,
    is_nms_set: bool,
    class_chunk: Option<usize>,
    text_cache: TextCacheFile,
    semantic_maps: bool,
    cancellation: Cancellation,
    trt_backbone: Option<PathBuf>,
    trt_encoder_decoder: Option<PathBuf>,
    prepared: Option<PreparedEngines>,
    tensorrt_library: Option<PathBuf>,
    fast_precision: bool,
    screening: Option<Screening>,
    tiling: Option<Tiling>,
    low_memory: bool,
}

impl DetectorBuilder {
    /// The model; the built-in one by default.
    #[must_use]
    pub fn with_model(mut self, source: ModelSource) -> Self {
        self.request.source = source;
        self
    }

    /// An open model, instead of [`with_model`](Self::with_model).
    #[must_use]
    pub fn with_open_model(mut self, model: Model) -> Self {
        self.model = Some(model);
        self
    }

    /// The tokeniser of a checkpoint that has none beside it.
    #[must_use]
    pub fn with_tokenizer(mut self, path: impl Into<PathBuf>) -> Self {
        self.request.tokenizer = Some(path.into());
        self
    }

    /// Side of the model's square input in pixels; the model's own by default.
    #[must_use]
    pub fn with_imgsz(mut self, imgsz: usize) -> Self {
        self.request.imgsz = Some(imgsz);
        self
    }

    /// The number format in which a checkpoint or the built-in model is exported; 32-bit floating point by default.
    ///
    /// OpenVINO computes in [`Bf16`](Precision::Bf16) or [`Fp16`](Precision::Fp16) with a model of 32-bit weights, which is
    /// what is exported or named then.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.request.precision = Some(precision);
        self
    }

    /// Takes the fastest number format of the engine in which detections stay close to those in 32 bits, in place of
    /// [`with_precision`](Self::with_precision): bfloat16 with OpenVINO on CPUs that have instructions for it, elsewhere 32
    /// bits. `docs/accuracy.md` says how close.
    #[must_use]
    pub fn with_fast_precision(mut self) -> Self {
        self.fast_precision = true;
        self
    }

    /// Leaves blocks and branches of the backbone out of the export of a checkpoint or of the built-in model; none by default.
    #[must_use]
    pub fn with_pruning(mut self, pruning: Pruning) -> Self {
        self.request.pruning = pruning;
        self
    }

    /// Rules out classes in a first, coarse pass and decodes the others alone; off by default.
    ///
    /// The model needs the graph of this pass: a checkpoint and the built-in model are exported with it.
    #[must_use]
    pub fn with_screening(mut self, screening: Screening) -> Self {
        self.screening = Some(screening);
        self.request.screen = true;
        self
    }

    /// Searches pictures that are larger than the model's input in [tiles](crate::tiles), too; off by default.
    ///
    /// It applies to [`detect`](Detector::detect), [`detect_embedded`](Detector::detect_embedded) and
    /// [`detect_regions`](Detector::detect_regions). The [cancellation token](Self::with_cancellation) ends the search then.
    #[must_use]
    pub fn with_tiling(mut self, tiling: impl Into<Option<Tiling>>) -> Self {
        self.tiling = tiling.into();
        self
    }

    /// Keeps one half of the model in memory at a time: the backbone, or what finds instances in its features; off by default.
    /// The results are the same.
    ///
    /// A half is loaded when it is needed, which takes time. [`detect_group`](Detector::detect_group) and
    /// [`PipelineBuilder::run`](crate::PipelineBuilder::run) load each once for a group of images. It does not go with
    /// [tiles](Self::with_tiling).
    #[must_use]
    pub fn with_low_memory(mut self, low_memory: bool) -> Self {
        self.low_memory = low_memory;
        self
    }

    /// Whether detections have masks; off by default, which saves the computation.
    #[must_use]
    pub fn with_masks(mut self, masks: bool) -> Self {
        self.request.masks = masks;
        self
    }

    /// Whether there is a [`SemanticMap`](crate::mask::SemanticMap) of each class that is found; off by default. Without masks it
    /// costs one pass of the mask head for each class, with masks nearly nothing.
    #[must_use]
    pub fn with_semantic_maps(mut self, maps: bool) -> Self {
        self.semantic_maps = maps;
        self
    }

    /// The engine that runs the graphs.
    #[must_use]
    pub fn with_engine(mut self, kind: EngineKind) -> Self {
        self.engine.kind = kind;
        self
    }

    /// Loads the graphs with this factory, instead of [`with_engine`](Self::with_engine) and its options.
    #[must_use]
    pub fn with_engine_factory(mut self, factory: EngineFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Threads that share one operator, 1 to 256; the number of physical cores by default.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.engine.threads = Some(threads);
        self
    }

    /// The path of ONNX Runtime's library; the usual places are searched by default.
    #[must_use]
    pub fn with_onnxruntime(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.onnxruntime = Some(path.into());
        self
    }

    /// The path of OpenVINO's library (`libopenvino_c`) or its folder; the usual places are searched by default.
    #[must_use]
    pub fn with_openvino(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.openvino = Some(path.into());
        self
    }

    /// The path of the library of ONNX Runtime's WebGPU provider or its folder; the usual places are searched by default.
    #[must_use]
    pub fn with_webgpu(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.webgpu = Some(path.into());
        self
    }

    /// Uses a WebGPU adapter that fails the accuracy check, with a warning; off by default.
    #[must_use]
    pub fn with_allow_inexact(mut self, allow_inexact: bool) -> Self {
        self.engine.allow_inexact = allow_inexact;
        self
    }

    /// Whether nodes that the engine does not support run on the CPU, with a warning; off by default. Without it, building
    /// fails and the error lists the nodes.
    #[must_use]
    pub fn with_cpu_fallback(mut self, cpu_fallback: bool) -> Self {
        self.engine.cpu_fallback = cpu_fallback;
        self
    }

    /// Whether CUDA may multiply f32 matrices in TF32, which is several times as fast and less precise; off by default.
    #[must_use]
    pub fn with_tf32(mut self, tf32: bool) -> Self {
        self.engine.tf32 = tf32;
        self
    }

    /// Runs the backbone as this TensorRT engine file. The model is that of its sidecar unless
    /// [`with_model`](Self::with_model) names one.
    #[must_use]
    pub fn with_trt_backbone(mut self, engine: impl Into<PathBuf>) -> Self {
        self.trt_backbone = Some(engine.into());
        self
    }

    /// Runs the encoder-decoder as this TensorRT engine file, as [`with_trt_backbone`](Self::with_trt_backbone) does. The file
    /// limits the number of classes that are decoded at once.
    #[must_use]
    pub fn with_trt_encoder_decoder(mut self, engine: impl Into<PathBuf>) -> Self {
        self.trt_encoder_decoder = Some(engine.into());
        self
    }

    /// The path of TensorRT's library or its folder, for engine files; the usual places are searched by default.
    #[must_use]
    pub fn with_tensorrt_library(mut self, path: impl Into<PathBuf>) -> Self {
        self.tensorrt_library = Some(path.into());
        self
    }

    /// Runs engines that `prepare` compiles from the model ahead of time, such as
    /// `cached_engines` of `ocelli-cli`. A model that has to be exported is exported for `target`. Graphs
    /// that are not compiled run on ONNX Runtime's CPU provider.
    #[must_use]
    pub fn with_prepared_engines(
        mut self,
        target: Target,
        prepare: impl Fn(PrepareEngines<'_>) -> Result<EngineFactory> + Send + Sync + 'static,
    ) -> Self {
        self.prepared = Some(PreparedEngines { target, prepare: Arc::new(prepare) });
        self
    }

    /// All options of post-processing at once. They replace the thresholds of the model and those set before.
    #[must_use]
    pub fn with_post_processing(mut self, options: PostProcessOptions) -> Self {
        self.post = options;
        (self.is_confidence_set, self.is_nms_set) = (true, true);
        self
    }

    /// Detections with a score above this are kept, 0 to 1. The default is that of `model.json`: 0.3 unless edited.
    #[must_use]
    pub fn with_confidence(mut self, score_threshold: f32) -> Self {
        self.post.score_threshold = score_threshold;
        self.is_confidence_set = true;
        self
    }

    /// Of two boxes of one class with an IoU above this, 0 to 1, the one with the lower score is dropped; `None` keeps both.
    /// The default is that of `model.json`: 0.7 unless edited.
    #[must_use]
    pub fn with_nms(mut self, iou: impl Into<Option<f32>>) -> Self {
        self.post.nms_iou = iou.into();
        self.is_nms_set = true;
        self
    }

    /// Thresholds by class id, the index of the prompt, that replace [`with_confidence`](Self::with_confidence) for these
    /// classes. The default is none.
    #[must_use]
    pub fn with_class_confidence(mut self, score_thresholds: impl IntoIterator<Item = (usize, f32)>) -> Self {
        self.post.class_score_thresholds = score_thresholds.into_iter().collect();
        self
    }

    /// The most detections of an image; those with the highest scores are kept. The default is no limit.
    #[must_use]
    pub fn with_max_detections(mut self, max_detections: impl Into<Option<usize>>) -> Self {
        self.post.max_detections = max_detections.into();
        self
    }

    /// As [`with_nms`](Self::with_nms), for boxes of any classes; off by default.
    #[must_use]
    pub fn with_class_agnostic_nms(mut self, iou: impl Into<Option<f32>>) -> Self {
        self.post.class_agnostic_nms_iou = iou.into();
        self
    }

    /// Classes that are decoded at once, at least 1. More need more memory; the result is the same.
    #[must_use]
    pub fn with_class_chunk(mut self, classes: usize) -> Self {
        self.class_chunk = Some(classes);
        self
    }

    /// The file that keeps text features between runs.
    #[must_use]
    pub fn with_text_cache(mut self, cache: TextCacheFile) -> Self {
        self.text_cache = cache;
        self
    }

    /// Cancels the export of a checkpoint into the cache, and the search of a picture in [tiles](Self::with_tiling).
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Opens the model, after exporting it into the cache if necessary, and loads the engine's library.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options out of range, [`ErrorKind::Unavailable`] if the engine's library is
    /// missing, [`ErrorKind::Mismatch`] for a model that does not support an option or a text cache of another model,
    /// [`ErrorKind::Io`] and [`ErrorKind::InvalidData`] for files.
    pub fn build(self) -> Result<Detector> {
        self.build_reporting(&|_| ())
    }

    /// Checks, without the time that [`build`](Self::build) takes, that the model and the engine files that were named are
    /// there.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn check_files(&self) -> Result<()> {
        let engines = self.open_engines()?;
        if self.model.is_some() || engines.is_some() { Ok(()) } else { self.request.source.check() }
    }

    /// As [`build`](Self::build); `report` is called with a line of progress before each step that takes long.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_reporting(mut self, report: &dyn Fn(&str)) -> Result<Detector> {
        let class_chunk = self.class_chunk.unwrap_or(CLASS_CHUNK);
        if class_chunk == 0 {
            return Err(Error::argument("class_chunk", 0, "at least 1"));
        }
        if let Some(threads) = self.engine.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
            return Err(Error::argument("threads", threads, format!("1 to {MAX_THREADS}")));
        }
        // The caller's thresholds are checked before a model is exported.
        PostProcessor::new(self.post.clone())?;
        let tiles = self.tiling.map(TiledSearch::new).transpose()?;
        if tiles.is_some() && self.low_memory {
            let message = "low_memory: a search in tiles needs both halves of the model for each tile: leave one of them out";
            return Err(Error::new(ErrorKind::InvalidArgument, message).about("low_memory"));
        }
        ocelli_engines::report_file_limits();
        let engines = self.open_engines()?;
        self.check_screening(engines.is_some())?;
        let format = self.model_format();
        let factory = match self.factory {
            Some(factory) => factory,
            None if self.prepared.is_some() => {
                EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..self.engine.clone() })?
            }
            None => EngineFactory::start_for(&self.engine, format)?,
        };
        let mut factory = factory.with_class_chunk(class_chunk);
        if self.fast_precision && self.prepared.is_none() {
            self.request.precision = factory.fast_precision();
            let chosen = self.request.precision.unwrap_or_default();
            tracing::info!("precision auto: {chosen} with {}", factory.description());
        }
        // Weights of 8 bits say what the engine computes the rest in, whether they were requested or exported.
        let exported = format.exported.map(|(precision, _)| precision);
        let in_8_bits = exported.filter(|it| *it == Precision::Int8 || it.is_calibrated());
        let requested = self.request.precision.or(in_8_bits);
        self.request.precision = factory.set_precision(requested)?;
        // Engine files take precedence over engines that would be compiled.
        let prepared = self.prepared.take().filter(|_| engines.is_none());
        let target = || factory.target(self.request.precision);
        self.request.target = prepared.as_ref().map_or_else(target, |prepared| prepared.target);
        if let (Some((engines, _)), None) = (&engines, &self.model) {
            engines.complete(&mut self.request)?;
        }
        let mask_outputs = MaskOutputs { masks: self.request.masks, semantic_maps: self.semantic_maps };
        let masks = mask_outputs.any();
        self.request.masks = masks;
        let is_built_in = self.model.is_none() && self.request.source == ModelSource::Builtin;
        let model = match self.model {
            Some(model) => model,
            None => Model::resolve(&self.request, report, &self.cancellation)?,
        };
        if masks && !model.has_file(file::MASK_HEAD) {
            let message = format!(
                "masks, {}: this model was exported for detection only; export the checkpoint again with masks",
                model.folder().display()
            );
            return Err(Error::new(ErrorKind::Mismatch, message).about("masks"));
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
        if !self.is_confidence_set {
            self.post.score_threshold = thresholds.confidence;
        }
        if !self.is_nms_set {
            self.post.nms_iou = Some(thresholds.nms);
        }
        let is_built_in = is_built_in && self.request.imgsz.is_none();
        let screen_threshold = match self.screening {
            Some(chosen) => Some(chosen.threshold(&model, is_built_in, self.post.score_threshold)?),
            None => None,
        };
        let post = PostProcessor::new(self.post)?;
        let text = TextEmbedder::new(&model, factory.clone(), &self.text_cache)?;
        let preprocessor = ImagePreprocessor::new(&model)?;
        let backbone = Backbone::new(&model, factory.clone(), masks);
        let mut decoder =
            PromptDecoder::new(&model, factory.clone(), post, class_chunk, mask_outputs, screen_threshold);
        if tiles.is_some() {
            decoder.set_cancellation(self.cancellation);
        }
        let engine = factory.description();
        let segmenter = ObjectSegmenter::new(&model, factory.clone());
        let encoder = ImageEncoder::new(preprocessor, backbone);
        let stages = Stages { text, encoder, decoder, segmenter, low_memory: self.low_memory };
        Ok(Detector { model, stages, features: ImageFeatures::default(), tiles, engine, factory })
    }

    /// The first pass has no fixed number of classes.
    fn check_screening(&self, has_engine_files: bool) -> Result<()> {
        let needs_fixed =
            matches!(self.engine.kind, EngineKind::OnnxRuntimeTensorRt { .. } | EngineKind::CoreMl);
        if self.screening.is_none() || !(has_engine_files || self.prepared.is_some() || needs_fixed) {
            return Ok(());
        }
        let message = "screen: the first pass does not run with TensorRT and Core ML, which need fixed sizes; leave it out, or \
                       choose another engine";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// What the model's format asks of an engine.
    fn model_format(&self) -> ModelFormat {
        let requested = self.request.precision.unwrap_or_default();
        match &self.model {
            Some(model) => {
                let manifest = model.manifest();
                let exported = Some((manifest.precision, manifest.target));
                ModelFormat { requested, exported, is_builtin: false }
            }
            None => ModelFormat::of(&self.request.source, requested),
        }
    }

    /// Opens the TensorRT engine files that the caller has named, and the library that runs them, if there is a GPU: a model
    /// may take long to export.
    fn open_engines(&self) -> Result<Option<(EngineFiles, NativeTensorRt)>> {
        let (backbone, encoder_decoder) = (self.trt_backbone.as_deref(), self.trt_encoder_decoder.as_deref());
        let (first, parameter) = match (backbone, encoder_decoder) {
            (Some(first), _) => (first, "trt_backbone"),
            (None, Some(first)) => (first, "trt_encoder_decoder"),
            (None, None) => return Ok(None),
        };
        let engines = EngineFiles::open(backbone, encoder_decoder)?;
        let tensorrt = NativeTensorRt::new(self.tensorrt_library.as_deref());
        tensorrt.gpu().map_err(|error| {
            let message = format!("{parameter} {}: {error}", first.display());
            Error::new(error.kind(), message).about(parameter).with_source(error)
        })?;
        Ok(Some((engines, tensorrt)))
    }
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
