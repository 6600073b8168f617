//! The mask head.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ocelli_engines::{ElementType, Engine, Tensor};
use ocelli_export::contract::{file, tensor};

use super::engine_io::{fixed_size, move_to, readable_on};
use super::features::{HostCopies, ImageFeatures};
use super::text::EmbeddedPrompts;
use crate::cancellation::Cancellation;
use crate::engine::EngineFactory;
use crate::mask::{Mask, MaskResampler, SemanticMap};
use crate::model::Model;
use crate::postprocess::Candidate;
use crate::timing::{Instant, StageTimes, milliseconds_since};
use ocelli_error::Result;

/// The outputs of the mask head.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskOutputs {
    pub(super) masks: bool,
    pub(super) semantic_maps: bool,
}

impl MaskOutputs {
    pub(super) fn any(self) -> bool {
        self.masks || self.semantic_maps
    }
}

/// The encoder-decoder's outputs for the mask head.
pub(super) struct MaskInputs {
    /// `[C, Q, D]`.
    pub(super) queries: Tensor,
    /// `[C, P·P, D]`.
    pub(super) encoded: Tensor,
}

/// The inputs of the mask head for one class, in memory that it can read.
struct ClassInputs {
    prompt_features: Tensor,
    prompt_mask: Tensor,
    queries: Tensor,
    encoded: Tensor,
}

/// Computes the masks and semantic maps of an image. The buffers are reused.
pub(super) struct MaskHead {
    pub(super) engine: Box<dyn Engine>,
    outputs: MaskOutputs,
    /// D.
    width: usize,
    /// Side of the masks that the engine returns.
    side: usize,
    /// Classes whose masks have not been computed.
    classes: BTreeMap<usize, ClassInputs>,
    queries: Tensor,
    mask_logits: Tensor,
    semantic_logits: Tensor,
    resampler: MaskResampler,
    /// Keeps logits as they are, in place of masks of the image's size.
    keeps_logits: bool,
    /// By class and query.
    pub(super) logits: BTreeMap<(usize, usize), Vec<f32>>,
    /// By class and query.
    pub(super) masks: BTreeMap<(usize, usize), Mask>,
    pub(super) semantic_maps: Vec<SemanticMap>,
}

impl MaskHead {
    pub(super) fn load(model: &Model, factory: &EngineFactory, outputs: MaskOutputs) -> Result<Self> {
        let [queries, mask_logits, semantic_logits] = [Tensor::empty(), Tensor::empty(), Tensor::empty()];
        Ok(Self {
            engine: model.load_graph(factory, file::MASK_HEAD)?,
            outputs,
            width: model.manifest().model_width,
            side: 4 * model.manifest().grid(),
            classes: BTreeMap::new(),
            queries,
            mask_logits,
            semantic_logits,
            resampler: MaskResampler::new(),
            keeps_logits: false,
            logits: BTreeMap::new(),
            masks: BTreeMap::new(),
            semantic_maps: Vec::new(),
        })
    }

    /// Starts the next image.
    pub(super) fn begin(&mut self, keeps_logits: bool) {
        self.keeps_logits = keeps_logits;
        self.classes.clear();
        self.masks.clear();
        self.logits.clear();
        self.semantic_maps.clear();
    }

    /// Keeps what a class needs until its masks are computed: one row of the encoder-decoder's inputs and outputs.
    pub(super) fn keep(
        &mut self,
        class: usize,
        row: usize,
        (prompt_features, prompt_mask): (&Tensor, &Tensor),
        inputs: &MaskInputs,
    ) -> Result<()> {
        let device = self.engine.device();
        let inputs = ClassInputs {
            prompt_features: readable_on(device.as_ref(), Cow::Owned(prompt_features.row(row)?))?
                .into_owned(),
            prompt_mask: readable_on(device.as_ref(), Cow::Owned(prompt_mask.row(row)?))?.into_owned(),
            queries: inputs.queries.row(row)?,
            encoded: inputs.encoded.row(row)?,
        };
        self.classes.insert(class, inputs);
        Ok(())
    }

    /// Drops kept classes without candidates.
    pub(super) fn keep_classes_of(&mut self, candidates: &[Candidate]) {
        self.classes.retain(|class, _| candidates.iter().any(|candidate| candidate.class_id == *class));
    }

    /// Computes the masks of `candidates` that are of kept classes, one pass for each class, and drops the classes. Adds
    /// the time to `times`.
    pub(super) fn run(
        &mut self,
        image: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        candidates: &[Candidate],
        (copies, cancellation): (&mut HostCopies, &Cancellation),
        times: &mut StageTimes,
    ) -> Result<()> {
        let start = Instant::now();
        while let Some((class, inputs)) = self.classes.pop_first() {
            cancellation.check()?;
            let of_class = candidates.iter().filter(|candidate| candidate.class_id == class);
            let queries: Vec<usize> = of_class.map(|candidate| candidate.query).collect();
            if !queries.is_empty() {
                self.run_class(image, prompts, (class, &inputs), &queries, copies)?;
            }
        }
        times.masks += milliseconds_since(start);
        Ok(())
    }

    fn run_class(
        &mut self,
        image: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        (class, inputs): (usize, &ClassInputs),
        kept: &[usize],
        copies: &mut HostCopies,
    ) -> Result<()> {
        let device = self.engine.device();
        let device = device.as_ref();
        let (width, side) = (self.width, self.side);
        let [fine, middle] = copies.readable_on(device, image, [0, 1])?;
        // A fixed number of queries is reached by repeating the last one.
        let fixed = fixed_size(&*self.engine, tensor::QUERIES, 1);
        let rows = fixed.unwrap_or(kept.len());
        let passes = if self.outputs.masks { usize::MAX } else { 1 };
        for (pass, kept) in kept.chunks(rows.max(1)).take(passes).enumerate() {
            move_to(&mut self.queries, inputs.queries.device());
            self.queries.reset_to(ElementType::F32, &[1, rows, width])?;
            for row in 0..rows {
                let query = kept[row.min(kept.len() - 1)];
                self.queries.copy_elements(row * width, &inputs.queries, query * width, width)?;
            }
            let semantic = self.outputs.semantic_maps && pass == 0;
            let mut outputs = Vec::new();
            if self.outputs.masks {
                outputs.push((tensor::MASKS, &mut self.mask_logits));
            }
            if semantic {
                outputs.push((tensor::SEMANTIC, &mut self.semantic_logits));
            }
            self.engine.run(
                &[
                    (tensor::FPN[0], fine),
                    (tensor::FPN[1], middle),
                    (tensor::ENCODED, &inputs.encoded),
                    (tensor::PROMPT_FEATURES, &inputs.prompt_features),
                    (tensor::PROMPT_MASK, &inputs.prompt_mask),
                    (tensor::QUERIES, &self.queries),
                ],
                &mut outputs,
            )?;
            if self.outputs.masks {
                let logits = self.mask_logits.as_f32()?.chunks_exact(side * side);
                for (&query, logits) in kept.iter().zip(logits) {
                    if self.keeps_logits {
                        self.logits.insert((class, query), logits.to_vec());
                        continue;
                    }
                    let mask = self.resampler.run(logits, (side, side), image.size)?;
                    self.masks.insert((class, query), mask);
                }
            }
            if semantic {
                let logits = self.semantic_logits.as_f32()?;
                let mask = self.resampler.run(logits, (side, side), image.size)?;
                let label = prompts.classes[class].prompt.label().clone();
                self.semantic_maps.push(SemanticMap { class_id: class, label, mask });
            }
        }
        Ok(())
    }
}
