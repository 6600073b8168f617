//! Running the graphs over an input.

use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::{Manifest, Prompting, tensor};

use super::Output;
use super::inputs::{Input, Words};
use ocelli::ModelGraph;
use ocelli::{Error, ErrorKind, Result};

/// Classes whose encoded image and queries are compared: they are large.
const CLASSES_WITH_STATES: usize = 2;

/// Phrases encoded at once.
const PHRASES_AT_ONCE: usize = 16;

/// Queries whose masks are compared.
const MASKS: usize = 3;

/// Two examples, cxcywh in 0..1, one wanted and one not.
const EXAMPLES: ([f32; 8], [i64; 2]) = ([0.3, 0.4, 0.2, 0.3, 0.7, 0.6, 0.25, 0.2], [1, 0]);

/// What the graphs said of one input.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) features: Features,
    pub(super) exemplars: Option<Tensor>,
    pub(super) heads: Heads,
    /// Masks and the semantic map.
    pub(super) masks: Option<[Tensor; 2]>,
}

/// What the backbone said.
#[derive(Debug, Default)]
pub(super) struct Features {
    /// Fine to coarse; the fine ones only where the model has them.
    pub(super) fpn: [Option<Tensor>; 3],
    pub(super) image_prompt: Option<Tensor>,
}

/// What the encoder-decoder said, all classes of the input together.
#[derive(Debug)]
pub(super) struct Heads {
    /// `[class, query]`.
    pub(super) logits: Tensor,
    /// `[class, query, xyxy]`.
    pub(super) boxes: Tensor,
    /// `[class, 1]`.
    pub(super) presence: Tensor,
    /// `[class, query, D]` of the first classes, where the graph has them.
    pub(super) queries: Option<Tensor>,
    /// `[class, P·P, D]` of the first classes, where the graph has them.
    pub(super) encoded: Option<Tensor>,
}

impl Default for Heads {
    fn default() -> Self {
        let empty = Tensor::empty;
        Self { logits: empty(), boxes: empty(), presence: empty(), queries: None, encoded: None }
    }
}

impl Pass {
    /// Everything that is compared, in the order it is computed.
    pub(super) fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        use ModelGraph::{Backbone, EncoderDecoder, ExemplarEncoder, MaskHead};
        let fpn = self.features.fpn.iter().zip(tensor::FPN);
        let mut all: Vec<(ModelGraph, &'static str, Option<&Tensor>)> =
            fpn.map(|(level, name)| (Backbone, name, level.as_ref())).collect();
        let [masks, semantic] = self.masks.as_ref().map_or([None, None], |[a, b]| [Some(a), Some(b)]);
        all.extend([
            (Backbone, tensor::IMAGE_PROMPT, self.features.image_prompt.as_ref()),
            (ExemplarEncoder, tensor::EXEMPLAR_FEATURES, self.exemplars.as_ref()),
            (EncoderDecoder, tensor::LOGITS, Some(&self.heads.logits)),
            (EncoderDecoder, tensor::BOXES, Some(&self.heads.boxes)),
            (EncoderDecoder, tensor::PRESENCE, Some(&self.heads.presence)),
            (EncoderDecoder, tensor::QUERIES, self.heads.queries.as_ref()),
            (EncoderDecoder, tensor::ENCODED, self.heads.encoded.as_ref()),
            (MaskHead, tensor::MASKS, masks),
            (MaskHead, tensor::SEMANTIC, semantic),
        ]);
        all.into_iter()
            .filter_map(|(graph, name, tensor)| tensor.map(|tensor| Output { graph, name, tensor }))
    }
}

/// Token numbers → text features.
pub(super) fn encode_words(engine: &mut dyn Engine, manifest: &Manifest, mut words: Words) -> Result<Words> {
    let (count, length, width) = (words.ids.shape()[0], manifest.context_length, manifest.model_width);
    let mut features = Vec::with_capacity(count * length * width);
    for first in (0..count).step_by(PHRASES_AT_ONCE) {
        let rows = PHRASES_AT_ONCE.min(count - first);
        let part = |tensor: &Tensor| -> Result<Tensor> {
            Ok(Tensor::i64(&[rows, length], tensor.as_i64()?[first * length..][..rows * length].to_vec())?)
        };
        let (ids, mask, mut out) = (part(&words.ids)?, part(&words.mask)?, Tensor::empty());
        let inputs = [(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)];
        engine.run(&inputs, &mut [(tensor::TEXT_FEATURES, &mut out)])?;
        features.extend_from_slice(out.as_f32()?);
    }
    words.features = Tensor::f32(&[count, length, width], features)?;
    Ok(words)
}

/// Pixels → features; `fine` says whether masks need theirs.
pub(super) fn encode(
    engines: &mut [Box<dyn Engine>],
    manifest: &Manifest,
    input: &Input,
    fine: bool,
) -> Result<Features> {
    let official = manifest.prompting == Prompting::Official;
    let mut fpn = [Tensor::empty(), Tensor::empty(), Tensor::empty()];
    let (mut image_prompt, mut tokens) = (Tensor::empty(), Tensor::empty());
    {
        let [finest, middle, coarse] = &mut fpn;
        let mut outputs = vec![(tensor::FPN[2], coarse)];
        if fine {
            outputs.extend([(tensor::FPN[0], finest), (tensor::FPN[1], middle)]);
        }
        if official {
            outputs.push((tensor::IMAGE_PROMPT, &mut image_prompt));
        }
        match engines {
            [whole] => whole.run(&[(tensor::PIXEL_VALUES, &input.pixels)], &mut outputs)?,
            [first, second] => {
                first.run(&[(tensor::PIXEL_VALUES, &input.pixels)], &mut [(tensor::TOKENS, &mut tokens)])?;
                second.run(&[(tensor::TOKENS, &tokens)], &mut outputs)?;
            }
            other => {
                let message = format!("backbone, {} graphs: expected one or two", other.len());
                return Err(Error::new(ErrorKind::Engine, message));
            }
        }
    }
    let [finest, middle, coarse] = fpn;
    Ok(Features {
        fpn: [fine.then_some(finest), fine.then_some(middle), Some(coarse)],
        image_prompt: official.then_some(image_prompt),
    })
}

impl Features {
    fn coarse(&self) -> &Tensor {
        self.fpn[2].as_ref().expect("every backbone has it")
    }
}

/// Two examples in the image.
pub(super) fn encode_exemplars(engine: &mut dyn Engine, features: &Features) -> Result<Tensor> {
    let (boxes, labels) = EXAMPLES;
    let boxes = Tensor::f32(&[1, 2, 4], boxes.to_vec())?;
    let labels = Tensor::i64(&[1, 2], labels.to_vec())?;
    let mut out = Tensor::empty();
    let inputs =
        [(tensor::FPN[2], features.coarse()), (tensor::BOXES, &boxes), (tensor::BOX_LABELS, &labels)];
    engine.run(&inputs, &mut [(tensor::EXEMPLAR_FEATURES, &mut out)])?;
    Ok(out)
}

/// The prompts of some classes: words, then the CLS token where the model has one.
fn prompts(
    manifest: &Manifest,
    words: &Words,
    classes: &[usize],
    image_prompt: Option<&Tensor>,
) -> Result<[Tensor; 2]> {
    let (length, width) = (manifest.context_length, manifest.model_width);
    let appended = image_prompt.map_or(Ok(&[][..]), Tensor::as_f32)?;
    let tokens = length + appended.len() / width;
    let (mut features, mut mask) = (Vec::new(), Vec::new());
    for &class in classes {
        features.extend_from_slice(&words.features.as_f32()?[class * length * width..][..length * width]);
        features.extend_from_slice(appended);
        mask.extend_from_slice(&words.mask.as_i64()?[class * length..][..length]);
        mask.resize(mask.len() + tokens - length, 1);
    }
    let features = Tensor::f32(&[classes.len(), tokens, width], features)?;
    Ok([features, Tensor::i64(&[classes.len(), tokens], mask)?])
}

/// Features and prompts → logits, boxes, presence, `chunk` classes at a time.
pub(super) fn decode(
    engine: &mut dyn Engine,
    manifest: &Manifest,
    words: &Words,
    input: &Input,
    features: &Features,
    chunk: usize,
) -> Result<Heads> {
    let with_states = !manifest.detection_only;
    let (mut logits, mut boxes, mut presence) = (Vec::new(), Vec::new(), Vec::new());
    let (mut queries, mut encoded): (Vec<f32>, Vec<f32>) = (Vec::new(), Vec::new());
    let [grid, count, width] = [manifest.grid(), manifest.num_queries, manifest.model_width];
    for classes in input.phrases.chunks(chunk) {
        let [prompt, mask] = prompts(manifest, words, classes, features.image_prompt.as_ref())?;
        let mut out: [Tensor; 5] = std::array::from_fn(|_| Tensor::empty());
        {
            let names = [tensor::LOGITS, tensor::BOXES, tensor::PRESENCE, tensor::QUERIES, tensor::ENCODED];
            let wanted = if with_states { 5 } else { 3 };
            let mut outputs: Vec<_> = names.into_iter().zip(out.iter_mut()).take(wanted).collect();
            let inputs = [
                (tensor::FPN[2], features.coarse()),
                (tensor::PROMPT_FEATURES, &prompt),
                (tensor::PROMPT_MASK, &mask),
            ];
            engine.run(&inputs, &mut outputs)?;
        }
        for (all, tensor) in [&mut logits, &mut boxes, &mut presence].into_iter().zip(&out) {
            all.extend_from_slice(tensor.as_f32()?);
        }
        if with_states {
            for (all, tensor, row) in
                [(&mut queries, &out[3], count * width), (&mut encoded, &out[4], grid * grid * width)]
            {
                let more = (CLASSES_WITH_STATES * row).saturating_sub(all.len());
                let values = tensor.as_f32()?;
                all.extend_from_slice(&values[..more.min(values.len())]);
            }
        }
    }
    let classes = input.phrases.len();
    let states = classes.min(CLASSES_WITH_STATES);
    let state =
        |shape: [usize; 3], values: Vec<f32>| with_states.then(|| Tensor::f32(&shape, values)).transpose();
    Ok(Heads {
        logits: Tensor::f32(&[classes, count], logits)?,
        boxes: Tensor::f32(&[classes, count, 4], boxes)?,
        presence: Tensor::f32(&[classes, 1], presence)?,
        queries: state([states, count, width], queries)?,
        encoded: state([states, grid * grid, width], encoded)?,
    })
}

/// Masks of some queries of the first class.
pub(super) fn draw_masks(
    engine: &mut dyn Engine,
    manifest: &Manifest,
    words: &Words,
    input: &Input,
    pass: &mut Pass,
) -> Result<()> {
    let (grid, width) = (manifest.grid(), manifest.model_width);
    let [prompt, mask] = prompts(manifest, words, &input.phrases[..1], pass.features.image_prompt.as_ref())?;
    let [Some(fine), Some(middle), _] = &pass.features.fpn else {
        return Err(Error::new(ErrorKind::Mismatch, "masks: this model was exported without them"));
    };
    let (Some(queries), Some(encoded)) = (&pass.heads.queries, &pass.heads.encoded) else {
        return Err(Error::new(ErrorKind::Mismatch, "masks: this model was exported without them"));
    };
    let kept = MASKS.min(manifest.num_queries);
    let queries = Tensor::f32(&[1, kept, width], queries.as_f32()?[..kept * width].to_vec())?;
    let size = grid * grid * width;
    let encoded = Tensor::f32(&[1, grid * grid, width], encoded.as_f32()?[..size].to_vec())?;
    let (mut masks, mut semantic) = (Tensor::empty(), Tensor::empty());
    engine.run(
        &[
            (tensor::FPN[0], fine),
            (tensor::FPN[1], middle),
            (tensor::ENCODED, &encoded),
            (tensor::PROMPT_FEATURES, &prompt),
            (tensor::PROMPT_MASK, &mask),
            (tensor::QUERIES, &queries),
        ],
        &mut [(tensor::MASKS, &mut masks), (tensor::SEMANTIC, &mut semantic)],
    )?;
    pass.masks = Some([masks, semantic]);
    Ok(())
}
