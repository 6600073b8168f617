//! The parts of a half-precision model that compute in 32 bits, or with the range of 32 bits.
//!
//! A graph in half precision is strongly typed: every node computes in one format, with a `Cast` between formats. Never
//! half are the inputs and outputs of the files, and the few numbers that hold positions and scores: boxes and their
//! logits, sines of positions, logarithms of distances, the heads that refine boxes, presence, the mean of the prompt and
//! the scores. They cost almost nothing, and 11 bits resolve only a pixel of a large image. [`MixedPrecision`] adds to
//! these by kind of computation, [`Block`] by part of the model.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::ModelConfig;
use crate::contract::Precision;
use crate::errors::refused;
use ocelli_error::{Error, Result};

/// The kinds of computation that stay in 32 bits when the rest is half precision; each includes those before it, except that
/// only [`Bf16Attention`](Self::Bf16Attention) has bfloat16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixedPrecision {
    /// None. TensorRT then sums the products of attention, and those with weights, in half precision.
    #[default]
    None,
    /// The sums of attention's products, Q·Kᵀ and ·V. Their factors and results are half precision, and TensorRT computes
    /// each attention in one kernel. ONNX Runtime's kernels sum in 32 bits in every graph.
    Accumulate,
    /// As [`Accumulate`](Self::Accumulate), and all of attention in bfloat16, which has the range of 32 bits: no score, and
    /// no sum of values, overflows. For graphs of [`Precision::Fp16`] and the calibrated precisions for TensorRT.
    Bf16Attention,
    /// Also the sums of the products with weights in linear layers.
    AccumulateLinear,
    /// Also norms, and attention as a whole: Q·Kᵀ, softmax and ·V, with rotary embedding and box bias. TensorRT then fuses no
    /// attention, and stores every matrix of scores in 32 bits.
    Attention,
}

impl MixedPrecision {
    /// Every variant, the fastest first.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Accumulate, Self::Bf16Attention, Self::AccumulateLinear, Self::Attention];

    /// The level of a precision if none is chosen.
    pub fn default_of(precision: Precision) -> Self {
        if precision.is_half() { Self::Accumulate } else { Self::None }
    }
}

impl fmt::Display for MixedPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for MixedPrecision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|known| known.to_string() == name).ok_or_else(|| {
            refused(format!(
                "mixed precision {name}: expected none, accumulate, bf16-attention, accumulate-linear or attention"
            ))
        })
    }
}

/// A kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// The patch embedding, positions and first norm.
    Patches,
    /// Blocks of the vision transformer.
    Vit,
    /// The feature pyramid.
    Neck,
    /// The exemplar encoder, and the same layers after the backbone.
    Exemplars,
    /// Embedding and projection of text tokens.
    Words,
    /// Layers of the text encoder.
    Text,
    /// Layers of the fusion encoder.
    Fusion,
    /// Layers of the decoder.
    Decoder,
    /// The prompt's part of the scores.
    Scoring,
    /// The mask head.
    Masks,
    /// The memory tracker.
    Tracker,
}

const FAMILIES: [(Family, &str); 11] = [
    (Family::Patches, "patches"),
    (Family::Vit, "vit"),
    (Family::Neck, "neck"),
    (Family::Exemplars, "exemplars"),
    (Family::Words, "words"),
    (Family::Text, "text"),
    (Family::Fusion, "fusion"),
    (Family::Decoder, "decoder"),
    (Family::Scoring, "scoring"),
    (Family::Masks, "masks"),
    (Family::Tracker, "tracker"),
];

/// A part of the model, or several: `vit.7` is a block of the vision transformer, and `vit` stands for all of them; of a
/// convolutional backbone, `vit.N` is a stage and `patches` what is before them. The
/// others are `text.N`, `fusion.N` and `decoder.N`, and `patches`, `neck`, `exemplars`, `words`, `scoring`, `masks` and
/// `tracker`, which have no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    family: Family,
    layer: Option<usize>,
}

impl Block {
    pub(crate) fn whole(family: Family) -> Self {
        Self { family, layer: None }
    }

    pub(crate) fn layer(family: Family, layer: usize) -> Self {
        Self { family, layer: Some(layer) }
    }

    /// `true` if `other` is this block or one of its layers.
    pub fn covers(self, other: Self) -> bool {
        self.family == other.family && (self.layer.is_none() || self.layer == other.layer)
    }

    /// `true` if the linear layers of this block are 8 bits wide in formats of 8 bits.
    pub fn has_8_bits(self) -> bool {
        matches!(self.family, Family::Vit | Family::Fusion | Family::Tracker)
    }

    /// Every block of a model, front to back.
    pub(crate) fn of_model(config: &ModelConfig) -> Vec<Self> {
        let layers = |family| match family {
            Family::Vit => match &config.student {
                Some(student) => Some(student.stages.len()),
                None => Some(config.vision.stack.layers),
            },
            Family::Text => Some(config.text.stack.layers),
            Family::Fusion => Some(config.encoder.layers),
            Family::Decoder => Some(config.decoder.layers),
            _ => None,
        };
        let places = FAMILIES.into_iter().flat_map(|(family, _)| match layers(family) {
            Some(count) => (0..count).map(|layer| Self::layer(family, layer)).collect(),
            None if family == Family::Exemplars && !config.has_exemplars() => Vec::new(),
            None if family == Family::Tracker && config.tracker.is_none() => Vec::new(),
            None => vec![Self::whole(family)],
        });
        places.collect()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FAMILIES.iter().find(|(family, _)| *family == self.family).map_or("", |(_, name)| name);
        match self.layer {
            Some(layer) => write!(f, "{name}.{layer}"),
            None => f.write_str(name),
        }
    }
}

impl FromStr for Block {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            refused(format!(
                "`{text}` is not a block: expected vit.N, text.N, fusion.N, decoder.N, one of these without a number for \
                 all of its layers, or patches, neck, exemplars, words, scoring, masks, tracker"
            ))
        };
        let (name, layer) = match text.trim().split_once('.') {
            Some((name, layer)) => (name, Some(layer.parse().map_err(|_| wrong())?)),
            None => (text.trim(), None),
        };
        let (family, _) = FAMILIES.into_iter().find(|(_, known)| *known == name).ok_or_else(wrong)?;
        Ok(Self { family, layer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_parse_and_print() {
        for text in ["vit.7", "vit", "fusion.0", "decoder", "text.23", "neck", "words", "exemplars", "masks"]
        {
            assert_eq!(text.parse::<Block>().map(|b| b.to_string()).ok().as_deref(), Some(text));
        }
        for text in ["", "vit.", "vit.x", "vit.-1", "7", "vit.7.attention", "VIT.7"] {
            let error = text.parse::<Block>().expect_err(text);
            assert!(error.to_string().contains("is not a block"), "{text}: {error}");
        }
    }

    #[test]
    fn a_family_covers_its_layers() {
        let block = |text: &str| text.parse::<Block>().expect("a name");
        let cases = [("vit", "vit.3", true), ("vit.3", "vit.3", true), ("vit.3", "vit.4", false)];
        let more = [("vit", "text.3", false), ("vit.3", "vit", false), ("neck", "neck", true)];
        for (this, other, expected) in cases.into_iter().chain(more) {
            assert_eq!(block(this).covers(block(other)), expected, "{this} covers {other}");
        }
    }

    #[test]
    fn a_model_has_all_its_blocks() {
        let config = ModelConfig::parse(r#"{"vision_config":{"backbone_config":{}}}"#).expect("defaults");
        let names: Vec<String> = Block::of_model(&config).iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 6 + 32 + 24 + 6 + 6, "{names:?}");
        for name in ["patches", "vit.0", "vit.31", "text.23", "fusion.5", "decoder.5", "scoring"] {
            assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
        }
    }

    #[test]
    fn islands_parse_and_print() {
        for islands in MixedPrecision::ALL {
            assert_eq!(islands.to_string().parse::<MixedPrecision>().ok(), Some(islands));
        }
        assert!("some".parse::<MixedPrecision>().is_err());
    }
}
