//! The family of a file, by the names of its tensors.

use std::fmt;

use crate::student;

/// A kind of checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Family {
    /// The names of `transformers`.
    #[default]
    HuggingFace,
    /// Meta's names, with or without the prefix `detector.`.
    Meta { release: Release, prefixed: bool },
    /// The image backbone of DART's pruning.
    DartPruned,
    /// A convolutional image backbone of DART.
    DartStudent,
    /// A detector with a convolutional image backbone, with or without the prefix `detector.`.
    EfficientSam3 { prefixed: bool },
}

/// One of Meta's models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    Sam3,
    Sam31,
}

/// The prefix of the detector's vision transformer in Meta's names.
const TRUNK: &str = "backbone.vision_backbone.trunk.";

impl Family {
    /// Recognises a list of [spelled](spell) names.
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Option<Self> {
        let starts = |start: &str| names.clone().any(|name| name.starts_with(start));
        let contains = |part: &str| names.clone().any(|name| name.contains(part));
        if starts("vision_encoder.") || starts("detector_model.vision_encoder.") {
            return Some(Self::HuggingFace);
        }
        if contains("vision_backbone.trunk.model.") {
            return Some(Self::EfficientSam3 { prefixed: starts("detector.") });
        }
        for (prefix, prefixed) in [("detector.", true), ("", false)] {
            if starts(&format!("{prefix}{TRUNK}blocks.")) {
                let release = if contains(".interactive_convs.") { Release::Sam31 } else { Release::Sam3 };
                return Some(Self::Meta { release, prefixed });
            }
        }
        if starts("trunk.blocks.") && starts("convs.") {
            return Some(Self::DartPruned);
        }
        if starts("adapters.0.proj.") {
            return Some(Self::DartStudent);
        }
        None
    }

    /// The prefix of the detector's tensors in the file, and what stands for it in the rules.
    pub(super) fn prefix(self) -> (&'static str, &'static str) {
        match self {
            Self::Meta { prefixed: true, .. } | Self::EfficientSam3 { prefixed: true } => ("detector.", ""),
            Self::DartPruned => ("", "backbone.vision_backbone."),
            _ => ("", ""),
        }
    }

    /// `true` if it has an image backbone only, and needs the rest of a model.
    pub(super) fn is_backbone(self) -> bool {
        matches!(self, Self::DartPruned | Self::DartStudent)
    }

    /// Prefixes of the tensors of a convolutional backbone: in the file, without [that of the detector](Self::prefix),
    /// and for the exporter.
    fn student_prefixes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::DartStudent => &[("backbone.", student::ROOT), ("adapters.", student::ADAPTERS)],
            Self::EfficientSam3 { .. } => &[
                ("backbone.vision_backbone.trunk.model.backbone.model.", student::ROOT),
                ("backbone.vision_backbone.trunk.model.head.", student::HEAD),
            ],
            _ => &[],
        }
    }

    /// The exporter's name for a tensor of a convolutional backbone; `name` is without [the prefix](Self::prefix).
    pub(super) fn student_name(self, name: &str) -> Option<String> {
        let rename = |(from, to): &(&str, &str)| Some(format!("{to}.{}", name.strip_prefix(from)?));
        self.student_prefixes().iter().find_map(rename)
    }

    /// The name in the file of a tensor of a convolutional backbone.
    pub(super) fn student_original(self, name: &str) -> Option<String> {
        let rename =
            |(from, to): &(&str, &str)| Some(format!("{from}{}", name.strip_prefix(to)?.strip_prefix('.')?));
        self.student_prefixes().iter().find_map(rename)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HuggingFace => "a SAM3 detector in the names of transformers",
            Self::Meta { release: Release::Sam3, prefixed: true } => "SAM 3 in Meta's names",
            Self::Meta { release: Release::Sam31, .. } => "SAM 3.1 in Meta's names",
            Self::Meta { release: Release::Sam3, prefixed: false } => {
                "a SAM 3 detector in Meta's names without the prefix detector., as fine-tuning writes it"
            }
            Self::DartPruned => "an image backbone pruned by DART",
            Self::DartStudent => "a student backbone of DART",
            Self::EfficientSam3 { .. } => "EfficientSAM3, a detector with a convolutional backbone",
        })
    }
}

/// A tensor's name without what training and wrapping programs add.
pub(super) fn spell(name: &str) -> String {
    let name = name.strip_prefix("module.").unwrap_or(name);
    let name = match name.strip_prefix("sam3_model.") {
        Some(rest) => format!("detector.{rest}"),
        None => name.to_owned(),
    };
    name.replace("_orig_mod.", "").replace("student_trunk.", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised_by_their_keys() {
        let trunk = "backbone.vision_backbone.trunk.blocks.0.norm1.weight";
        let released = format!("detector.{trunk}");
        let wrapped = format!("module.sam3_model.{trunk}");
        let head = "detector.backbone.vision_backbone.interactive_convs.0.conv_1x1.weight";
        let meta = |release, prefixed| Some(Family::Meta { release, prefixed });
        let cases: [(&[&str], _); 10] = [
            (&["vision_encoder.backbone.layer_norm.weight"], Some(Family::HuggingFace)),
            (&["tracker_model.a", "detector_model.vision_encoder.b"], Some(Family::HuggingFace)),
            (&[&released, "tracker.x"], meta(Release::Sam3, true)),
            (&[trunk], meta(Release::Sam3, false)),
            (&[&wrapped], meta(Release::Sam3, true)),
            (&[&released, head], meta(Release::Sam31, true)),
            (&["trunk.blocks.0.norm1.weight", "convs.0.conv_1x1.weight"], Some(Family::DartPruned)),
            (&["backbone.stages_0.x", "adapters.0.proj.weight"], Some(Family::DartStudent)),
            (
                &["detector.backbone.vision_backbone.student_trunk.trunk.model.backbone.model.features.0.x"],
                Some(Family::EfficientSam3 { prefixed: true }),
            ),
            (&["layer1.weight"], None),
        ];
        for (names, expected) in cases {
            let spelled: Vec<String> = names.iter().map(|name| spell(name)).collect();
            assert_eq!(Family::of(spelled.iter().map(String::as_str)), expected, "{names:?}");
        }
    }
}
