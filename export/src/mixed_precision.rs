//! The parts of a half-precision model that compute in 32 bits, or with the range of 32 bits.
//!
//! A graph in half precision is strongly typed: every node computes in one format, with a `Cast` between formats. Never
//! half are the inputs and outputs of the files, and the few numbers that hold positions and scores: boxes and their
//! logits, sines of positions, logarithms of distances, the heads that refine boxes, presence, the mean of the prompt and
//! the scores. They cost almost nothing, and 11 bits resolve only a pixel of a large image. [`MixedPrecision`] adds to
//! these by kind of computation, [`Block`] by part of the model.

use std::fmt;
use std::str::FromStr;

use serde::de::value::{Error as NotFound, StrDeserializer};
use serde::{Deserialize, Serialize};

use crate::errors::refused;
use ocelli_error::{Error, Result, read_by_name};

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
    /// no sum of values, overflows. For graphs of [`Precision::Fp16`](crate::contract::Precision::Fp16) and the calibrated precisions for TensorRT.
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
}

read_by_name!(
    MixedPrecision,
    "mixed_precision",
    "none, accumulate, bf16-attention, accumulate-linear or attention"
);

/// A kind of block, front to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.family.serialize(&mut *f)?;
        self.layer.map_or(Ok(()), |layer| write!(f, ".{layer}"))
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
        let family = Family::deserialize(StrDeserializer::<NotFound>::new(name)).map_err(|_| wrong())?;
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
    fn islands_parse_and_print() {
        for islands in MixedPrecision::ALL {
            assert_eq!(islands.to_string().parse::<MixedPrecision>().ok(), Some(islands));
        }
        assert!("some".parse::<MixedPrecision>().is_err());
    }
}
