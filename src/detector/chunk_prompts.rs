//! The prompts of the classes that are decoded at once, as inputs of the encoder-decoder.

use std::sync::Arc;

use ocelli_engines::{Device, ElementType, Engine, Tensor};
use ocelli_export::contract::{Manifest, Prompting, tensor};

use super::engine_io::fixed_size;
use super::text::EmbeddedPrompt;
use crate::text_cache::TextFeatures;
use ocelli_error::{Result, refuse};

/// Chunks that stay on a device for the next image; one of four classes takes 135 KB. An image with more chunks keeps all
/// of its own.
const KEPT_CHUNKS: usize = 64;

/// The shape of a chunk's prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkShape {
    /// C: the chunk's classes, or the engine's fixed number.
    rows: usize,
    /// L.
    text_tokens: usize,
    /// The tokens after the text: the CLS token, or the exemplars and the CLS token.
    appended: usize,
    /// T: the sum, or the engine's fixed number.
    tokens: usize,
    /// D.
    width: usize,
}

impl ChunkShape {
    /// The shape for `classes` with `exemplars` each.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the engine's number of tokens is fixed and too
    /// small.
    pub(super) fn new(
        manifest: &Manifest,
        engine: &dyn Engine,
        classes: usize,
        exemplars: usize,
    ) -> Result<Self> {
        let (width, text_tokens) = (manifest.model_width, manifest.context_length);
        let appended = match (exemplars, manifest.prompting) {
            (0, Prompting::Official) => 1,
            (0, Prompting::Text) => 0,
            (n, _) => n + 1,
        };
        let tokens = fixed_size(engine, tensor::PROMPT_MASK, 1).unwrap_or(text_tokens + appended);
        if tokens < text_tokens + appended {
            let most = tokens.saturating_sub(text_tokens + 1);
            refuse!(
                "{exemplars} exemplars of one class: the engine takes at most {most}; remove some, or choose another \
                 engine"
            );
        }
        let rows = fixed_size(engine, tensor::PROMPT_MASK, 0).unwrap_or(classes);
        Ok(Self { rows, text_tokens, appended, tokens, width })
    }

    /// The position of a row's appended part in the prompt features, in elements.
    pub(super) fn appended_at(&self, row: usize) -> usize {
        (row * self.tokens + self.text_tokens) * self.width
    }

    /// The length of a row's appended part, in elements.
    pub(super) fn appended_len(&self) -> usize {
        self.appended * self.width
    }

    /// Writes text features, kept exemplars and masks. The rest of the appended part is zero. Rows and tokens that only pad
    /// to the engine's fixed numbers repeat the first class and are masked.
    fn fill(&self, classes: &[&EmbeddedPrompt], features: &mut Tensor, mask: &mut Tensor) {
        let Self { rows, text_tokens, appended, tokens, width } = *self;
        let features = features.reset_f32(&[rows, tokens, width]).chunks_exact_mut(tokens * width);
        let mask = mask.reset::<i64>(&[rows, tokens]).chunks_exact_mut(tokens);
        for (row, (features, mask)) in features.zip(mask).enumerate() {
            let class = classes.get(row).unwrap_or(&classes[0]);
            let (text, rest) = features.split_at_mut(text_tokens * width);
            text.copy_from_slice(&class.text.features);
            rest.fill(0.0);
            if let Some(exemplars) = class.kept_exemplars.as_ref().filter(|_| row < classes.len()) {
                rest[..exemplars.len()].copy_from_slice(exemplars);
            }
            mask[..text_tokens].copy_from_slice(&class.text.mask);
            mask[text_tokens..text_tokens + appended].fill(1);
            mask[text_tokens + appended..].fill(0);
        }
    }
}

/// The prompts of chunks: in host memory one chunk at a time, on a device many, which are uploaded once and stay for the
/// next images.
pub(super) struct ChunkPrompts {
    device: Option<Device>,
    /// Features `[C, T, D]` and mask `[C, T]` in host memory.
    host: (Tensor, Tensor),
    chunks: Vec<ChunkOnDevice>,
    /// The index from which the next chunk is searched: classes come in the same order in every image.
    next: usize,
    /// The number of images so far.
    clock: u64,
}

/// The prompts of one chunk.
struct ChunkOnDevice {
    shape: ChunkShape,
    /// The text and the kept exemplars of each class. Holding them keeps their addresses from being reused.
    classes: Vec<(Arc<TextFeatures>, Option<Arc<[f32]>>)>,
    features: Tensor,
    mask: Tensor,
    /// The image that used it last.
    used: u64,
}

impl ChunkOnDevice {
    fn holds(&self, shape: ChunkShape, classes: &[&EmbeddedPrompt]) -> bool {
        let address = |exemplars: &Option<Arc<[f32]>>| exemplars.as_ref().map(Arc::as_ptr);
        let same = self.classes.iter().zip(classes).filter(|((text, exemplars), class)| {
            Arc::ptr_eq(text, &class.text) && address(exemplars) == address(&class.kept_exemplars)
        });
        self.shape == shape && self.classes.len() == classes.len() && same.count() == classes.len()
    }
}

impl ChunkPrompts {
    /// Prompts for an encoder-decoder on `device`. They are in host memory if a part of a tensor cannot be written there: what
    /// depends on the image is written into them for every image.
    pub(super) fn new(device: Option<Device>) -> Self {
        let device = device.filter(Device::has_addresses);
        let host = (Tensor::empty(), Tensor::empty());
        Self { device, host, chunks: Vec::new(), next: 0, clock: 0 }
    }

    /// Starts the next image.
    pub(super) fn begin(&mut self) {
        (self.next, self.clock) = (0, self.clock + 1);
    }

    /// The features and the mask of these classes. What depends on the image, the CLS token and the exemplars that are boxes
    /// in it, is left from an earlier image or zero.
    pub(super) fn prepare(
        &mut self,
        shape: ChunkShape,
        classes: &[&EmbeddedPrompt],
    ) -> Result<(&mut Tensor, &Tensor)> {
        let Some(device) = &self.device else {
            shape.fill(classes, &mut self.host.0, &mut self.host.1);
            return Ok((&mut self.host.0, &self.host.1));
        };
        let count = self.chunks.len();
        let mut order = (0..count).map(|step| (self.next + step) % count);
        let index = match order.find(|&index| self.chunks[index].holds(shape, classes)) {
            Some(index) => index,
            None => {
                shape.fill(classes, &mut self.host.0, &mut self.host.1);
                let index = place(&mut self.chunks, device, shape, self.clock)?;
                let chunk = &mut self.chunks[index];
                // It holds no classes until it is complete.
                chunk.classes.clear();
                chunk.features.copy_from_host(&self.host.0)?;
                chunk.mask.copy_from_host(&self.host.1)?;
                let of_class = |class: &&EmbeddedPrompt| (class.text.clone(), class.kept_exemplars.clone());
                chunk.classes.extend(classes.iter().map(of_class));
                chunk.shape = shape;
                index
            }
        };
        self.next = index + 1;
        let chunk = &mut self.chunks[index];
        chunk.used = self.clock;
        Ok((&mut chunk.features, &chunk.mask))
    }
}

/// The index for another chunk: a new one, or that of the least recently used one if there are many.
fn place(chunks: &mut Vec<ChunkOnDevice>, device: &Device, shape: ChunkShape, clock: u64) -> Result<usize> {
    let oldest = (0..chunks.len()).min_by_key(|&index| chunks[index].used);
    // The previous image may still be in use on the device.
    let is_free = |index: &usize| chunks.len() >= KEPT_CHUNKS && chunks[*index].used + 1 < clock;
    if let Some(oldest) = oldest.filter(is_free) {
        return Ok(oldest);
    }
    let (mut features, mut mask) = (Tensor::on(device.clone()), Tensor::on(device.clone()));
    features.reset_to(ElementType::F32, &[0])?;
    mask.reset_to(ElementType::I64, &[0])?;
    chunks.push(ChunkOnDevice { shape, classes: Vec::new(), features, mask, used: clock });
    Ok(chunks.len() - 1)
}
