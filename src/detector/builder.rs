//! From the options of a detector to its stages.

use std::sync::Arc;

use ocelli_export::contract::{Precision, Target, file};

use super::Detector;
use super::decode::PromptDecoder;
use super::encode::{Backbone, ImagePreprocessor};
use super::features::ImageFeatures;
use super::masks::MaskOutputs;
use super::segment::ObjectSegmenter;
use super::stages::{ImageEncoder, Stages};
use super::text::{TextCacheFile, TextEmbedder};
use super::tiled::TiledSearch;
use crate::Cancellation;
use crate::engine::{EngineFactory, EngineKind, EngineOptions, ModelFormat, PrepareEngines};
use crate::model::{Model, ModelRequest, ModelSource};
use crate::options::{DetectorOptions, PrecisionChoice};
use crate::postprocess::{PostProcessOptions, PostProcessor};
use crate::tensorrt::{EngineFiles, NativeTensorRt};
use ocelli_error::{Error, Result};

/// Classes that are decoded at once by default; `benchmarks/README.md` has the measurements.
const CLASS_CHUNK: usize = 4;

impl Detector {
    /// Builds a detector with these options.
    pub fn with(options: DetectorOptions) -> DetectorBuilder {
        DetectorBuilder { options, ..DetectorBuilder::default() }
    }

    /// As [`with`](Self::with) the default options.
    pub fn builder() -> DetectorBuilder {
        DetectorBuilder::default()
    }
}

/// Builds a [`Detector`]: [its options](DetectorOptions), of which those that programs set most have a method, and what is no
/// plain data. Created by [`Detector::builder`] and [`Detector::with`].
#[derive(Clone, Default)]
#[must_use]
pub struct DetectorBuilder {
    options: DetectorOptions,
    model: Option<Model>,
    factory: Option<EngineFactory>,
    prepared: Option<(Target, Arc<Prepare>)>,
    cancellation: Cancellation,
    progress: Option<Arc<Progress>>,
}

type Prepare = dyn Fn(PrepareEngines<'_>) -> Result<EngineFactory> + Send + Sync;
type Progress = dyn Fn(&str) + Send + Sync;

impl DetectorBuilder {
    /// The options so far.
    pub fn options(&self) -> &DetectorOptions {
        &self.options
    }

    /// Sets any of the [options](DetectorOptions).
    pub fn with_options(mut self, set: impl FnOnce(&mut DetectorOptions)) -> Self {
        set(&mut self.options);
        self
    }

    setters! {
        /// As [`DetectorOptions::model`].
        with_model(source: ModelSource) => options.model;

        /// As [`EngineOptions::kind`].
        with_engine(kind: EngineKind) => options.engine.kind;

        /// As [`EngineOptions::threads`].
        with_threads(threads: usize) => options.engine.threads;

        /// As [`DetectorOptions::confidence`].
        with_confidence(confidence: f32) => options.confidence;

        /// As [`DetectorOptions::class_chunk`].
        with_class_chunk(classes: usize) => options.class_chunk;

        /// As [`DetectorOptions::masks`].
        with_masks(masks: bool) => options.masks;

        /// As [`DetectorOptions::text_cache`].
        with_text_cache(cache: TextCacheFile) => options.text_cache;

        /// An open model, in place of [`DetectorOptions::model`].
        with_open_model(model: Model) => model;

        /// Loads the graphs with this factory, in place of [`DetectorOptions::engine`].
        with_engine_factory(factory: EngineFactory) => factory;

        /// Cancels the export of a checkpoint into the cache, and the search of an image in [tiles](DetectorOptions::tiling).
        with_cancellation(cancellation: Cancellation) => cancellation;
    }

    /// As [`DetectorOptions::set_post_processing`].
    pub fn with_post_processing(self, post: PostProcessOptions) -> Self {
        self.with_options(|options| options.set_post_processing(post))
    }

    /// Runs engines that `prepare` compiles from the model ahead of time. A model that has to be exported is exported for
    /// `target`. Graphs that are not compiled run on ONNX Runtime's CPU provider.
    pub fn with_prepared_engines(
        mut self,
        target: Target,
        prepare: impl Fn(PrepareEngines<'_>) -> Result<EngineFactory> + Send + Sync + 'static,
    ) -> Self {
        self.prepared = Some((target, Arc::new(prepare)));
        self
    }

    /// Called with a line of progress before each step of [`build`](Self::build) that takes long.
    pub fn with_progress(mut self, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(report));
        self
    }

    /// Checks, without the time that [`build`](Self::build) takes, that the model and the engine files that were named are
    /// there.
    ///
    /// # Errors
    /// One that names the file that is missing, cannot be read or does not belong to the others.
    pub fn check_files(&self) -> Result<()> {
        let engines = open_engine_files(&self.options.engine)?;
        if self.model.is_some() || engines.is_some() { Ok(()) } else { self.options.model.check() }
    }

    /// Opens the model, after exporting it into the cache if necessary, and loads the engine's library.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for options out of range,
    /// [`Unavailable`](ocelli_error::ErrorKind::Unavailable) if the engine's library is
    /// missing, [`Mismatch`](ocelli_error::ErrorKind::Mismatch) for a model that does not support an option or a text
    /// cache of another model,
    /// [`Io`](ocelli_error::ErrorKind::Io) and [`InvalidData`](ocelli_error::ErrorKind::InvalidData) for files.
    pub fn build(self) -> Result<Detector> {
        // The caller's options are checked before a model is exported.
        self.options.check()?;
        let tiles = self.options.tiling.map(TiledSearch::new).transpose()?;
        ocelli_engines::report_file_limits();
        let files = open_engine_files(&self.options.engine)?;
        self.check_screening(files.is_some())?;
        let (factory, precision) = self.start_engine()?;
        let (model, is_built_in) = self.open_model(&factory, precision, files.as_ref())?;
        let options = &self.options;
        let outputs = MaskOutputs { masks: options.masks, semantic_maps: options.semantic_maps };
        let masks = outputs.any();
        let class_chunk = options.class_chunk.unwrap_or(CLASS_CHUNK);
        // Engine files take precedence over engines that would be compiled.
        let (model, factory, class_chunk) = match (files, &self.prepared) {
            (Some((files, tensorrt)), _) => {
                let found = files.in_place_of(model, tensorrt, factory, masks)?;
                let class_chunk = found.max_classes.map_or(class_chunk, |most| class_chunk.min(most));
                (found.model, found.factory, class_chunk)
            }
            (None, Some((_, prepare))) => {
                let (cancellation, report) = (&self.cancellation, self.report());
                let request =
                    PrepareEngines { model: &model, rest: factory, class_chunk, cancellation, report };
                let factory = prepare(request)?;
                (model, factory, class_chunk)
            }
            (None, None) => (model, factory, class_chunk),
        };
        let post = options.post_processing(model.manifest().thresholds);
        let screening = options.screening.map(|it| it.threshold(&model, is_built_in, post.confidence));
        let screen_threshold = screening.transpose()?;
        let post = PostProcessor::new(post)?;
        let text = TextEmbedder::new(&model, factory.clone(), &options.text_cache)?;
        let preprocessor = ImagePreprocessor::new(&model)?;
        let backbone = Backbone::new(&model, factory.clone(), masks);
        let mut decoder =
            PromptDecoder::new(&model, factory.clone(), post, class_chunk, outputs, screen_threshold);
        if tiles.is_some() {
            decoder.set_cancellation(self.cancellation.clone());
        }
        let engine = factory.description();
        let segmenter = ObjectSegmenter::new(&model, factory.clone());
        let encoder = ImageEncoder::new(preprocessor, backbone);
        let stages = Stages { text, encoder, decoder, segmenter, low_memory: options.low_memory };
        Ok(Detector { model, stages, features: ImageFeatures::default(), tiles, engine, factory })
    }

    fn report(&self) -> &dyn Fn(&str) {
        match &self.progress {
            Some(report) => &**report,
            None => &|_: &str| (),
        }
    }

    /// The first pass has no fixed number of classes.
    fn check_screening(&self, has_engine_files: bool) -> Result<()> {
        let kind = self.options.engine.kind;
        let needs_fixed = kind == EngineKind::CoreMl;
        if self.options.screening.is_none() || !(has_engine_files || self.prepared.is_some() || needs_fixed) {
            return Ok(());
        }
        let message = "screen: the first pass does not run with TensorRT and Core ML, which need fixed sizes; leave it out, or \
                       choose another engine";
        Err(Error::unavailable(message))
    }

    /// Starts the engine, and chooses the number format in which a model is to be exported or has to be.
    fn start_engine(&self) -> Result<(EngineFactory, Option<Precision>)> {
        let (engine, format) = (&self.options.engine, self.model_format());
        let factory = match &self.factory {
            Some(factory) => factory.clone(),
            None if self.prepared.is_some() => {
                EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..engine.clone() })?
            }
            None => EngineFactory::start_for(engine, format)?,
        };
        let class_chunk = self.options.class_chunk.unwrap_or(CLASS_CHUNK);
        let mut factory = factory.with_class_chunk(class_chunk);
        let requested = match self.options.precision {
            Some(PrecisionChoice::Of(precision)) => Some(precision),
            Some(PrecisionChoice::Auto) if self.prepared.is_none() => {
                let fast = factory.fast_precision();
                let chosen = fast.unwrap_or_default();
                tracing::info!("precision auto: {chosen} with {}", factory.description());
                fast
            }
            Some(PrecisionChoice::Auto) | None => None,
        };
        // Weights of 8 bits say what the engine computes the rest in, whether they were requested or exported.
        let exported = format.exported.map(|(precision, _)| precision);
        let in_8_bits = exported.filter(|it| *it == Precision::Int8 || it.is_calibrated());
        let precision = factory.set_precision(requested.or(in_8_bits))?;
        Ok((factory, precision))
    }

    /// The format that the model asks of an engine.
    fn model_format(&self) -> ModelFormat {
        let requested = match self.options.precision {
            Some(PrecisionChoice::Of(precision)) => precision,
            Some(PrecisionChoice::Auto) | None => Precision::default(),
        };
        match &self.model {
            Some(model) => {
                let manifest = model.manifest();
                let exported = Some((manifest.precision, manifest.target));
                ModelFormat { requested, exported, is_builtin: false }
            }
            None => ModelFormat::of(&self.options.model, requested),
        }
    }

    /// Opens the model, and says whether it is the built-in one at its own size.
    fn open_model(
        &self,
        factory: &EngineFactory,
        precision: Option<Precision>,
        files: Option<&(EngineFiles, NativeTensorRt)>,
    ) -> Result<(Model, bool)> {
        let options = &self.options;
        let prepared = self.prepared.as_ref().filter(|_| files.is_none());
        let mut request = ModelRequest {
            source: options.model.clone(),
            tokenizer: options.tokenizer.clone(),
            imgsz: options.imgsz,
            precision,
            target: prepared.map_or_else(|| factory.target(precision), |(target, _)| *target),
            masks: options.masks || options.semantic_maps,
            screen: options.screening.is_some(),
            pruning: options.pruning.clone(),
        };
        let model = match (&self.model, files) {
            (Some(model), _) => model.clone(),
            (None, files) => {
                files.map_or(Ok(()), |(files, _)| files.complete(&mut request))?;
                Model::resolve(&request, self.report(), &self.cancellation)?
            }
        };
        if request.masks && !model.has_file(file::MASK_HEAD) {
            return Err(Error::mismatch(format!(
                "masks, {}: this model was exported for detection only; export the checkpoint again with masks",
                model.folder().display()
            )).about("masks"));
        }
        let is_built_in = self.model.is_none() && request.source == ModelSource::Builtin;
        Ok((model, is_built_in && request.imgsz.is_none()))
    }
}

/// Opens the TensorRT engine files that were named, and the library that runs them, if there is a GPU: a model may take long to
/// export.
fn open_engine_files(options: &EngineOptions) -> Result<Option<(EngineFiles, NativeTensorRt)>> {
    let (backbone, encoder_decoder) =
        (options.trt_backbone.as_deref(), options.trt_encoder_decoder.as_deref());
    let (first, parameter) = match (backbone, encoder_decoder) {
        (Some(first), _) => (first, "trt_backbone"),
        (None, Some(first)) => (first, "trt_encoder_decoder"),
        (None, None) => return Ok(None),
    };
    let engines = EngineFiles::open(backbone, encoder_decoder)?;
    let tensorrt = NativeTensorRt::new(options.tensorrt.as_deref());
    tensorrt.gpu().map_err(|error| {
        let message = format!("{parameter} {}: {error}", first.display());
        Error::new(error.kind(), message).about(parameter).with_source(error)
    })?;
    Ok(Some((engines, tensorrt)))
}
