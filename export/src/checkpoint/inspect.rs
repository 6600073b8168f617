//! A description of a checkpoint, without exporting it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{CheckpointOptions, OpenedCheckpoint, read};
use crate::exporter::ExportOptions;
use crate::model::Plan;
use ocelli_error::Result;

/// The description of a checkpoint.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its family, in words.
    pub family: String,
    /// The parts of the detector, front to back.
    pub parts: Vec<PartSummary>,
    /// The parts that are not used: why, with the number of tensors and of bytes in the file.
    pub ignored: BTreeMap<String, (usize, u64)>,
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
    let parts = PARTS.iter().filter_map(|(name, starts)| {
        let views = loaded.weights.views.iter();
        let found = views.filter(|(name, _)| starts.iter().any(|start| name.starts_with(start)));
        let (tensors, parameters) = found.fold((0, 0u64), |(tensors, parameters), (_, view)| {
            (tensors + 1, parameters.saturating_add(view.count() as u64))
        });
        (tensors > 0).then_some(PartSummary { name, tensors, parameters })
    });
    Ok(Inspection {
        family: loaded.family.to_string(),
        parts: parts.collect(),
        ignored: loaded.ignored,
        problem: problem(options, path).err().map(|error| error.to_string()),
    })
}

/// Fails as an export does.
fn problem(options: &CheckpointOptions, path: &Path) -> Result<()> {
    let opened = OpenedCheckpoint::new(path, options)?;
    options.tokenizer_of(&opened)?;
    let checkpoint = opened.into_checkpoint(PathBuf::new(), String::new());
    Plan::new(&ExportOptions::default(), &checkpoint).map(drop)
}
