//! The model that is pruned: its chain, and the rest of the detector behind it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ocelli::{
    Detection, Detector, Error, Image, Result, StageTimes,
    engine::EngineFactory,
    model::ModelGraph,
    stages::{
        Backbone, EmbeddedPrompts, ImageEncoder, ImageFeatures, ImagePreprocessor, PromptDecoder, Stages,
        TextCacheFile, Wanted,
    },
};
use ocelli_engines::{Engine, EngineSpec, Tensor};
use ocelli_export::{Branch, ExportOptions, MaskedBranch, contract::tensor, export_chain};
use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::{Branches, DetectionEffect, Measurement, PruneInput, PruneOptions};
use crate::verification::cosine;

/// Median times of the parts of a backbone that runs as a chain, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartTimes {
    /// Pixels to tokens.
    pub embedding_ms: f64,
    /// A branch with attention inside windows.
    pub windowed_attention_ms: f64,
    /// A branch with attention over the whole image.
    pub global_attention_ms: f64,
    /// A feed-forward branch.
    pub mlp_ms: f64,
    /// Tokens to features.
    pub neck_ms: f64,
}

impl PartTimes {
    fn of_branch(&self, branch: MaskedBranch, global_blocks: &[usize]) -> f64 {
        match branch.branch {
            Branch::Mlp => self.mlp_ms,
            Branch::Attention if global_blocks.contains(&branch.block) => self.global_attention_ms,
            Branch::Attention => self.windowed_attention_ms,
        }
    }

    /// The time of branches together.
    pub(super) fn of(&self, branches: &[MaskedBranch], global_blocks: &[usize]) -> f64 {
        branches.iter().map(|branch| self.of_branch(*branch, global_blocks)).sum()
    }
}

/// The features and detections of the whole model in an image.
struct Reference {
    /// `fpn_2`, `[1, D, P, P]`.
    features: Vec<f32>,
    detections: Vec<Detection>,
    /// Pixels of the image: width, height.
    size: (u32, u32),
}

pub(super) struct Subject<'i> {
    images: &'i [PathBuf],
    pub global_blocks: &'i [usize],
    pub chain: Chain,
    preprocessor: ImagePreprocessor,
    /// The neck, which reads `tokens`.
    neck: Backbone,
    tokens: Arc<Mutex<Arc<Tensor>>>,
    decoder: PromptDecoder,
    prompts: EmbeddedPrompts,
    features: ImageFeatures,
    references: Vec<Option<Reference>>,
    neck_ms: Vec<f64>,
}

impl<'i> Subject<'i> {
    /// Exports and loads the graphs; `step` is called before each is written.
    pub fn new(
        input: &PruneInput<'i>,
        options: &PruneOptions,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let PruneInput { checkpoint, model, factory, images, .. } = *input;
        let manifest = model.manifest();
        let exporting = ExportOptions {
            imgsz: Some(manifest.imgsz),
            target: manifest.target,
            prompting: manifest.prompting,
            detection_only: true,
            ..ExportOptions::default()
        };
        let folder = tempfile::Builder::new().prefix(".ocelli-prune-").tempdir_in(input.scratch);
        let folder = folder.map_err(|e| Error::io("cannot write into", input.scratch, e))?;
        let files = export_chain(checkpoint, &exporting, folder.path(), |_, _| step())?;
        let chain = Chain::load(&files, factory, images.len(), options.memory_bytes)?;
        let tokens = Arc::new(Mutex::new(Arc::new(Tensor::empty())));
        let (inner, shared, whole, path) = (factory.clone(), Arc::clone(&tokens), model.clone(), files.neck);
        let with_neck = EngineFactory::custom(factory.description(), move |path_of_graph| {
            let name = path_of_graph.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match ModelGraph::of_file(name) {
                Some(graph) if graph.is_backbone() => {
                    Ok(Box::new(Neck { engine: inner.load(&path)?, tokens: Arc::clone(&shared) }))
                }
                _ => whole.load_graph(&inner, name),
            }
        });
        let mut builder = Detector::builder()
            .with_open_model(model.clone())
            .with_engine_factory(with_neck)
            .with_text_cache(TextCacheFile::None);
        if let Some(threshold) = options.confidence {
            builder = builder.with_confidence(threshold);
        }
        let mut detector = builder.build()?;
        let prompts = detector.prepare(input.prompts)?;
        let Stages { encoder, decoder, .. } = detector.into_stages();
        let ImageEncoder { preprocessor, backbone: neck, .. } = encoder;
        // The engines have what they need of the files, so a search that is killed leaves none behind.
        drop(folder);
        Ok(Self {
            images,
            global_blocks: &checkpoint.config().vision.global_blocks,
            chain,
            preprocessor,
            neck,
            tokens,
            decoder,
            prompts,
            features: ImageFeatures::default(),
            references: images.iter().map(|_| None).collect(),
            neck_ms: Vec::new(),
        })
    }

    /// Runs the whole model on an image, unless it has.
    pub fn reference(&mut self, image: usize) -> Result<()> {
        if self.references[image].is_some() {
            return Ok(());
        }
        // Reading the image a second time is nothing beside a pass of the backbone.
        let decoded = Image::open(&self.images[image])?;
        let size = (decoded.width(), decoded.height());
        let tokens = self.tokens_at(image, self.chain.branches.len(), &BTreeSet::new())?;
        let features = self.run_neck(tokens, size)?;
        let detections = self.decoder.decode(&self.features, &self.prompts, &mut StageTimes::default())?;
        self.references[image] = Some(Reference { features, detections, size });
        Ok(())
    }

    /// Compares the model without `removed` and `unit` with the whole one.
    pub fn measure(
        &mut self,
        removed: &Branches,
        unit: &[MaskedBranch],
        image: usize,
        detections: bool,
    ) -> Result<Measurement> {
        self.reference(image)?;
        let end = self.chain.branches.len();
        let removed = self.chain.positions(removed.iter().copied());
        let unit = self.chain.positions(unit.iter().copied());
        let start = unit.first().copied().unwrap_or(end);
        let tokens = self.tokens_at(image, start, &removed)?;
        let tokens = self.chain.walk(tokens, start..end, &(&removed | &unit))?;
        let size = self.references[image].as_ref().expect("computed above").size;
        let features = self.run_neck(tokens, size)?;
        let mut decode = || self.decoder.decode(&self.features, &self.prompts, &mut StageTimes::default());
        let found = detections.then(&mut decode).transpose()?;
        let whole = self.references[image].as_ref().expect("computed above");
        let measured = Measurement {
            relative_l2: relative_distance(&features, &whole.features) as f32,
            cosine: cosine(&features, &whole.features) as f32,
            detections: found.map(|found| DetectionEffect::between(&whole.detections, &found)),
        };
        if !measured.relative_l2.is_finite() || !measured.cosine.is_finite() {
            let why = "the pruned backbone returned values that are infinite or NaN";
            return Err(Error::execution(why).at(&self.images[image]));
        }
        Ok(measured)
    }

    /// The medians of all runs so far.
    pub fn times(&self) -> PartTimes {
        let of = |is_kind: &dyn Fn(MaskedBranch) -> bool| {
            let runs = self.chain.runs.iter().filter(|(at, _)| is_kind(self.chain.branches[*at]));
            median(runs.map(|(_, ms)| *ms).collect())
        };
        let is_global = |branch: MaskedBranch| self.global_blocks.contains(&branch.block);
        PartTimes {
            embedding_ms: median(self.chain.embedding_ms.clone()),
            windowed_attention_ms: of(&|it| it.branch == Branch::Attention && !is_global(it)),
            global_attention_ms: of(&|it| it.branch == Branch::Attention && is_global(it)),
            mlp_ms: of(&|it| it.branch == Branch::Mlp),
            neck_ms: median(self.neck_ms.clone()),
        }
    }

    fn tokens_at(&mut self, image: usize, position: usize, removed: &BTreeSet<usize>) -> Result<Arc<Tensor>> {
        let (path, preprocessor) = (&self.images[image], &mut self.preprocessor);
        self.chain.tokens_at(image, position, removed, || {
            let mut pixels = Tensor::empty();
            preprocessor.run_into(&Image::open(path)?, &mut pixels, &mut StageTimes::default())?;
            Ok(pixels)
        })
    }

    /// Runs the neck on tokens; returns the coarsest features, which detections are decoded from.
    fn run_neck(&mut self, tokens: Arc<Tensor>, size: (u32, u32)) -> Result<Vec<f32>> {
        *self.tokens.lock().unwrap_or_else(PoisonError::into_inner) = tokens;
        let mut times = StageTimes::default();
        self.neck.run_into(&Tensor::empty(), size, Wanted::default(), &mut self.features, &mut times)?;
        self.neck_ms.push(times.backbone);
        let (_, coarse) = self
            .features
            .tensors()
            .find(|(name, _)| *name == tensor::FPN[2])
            .expect("every backbone has this output");
        Ok(coarse.as_f32()?.to_vec())
    }
}

/// The neck in place of the backbone: it reads tokens that are computed already, and no pixels.
struct Neck {
    engine: Box<dyn Engine>,
    tokens: Arc<Mutex<Arc<Tensor>>>,
}

impl Engine for Neck {
    fn spec(&self) -> &EngineSpec {
        self.engine.spec()
    }

    fn description(&self) -> &str {
        self.engine.description()
    }

    fn run(&mut self, _: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let tokens = Arc::clone(&self.tokens.lock().unwrap_or_else(PoisonError::into_inner));
        self.engine.run(&[(tensor::TOKENS, &tokens)], outputs)
    }
}

/// The distance of `a` from `b`, as a multiple of the length of `b`.
fn relative_distance(a: &[f32], b: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let distance = squares(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let length = squares(&mut b.iter().map(|b| f64::from(*b)));
    if distance == 0.0 { 0.0 } else { (distance / length).sqrt() }
}

/// Rounded to microseconds, so that it is the same when it is read from a file. Zero without values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).map_or(0.0, |value| (value * 1e3).round() / 1e3)
}
