//! Which parts of a half-precision model compute in 32 bits all the same.
//!
//! A graph in half precision is strongly typed: every node computes in one format, and a `Cast` stands where one format
//! ends and another begins. What is never half: inputs and outputs of the files, and the few numbers that say where
//! something is and how sure the model is of it — boxes and their logits, sines of positions, logarithms of distances,
//! the heads that refine boxes, presence, the mean of the prompt and the scores. They cost next to nothing, and 11 bits
//! are a pixel of a large image. [`MixedPrecision`] says what else is not, by kind; [`Block`] says it by place.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::ModelConfig;
use crate::contract::Precision;
use crate::error::{Error, ErrorKind, Result};

/// Which kinds of computation stay in 32 bits where the rest is half precision; each holds those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixedPrecision {
    /// None.
    #[default]
    None,
    /// Norms of layers and groups; what becomes of attention scores between the two products: scale, mask, softmax.
    /// A fused attention has its own softmax and stays half.
    NormSoftmax,
    /// And the products of attention, Q·Kᵀ and ·V, with the rotary embedding before and the box bias beside them; a
    /// fused attention whole.
    Attention,
    /// And everything else but the products with weights (linear layers and convolutions with their biases): residual
    /// sums, activations, positions. Only what a single layer computes can leave the range then.
    All,
}

impl MixedPrecision {
    /// All of them, the quickest first.
    pub const EVERY: [Self; 4] = [Self::None, Self::NormSoftmax, Self::Attention, Self::All];
}

impl fmt::Display for MixedPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::NormSoftmax => "norm-softmax",
            Self::Attention => "attention",
            Self::All => "all",
        })
    }
}

impl FromStr for MixedPrecision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::EVERY.into_iter().find(|known| known.to_string() == name).ok_or_else(|| {
            let message = format!("mixed precision {name}: expected none, norm-softmax, attention or all");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

/// A kind of place in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// The patch embedding, positions and first norm.
    Patches,
    /// Blocks of the vision transformer.
    Vit,
    /// The feature pyramid.
    Neck,
    /// The exemplar encoder, and the same layers behind the backbone.
    Exemplars,
    /// Embedding and projection of words.
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
}

const FAMILIES: [(Family, &str); 10] = [
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
];

/// A place in the model, or several: `vit.7` is a block of the vision transformer and `vit` all of them. The others are
/// `text.N`, `fusion.N` and `decoder.N`, and `patches`, `neck`, `exemplars`, `words`, `scoring`, `masks`, which have no
/// layers to tell apart.
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

    /// Whether `other` is this place or a part of it.
    pub fn covers(self, other: Self) -> bool {
        self.family == other.family && (self.layer.is_none() || self.layer == other.layer)
    }

    /// Every place of a model, front to back.
    pub(crate) fn of_model(config: &ModelConfig) -> Vec<Self> {
        let layers = |family| match family {
            Family::Vit => Some(config.vision.stack.layers),
            Family::Text => Some(config.text.stack.layers),
            Family::Fusion => Some(config.encoder.layers),
            Family::Decoder => Some(config.decoder.layers),
            _ => None,
        };
        let places = FAMILIES.into_iter().flat_map(|(family, _)| match layers(family) {
            Some(count) => (0..count).map(|layer| Self::layer(family, layer)).collect(),
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
            let message = format!(
                "`{text}` names no block: expected vit.N, text.N, fusion.N, decoder.N, one of these without a number for \
                 all of its layers, or patches, neck, exemplars, words, scoring, masks"
            );
            Error::new(ErrorKind::InvalidArgument, message)
        };
        let (name, layer) = match text.trim().split_once('.') {
            Some((name, layer)) => (name, Some(layer.parse().map_err(|_| wrong())?)),
            None => (text.trim(), None),
        };
        let (family, _) = FAMILIES.into_iter().find(|(_, known)| *known == name).ok_or_else(wrong)?;
        Ok(Self { family, layer })
    }
}

/// How a graph in half precision is typed.
#[derive(Clone, Debug)]
pub(crate) struct HalfRules {
    pub(crate) format: HalfFormat,
    pub(crate) islands: MixedPrecision,
    /// Places in 32 bits.
    pub(crate) kept: Vec<Block>,
}

/// A 16-bit floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfFormat {
    /// 11 bits of precision, up to 65504.
    F16,
    /// 8 bits of precision, the range of f32.
    Bf16,
}

impl HalfFormat {
    /// The format of a precision, if that is a 16-bit one.
    pub(crate) fn of(precision: Precision) -> Option<Self> {
        match precision {
            Precision::Fp16 => Some(Self::F16),
            Precision::Bf16 => Some(Self::Bf16),
            Precision::Fp32 | Precision::Int8 => None,
        }
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
            assert!(error.to_string().contains("names no block"), "{text}: {error}");
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
        for islands in MixedPrecision::EVERY {
            assert_eq!(islands.to_string().parse::<MixedPrecision>().ok(), Some(islands));
        }
        assert!("some".parse::<MixedPrecision>().is_err());
    }
}
