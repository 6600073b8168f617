//! From image features and encoded prompts to detections.

use std::collections::BTreeMap;

use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::{file, tensor};

use super::chunk_prompts::{ChunkPrompts, ChunkShape};
use super::encode::Wanted;
use super::engine_io::{fixed_size, move_to};
use super::exemplars::ExemplarEncoder;
use super::features::{COARSE, HostCopies, IMAGE_PROMPT, ImageFeatures};
use super::masks::{MaskHead, MaskInputs, MaskOutputs};
use super::screen::Screen;
use super::text::EmbeddedPrompts;
use crate::cancellation::Cancellation;
use crate::detection::Detection;
use crate::engine::EngineFactory;
use crate::mask::SemanticMap;
use crate::model::Model;
use crate::postprocess::{Candidate, ClassOutputs, PostProcessOptions, PostProcessor};
use crate::process_memory::log_memory_after;
use crate::timing::{Instant, STAGE_TARGET, StageTimes, milliseconds_since};
use ocelli_error::{Error, Result, refuse};

/// Finds the instances of prompts in image features: the encoder-decoder, the exemplar encoder, the mask head and the
/// post-processing. The buffers are reused.
pub struct PromptDecoder {
    model: Model,
    factory: EngineFactory,
    class_chunk: usize,
    mask_outputs: MaskOutputs,
    encoder_decoder: Option<EncoderDecoder>,
    exemplar_encoder: Option<ExemplarEncoder>,
    mask_head: Option<MaskHead>,
    /// The threshold of the first pass, if there is one.
    screen_threshold: Option<f32>,
    screen: Option<Screen>,
    pub(super) copies: HostCopies,
    post: PostProcessor,
    candidates: Vec<Candidate>,
    cancellation: Cancellation,
}

/// What is searched for in an image. Prompts alone ask for all of their classes, and for masks.
#[derive(Clone, Copy, Debug)]
pub struct DecodeRequest<'r> {
    /// The classes.
    pub prompts: &'r EmbeddedPrompts,
    /// Ascending ids into `prompts`: only these classes are searched for, without screening. Class ids stay those of `prompts`.
    pub classes: Option<&'r [usize]>,
    /// Masks and semantic maps, of a detector that was built with them.
    pub masks: bool,
}

impl<'r> From<&'r EmbeddedPrompts> for DecodeRequest<'r> {
    fn from(prompts: &'r EmbeddedPrompts) -> Self {
        Self { prompts, classes: None, masks: true }
    }
}

impl DecodeRequest<'_> {
    /// The features that it needs.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted { masks: self.masks, hidden: false }
    }
}

/// A detection with the mask head's own logits.
pub(crate) struct MaskLogits {
    pub(crate) class_id: usize,
    /// sigmoid(logit) · sigmoid(presence), 0 to 1.
    pub(crate) score: f32,
    /// `[4P, 4P]`.
    pub(crate) logits: Vec<f32>,
}

/// The encoder-decoder with its inputs and outputs.
struct EncoderDecoder {
    engine: Box<dyn Engine>,
    prompts: ChunkPrompts,
    logits: Tensor,
    boxes: Tensor,
    presence: Tensor,
    mask_inputs: MaskInputs,
    /// Set once an image was decoded.
    has_run: bool,
}

impl EncoderDecoder {
    fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let engine = model.load_graph(factory, file::ENCODER_DECODER)?;
        let [logits, boxes, presence] = [Tensor::empty(), Tensor::empty(), Tensor::empty()];
        let mask_inputs = MaskInputs { queries: Tensor::empty(), encoded: Tensor::empty() };
        let prompts = ChunkPrompts::new(engine.device());
        Ok(Self { engine, prompts, logits, boxes, presence, mask_inputs, has_run: false })
    }
}

impl PromptDecoder {
    pub(super) fn new(
        model: &Model,
        factory: EngineFactory,
        post: PostProcessor,
        class_chunk: usize,
        mask_outputs: MaskOutputs,
        screen_threshold: Option<f32>,
    ) -> Self {
        Self {
            model: model.clone(),
            factory,
            class_chunk,
            mask_outputs,
            encoder_decoder: None,
            exemplar_encoder: None,
            mask_head: None,
            screen_threshold,
            screen: None,
            copies: HostCopies::default(),
            post,
            candidates: Vec::new(),
            cancellation: Cancellation::new(),
        }
    }

    /// Loads the encoder-decoder and, for masks or semantic maps, the mask head, unless they are loaded. The exemplar
    /// encoder is loaded with the first exemplar.
    pub fn load(&mut self) -> Result<()> {
        self.load_for(true)
    }

    /// As [`load`](Self::load), without the mask head unless `masks` are wanted.
    fn load_for(&mut self, masks: bool) -> Result<()> {
        let is_new = self.encoder_decoder.is_none();
        if is_new {
            self.encoder_decoder = Some(EncoderDecoder::load(&self.model, &self.factory)?);
        }
        if masks && self.mask_outputs.any() && self.mask_head.is_none() {
            self.mask_head = Some(MaskHead::load(&self.model, &self.factory, self.mask_outputs)?);
        }
        if self.screen_threshold.is_some() && self.screen.is_none() {
            self.screen = Some(Screen::load(&self.model, &self.factory)?);
        }
        if is_new {
            log_memory_after("loading the decoder");
        }
        Ok(())
    }

    /// Drops the engines and their buffers; they are loaded again when they are needed.
    pub fn unload(&mut self) {
        let was_loaded = self.encoder_decoder.is_some();
        (self.encoder_decoder, self.exemplar_encoder, self.mask_head) = (None, None, None);
        self.screen = None;
        self.copies = HostCopies::default();
        if was_loaded {
            log_memory_after("dropping the decoder");
        }
    }

    /// The sides of the model's input and of its patches, in pixels.
    pub(super) fn input(&self) -> (usize, usize) {
        let manifest = self.model.manifest();
        (manifest.imgsz, manifest.patch_size)
    }

    /// The thresholds and limits.
    pub fn post_processing(&self) -> &PostProcessOptions {
        self.post.options()
    }

    /// Replaces the thresholds and limits from the next image on, for programs in which each request has its own.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a threshold outside 0 to 1; the options are
    /// not changed then.
    pub fn set_post_processing(&mut self, options: PostProcessOptions) -> Result<()> {
        self.post = PostProcessor::new(options)?;
        Ok(())
    }

    /// Ends the decoding of the next images with [`Cancelled`](ocelli_error::ErrorKind::Cancelled) once the token is
    /// cancelled: after the classes that
    /// are decoded, or whose masks are computed, at this moment.
    pub fn set_cancellation(&mut self, cancellation: Cancellation) {
        self.cancellation = cancellation;
    }

    /// Returns the detections, the highest score first, and adds the times of the stages to `times`.
    ///
    /// # Errors
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for
    /// an exemplar outside the image.
    pub fn decode<'r>(
        &mut self,
        features: &ImageFeatures,
        request: impl Into<DecodeRequest<'r>>,
        times: &mut StageTimes,
    ) -> Result<Vec<Detection>> {
        let mut detections = Vec::new();
        self.decode_into(features, request.into(), times, &mut detections)?;
        Ok(detections)
    }

    /// Checks that the decoder computes masks.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if the detector was built without masks.
    pub(crate) fn require_masks(&self) -> Result<()> {
        if self.mask_outputs.masks {
            return Ok(());
        }
        Err(Error::mismatch("a tracker follows masks: build the detector with masks"))
    }

    /// As [`decode`](Self::decode), with masks as the mask head returns them.
    pub(crate) fn decode_logits(
        &mut self,
        features: &ImageFeatures,
        request: DecodeRequest<'_>,
        times: &mut StageTimes,
    ) -> Result<Vec<MaskLogits>> {
        self.search(features, request, true, times)?;
        let logits = self.mask_head.as_mut().map(|head| std::mem::take(&mut head.logits));
        let scores: BTreeMap<(usize, usize), f32> =
            self.candidates.iter().map(|found| ((found.class_id, found.query), found.score)).collect();
        let with_score = |(key, logits): ((usize, usize), Vec<f32>)| {
            let &score = scores.get(&key)?;
            Some(MaskLogits { class_id: key.0, score, logits })
        };
        Ok(logits.unwrap_or_default().into_iter().filter_map(with_score).collect())
    }

    /// The score of every class in a first, coarse pass, 0 to 1; `None` for classes that are always decoded, and for all
    /// of them if the detector was built without [screening](crate::options::DetectorOptions::screening).
    ///
    /// # Errors
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for an exemplar outside the image.
    pub fn screen_scores(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        times: &mut StageTimes,
    ) -> Result<Vec<Option<f32>>> {
        self.load_for(false)?;
        let mut scores = vec![None; prompts.classes.len()];
        let Some(screen) = &mut self.screen else { return Ok(scores) };
        let start = Instant::now();
        self.copies.begin();
        screen.prompts.begin();
        let is_text = |&class: &usize| {
            let class = &prompts.classes[class];
            class.prompt.exemplars().is_empty() && class.kept_exemplars.is_none()
        };
        let classes: Vec<usize> = (0..scores.len()).filter(is_text).collect();
        let options = (self.class_chunk, &mut self.copies);
        let found = screen.scores(&self.model, features, prompts, &classes, options)?;
        for (class, score) in classes.into_iter().zip(found) {
            scores[class] = Some(score);
        }
        times.decode += milliseconds_since(start);
        Ok(scores)
    }

    /// The classes that [screening](crate::options::DetectorOptions::screening) does not rule out in an image, ascending;
    /// `None` without screening.
    ///
    /// # Errors
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for an exemplar outside the image.
    pub fn screen(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        times: &mut StageTimes,
    ) -> Result<Option<Vec<usize>>> {
        let Some(threshold) = self.screen_threshold else { return Ok(None) };
        let scores = self.screen_scores(features, prompts, times)?.into_iter().enumerate();
        let passed = scores.filter(|(_, score)| score.is_none_or(|score| score >= threshold));
        Ok(Some(passed.map(|(class, _)| class).collect()))
    }

    /// As [`decode`](Self::decode), into a list that is cleared first.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), and [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a class that
    /// `prompts` does not have.
    pub fn decode_into(
        &mut self,
        features: &ImageFeatures,
        request: DecodeRequest<'_>,
        times: &mut StageTimes,
        detections: &mut Vec<Detection>,
    ) -> Result<()> {
        detections.clear();
        self.search(features, request, false, times)?;
        detections.extend(self.candidates.iter().map(|candidate| {
            let label = request.prompts.classes[candidate.class_id].prompt.label().clone();
            let key = (candidate.class_id, candidate.query);
            let mask = self.mask_head.as_mut().and_then(|head| head.masks.remove(&key));
            Detection { mask, ..Detection::from_candidate(candidate, label) }
        }));
        Ok(())
    }

    /// Finds the candidates, and their masks or, with `keeps_logits`, the logits of these.
    fn search(
        &mut self,
        features: &ImageFeatures,
        request: DecodeRequest<'_>,
        keeps_logits: bool,
        times: &mut StageTimes,
    ) -> Result<()> {
        let DecodeRequest { prompts, classes, masks } = request;
        self.load_for(masks)?;
        let known = prompts.classes.len();
        if let Some(class) = classes.and_then(|classes| classes.iter().find(|&&class| class >= known)) {
            refuse!("class {class}: expected a class id below {known}");
        }
        let screened = match classes {
            Some(_) => None,
            None => self.screen(features, prompts, times)?,
        };
        let classes = classes.or(screened.as_deref());
        let (start, masks_before) = (Instant::now(), times.masks);
        self.begin_image(features, keeps_logits);
        // Classes of one chunk have the same number of exemplars, so that no prompt is padded.
        let mut by_exemplars: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let is_planned = |class: &usize| classes.is_none_or(|classes| classes.contains(class));
        for class in (0..known).filter(is_planned) {
            by_exemplars.entry(prompts.classes[class].prompt.exemplars().len()).or_default().push(class);
        }
        let (mut next, all) = (1, by_exemplars.values().map(Vec::len).sum::<usize>());
        for (exemplars, classes) in by_exemplars {
            let engine = &*self.encoder_decoder.as_ref().expect("loaded above").engine;
            let size = fixed_size(engine, tensor::PROMPT_MASK, 0).unwrap_or(self.class_chunk);
            for chunk in classes.chunks(size) {
                self.cancellation.check()?;
                tracing::debug!(target: STAGE_TARGET, "class {next} of {all}");
                next += chunk.len();
                let before = self.post.pending().len();
                self.decode_chunk(features, request, chunk, exemplars)?;
                let Some(head) = self.mask_head.as_mut().filter(|_| masks) else { continue };
                // The mask head's inputs are large: they are kept for later chunks only if these decide what is found.
                if self.post.is_final() {
                    let candidates = &self.post.pending()[before..];
                    head.run(features, prompts, candidates, (&mut self.copies, &self.cancellation), times)?;
                } else {
                    head.keep_classes_of(self.post.pending());
                }
            }
        }
        self.post.finish_into(&mut self.candidates);
        if let Some(head) = self.mask_head.as_mut().filter(|_| masks) {
            head.run(features, prompts, &self.candidates, (&mut self.copies, &self.cancellation), times)?;
            head.semantic_maps.sort_by_key(|map| map.class_id);
        }
        times.decode += milliseconds_since(start) - (times.masks - masks_before);
        let decoder = self.encoder_decoder.as_mut().expect("loaded above");
        if !std::mem::replace(&mut decoder.has_run, true) {
            log_memory_after("the decoder's first image");
        }
        Ok(())
    }

    /// Takes the semantic maps of the last image: one for each class that was found, by class id. Empty unless the detector
    /// was built [with semantic maps](crate::options::DetectorOptions::semantic_maps).
    pub fn take_semantic_maps(&mut self) -> Vec<SemanticMap> {
        self.mask_head.as_mut().map(|head| std::mem::take(&mut head.semantic_maps)).unwrap_or_default()
    }

    /// Encodes the exemplars, which are boxes in the image of `features`. The result is searched for in any image; classes
    /// without exemplars are unchanged.
    ///
    /// # Errors
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for an exemplar outside the image.
    pub fn keep_exemplars(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
    ) -> Result<EmbeddedPrompts> {
        self.begin_image(features, false);
        let mut kept = prompts.clone();
        for class in kept.classes.iter_mut().filter(|class| !class.prompt.exemplars().is_empty()) {
            let encoder = loaded(&mut self.exemplar_encoder, &self.model, &self.factory)?;
            let exemplars = encoder.run(features, &class.prompt, &mut self.copies, None)?;
            class.kept_exemplars = Some(exemplars.as_f32()?.into());
        }
        Ok(kept)
    }

    /// Clears what belongs to the last image.
    fn begin_image(&mut self, features: &ImageFeatures, keeps_logits: bool) {
        let (width, height) = features.size;
        self.post.begin(width, height);
        self.copies.begin();
        if let Some(decoder) = &mut self.encoder_decoder {
            decoder.prompts.begin();
        }
        if let Some(head) = &mut self.mask_head {
            head.begin(keeps_logits);
        }
    }

    /// Runs the encoder-decoder on classes with `exemplars` each, pushes its outputs into the post-processor and keeps the
    /// mask head's inputs of the classes that have candidates.
    fn decode_chunk(
        &mut self,
        features: &ImageFeatures,
        request: DecodeRequest<'_>,
        chunk: &[usize],
        exemplars: usize,
    ) -> Result<()> {
        let mut head = self.mask_head.as_mut().filter(|_| request.masks);
        let decoder = self.encoder_decoder.as_mut().expect("the caller has loaded it");
        let EncoderDecoder { engine, prompts: chunk_prompts, logits, boxes, presence, mask_inputs, .. } =
            decoder;
        let copies = &mut self.copies;
        let device = engine.device();
        let device = device.as_ref();
        let shape = ChunkShape::new(self.model.manifest(), &**engine, chunk.len(), exemplars)?;
        let classes: Vec<_> = chunk.iter().map(|&class| &request.prompts.classes[class]).collect();
        let (prompt_features, prompt_mask) = chunk_prompts.prepare(shape, &classes)?;
        let (appended_at, appended_len) = (|row| shape.appended_at(row), shape.appended_len());
        for (row, class) in classes.iter().enumerate() {
            if appended_len == 0 || class.kept_exemplars.is_some() {
                continue;
            }
            let appended = if class.prompt.exemplars().is_empty() {
                copies.readable_on(device, features, [IMAGE_PROMPT])?[0]
            } else {
                let encoder = loaded(&mut self.exemplar_encoder, &self.model, &self.factory)?;
                encoder.run(features, &class.prompt, copies, device)?
            };
            prompt_features.copy_elements(appended_at(row), appended, 0, appended_len)?;
        }

        let mut outputs = vec![
            (tensor::LOGITS, &mut *logits),
            (tensor::BOXES, &mut *boxes),
            (tensor::PRESENCE, &mut *presence),
        ];
        if let Some(head) = &head {
            let shared = device.filter(|_| head.engine.device().as_ref() == device);
            move_to(&mut mask_inputs.queries, shared);
            move_to(&mut mask_inputs.encoded, shared);
            outputs.push((tensor::QUERIES, &mut mask_inputs.queries));
            outputs.push((tensor::ENCODED, &mut mask_inputs.encoded));
        }
        let [coarse] = copies.readable_on(device, features, [COARSE])?;
        engine.run(
            &[
                (tensor::FPN[2], coarse),
                (tensor::PROMPT_FEATURES, prompt_features),
                (tensor::PROMPT_MASK, prompt_mask),
            ],
            &mut outputs,
        )?;

        let queries = logits.shape().get(1).copied().unwrap_or(0);
        let (logits, boxes, presence) = (logits.as_f32()?, boxes.as_f32()?, presence.as_f32()?);
        for (row, &class) in chunk.iter().enumerate() {
            self.post.push_class(&ClassOutputs {
                class_id: class,
                label: classes[row].prompt.label(),
                logits: &logits[row * queries..][..queries],
                boxes: &boxes[row * queries * 4..][..queries * 4],
                presence: presence[row],
            })?;
            if let Some(head) = &mut head
                && self.post.pending().iter().rev().any(|candidate| candidate.class_id == class)
            {
                head.keep(class, row, (prompt_features, prompt_mask), mask_inputs)?;
            }
        }
        Ok(())
    }
}

/// The exemplar encoder, which is loaded on first use.
fn loaded<'e>(
    encoder: &'e mut Option<ExemplarEncoder>,
    model: &Model,
    factory: &EngineFactory,
) -> Result<&'e mut ExemplarEncoder> {
    match encoder {
        Some(encoder) => Ok(encoder),
        none => Ok(none.insert(ExemplarEncoder::load(model, factory)?)),
    }
}
