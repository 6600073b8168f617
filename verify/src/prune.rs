//! Finds the branches of a vision transformer that a model can do without.
//!
//! [`search`] removes each block and each branch of a block alone, which says how much it matters, and then, again and again,
//! the one whose removal costs least, as DART's search and BlockPruner (arXiv 2406.10594) do. What a removal costs is
//! measured on images, against the whole model: how far the features move, and which detections are lost, new or moved.
//!
//! The backbone is a [chain of graphs](ocelli_export::export_chain). A candidate runs from its own branch on, from tokens that
//! are kept for each image. With less memory than all tokens need, evenly spaced ones are kept.
//!
//! Candidates that cost least when they were last measured come first. Costs are never negative, so a candidate whose images
//! so far cost more than the best candidate is not the best: it is left there. What is removed later moves the features further:
//! once 0.9 times what a candidate has cost is more than the best, it and those behind it are not measured. This alone is a rule
//! of experience, and [`PruneOptions::exhaustive`] does without it.
//!
//! Every measurement is a line of a journal, so that a search that was stopped continues where it was. The result depends on
//! the measurements alone: ties go to the branch that comes first in the backbone. Times are measured once, as medians of all
//! branches of one kind, and kept in the journal; they decide nothing unless the [objective](Objective) asks for them, and
//! then as multiples of a quarter of the fastest kind's time, which small differences between runs do not change.

mod chain;
mod effect;
mod journal;
mod report;
mod split;
mod subject;
#[cfg(test)]
mod tests;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ocelli::{Error, Model, Prompts, Result, engine::EngineFactory};
use ocelli_export::{Checkpoint, MaskedBranch};
use serde::Serialize;

use effect::Measurement;
use journal::{Identity, Journal};
use subject::Subject;
use units::Units;

pub use effect::{DetectionEffect, Effect};
pub use report::{Importance, PruneReport, PruneStep};
pub use split::{BlockTimes, SplitInput, SplitPoint, SplitReport, best_split, optimise_split, split_points};
pub use subject::PartTimes;
pub use units::Unit;

/// The quantity that the search keeps low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The distance of the features from those of the whole model, relative to their length. Needs no decoding.
    #[default]
    Features,
    /// The detections that are lost or new and how far the others moved, as [`DetectionEffect::cost`] says; among equal ones
    /// the distance of the features.
    Detections,
    /// The same for each millisecond that the removal saves.
    DetectionsPerMs,
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name that reports have.
        self.serialize(f)
    }
}

impl FromStr for Objective {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Features, Self::Detections, Self::DetectionsPerMs];
        all.into_iter().find(|objective| objective.to_string() == text).ok_or_else(|| {
            let message = format!("objective {text}: expected features, detections or detections-per-ms");
            Error::invalid_argument(message)
        })
    }
}

/// The least that a removal is taken to cost, as a share of what it cost after fewer removals.
const GROWTH: f64 = 0.9;

/// What a removal costs, never negative; the second number decides among equal first ones.
type Cost = [f64; 2];

/// Branches that are removed.
type Branches = BTreeSet<MaskedBranch>;

/// Options of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct PruneOptions {
    /// Whether whole blocks are removed; otherwise branches (false).
    pub whole_blocks: bool,
    /// The number of blocks or branches to remove (8).
    pub num_prune: usize,
    /// Blocks and branches that stay, besides the blocks with attention over the whole image (none).
    pub protect: Vec<Unit>,
    /// The blocks and branches that may be removed; all if it is empty (empty).
    pub candidates: Vec<Unit>,
    /// The quantity that the search keeps low.
    pub objective: Objective,
    /// Detections above this score count. The default, `None`, is the model's own threshold.
    pub score_threshold: Option<f32>,
    /// Whether candidates are measured as if nothing were known from fewer removals, which takes longer (false). It is always so
    /// if detections are counted: a removal can bring a detection back.
    pub exhaustive: bool,
    /// Memory for the tokens of the images, in bytes (4 GiB).
    pub memory_bytes: u64,
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self {
            whole_blocks: false,
            num_prune: 8,
            protect: Vec::new(),
            candidates: Vec::new(),
            objective: Objective::default(),
            score_threshold: None,
            exhaustive: false,
            memory_bytes: 4 << 30,
        }
    }
}

impl PruneOptions {
    /// Checks the options against the checkpoint, as [`search`] does.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument); the message names the option.
    pub fn check(&self, checkpoint: &Checkpoint) -> Result<()> {
        units::of(checkpoint, self).map(|_| ())
    }
}

/// What is searched.
#[derive(Clone, Copy)]
pub struct PruneInput<'i> {
    /// The checkpoint whose backbone is pruned.
    pub checkpoint: &'i Checkpoint,
    /// The whole model that was exported from it.
    pub model: &'i Model,
    /// Runs the graphs.
    pub factory: &'i EngineFactory,
    /// Image files like those that the model is for.
    pub images: &'i [PathBuf],
    /// The prompts for every image.
    pub prompts: &'i Prompts,
    /// The file that keeps measurements, created if missing.
    pub journal: &'i Path,
    /// A folder for the graphs of the chain, which are removed at the end. They take as much space as the backbone.
    pub scratch: &'i Path,
}

/// The progress of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneProgress {
    /// What is done: `removal 3 of 8`.
    pub stage: String,
    /// Measurements that are done, or that turned out to be unnecessary.
    pub done: u64,
    /// The most measurements that can be necessary.
    pub total: u64,
}

/// A callback that is called before each step. An error from it ends the search.
pub type ReportProgress<'r> = dyn FnMut(&PruneProgress) -> Result<()> + 'r;

/// Searches for the branches that matter least.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for options that do not fit the checkpoint, without
/// images, and if the model finds nothing in them although detections are the objective;
/// [`ErrorKind::Mismatch`](ocelli::ErrorKind::Mismatch) if the journal is that of another search;
/// [`ErrorKind::Execution`](ocelli::ErrorKind::Execution) if a graph fails; the errors of reading images and writing files,
/// and the error that `progress` returns.
pub fn search(
    input: PruneInput<'_>,
    options: &PruneOptions,
    progress: &mut ReportProgress<'_>,
) -> Result<PruneReport> {
    let units = units::of(input.checkpoint, options)?;
    let images = input.images.len() as u64;
    if images == 0 {
        let message = "cannot search for blocks to prune: there are no images; expected at least one";
        return Err(Error::invalid_argument(message));
    }
    let threshold = options.score_threshold.unwrap_or(input.model.manifest().thresholds.confidence);
    let journal = Journal::open(input.journal, &Identity::of(&input, threshold)?)?;
    let (alone, all) = (units.alone.len() as u64, units.removable.len() as u64);
    let later: u64 = (1..options.num_prune as u64).map(|removed| all - removed).sum();
    let total = (1 + alone + later + options.num_prune as u64) * images;
    let first = PruneProgress { stage: "exporting the chain".into(), done: 0, total };
    progress(&first)?;
    let subject = Subject::new(&input, options, &mut || progress(&first))?;
    let search = Search {
        options,
        images: input.images.len(),
        subject,
        journal,
        progress,
        state: first,
        planned: 0,
        known: BTreeMap::new(),
    };
    search.run(&units, &input, threshold)
}

struct Search<'s, 'r> {
    options: &'s PruneOptions,
    images: usize,
    subject: Subject<'s>,
    journal: Journal,
    progress: &'s mut ReportProgress<'r>,
    state: PruneProgress,
    /// Measurements up to the end of this stage.
    planned: u64,
    /// The most that the images cost together without a unit, as far as they were measured.
    known: BTreeMap<Unit, Cost>,
}

impl Search<'_, '_> {
    fn run(mut self, units: &Units, input: &PruneInput<'_>, score_threshold: f32) -> Result<PruneReport> {
        let counts_detections = self.options.objective != Objective::Features;
        let times = self.measure_times(counts_detections)?;
        self.begin_stage("importance of each block".into(), units.alone.len());
        let nothing = Branches::new();
        let mut alone = vec![Vec::with_capacity(self.images); units.alone.len()];
        // Image by image, front to back: the tokens of the last candidate are where the next one's begin.
        for image in 0..self.images {
            for (unit, found) in units.alone.iter().zip(&mut alone) {
                found.push(self.measure(&nothing, &unit.branches(), image, counts_detections)?);
            }
        }
        for (unit, found) in units.alone.iter().zip(&alone) {
            self.known.insert(*unit, found.iter().map(|one| self.cost(one)).fold([0.0; 2], plus));
        }
        let importance = units.alone.iter().zip(&alone).map(|(unit, found)| Importance {
            unit: *unit,
            effect: Effect::of(found),
            saved_ms: times.of(&unit.branches(), self.subject.global_blocks),
        });
        let importance = importance.collect();

        let mut removed = Branches::new();
        let mut remaining = units.removable.clone();
        let mut steps: Vec<PruneStep> = Vec::with_capacity(self.options.num_prune + 1);
        for number in 1..=self.options.num_prune {
            let stage = format!("removal {number} of {}", self.options.num_prune);
            // The candidates of the first removal are known.
            self.begin_stage(stage.clone(), if number > 1 { remaining.len() } else { 0 });
            let best = self.choose(&removed, &remaining, &times)?;
            self.begin_stage(stage, 1);
            let unit = remaining.remove(best);
            removed.extend(unit.branches());
            let found = (0..self.images).map(|image| self.measure(&removed, &[], image, true));
            let found = found.collect::<Result<Vec<_>>>()?;
            if number == 1 {
                let whole: Vec<_> = found.iter().map(Measurement::of_whole_model).collect();
                let ms = self.backbone_ms(&times, &nothing);
                steps.push(PruneStep::new(None, &nothing, Effect::of(&whole), ms));
            }
            let ms = self.backbone_ms(&times, &removed);
            steps.push(PruneStep::new(Some(unit), &removed, Effect::of(&found), ms));
        }
        let manifest = input.model.manifest();
        Ok(PruneReport {
            weights_sha256: manifest.weights_sha256.clone(),
            imgsz: manifest.imgsz,
            engine: input.factory.description(),
            images: input.images.iter().map(|path| path.display().to_string()).collect(),
            classes: input.prompts.labels().iter().map(ToString::to_string).collect(),
            score_threshold,
            objective: self.options.objective,
            whole_blocks: self.options.whole_blocks,
            times,
            importance,
            steps,
        })
    }

    /// The times of the parts: those in the journal, else those of the whole model on all images.
    fn measure_times(&mut self, needs_detections: bool) -> Result<PartTimes> {
        self.begin_stage("the whole model".into(), 1);
        if let Some(times) = self.journal.times {
            return Ok(times);
        }
        let mut found = 0;
        for image in 0..self.images {
            (self.progress)(&self.state)?;
            found += self.subject.reference(image)?;
            self.state.done += 1;
        }
        if found == 0 && needs_detections {
            return Err(Error::invalid_argument(format!(
                "objective {}: the model finds nothing in the images; expected classes that they show",
                self.options.objective
            )));
        }
        let times = self.subject.times();
        self.journal.add_times(&times)?;
        Ok(times)
    }

    /// The unit whose removal costs least, as an index; the first of equal ones.
    fn choose(&mut self, removed: &Branches, units: &[Unit], times: &PartTimes) -> Result<usize> {
        let counts = self.options.objective != Objective::Features;
        // A removal can bring a detection back.
        let can_skip = !self.options.exhaustive && !counts;
        let known = |unit: usize| self.known.get(&units[unit]).copied().unwrap_or_default();
        let mut order: Vec<(Cost, usize)> = (0..units.len()).map(|unit| (known(unit), unit)).collect();
        order.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]).then(a.1.cmp(&b.1)));
        let mut best: Option<(Cost, usize)> = None;
        for (known, unit) in order {
            if can_skip && best.is_some_and(|(least, _)| GROWTH * known[0] > least[0]) {
                break;
            }
            let branches = units[unit].branches();
            let weight = match self.options.objective {
                Objective::DetectionsPerMs => times.weight(&branches, self.subject.global_blocks),
                _ => 1.0,
            };
            let mut sum = [0.0; 2];
            for image in 0..self.images {
                let found = self.measure(removed, &branches, image, counts)?;
                sum = plus(sum, self.cost(&found).map(|cost| cost / weight));
                if best.is_some_and(|(least, _)| sum > least) {
                    break;
                }
            }
            if sum[0] > known[0] {
                self.known.insert(units[unit], sum);
            }
            if best.is_none_or(|least| (sum, unit) < least) {
                best = Some((sum, unit));
            }
        }
        Ok(best.expect("there are more units than removals").1)
    }

    fn cost(&self, found: &Measurement) -> Cost {
        let distance = f64::from(found.relative_l2);
        match found.detections.filter(|_| self.options.objective != Objective::Features) {
            Some(found) => [found.cost(), distance],
            None => [distance, 0.0],
        }
    }

    /// What it costs in an image to remove a unit besides what is removed: from the journal, else measured.
    fn measure(
        &mut self,
        removed: &Branches,
        unit: &[MaskedBranch],
        image: usize,
        detections: bool,
    ) -> Result<Measurement> {
        (self.progress)(&self.state)?;
        self.state.done = (self.state.done + 1).min(self.planned);
        let all: Branches = removed.iter().chain(unit).copied().collect();
        let known = self.journal.measurement(&all, image);
        if let Some(known) = known.filter(|known| known.detections.is_some() || !detections) {
            return Ok(known);
        }
        let found = self.subject.measure(removed, unit, image, detections)?;
        self.journal.add(&all, image, &found)?;
        Ok(found)
    }

    /// Begins a stage of at most this many measurements of each image. Those of the last one that were not necessary count as
    /// done.
    fn begin_stage(&mut self, stage: String, measurements: usize) {
        self.state = PruneProgress { stage, done: self.planned, total: self.state.total };
        self.planned += (measurements * self.images) as u64;
    }

    /// The time of the backbone without these branches.
    fn backbone_ms(&self, times: &PartTimes, removed: &Branches) -> f64 {
        let kept: Vec<_> =
            self.subject.chain.branches.iter().filter(|b| !removed.contains(b)).copied().collect();
        times.embedding_ms + times.of(&kept, self.subject.global_blocks) + times.neck_ms
    }
}

/// Writes a report as JSON.
///
/// # Errors
/// Errors of `writer`.
pub fn write_json(mut writer: impl Write, report: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut writer, report)?;
    writeln!(writer)
}

fn plus(a: Cost, b: Cost) -> Cost {
    [a[0] + b[0], a[1] + b[1]]
}
