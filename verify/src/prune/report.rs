//! The result of a search.

use std::io::{self, Write};

use ocelli_export::Pruning;
use serde::Serialize;

use super::{Branches, Effect, PartTimes, Unit};

/// The importance of a block or a branch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Importance {
    /// The block or branch, removed alone.
    pub unit: Unit,
    /// Its effect.
    pub effect: Effect,
    /// The time that it takes, in milliseconds.
    pub saved_ms: f64,
}

/// A backbone of the search, from the whole one on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PruneStep {
    /// The last removal; `None` for the whole backbone.
    pub removed: Option<Unit>,
    /// All blocks that are removed.
    pub skip_blocks: Vec<usize>,
    /// All branches that are removed besides, as `25:attn`.
    pub mask_blocks: Vec<String>,
    /// The effect of all removals.
    pub effect: Effect,
    /// The time of the backbone, in milliseconds: that of its parts.
    pub backbone_ms: f64,
}

impl PruneStep {
    pub(super) fn new(removed: Option<Unit>, all: &Branches, effect: Effect, backbone_ms: f64) -> Self {
        let pruning = Pruning::of_branches(all.iter().copied());
        Self {
            removed,
            skip_blocks: pruning.skip_blocks.into_iter().collect(),
            mask_blocks: pruning.mask_blocks.iter().map(ToString::to_string).collect(),
            effect,
            backbone_ms,
        }
    }
}

/// The result of a search. Everything but the times is the same in every run on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PruneReport {
    /// Hash of the checkpoint's weights.
    pub weights_sha256: String,
    /// Side of the model's input.
    pub imgsz: usize,
    /// The engine.
    pub engine: String,
    /// The image files.
    pub images: Vec<String>,
    /// The prompts.
    pub classes: Vec<String>,
    /// Detections above this score count.
    pub confidence: f32,
    /// `true` if whole blocks were removed; otherwise branches.
    pub whole_blocks: bool,
    /// The times of the parts of the whole backbone.
    pub times: PartTimes,
    /// Blocks and branches, each removed alone, front to back.
    pub importance: Vec<Importance>,
    /// The whole backbone, then one step for each removal.
    pub steps: Vec<PruneStep>,
}

impl PruneReport {
    /// Writes two tables: the least important block or branch first, then the removals.
    ///
    /// # Errors
    /// Errors of `writer`.
    pub fn write_table(&self, mut writer: impl Write) -> io::Result<()> {
        let (images, classes) = (self.images.len(), self.classes.len());
        writeln!(writer, "removed alone, {images} images, {classes} classes, {}", self.engine)?;
        heading(&mut writer, "block", "saved ms")?;
        let mut rows: Vec<_> = self.importance.iter().collect();
        rows.sort_by(|a, b| a.effect.relative_l2.total_cmp(&b.effect.relative_l2).then(a.unit.cmp(&b.unit)));
        for row in rows {
            line(&mut writer, &row.unit.to_string(), &row.effect, row.saved_ms)?;
        }
        writeln!(writer, "\nremoved one after the other")?;
        heading(&mut writer, "removed", "backbone ms")?;
        for (number, step) in self.steps.iter().enumerate() {
            let name = step.removed.map_or("0 nothing".into(), |unit| format!("{number} {unit}"));
            line(&mut writer, &name, &step.effect, step.backbone_ms)?;
        }
        Ok(())
    }
}

fn heading(writer: &mut impl Write, unit: &str, ms: &str) -> io::Result<()> {
    writeln!(
        writer,
        "{unit:<12} {:>9} {:>9} {:>9} {:>8} {:>5} {:>5} {:>5} {ms:>12}",
        "L2", "worst L2", "cosine", "kept", "lost", "new", "moved"
    )
}

fn line(writer: &mut impl Write, unit: &str, effect: &Effect, ms: f64) -> io::Result<()> {
    let Effect { relative_l2, worst_relative_l2, cosine, .. } = effect;
    let kept = effect.kept_share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
    let [lost, new, moved] = effect.detections.map_or_else(
        || ["-"; 3].map(String::from),
        |found| [found.lost, found.new, found.moved].map(|count| count.to_string()),
    );
    writeln!(
        writer,
        "{unit:<12} {relative_l2:>9.4} {worst_relative_l2:>9.4} {cosine:>9.5} {kept:>8} {lost:>5} {new:>5} {moved:>5} {ms:>12.2}"
    )
}
