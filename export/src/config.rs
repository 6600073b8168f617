//! The checkpoint's `config.json`: the sizes of the model.

mod node;

use std::path::Path;

use serde_json::Value;

use crate::contract::{MAX_GRID, TextPadding};
use crate::errors::invalid;
use crate::mixed_precision::{Block, Family};
use crate::read_text;
use ocelli_error::Result;

use node::Node;

pub use crate::student::{Student, StudentFamily, StudentOrigin, StudentStage};

/// An activation function, by its name in `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU with the error function.
    Gelu,
    /// GELU with the tanh approximation.
    GeluTanh,
    /// x · sigmoid(1.702 x).
    QuickGelu,
    /// max(x, 0).
    Relu,
    /// x · sigmoid(x).
    Silu,
}

impl Activation {
    /// Its minimum, rounded down: minima of x·Φ(x) and x·σ(x), the latter at x = −1.2785.
    pub(crate) fn floor(self) -> f32 {
        match self {
            Self::Gelu => -0.169_972,
            Self::GeluTanh => -0.170_041,
            Self::QuickGelu => -0.278_465 / 1.702,
            Self::Relu => 0.0,
            Self::Silu => -0.278_465,
        }
    }
}

/// The keys of a stack's sizes in two of the spellings of `transformers`.
const LAYERS: [&str; 3] = ["num_layers", "num_attention_heads", "intermediate_size"];
const HIDDEN_LAYERS: [&str; 3] = ["num_hidden_layers", "num_attention_heads", "intermediate_size"];

/// Sizes of one stack of transformer layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Hidden width of the feed-forward network.
    pub intermediate: usize,
    /// Activation of the feed-forward network.
    pub activation: Activation,
}

/// The vision transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// Width of a token.
    pub hidden: usize,
    /// Blocks, heads, feed-forward width.
    pub stack: Stack,
    /// Side of the square input that the model was trained with, in pixels.
    pub image_size: usize,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Side of an attention window, in tokens.
    pub window_size: usize,
    /// Blocks with attention over the whole grid.
    pub global_blocks: Vec<usize>,
    /// Side of the image that the position table covers, in pixels.
    pub pretrain_image_size: usize,
    /// Layer norm's epsilon.
    pub layer_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
}

/// The architecture of the text encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEncoder {
    /// CLIP's transformer: a token attends to itself and those before it.
    Clip,
    /// MobileCLIP's transformer, without an order of tokens.
    MobileClip(MobileClip),
}

/// The settings of MobileCLIP alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobileClip {
    /// Set if the first and the last layer mix tokens with convolutions.
    pub rep_mixer: bool,
    /// Width of these convolutions, in tokens; odd.
    pub kernel: usize,
    /// Rows of the position table.
    pub positions: usize,
    /// The padding after a phrase.
    pub padding: TextPadding,
}

/// The text encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct TextConfig {
    /// Width of a token.
    pub hidden: usize,
    /// Layers, heads, feed-forward width.
    pub stack: Stack,
    /// Tokens of a prompt.
    pub context_length: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Output width of CLIP's projection, which the detector does not use.
    pub projection: usize,
    /// Layer norm's epsilon.
    pub layer_norm_eps: f32,
    /// The architecture.
    pub encoder: TextEncoder,
    /// Token at the start of a phrase.
    pub bos: i64,
    /// Token at the end of a phrase.
    pub eos: i64,
}

/// The memory tracker of SAM 3 or SAM 3.1.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackerConfig {
    /// Numbers of a memory for each patch.
    pub memory_width: usize,
    /// Memories that a position table tells apart.
    pub memory_rows: usize,
    /// Objects that share a memory, a bucket, in SAM 3.1; in SAM 3 each object has its own.
    pub slots: Option<usize>,
    /// Layers of the attention over memories.
    pub layers: usize,
    /// Heads of that attention.
    pub heads: usize,
    /// Hidden width of their feed-forward networks.
    pub intermediate: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Layers of the mask decoder, the heads of its attention, and the hidden width of its feed-forward networks.
    pub decoder: Stack,
    /// Width of the mask decoder's attention between tokens and image.
    pub decoder_width: usize,
    /// Hidden width of the head that predicts a mask's IoU.
    pub iou_hidden: usize,
    /// Layers that mix a mask with the image, and their hidden width.
    pub fuser_layers: usize,
    /// Hidden width of these layers.
    pub fuser_intermediate: usize,
    /// Channels of an embedded mask prompt.
    pub mask_channels: usize,
}

/// A SAM3 detector's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The vision transformer; with a [student](Self::student), the image and the grid that it was to see.
    pub vision: VisionConfig,
    /// The convolutional network in place of the vision transformer.
    pub student: Option<Student>,
    /// The text encoder.
    pub text: TextConfig,
    /// Width of the detector, D.
    pub width: usize,
    /// The encoder of exemplar boxes; without layers in a checkpoint that has none.
    pub geometry: Stack,
    /// Side of a pooled exemplar, in bins.
    pub roi_size: usize,
    /// The fusion encoder.
    pub encoder: Stack,
    /// The decoder.
    pub decoder: Stack,
    /// Number of queries, Q.
    pub num_queries: usize,
    /// Heads of the mask head's cross-attention.
    pub mask_heads: usize,
    /// Convolutions in the checkpoint's pixel decoder; the first two are used.
    pub mask_stages: usize,
    /// Hidden width of the perceptron that scores the prompt.
    pub scoring_hidden: usize,
    /// The memory tracker, if the checkpoint has one.
    pub tracker: Option<TrackerConfig>,
}

impl ModelConfig {
    /// Reads `config.json`, in the layout of the released checkpoint (`sam3_video`, with the detector under
    /// `detector_config`) or of a detector saved on its own. Missing keys have the defaults of `transformers`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](ocelli_error::ErrorKind::Io) if the file cannot be read,
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if a key has the wrong type or two keys contradict
    /// each other; the message names the key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path, "the configuration")?;
        Self::parse(&text).map_err(|e| e.at(path))
    }

    /// As [`read`](Self::read), from text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if a key has the wrong type or two keys contradict each
    /// other; the message names the key.
    pub fn parse(text: &str) -> Result<Self> {
        let root: Value = serde_json::from_str(text).map_err(|e| invalid(format!("not JSON: {e}")))?;
        if !root.is_object() {
            return Err(invalid("expected a JSON object"));
        }
        let root = Node { value: Some(&root), path: String::new() };
        let nested = root.child("detector_config");
        let is_video = nested.value.is_some();
        let detector = if is_video { &nested } else { &root };
        if let Some(kind) = detector.key("model_type").and_then(Value::as_str)
            && !["sam3", "sam3_lite_text"].contains(&kind)
        {
            return Err(invalid(format!(
                "`{}model_type` is \"{kind}\": expected \"sam3\" or \"sam3_lite_text\", or \"sam3_video\" with a `detector_config`",
                detector.path
            )));
        }
        if detector.child("vision_config").value.is_none() {
            return Err(invalid(format!("`{}vision_config` is missing: not a SAM3 detector", detector.path)));
        }
        let mut config = Self::from_node(detector)?;
        let tracker = if is_video { Some(root.child("tracker_config").tracker(config.width)?) } else { None };
        config.validate()?;
        // Its sizes count only if the weights have one.
        config.tracker = tracker;
        Ok(config)
    }

    fn from_node(detector: &Node<'_>) -> Result<Self> {
        let neck = detector.child("vision_config");
        let vit = neck.child("backbone_config");
        let text = detector.child("text_config");
        let geometry = detector.child("geometry_encoder_config");
        let encoder = detector.child("detr_encoder_config");
        let decoder = detector.child("detr_decoder_config");
        let masks = detector.child("mask_decoder_config");

        let width = neck.usize("fpn_hidden_size", 256)?;
        for (node, key) in [
            (&geometry, "geometry_encoder_config"),
            (&encoder, "detr_encoder_config"),
            (&decoder, "detr_decoder_config"),
            (&masks, "mask_decoder_config"),
        ] {
            let found = node.usize("hidden_size", 256)?;
            if found != width {
                return Err(invalid(format!(
                    "`{key}.hidden_size` is {found} but `vision_config.fpn_hidden_size` is {width}: they must be equal"
                )));
            }
        }
        let scales = neck.numbers("scale_factors", &[4.0, 2.0, 1.0, 0.5])?;
        if scales != [4.0, 2.0, 1.0, 0.5] {
            return Err(invalid(format!(
                "`vision_config.scale_factors` is {scales:?}: expected [4.0, 2.0, 1.0, 0.5], the pyramid of SAM3"
            )));
        }
        let is_lite = detector.key("model_type").and_then(Value::as_str) == Some("sam3_lite_text");
        let image_size = vit.side("image_size", 1008)?;
        Ok(Self {
            vision: VisionConfig {
                hidden: vit.usize("hidden_size", 1024)?,
                stack: vit.stack(HIDDEN_LAYERS, [32, 16, 4736], "gelu")?,
                image_size,
                patch_size: vit.side("patch_size", 14)?,
                window_size: vit.usize("window_size", 24)?,
                global_blocks: vit
                    .numbers("global_attn_indexes", &[7.0, 15.0, 23.0, 31.0])?
                    .into_iter()
                    .map(|n| n as usize)
                    .collect(),
                pretrain_image_size: vit.side("pretrain_image_size", 336)?,
                layer_norm_eps: vit.float("layer_norm_eps", 1e-6)? as f32,
                rope_theta: match vit.child("rope_parameters").value {
                    Some(_) => vit.child("rope_parameters").float("rope_theta", 10000.0)?,
                    None => vit.float("rope_theta", 10000.0)?,
                },
            },
            student: None,
            text: TextConfig {
                hidden: text.usize("hidden_size", if is_lite { 512 } else { 1024 })?,
                stack: text.stack(
                    HIDDEN_LAYERS,
                    if is_lite { [12, 8, 2048] } else { [24, 16, 4096] },
                    "gelu",
                )?,
                context_length: text.usize("max_position_embeddings", if is_lite { 77 } else { 32 })?,
                encoder: if is_lite { text.mobile_clip()? } else { TextEncoder::Clip },
                vocab_size: text.usize("vocab_size", 49408)?,
                projection: text.usize("projection_dim", 512)?,
                layer_norm_eps: text.float("layer_norm_eps", 1e-5)? as f32,
                bos: text.usize("bos_token_id", 49406)? as i64,
                eos: text.usize("eos_token_id", 49407)? as i64,
            },
            width,
            geometry: geometry.stack(LAYERS, [3, 8, 2048], "relu")?,
            roi_size: geometry.usize("roi_size", 7)?,
            encoder: encoder.stack(LAYERS, [6, 8, 2048], "relu")?,
            decoder: decoder.stack(LAYERS, [6, 8, 2048], "relu")?,
            num_queries: decoder.usize("num_queries", 200)?,
            mask_heads: masks.usize("num_attention_heads", 8)?,
            mask_stages: masks.usize("num_upsampling_stages", 3)?,
            scoring_hidden: decoder.usize("intermediate_size", 2048)?,
            tracker: None,
        })
    }

    /// `true` if the checkpoint has an encoder of exemplar boxes.
    pub fn has_exemplars(&self) -> bool {
        self.geometry.layers > 0
    }

    /// Every block of the model, front to back.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let vit = self.student.as_ref().map_or(self.vision.stack.layers, |student| student.stages.len());
        let whole = |family| vec![Block::whole(family)];
        let if_any = |any: bool, family| if any { vec![Block::whole(family)] } else { Vec::new() };
        let layers = |family, count| (0..count).map(|layer| Block::layer(family, layer)).collect();
        [
            whole(Family::Patches),
            layers(Family::Vit, vit),
            whole(Family::Neck),
            if_any(self.has_exemplars(), Family::Exemplars),
            whole(Family::Words),
            layers(Family::Text, self.text.stack.layers),
            layers(Family::Fusion, self.encoder.layers),
            layers(Family::Decoder, self.decoder.layers),
            whole(Family::Scoring),
            whole(Family::Masks),
            if_any(self.tracker.is_some(), Family::Tracker),
        ]
        .concat()
    }

    /// Checks that the sizes are consistent.
    pub(crate) fn validate(&self) -> Result<()> {
        let v = &self.vision;
        let heads = [
            ("vision_config.backbone_config", v.hidden, v.stack.heads, 4),
            ("text_config", self.text.hidden, self.text.stack.heads, 1),
            ("geometry_encoder_config", self.width, self.geometry.heads, 1),
            ("detr_encoder_config", self.width, self.encoder.heads, 1),
            ("detr_decoder_config", self.width, self.decoder.heads, 1),
            ("mask_decoder_config", self.width, self.mask_heads, 1),
        ];
        for (key, hidden, heads, multiple) in heads {
            if hidden % heads != 0 || (hidden / heads) % multiple != 0 {
                return Err(invalid(format!(
                    "`{key}.num_attention_heads` is {heads}, which does not divide `hidden_size` {hidden} into heads of \
                     a multiple of {multiple}"
                )));
            }
        }
        let wrong = |key: &str, size: usize, expected: String| {
            Err(invalid(format!("`{key}` is {size}: expected {expected}")))
        };
        if !self.width.is_multiple_of(8) {
            let expected = "a multiple of 8, the groups of the mask head's norms";
            return wrong("vision_config.fpn_hidden_size", self.width, expected.into());
        }
        if !v.hidden.is_multiple_of(4) {
            return wrong("vision_config.backbone_config.hidden_size", v.hidden, "a multiple of 4".into());
        }
        for (key, size) in [("image_size", v.image_size), ("pretrain_image_size", v.pretrain_image_size)] {
            let (key, patch) = (format!("vision_config.backbone_config.{key}"), v.patch_size);
            if size / patch > MAX_GRID {
                return wrong(
                    &key,
                    size,
                    format!("at most {MAX_GRID} patches of `patch_size` {patch} a side"),
                );
            }
            if size % patch != 0 {
                return wrong(&key, size, format!("a multiple of `patch_size` {patch}"));
            }
        }
        if let Some(block) = v.global_blocks.iter().find(|&&block| block >= v.stack.layers) {
            return Err(invalid(format!(
                "`vision_config.backbone_config.global_attn_indexes` names block {block}, but `num_hidden_layers` is {}",
                v.stack.layers
            )));
        }
        if let TextEncoder::MobileClip(MobileClip { rep_mixer: true, kernel, .. }) = self.text.encoder
            && kernel % 2 == 0
        {
            return wrong("text_config.repmixer_kernel_size", kernel, "an odd number".into());
        }
        if self.student.as_ref().is_some_and(|student| !student.is_sound()) {
            return Err(invalid("the sizes of the convolutional image backbone contradict each other"));
        }
        if let Some(tracker) = &self.tracker {
            tracker.validate(self.width)?;
        }
        if self.mask_stages < 2 {
            let key = "mask_decoder_config.num_upsampling_stages";
            return wrong(key, self.mask_stages, "at least 2".into());
        }
        Ok(())
    }
}

impl TrackerConfig {
    fn validate(&self, width: usize) -> Result<()> {
        let Self { memory_width, decoder_width, decoder, heads, .. } = self;
        if !width.is_multiple_of(4 * heads) {
            return Err(invalid(format!(
                "the tracker's width is {width}: expected a multiple of {}",
                4 * heads
            )));
        }
        if !memory_width.is_multiple_of(4) || !width.is_multiple_of(*memory_width) {
            return Err(invalid(format!(
                "`tracker_config.memory_encoder_output_channels` is {memory_width}: expected a multiple of 4 that divides \
                 the model's width {width}"
            )));
        }
        if !decoder_width.is_multiple_of(decoder.heads) || !width.is_multiple_of(decoder.heads) {
            return Err(invalid(format!(
                "`tracker_config.mask_decoder_config.num_attention_heads` is {}, which does not divide the attention's \
                 widths {width} and {decoder_width}",
                decoder.heads
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = r#"{"model_type":"sam3","vision_config":{"backbone_config":{}}}"#;

    #[test]
    fn missing_keys_have_the_released_sizes() {
        let config = ModelConfig::parse(BARE).expect("defaults are consistent");
        assert_eq!((config.vision.hidden, config.vision.stack.layers, config.width), (1024, 32, 256));
        assert_eq!(
            (config.text.context_length, config.num_queries, config.vision.image_size),
            (32, 200, 1008)
        );
    }

    #[test]
    fn a_model_has_all_its_blocks() {
        let config = ModelConfig::parse(BARE).expect("defaults");
        let names: Vec<String> = config.blocks().iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 6 + 32 + 24 + 6 + 6, "{names:?}");
        for name in ["patches", "vit.0", "vit.31", "text.23", "fusion.5", "decoder.5", "scoring"] {
            assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
        }
    }

    #[test]
    fn the_rotary_base_has_two_spellings() {
        for (json, expected) in [
            (r#"{"vision_config":{"backbone_config":{"rope_theta":500.0}}}"#, 500.0),
            (r#"{"vision_config":{"backbone_config":{"rope_parameters":{"rope_theta":700.0}}}}"#, 700.0),
            (r#"{"detector_config":{"vision_config":{"backbone_config":{"rope_theta":900}}}}"#, 900.0),
        ] {
            assert_eq!(ModelConfig::parse(json).map(|c| c.vision.rope_theta).ok(), Some(expected), "{json}");
        }
    }

    #[test]
    fn contradictions_name_the_key() {
        let cases = [
            ("[]", "JSON object"),
            ("{", "not JSON"),
            ("{}", "vision_config"),
            (r#"{"model_type":"llama"}"#, "model_type"),
            (r#"{"vision_config":{"fpn_hidden_size":128}}"#, "hidden_size"),
            (r#"{"vision_config":{"fpn_hidden_size":"x"}}"#, "fpn_hidden_size"),
            (r#"{"vision_config":{"scale_factors":[2.0]}}"#, "scale_factors"),
            (r#"{"vision_config":{"backbone_config":{"num_attention_heads":7}}}"#, "num_attention_heads"),
            (r#"{"vision_config":{"backbone_config":{"num_attention_heads":0}}}"#, "num_attention_heads"),
            (r#"{"vision_config":{"backbone_config":{"image_size":1000}}}"#, "image_size"),
            (r#"{"vision_config":{"backbone_config":{"image_size":[1008,504]}}}"#, "image_size"),
            (r#"{"vision_config":{"backbone_config":{"global_attn_indexes":[32]}}}"#, "global_attn_indexes"),
            (r#"{"vision_config":{"backbone_config":{"hidden_act":"mish"}}}"#, "hidden_act"),
            (r#"{"vision_config":{"backbone_config":{"layer_norm_eps":-1}}}"#, "layer_norm_eps"),
            (r#"{"vision_config":{"backbone_config":{"num_hidden_layers":16777216}}}"#, "num_hidden_layers"),
            (r#"{"vision_config":{},"text_config":{"num_hidden_layers":1025}}"#, "num_hidden_layers"),
            (r#"{"vision_config":{},"detr_decoder_config":{"num_layers":1025}}"#, "num_layers"),
            (
                r#"{"vision_config":{},"text_config":{"max_position_embeddings":5000}}"#,
                "max_position_embeddings",
            ),
            (r#"{"vision_config":{"backbone_config":{"image_size":2048,"patch_size":1}}}"#, "patch_size"),
            (r#"{"vision_config":{"backbone_config":{"image_size":[9000,9000]}}}"#, "image_size"),
            (
                r#"{"vision_config":{},"mask_decoder_config":{"num_upsampling_stages":16777216}}"#,
                "num_upsampling_stages",
            ),
            (
                r#"{"vision_config":{},"mask_decoder_config":{"num_upsampling_stages":1}}"#,
                "num_upsampling_stages",
            ),
        ];
        for (json, key) in cases {
            match ModelConfig::parse(json) {
                Ok(_) => panic!("accepted {json}"),
                Err(e) => assert!(e.to_string().contains(key), "{json}: {e}"),
            }
        }
    }
}
