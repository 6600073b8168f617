//! A description of a checkpoint, without exporting it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::container::Format;
use super::family::Family;
use super::load::Loaded;
use super::{CheckpointOptions, NormEps, Opened, read};
use crate::config::{ModelConfig, TextEncoder};
use crate::contract::TextPadding;
use crate::exporter::graphs;
use crate::prune::Pruning;
use ocelli_error::Result;

/// The description of a checkpoint.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What it is, in words.
    pub family: String,
    /// `safetensors` or `torch.save`.
    pub container: &'static str,
    /// The parts of the detector, front to back.
    pub parts: Vec<PartSummary>,
    /// Number formats of the detector's tensors: name, tensors, parameters.
    pub formats: Vec<(String, usize, u64)>,
    /// What is not used: why, with the number of tensors and of bytes in the file.
    pub ignored: BTreeMap<String, (usize, u64)>,
    /// The sizes of the model, if it can be exported.
    pub config: Option<ModelConfig>,
    /// The files of the graphs that an export in 32 bits writes, and the bytes of their weights.
    pub graphs: Vec<(&'static str, u64)>,
    /// The blocks and branches that it lacks because it was pruned.
    pub pruning: Pruning,
    /// Remarks to read before an export.
    pub notes: Vec<String>,
    /// Why it cannot be exported, if so.
    pub problem: Option<String>,
}

/// One part of a detector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSummary {
    /// Its name, such as `image transformer`.
    pub name: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of parameters.
    pub parameters: u64,
}

/// Parts by the start of their tensors' names.
const PARTS: [(&str, &[&str]); 11] = [
    ("image transformer", &["vision_encoder.backbone."]),
    ("image backbone", &["vision_encoder.student."]),
    ("head or adapters", &["vision_encoder.head.", "vision_encoder.adapters."]),
    ("neck", &["vision_encoder.neck."]),
    ("text encoder", &["text_encoder.", "text_projection."]),
    ("exemplar encoder", &["geometry_encoder."]),
    ("fusion encoder", &["detr_encoder."]),
    ("decoder", &["detr_decoder.", "dot_product_scoring."]),
    ("mask head", &["mask_decoder."]),
    ("memory tracker", &["tracker_model.", "tracker_neck."]),
    (
        "multiplex tracker",
        &["multiplex_model.", "multiplex_neck.", "interactive_model.", "interactive_neck."],
    ),
];

pub(super) fn inspect(options: &CheckpointOptions, path: &Path) -> Result<Inspection> {
    let (_, loaded) = read(path).map_err(|e| super::locate(e, path))?;
    let mut inspection = summary(&loaded);
    match Opened::new(path, options) {
        Ok(opened) => {
            inspection.notes.extend(notes(options, &opened));
            match options.tokenizer_of(&opened) {
                Ok(path) => inspection.notes.push(format!("tokeniser: {}", path.display())),
                Err(error) => inspection.problem = Some(error.to_string()),
            }
            inspection.config = Some(opened.config.clone());
            match graphs(&opened.into_checkpoint(PathBuf::new(), String::new())) {
                Ok(graphs) => inspection.graphs = graphs,
                Err(error) => inspection.problem = Some(error.to_string()),
            }
        }
        Err(error) => inspection.problem = Some(error.to_string()),
    }
    Ok(inspection)
}

fn summary(loaded: &Loaded) -> Inspection {
    let views = &loaded.weights.views;
    let of_part = |starts: &[&str]| {
        let found = views.iter().filter(|(name, _)| starts.iter().any(|start| name.starts_with(start)));
        found.fold((0, 0u64), |(tensors, parameters), (_, view)| {
            (tensors + 1, parameters.saturating_add(view.count() as u64))
        })
    };
    let parts = PARTS.iter().map(|(name, starts)| {
        let (tensors, parameters) = of_part(starts);
        PartSummary { name, tensors, parameters }
    });
    let mut formats: BTreeMap<Format, (usize, u64)> = BTreeMap::new();
    for view in views.values() {
        let tally = formats.entry(view.format).or_default();
        *tally = (tally.0 + 1, tally.1.saturating_add(view.count() as u64));
    }
    let mut notes = Vec::new();
    if !loaded.unknown.is_empty() {
        notes.push(format!("{} unknown tensors, the first is {}", loaded.unknown.len(), loaded.unknown[0]));
    }
    Inspection {
        family: loaded.family.to_string(),
        container: if loaded.is_torch { "torch.save" } else { "safetensors" },
        parts: parts.filter(|part| part.tensors > 0).collect(),
        formats: formats
            .into_iter()
            .map(|(format, (tensors, parameters))| (format.to_string(), tensors, parameters))
            .collect(),
        ignored: loaded.ignored.clone(),
        config: None,
        graphs: Vec::new(),
        pruning: loaded.pruning.clone(),
        notes,
        problem: None,
    }
}

fn notes(options: &CheckpointOptions, opened: &Opened) -> Vec<String> {
    let mut notes = Vec::new();
    let eps = opened.config.vision.layer_norm_eps;
    let configured = opened.loaded.family == Family::HuggingFace && options.norm_eps == NormEps::Configured;
    if configured && eps < 5e-6 {
        notes.push(format!(
            "layer norm's epsilon is {eps:e} as in config.json and in transformers; the released weights were trained \
             with 1e-5: norm_eps original"
        ));
    }
    notes.extend(opened.loaded.left_out().map(|part| format!("left out: {part}")));
    if let Some(student) = &opened.config.student {
        notes.push(format!("the image backbone is {}, without blocks to prune or split", student.name()));
    }
    if !opened.config.has_exemplars() {
        notes.push("without an encoder of exemplars: prompts are text only".into());
    }
    if let TextEncoder::MobileClip(text) = opened.config.text.encoder {
        let padding = match text.padding {
            TextPadding::Training => "as it was trained: token 0, without a mask",
            TextPadding::Transformers => "as in transformers: the end token, masked",
        };
        notes.push(format!(
            "the text encoder is MobileCLIP's with {} positions; phrases are padded {padding} (text_padding)",
            text.positions
        ));
    }
    if let Some(base) = &options.base {
        notes.push(format!("everything but the image backbone comes from {}", base.display()));
    }
    notes
}
