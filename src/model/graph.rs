//! The graphs of an exported model, by name.

use std::str::FromStr;

use ocelli_export::contract::{Manifest, file};
use serde::{Deserialize, Serialize};

use ocelli_error::{Error, Result, display_as};

/// One graph of an exported model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelGraph {
    /// Pixels → features.
    Backbone,
    /// First half of a split backbone: pixels → tokens.
    BackboneFirst,
    /// Second half of a split backbone: tokens → features.
    BackboneSecond,
    /// Text → text features.
    TextEncoder,
    /// Boxes → exemplar features.
    ExemplarEncoder,
    /// Features and prompts → scores and boxes.
    EncoderDecoder,
    /// Queries → masks.
    MaskHead,
    /// Features and prompts → scores on a coarse grid.
    Screen,
}

impl ModelGraph {
    /// Every graph, in order, with its file.
    const FILES: [(Self, &str); 8] = [
        (Self::Backbone, file::BACKBONE),
        (Self::BackboneFirst, file::BACKBONE_FIRST),
        (Self::BackboneSecond, file::BACKBONE_SECOND),
        (Self::TextEncoder, file::TEXT_ENCODER),
        (Self::ExemplarEncoder, file::EXEMPLAR_ENCODER),
        (Self::EncoderDecoder, file::ENCODER_DECODER),
        (Self::MaskHead, file::MASK_HEAD),
        (Self::Screen, file::SCREEN),
    ];

    fn every() -> impl Iterator<Item = Self> {
        Self::FILES.into_iter().map(|(graph, _)| graph)
    }

    /// Its file in an exported folder.
    pub fn file(self) -> &'static str {
        Self::FILES[self as usize].1
    }

    /// Its name: the file name without the extension.
    pub fn name(self) -> &'static str {
        self.file().trim_end_matches(".onnx")
    }

    /// The graph in a file of an exported folder.
    pub fn of_file(name: &str) -> Option<Self> {
        Self::every().find(|graph| graph.file() == name)
    }

    /// `true` for the backbone or half of it.
    pub fn is_backbone(self) -> bool {
        matches!(self, Self::Backbone | Self::BackboneFirst | Self::BackboneSecond)
    }

    /// The graphs of a model's backbone in the order they run.
    pub fn backbone_of(manifest: &Manifest) -> Vec<Self> {
        manifest.backbone_files().into_iter().filter_map(Self::of_file).collect()
    }

    /// All graphs of a model.
    pub fn all_of(manifest: &Manifest) -> Vec<Self> {
        Self::every().filter(|graph| manifest.files.contains_key(graph.file())).collect()
    }
}

display_as!(ModelGraph, it => "{}", it.name());

impl FromStr for ModelGraph {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let wanted = name.replace('-', "_");
        Self::every().find(|graph| graph.name() == wanted).ok_or_else(|| {
            let names: Vec<_> = Self::every().map(ModelGraph::name).collect();
            let message = format!("graph {name}: no such graph; expected one of {}", names.join(", "));
            Error::invalid_argument(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for graph in ModelGraph::every() {
            assert_eq!(graph.to_string().parse::<ModelGraph>().ok(), Some(graph));
            assert_eq!(serde_json::to_value(graph).ok(), Some(graph.name().into()), "as in a sidecar");
        }
        assert_eq!("encoder-decoder".parse::<ModelGraph>().ok(), Some(ModelGraph::EncoderDecoder));
        let error = "decoder".parse::<ModelGraph>().expect_err("there is no such graph");
        assert!(error.to_string().contains("encoder_decoder"), "{error}");
    }
}
