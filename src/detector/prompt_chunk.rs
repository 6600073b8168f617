//! The prompts of the classes that are decoded at once, as the encoder-decoder takes them.

use std::sync::Arc;

use ocelli_engines::{Device, Dim, ElementType, Engine, Tensor};
use ocelli_export::contract::{Manifest, Prompting, tensor};

use super::text::{EmbeddedPrompt, TextFeatures};
use ocelli_error::{Error, ErrorKind, Result};

/// Chunks that are kept on a device at least, with what they hold there; one of four classes takes 135 KB.
const KEPT_CHUNKS: usize = 64;

/// The shape of a chunk's prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkShape {
    /// C: the chunk's classes, or as many as the engine always takes.
    pub(super) rows: usize,
    /// L.
    pub(super) words: usize,
    /// What comes after the words: the CLS token, or the examples and it.
    pub(super) appended: usize,
    /// T: both, or as many as the engine always takes.
    pub(super) tokens: usize,
    /// D.
    pub(super) width: usize,
}

impl ChunkShape {
    /// Of a chunk of `classes` with `examples` each; an error where the engine's own sizes are fixed and smaller.
    pub(super) fn new(
        manifest: &Manifest,
        engine: &dyn Engine,
        classes: usize,
        examples: usize,
    ) -> Result<Self> {
        let (width, words) = (manifest.model_width, manifest.context_length);
        let appended = match (examples, manifest.prompting) {
            (0, Prompting::Official) => 1,
            (0, Prompting::Text) => 0,
            (n, _) => n + 1,
        };
        let tokens = fixed(engine, tensor::PROMPT_MASK, 1).unwrap_or(words + appended);
        if tokens < words + appended {
            let most = tokens.saturating_sub(words + 1);
            let message = format!(
                "{examples} examples of one class: this engine takes {most} at most; leave some out, or take another \
                 --engine"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let rows = fixed(engine, tensor::PROMPT_MASK, 0).unwrap_or(classes);
        Ok(Self { rows, words, appended, tokens, width })
    }

    /// Where a row's appended part begins, in elements of the prompt features.
    pub(super) fn appended_at(&self, row: usize) -> usize {
        (row * self.tokens + self.words) * self.width
    }

    /// In elements.
    pub(super) fn appended_len(&self) -> usize {
        self.appended * self.width
    }

    /// Writes words and masks of a chunk; what is appended is zero until it is written too. Rows and tokens that only
    /// fill the engine's sizes up repeat the first class, and are masked.
    pub(super) fn fill(&self, classes: &[&EmbeddedPrompt], features: &mut Tensor, mask: &mut Tensor) {
        let Self { rows, words, appended, tokens, width } = *self;
        let features = features.reset_f32(&[rows, tokens, width]).chunks_exact_mut(tokens * width);
        let mask = mask.reset_i64(&[rows, tokens]).chunks_exact_mut(tokens);
        for (row, (features, mask)) in features.zip(mask).enumerate() {
            let class = classes.get(row).unwrap_or(&classes[0]);
            features[..words * width].copy_from_slice(&class.text.features);
            features[words * width..].fill(0.0);
            mask[..words].copy_from_slice(&class.text.mask);
            mask[words..words + appended].fill(1);
            mask[words + appended..].fill(0);
        }
    }
}

/// The size of an input's axis, where the engine has it fixed.
pub(super) fn fixed(engine: &dyn Engine, input: &str, axis: usize) -> Option<usize> {
    match engine.spec().input(input)?.shape.get(axis)? {
        Dim::Fixed(size) => Some(*size),
        Dim::Named(_) => None,
    }
}

/// Chunks on a device: their words and masks cross once, and then lie there for the next image.
pub(super) struct ChunksOnDevice {
    device: Device,
    chunks: Vec<ChunkOnDevice>,
    /// Where the next chunk is looked for first: classes come in the same order in every image.
    next: usize,
    clock: u64,
}

/// A chunk's prompts; the features end in what was appended last.
pub(super) struct ChunkOnDevice {
    shape: ChunkShape,
    /// Words, and examples that were looked at before; kept, so that nothing else gets their address.
    classes: Vec<(Arc<TextFeatures>, Option<Arc<[f32]>>)>,
    /// `[C, T, D]`.
    pub(super) features: Tensor,
    /// `[C, T]`.
    pub(super) mask: Tensor,
    used: u64,
}

impl ChunksOnDevice {
    pub(super) fn new(device: Device) -> Self {
        Self { device, chunks: Vec::new(), next: 0, clock: 0 }
    }

    /// Another image.
    pub(super) fn begin(&mut self) {
        (self.next, self.clock) = (0, self.clock + 1);
    }

    /// The chunk of these classes, copied to the device where it does not lie there already; `host` is two tensors to
    /// make it in.
    pub(super) fn find_or_make(
        &mut self,
        shape: ChunkShape,
        classes: &[&EmbeddedPrompt],
        host: (&mut Tensor, &mut Tensor),
    ) -> Result<&mut ChunkOnDevice> {
        let is_it = |chunk: &ChunkOnDevice| {
            chunk.shape == shape && chunk.classes.len() == classes.len() && {
                chunk.classes.iter().zip(classes).all(|((text, examples), class)| {
                    let same = match (examples, &class.kept_examples) {
                        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                        (None, None) => true,
                        _ => false,
                    };
                    same && Arc::ptr_eq(text, &class.text)
                })
            }
        };
        let count = self.chunks.len();
        let order = (0..count).map(|step| (self.next + step) % count);
        let index = match order.into_iter().find(|&index| is_it(&self.chunks[index])) {
            Some(index) => index,
            None => self.make(shape, classes, host)?,
        };
        (self.next, self.chunks[index].used) = (index + 1, self.clock);
        Ok(&mut self.chunks[index])
    }

    fn make(
        &mut self,
        shape: ChunkShape,
        classes: &[&EmbeddedPrompt],
        (features, mask): (&mut Tensor, &mut Tensor),
    ) -> Result<usize> {
        shape.fill(classes, features, mask);
        for (row, class) in classes.iter().enumerate() {
            if let Some(examples) = &class.kept_examples {
                features.as_f32_mut()?[shape.appended_at(row)..][..examples.len()].copy_from_slice(examples);
            }
        }
        let index = self.place()?;
        let chunk = &mut self.chunks[index];
        // It is nobody's until all of it is there.
        chunk.classes.clear();
        chunk.features.copy_from_host(features)?;
        chunk.mask.copy_from_host(mask)?;
        chunk.classes.extend(classes.iter().map(|class| (class.text.clone(), class.kept_examples.clone())));
        chunk.shape = shape;
        Ok(index)
    }

    /// A place for a chunk: a new one, or that of the one that was not used for longest, if there are many.
    fn place(&mut self) -> Result<usize> {
        let oldest = (0..self.chunks.len()).min_by_key(|&index| self.chunks[index].used);
        if let Some(oldest) = oldest
            .filter(|&oldest| self.chunks.len() >= KEPT_CHUNKS && self.chunks[oldest].used + 1 < self.clock)
        {
            return Ok(oldest);
        }
        let tensor = |element_type| -> Result<Tensor> {
            let mut tensor = Tensor::on(self.device.clone());
            tensor.reset_to(element_type, &[0])?;
            Ok(tensor)
        };
        let shape = ChunkShape { rows: 0, words: 0, appended: 0, tokens: 0, width: 0 };
        self.chunks.push(ChunkOnDevice {
            shape,
            classes: Vec::new(),
            features: tensor(ElementType::F32)?,
            mask: tensor(ElementType::I64)?,
            used: self.clock,
        });
        Ok(self.chunks.len() - 1)
    }
}
