//! The half that knows what is looked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::{Prompting, file, tensor};

use super::encode::ImageFeatures;
use super::text::{EmbeddedPrompt, EmbeddedPrompts};
use super::{StageTimes, milliseconds};
use crate::detection::Detection;
use crate::engine::EngineFactory;
use crate::error::{Error, ErrorKind, Result};
use crate::mask::MaskResampler;
use crate::model::Model;
use crate::postprocess::{Candidate, PostProcessor, RawOutputs};

/// Encoder-decoder, exemplar encoder, mask head, and what becomes of their outputs.
pub struct PromptDecoder {
    model: Model,
    factory: EngineFactory,
    post: PostProcessor,
    class_chunk: usize,
    masks: bool,
    encoder_decoder: Option<Box<dyn Engine>>,
    exemplar_encoder: Option<Box<dyn Engine>>,
    mask_head: Option<Box<dyn Engine>>,
    resampler: MaskResampler,
    buffers: Buffers,
}

/// Tensors that go round from image to image.
struct Buffers {
    prompt_features: Tensor,
    prompt_mask: Tensor,
    logits: Tensor,
    boxes: Tensor,
    presence: Tensor,
    queries: Tensor,
    encoded: Tensor,
    exemplar_boxes: Tensor,
    exemplar_labels: Tensor,
    exemplar_features: Tensor,
    masks: Tensor,
    candidates: Vec<Candidate>,
}

impl Default for Buffers {
    fn default() -> Self {
        let empty = Tensor::empty;
        Self {
            prompt_features: empty(),
            prompt_mask: empty(),
            logits: empty(),
            boxes: empty(),
            presence: empty(),
            queries: empty(),
            encoded: empty(),
            exemplar_boxes: empty(),
            exemplar_labels: empty(),
            exemplar_features: empty(),
            masks: empty(),
            candidates: Vec::new(),
        }
    }
}

/// What the mask head needs of a class that has candidates.
struct ClassState {
    prompt_features: Tensor,
    prompt_mask: Tensor,
    queries: Vec<f32>,
    encoded: Tensor,
}

impl PromptDecoder {
    pub(super) fn new(
        model: &Model,
        factory: EngineFactory,
        post: PostProcessor,
        class_chunk: usize,
        masks: bool,
    ) -> Self {
        Self {
            model: model.clone(),
            factory,
            post,
            class_chunk,
            masks,
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
        if self.masks && self.mask_head.is_none() {
            self.mask_head = Some(self.model.load_graph(&self.factory, file::MASK_HEAD)?);
        }
        Ok(())
    }

    /// Features and prompts → detections, the highest score first; the times of the stages are added to `times`.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when a graph fails or returns numbers that are none, [`ErrorKind::InvalidArgument`] for an
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
        let mut states: BTreeMap<usize, ClassState> = BTreeMap::new();
        // Classes of one chunk have prompts of one length, so that nothing is padded.
        let mut by_examples: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let wanted = |class: &usize| classes.is_none_or(|classes| classes.contains(class));
        for class in (0..known).filter(wanted) {
            by_examples.entry(prompts.classes[class].prompt.exemplars().len()).or_default().push(class);
        }
        for (examples, classes) in by_examples {
            for chunk in classes.chunks(self.class_chunk) {
                self.fill_prompts(features, prompts, chunk, examples)?;
                self.run_chunk(features, prompts, chunk, &mut states)?;
            }
        }
        self.post.finish_into(&mut self.buffers.candidates);
        let label = |c: &Candidate| prompts.classes[c.class_id].prompt.label().clone();
        detections.extend(self.buffers.candidates.iter().map(|c| Detection::from_candidate(c, label(c))));
        times.decode += milliseconds(start);
        if self.masks {
            let start = Instant::now();
            self.fill_masks(features, &states, detections)?;
            times.masks += milliseconds(start);
        }
        Ok(())
    }

    /// The prompts of a chunk: words, then the CLS token or the examples.
    fn fill_prompts(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        chunk: &[usize],
        examples: usize,
    ) -> Result<()> {
        let manifest = self.model.manifest();
        let (width, words) = (manifest.model_width, manifest.context_length);
        let more = match (examples, manifest.prompting) {
            (0, Prompting::Official) => 1,
            (0, Prompting::Text) => 0,
            (n, _) => n + 1,
        };
        let tokens = words + more;
        self.buffers.prompt_features.reset_f32(&[chunk.len(), tokens, width]);
        self.buffers.prompt_mask.reset_i64(&[chunk.len(), tokens]).fill(1);
        for (row, &class) in chunk.iter().enumerate() {
            let embedded = &prompts.classes[class];
            if examples > 0 {
                self.encode_exemplars(features, embedded)?;
            }
            let appended = match (more, examples) {
                (0, _) => &[][..],
                (_, 0) => features.image_prompt.as_f32()?,
                _ => self.buffers.exemplar_features.as_f32()?,
            };
            let target =
                &mut self.buffers.prompt_features.as_f32_mut()?[row * tokens * width..][..tokens * width];
            target[..words * width].copy_from_slice(&embedded.text.features);
            target[words * width..].copy_from_slice(appended);
            self.buffers.prompt_mask.as_i64_mut()?[row * tokens..][..words]
                .copy_from_slice(&embedded.text.mask);
        }
        Ok(())
    }

    fn encode_exemplars(&mut self, features: &ImageFeatures, embedded: &EmbeddedPrompt) -> Result<()> {
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
        engine.run(
            &[
                (tensor::FPN[2], &features.fpn[2]),
                (tensor::BOXES, &self.buffers.exemplar_boxes),
                (tensor::BOX_LABELS, &self.buffers.exemplar_labels),
            ],
            &mut [(tensor::EXEMPLAR_FEATURES, &mut self.buffers.exemplar_features)],
        )?;
        Ok(())
    }

    /// Runs the encoder-decoder over a chunk and pushes its classes into the post-processor.
    fn run_chunk(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        chunk: &[usize],
        states: &mut BTreeMap<usize, ClassState>,
    ) -> Result<()> {
        let engine = self.encoder_decoder.as_mut().expect("decode loads it");
        let b = &mut self.buffers;
        let mut outputs = vec![
            (tensor::LOGITS, &mut b.logits),
            (tensor::BOXES, &mut b.boxes),
            (tensor::PRESENCE, &mut b.presence),
        ];
        if self.masks {
            outputs.extend([(tensor::QUERIES, &mut b.queries), (tensor::ENCODED, &mut b.encoded)]);
        }
        engine.run(
            &[
                (tensor::FPN[2], &features.fpn[2]),
                (tensor::PROMPT_FEATURES, &b.prompt_features),
                (tensor::PROMPT_MASK, &b.prompt_mask),
            ],
            &mut outputs,
        )?;
        let queries = self.model.manifest().num_queries;
        let (logits, boxes, presence) = (b.logits.as_f32()?, b.boxes.as_f32()?, b.presence.as_f32()?);
        for (row, &class) in chunk.iter().enumerate() {
            let labels: [Arc<str>; 1] = [prompts.classes[class].prompt.label().clone()];
            let before = self.post.pending();
            self.post.push_chunk(&RawOutputs {
                first_class_id: class,
                labels: &labels,
                logits: &logits[row * queries..][..queries],
                boxes: &boxes[row * queries * 4..][..queries * 4],
                presence: Some(&presence[row..][..1]),
            })?;
            if self.masks && self.post.pending() > before {
                states.insert(
                    class,
                    ClassState {
                        prompt_features: row_of(&b.prompt_features, row)?,
                        prompt_mask: {
                            let tokens = b.prompt_mask.shape()[1];
                            Tensor::i64(
                                &[1, tokens],
                                b.prompt_mask.as_i64()?[row * tokens..][..tokens].to_vec(),
                            )?
                        },
                        queries: row_of(&b.queries, row)?.as_f32()?.to_vec(),
                        encoded: row_of(&b.encoded, row)?,
                    },
                );
            }
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
        let engine = self.mask_head.as_mut().expect("decode loads it");
        let width = self.model.manifest().model_width;
        let side = 4 * self.model.manifest().grid();
        for (&class, state) in states {
            let kept: Vec<usize> =
                (0..detections.len()).filter(|&i| detections[i].class_id == class).collect();
            if kept.is_empty() {
                continue;
            }
            let rows = kept
                .iter()
                .flat_map(|&i| &state.queries[self.buffers.candidates[i].query * width..][..width]);
            let queries = Tensor::f32(&[1, kept.len(), width], rows.copied().collect())?;
            engine.run(
                &[
                    (tensor::FPN[0], &features.fpn[0]),
                    (tensor::FPN[1], &features.fpn[1]),
                    (tensor::ENCODED, &state.encoded),
                    (tensor::PROMPT_FEATURES, &state.prompt_features),
                    (tensor::PROMPT_MASK, &state.prompt_mask),
                    (tensor::QUERIES, &queries),
                ],
                &mut [(tensor::MASKS, &mut self.buffers.masks)],
            )?;
            let logits = self.buffers.masks.as_f32()?.chunks_exact(side * side);
            for (&i, logits) in kept.iter().zip(logits) {
                detections[i].mask = Some(self.resampler.run(logits, (side, side), features.size)?);
            }
        }
        Ok(())
    }
}

/// One row of a batch, as a batch of one.
fn row_of(batch: &Tensor, row: usize) -> Result<Tensor> {
    let mut shape = batch.shape().to_vec();
    let size: usize = shape[1..].iter().product();
    shape[0] = 1;
    Ok(Tensor::f32(&shape, batch.as_f32()?[row * size..][..size].to_vec())?)
}
