//! The half that knows what is looked for.

use std::collections::BTreeMap;
use std::time::Instant;

use ocelli_engines::{Device, ElementType, Engine, Tensor};
use ocelli_export::contract::{file, tensor};

use super::device_memory::{HostCopies, make_readable_on, move_to};
use super::encode::ImageFeatures;
use super::milliseconds;
use super::prompt_chunk::{ChunkShape, ChunksOnDevice, fixed};
use super::text::{EmbeddedPrompt, EmbeddedPrompts};
use crate::detection::Detection;
use crate::engine::EngineFactory;
use crate::mask::{MaskResampler, SemanticMap};
use crate::model::Model;
use crate::postprocess::{Candidate, PostProcessor, RawOutputs};
use crate::timing::StageTimes;
use ocelli_error::{Error, ErrorKind, Result};

/// Encoder-decoder, exemplar encoder, mask head, and what becomes of their outputs.
pub struct PromptDecoder {
    model: Model,
    factory: EngineFactory,
    post: PostProcessor,
    class_chunk: usize,
    /// Of things.
    masks: bool,
    /// Of classes.
    semantic_maps: bool,
    /// Of the last image.
    semantic: Vec<SemanticMap>,
    encoder_decoder: Option<Box<dyn Engine>>,
    exemplar_encoder: Option<Box<dyn Engine>>,
    mask_head: Option<Box<dyn Engine>>,
    resampler: MaskResampler,
    buffers: Buffers,
}

/// Tensors that go round from image to image.
#[derive(Default)]
struct Buffers {
    prompt_features: Tensor,
    prompt_mask: Tensor,
    /// Where the encoder-decoder works on a device.
    on_device: Option<ChunksOnDevice>,
    logits: Tensor,
    boxes: Tensor,
    presence: Tensor,
    exemplar_boxes: Tensor,
    exemplar_labels: Tensor,
    exemplar_features: Tensor,
    /// For the mask head.
    states: Vec<StateTensors>,
    states_in_use: Vec<StateTensors>,
    queries: Tensor,
    masks: Tensor,
    semantic: Tensor,
    candidates: Vec<Candidate>,
    /// Of `fpn_0`, `fpn_1`, `fpn_2` and `image_prompt`.
    copies: HostCopies<4>,
}

/// `image_prompt` among the [copies](Buffers::copies).
const IMAGE_PROMPT: usize = 3;

/// What the encoder-decoder says of a chunk for the mask head.
#[derive(Default)]
struct StateTensors {
    /// `[C, Q, D]`.
    queries: Tensor,
    /// `[C, P·P, D]`.
    encoded: Tensor,
}

/// What the mask head needs of a class that has candidates, in its reach.
struct ClassState {
    prompt_features: Tensor,
    prompt_mask: Tensor,
    queries: Tensor,
    encoded: Tensor,
}

impl PromptDecoder {
    pub(super) fn new(
        model: &Model,
        factory: EngineFactory,
        post: PostProcessor,
        class_chunk: usize,
        masks: bool,
        semantic_maps: bool,
    ) -> Self {
        Self {
            model: model.clone(),
            factory,
            post,
            class_chunk,
            masks,
            semantic_maps,
            semantic: Vec::new(),
            encoder_decoder: None,
            exemplar_encoder: None,
            mask_head: None,
            resampler: MaskResampler::new(),
            buffers: Buffers::default(),
        }
    }

    /// Loads the encoder-decoder, and the mask head where masks are wanted. The exemplar encoder comes in when the first
    /// example does.
    ///
    /// # Errors
    /// As [`EngineFactory::load`].
    pub fn load(&mut self) -> Result<()> {
        if self.encoder_decoder.is_none() {
            self.encoder_decoder = Some(self.model.load_graph(&self.factory, file::ENCODER_DECODER)?);
        }
        if self.needs_mask_head() && self.mask_head.is_none() {
            self.mask_head = Some(self.model.load_graph(&self.factory, file::MASK_HEAD)?);
        }
        Ok(())
    }

    /// Lets the engines and what they filled go; they are loaded again when they are needed.
    pub fn unload(&mut self) {
        (self.encoder_decoder, self.exemplar_encoder, self.mask_head) = (None, None, None);
        self.buffers = Buffers::default();
    }

    fn needs_mask_head(&self) -> bool {
        self.masks || self.semantic_maps
    }

    /// Features and prompts → detections, the highest score first; the times of the stages are added to `times`.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] when a graph fails or returns numbers that are none, [`ErrorKind::InvalidArgument`] for an
    /// example outside the image.
    pub fn decode(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        times: &mut StageTimes,
    ) -> Result<Vec<Detection>> {
        let mut detections = Vec::new();
        self.decode_into(features, prompts, None, times, &mut detections)?;
        Ok(detections)
    }

    /// As [`decode`](Self::decode), into a list that goes round, and of some classes alone where `classes` names them:
    /// ids into `prompts`, rising. The others are not looked for; what is found keeps its class's id.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), and [`ErrorKind::InvalidArgument`] for a class that `prompts` does not have.
    pub fn decode_into(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        classes: Option<&[usize]>,
        times: &mut StageTimes,
        detections: &mut Vec<Detection>,
    ) -> Result<()> {
        self.load()?;
        detections.clear();
        let known = prompts.classes.len();
        if let Some(class) = classes.and_then(|classes| classes.iter().find(|&&class| class >= known)) {
            let message = format!("class {class}: there are {known}, from 0");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let start = Instant::now();
        let (width, height) = features.size;
        self.post.begin(width, height);
        self.semantic.clear();
        self.begin_image();
        let mut states: BTreeMap<usize, ClassState> = BTreeMap::new();
        // Classes of one chunk have prompts of one length, so that nothing is padded.
        let mut by_examples: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let wanted = |class: &usize| classes.is_none_or(|classes| classes.contains(class));
        for class in (0..known).filter(wanted) {
            by_examples.entry(prompts.classes[class].prompt.exemplars().len()).or_default().push(class);
        }
        for (examples, classes) in by_examples {
            let engine = self.encoder_decoder.as_ref().expect("loaded above");
            // One that always takes as many is given as many.
            let size = fixed(&**engine, tensor::PROMPT_MASK, 0).unwrap_or(self.class_chunk);
            for chunk in classes.chunks(size) {
                self.decode_chunk(features, prompts, chunk, examples, &mut states)?;
            }
        }
        self.post.finish_into(&mut self.buffers.candidates);
        let label = |c: &Candidate| prompts.classes[c.class_id].prompt.label().clone();
        detections.extend(self.buffers.candidates.iter().map(|c| Detection::from_candidate(c, label(c))));
        times.decode += milliseconds(start);
        if self.needs_mask_head() {
            let start = Instant::now();
            self.fill_masks(features, &states, detections)?;
            times.masks += milliseconds(start);
        }
        Ok(())
    }

    /// Gives the semantic maps of the last image away: one for each class that was found, rising; none unless they were
    /// asked for.
    pub fn take_semantic_maps(&mut self) -> Vec<SemanticMap> {
        std::mem::take(&mut self.semantic)
    }

    /// Another image: nothing of the last one is in use any more.
    fn begin_image(&mut self) {
        let b = &mut self.buffers;
        b.copies.begin();
        b.states.append(&mut b.states_in_use);
        if let Some(device) = device_of(&self.encoder_decoder) {
            b.on_device.get_or_insert_with(|| ChunksOnDevice::new(device)).begin();
        }
    }

    /// Writes the prompts of a chunk (words, then the CLS token or the examples), runs the encoder-decoder over them and
    /// pushes what it finds into the post-processor.
    fn decode_chunk(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        chunk: &[usize],
        examples: usize,
        states: &mut BTreeMap<usize, ClassState>,
    ) -> Result<()> {
        let engine = self.encoder_decoder.as_ref().expect("decode loads it");
        let shape = ChunkShape::new(self.model.manifest(), &**engine, chunk.len(), examples)?;
        let device = device_of(&self.encoder_decoder);
        let classes: Vec<_> = chunk.iter().map(|&class| &prompts.classes[class]).collect();
        // Taken out while the exemplar encoder uses the rest.
        let mut on_device = self.buffers.on_device.take();
        let mut host = (
            std::mem::take(&mut self.buffers.prompt_features),
            std::mem::take(&mut self.buffers.prompt_mask),
        );
        let outcome = (|| {
            let (prompt_features, prompt_mask) = match &mut on_device {
                Some(chunks) => {
                    let chunk = chunks.find_or_make(shape, &classes, (&mut host.0, &mut host.1))?;
                    (&mut chunk.features, &chunk.mask)
                }
                None => {
                    shape.fill(&classes, &mut host.0, &mut host.1);
                    (&mut host.0, &host.1)
                }
            };
            let is_kept = device.is_some();
            for (row, class) in classes.iter().enumerate() {
                self.append(
                    features,
                    class,
                    device.as_ref(),
                    is_kept,
                    prompt_features,
                    shape.appended_at(row),
                    shape.appended_len(),
                )?;
            }
            self.run_chunk(features, prompts, chunk, (prompt_features, prompt_mask), states)
        })();
        self.buffers.on_device = on_device;
        (self.buffers.prompt_features, self.buffers.prompt_mask) = host;
        outcome
    }

    /// Writes what comes after a class's words: nothing, the image's CLS token, or what the exemplar encoder says. Examples
    /// that were looked at before are there already where the chunk `is_kept`.
    #[allow(clippy::too_many_arguments)]
    fn append(
        &mut self,
        features: &ImageFeatures,
        class: &EmbeddedPrompt,
        device: Option<&Device>,
        is_kept: bool,
        target: &mut Tensor,
        position: usize,
        count: usize,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        if let Some(kept) = &class.kept_examples {
            if !is_kept {
                target.as_f32_mut()?[position..][..count].copy_from_slice(kept);
            }
            return Ok(());
        }
        if class.prompt.exemplars().is_empty() {
            let copies = &mut self.buffers.copies;
            copies.copy_for(device, IMAGE_PROMPT, &features.image_prompt)?;
            let source = copies.readable_on(device, IMAGE_PROMPT, &features.image_prompt);
            return target.copy_elements(position, source, 0, count);
        }
        self.encode_exemplars(features, class, device)?;
        target.copy_elements(position, &self.buffers.exemplar_features, 0, count)
    }

    /// The same prompts with their examples encoded where they are: boxes in the image of `features`. From then on they
    /// are looked for in any image; classes without examples stay what they are.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn keep_exemplars(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
    ) -> Result<EmbeddedPrompts> {
        self.begin_image();
        let mut kept = prompts.clone();
        for embedded in kept.classes.iter_mut().filter(|one| !one.prompt.exemplars().is_empty()) {
            self.encode_exemplars(features, embedded, None)?;
            embedded.kept_examples = Some(self.buffers.exemplar_features.as_f32()?.into());
        }
        Ok(kept)
    }

    /// Fills `exemplar_features`: on `device` if the exemplar encoder runs there too, otherwise in host memory.
    fn encode_exemplars(
        &mut self,
        features: &ImageFeatures,
        embedded: &EmbeddedPrompt,
        device: Option<&Device>,
    ) -> Result<()> {
        let engine = match &mut self.exemplar_encoder {
            Some(engine) => engine,
            none => none.insert(self.model.load_graph(&self.factory, file::EXEMPLAR_ENCODER)?),
        };
        let exemplars = embedded.prompt.exemplars();
        let (width, height) = (features.size.0 as f32, features.size.1 as f32);
        let boxes = self.buffers.exemplar_boxes.reset_f32(&[1, exemplars.len(), 4]);
        for (target, exemplar) in boxes.chunks_exact_mut(4).zip(exemplars) {
            let inside = exemplar.bbox.clip_to(width, height);
            if !inside.has_area() {
                let (b, label) = (exemplar.bbox, embedded.prompt.label());
                let message = format!(
                    "example of \"{label}\", {},{},{},{}: it lies outside the image of {width} × {height} pixels",
                    b.x1, b.y1, b.x2, b.y2
                );
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            target.copy_from_slice(&inside.scaled(1.0 / width, 1.0 / height).to_cxcywh());
        }
        let labels = self.buffers.exemplar_labels.reset_i64(&[1, exemplars.len()]);
        labels.iter_mut().zip(exemplars).for_each(|(label, exemplar)| *label = i64::from(exemplar.wanted));
        let b = &mut self.buffers;
        let own = engine.device();
        let own = own.as_ref();
        move_to(&mut b.exemplar_features, device.filter(|_| own == device));
        b.copies.copy_for(own, 2, &features.fpn[2])?;
        engine.run(
            &[
                (tensor::FPN[2], b.copies.readable_on(own, 2, &features.fpn[2])),
                (tensor::BOXES, &b.exemplar_boxes),
                (tensor::BOX_LABELS, &b.exemplar_labels),
            ],
            &mut [(tensor::EXEMPLAR_FEATURES, &mut b.exemplar_features)],
        )?;
        Ok(())
    }

    /// Runs the encoder-decoder over a chunk and pushes its classes into the post-processor.
    fn run_chunk(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        chunk: &[usize],
        (prompt_features, prompt_mask): (&Tensor, &Tensor),
        states: &mut BTreeMap<usize, ClassState>,
    ) -> Result<()> {
        let with_states = self.needs_mask_head();
        let (own, mask_head) = (device_of(&self.encoder_decoder), device_of(&self.mask_head));
        let (own, mask_head) = (own.as_ref(), mask_head.as_ref());
        let engine = self.encoder_decoder.as_mut().expect("decode loads it");
        let b = &mut self.buffers;
        let mut state =
            if with_states { b.states.pop().unwrap_or_default() } else { StateTensors::default() };
        let mut outputs = vec![
            (tensor::LOGITS, &mut b.logits),
            (tensor::BOXES, &mut b.boxes),
            (tensor::PRESENCE, &mut b.presence),
        ];
        if with_states {
            let shared = own.filter(|_| own == mask_head);
            move_to(&mut state.queries, shared);
            move_to(&mut state.encoded, shared);
            outputs.extend([(tensor::QUERIES, &mut state.queries), (tensor::ENCODED, &mut state.encoded)]);
        }
        b.copies.copy_for(own, 2, &features.fpn[2])?;
        engine.run(
            &[
                (tensor::FPN[2], b.copies.readable_on(own, 2, &features.fpn[2])),
                (tensor::PROMPT_FEATURES, prompt_features),
                (tensor::PROMPT_MASK, prompt_mask),
            ],
            &mut outputs,
        )?;
        let known = states.len();
        let mut before = self.post.pending();
        let queries = b.logits.shape().get(1).copied().unwrap_or(0);
        let (logits, boxes, presence) = (b.logits.as_f32()?, b.boxes.as_f32()?, b.presence.as_f32()?);
        for (row, &class) in chunk.iter().enumerate() {
            self.post.push_chunk(&RawOutputs {
                first_class_id: class,
                labels: std::slice::from_ref(prompts.classes[class].prompt.label()),
                logits: &logits[row * queries..][..queries],
                boxes: &boxes[row * queries * 4..][..queries * 4],
                presence: Some(&presence[row..][..1]),
            })?;
            if with_states && self.post.pending() > before {
                let state = ClassState {
                    prompt_features: make_readable_on(mask_head, prompt_features.row(row)?)?,
                    prompt_mask: make_readable_on(mask_head, prompt_mask.row(row)?)?,
                    queries: state.queries.row(row)?,
                    encoded: state.encoded.row(row)?,
                };
                states.insert(class, state);
            }
            before = self.post.pending();
        }
        // Rows in host memory are copies, rows on a device share this memory.
        let in_use = if states.len() > known { &mut b.states_in_use } else { &mut b.states };
        if with_states {
            in_use.push(state);
        }
        Ok(())
    }

    /// Masks of the detections that were kept: their queries alone, one pass for each class that has any.
    fn fill_masks(
        &mut self,
        features: &ImageFeatures,
        states: &BTreeMap<usize, ClassState>,
        detections: &mut [Detection],
    ) -> Result<()> {
        let own = device_of(&self.mask_head);
        let own = own.as_ref();
        let engine = self.mask_head.as_mut().expect("decode loads it");
        let width = self.model.manifest().model_width;
        let side = 4 * self.model.manifest().grid();
        let fixed_queries = fixed(&**engine, tensor::QUERIES, 1);
        for (&class, state) in states {
            let kept: Vec<usize> =
                (0..detections.len()).filter(|&i| detections[i].class_id == class).collect();
            // One that always takes as many is given as many; the last is repeated where there are fewer.
            let size = fixed_queries.unwrap_or(kept.len()).max(1);
            for (part, kept) in kept.chunks(size).enumerate() {
                let b = &mut self.buffers;
                let rows = fixed_queries.unwrap_or(kept.len());
                move_to(&mut b.queries, state.queries.device());
                b.queries.reset_to(ElementType::F32, &[1, rows, width])?;
                for row in 0..rows {
                    let i = kept[row.min(kept.len() - 1)];
                    b.queries.copy_elements(
                        row * width,
                        &state.queries,
                        b.candidates[i].query * width,
                        width,
                    )?;
                }
                let semantic = self.semantic_maps && part == 0;
                let mut outputs = Vec::new();
                if self.masks {
                    outputs.push((tensor::MASKS, &mut b.masks));
                }
                if semantic {
                    outputs.push((tensor::SEMANTIC, &mut b.semantic));
                }
                if outputs.is_empty() {
                    continue;
                }
                b.copies.copy_for(own, 0, &features.fpn[0])?;
                b.copies.copy_for(own, 1, &features.fpn[1])?;
                engine.run(
                    &[
                        (tensor::FPN[0], b.copies.readable_on(own, 0, &features.fpn[0])),
                        (tensor::FPN[1], b.copies.readable_on(own, 1, &features.fpn[1])),
                        (tensor::ENCODED, &state.encoded),
                        (tensor::PROMPT_FEATURES, &state.prompt_features),
                        (tensor::PROMPT_MASK, &state.prompt_mask),
                        (tensor::QUERIES, &b.queries),
                    ],
                    &mut outputs,
                )?;
                if self.masks {
                    let logits = b.masks.as_f32()?.chunks_exact(side * side);
                    for (&i, logits) in kept.iter().zip(logits) {
                        detections[i].mask = Some(self.resampler.run(logits, (side, side), features.size)?);
                    }
                }
                if semantic {
                    let mask = self.resampler.run(b.semantic.as_f32()?, (side, side), features.size)?;
                    let label = detections[kept[0]].label.clone();
                    self.semantic.push(SemanticMap { class_id: class, label, mask });
                }
            }
        }
        Ok(())
    }
}

/// The device that an engine runs on.
fn device_of(engine: &Option<Box<dyn Engine>>) -> Option<Device> {
    engine.as_ref().and_then(Engine::device)
}
