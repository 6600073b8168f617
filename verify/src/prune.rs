//! Finds the branches of a vision transformer that a model can do without.
//!
//! [`search`] removes each block and each branch of a block alone, which says how much it matters, and then, again and again,
//! the one whose removal costs least, as DART's search and BlockPruner (arXiv 2406.10594) do. What a removal costs is
//! measured on images, against the whole model: how far the features move, and which detections are lost, new or moved.
//!
//! The search removes what an exhaustive search would remove, as far as the third rule holds. It computes less:
//!
//! - The backbone is a [chain of graphs](ocelli_export::export_chain). A candidate runs from its own branch on, from tokens
//!   that are kept for each image. With less memory than all tokens need, evenly spaced ones are kept.
//! - Costs are sums over images that cannot be negative, so the sum over some images is a lower bound. The candidate with the
//!   lowest bound gets the next image, and the first one that has seen all of them is the best: the others are left at the
//!   images that they have seen (uniform-cost search). Images in which removals cost most come first.
//! - What is removed later moves the features further: an image that has not been seen counts with 0.9 times what the same
//!   candidate cost in it after fewer removals, or what the removals before it cost. A candidate that was far from the best once is
//!   not measured again. This alone is a rule of experience, and [`PruneOptions::exhaustive`] does without it.
//! - The first removal needs no measurement beyond those of the ranking.
//!
//! Every measurement is a line of a journal, so that a search that was stopped continues where it was. The result depends on
//! the measurements alone: ties go to the branch that comes first in the backbone. Times are measured once, as medians of all
//! branches of one kind, and kept in the journal; they decide nothing unless the [objective](Objective) asks for them, and
//! then as multiples of a quarter of the fastest kind's time, which small differences between runs do not change.

mod chain;
mod effect;
mod journal;
mod least;
mod plot;
mod report;
mod split;
mod subject;
#[cfg(test)]
mod tests;
mod units;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ocelli::{Error, ErrorKind, Model, Prompts, Result, engine::EngineFactory};
use ocelli_export::{Checkpoint, MaskedBranch};
use serde::Serialize;

use effect::Measurement;
use journal::{Identity, Journal};
use least::Cost;
use subject::Subject;

pub use effect::{DetectionEffect, Effect};
pub use report::{Importance, PruneReport, PruneStep, PruneWork};
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
        f.write_str(match self {
            Self::Features => "features",
            Self::Detections => "detections",
            Self::DetectionsPerMs => "detections-per-ms",
        })
    }
}

impl FromStr for Objective {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Features, Self::Detections, Self::DetectionsPerMs];
        all.into_iter().find(|objective| objective.to_string() == text).ok_or_else(|| {
            let message = format!("objective {text}: expected features, detections or detections-per-ms");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

/// The least that a removal is taken to cost in an image, as a share of what it cost there after fewer removals: seldom was it less
/// in one image, and never in the mean of several.
const GROWTH: f64 = 0.9;

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
    /// [`ErrorKind::InvalidArgument`]; the message names the option.
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
/// [`ErrorKind::InvalidArgument`] for options that do not fit the checkpoint, without images, and if the model finds nothing in
/// them although detections are the objective; [`ErrorKind::Mismatch`] if the journal is that of another search;
/// [`ErrorKind::Execution`] if a graph fails; the errors of reading images and writing files, and the error that `progress`
/// returns.
pub fn search(
    input: PruneInput<'_>,
    options: &PruneOptions,
    progress: &mut ReportProgress<'_>,
) -> Result<PruneReport> {
    let units = units::of(input.checkpoint, options)?;
    let images = input.images.len() as u64;
    if images == 0 {
        let message = "cannot search for blocks to prune: there are no images; expected at least one";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
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
        most: BTreeMap::new(),
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
    /// The most that an image cost without a unit, or without what was removed before it.
    most: BTreeMap<(Unit, usize), f64>,
}

impl Search<'_, '_> {
    fn run(
        mut self,
        units: &units::Units,
        input: &PruneInput<'_>,
        score_threshold: f32,
    ) -> Result<PruneReport> {
        let counts_detections = self.options.objective != Objective::Features;
        let times = self.measure_times(counts_detections)?;
        self.begin_stage("importance of each block".into(), units.alone.len());
        let nothing = BTreeSet::new();
        let mut alone = vec![Vec::with_capacity(self.images); units.alone.len()];
        // Image by image, front to back: the tokens of the last candidate are where the next one's begin.
        for image in 0..self.images {
            for (unit, found) in units.alone.iter().zip(&mut alone) {
                let measured = self.measure(&nothing, &unit.branches(), image, counts_detections)?;
                self.note_cost(*unit, image, &measured);
                found.push(measured);
            }
        }
        let importance = units.alone.iter().zip(&alone).map(|(unit, found)| Importance {
            unit: *unit,
            effect: Effect::of(found),
            saved_ms: times.of(&unit.branches(), self.subject.global_blocks()),
        });
        let importance = importance.collect();

        let order = self.hardest_first(&alone);
        let mut removed = BTreeSet::new();
        let mut remaining = units.removable.clone();
        let mut steps: Vec<PruneStep> = Vec::with_capacity(self.options.num_prune + 1);
        for number in 1..=self.options.num_prune {
            let stage = format!("removal {number} of {}", self.options.num_prune);
            // The candidates of the first removal are known.
            self.begin_stage(stage.clone(), if number > 1 { remaining.len() } else { 0 });
            let best = self.choose(&removed, &remaining, &order, &times)?;
            self.begin_stage(stage, 1);
            let unit = remaining.remove(best);
            removed.extend(unit.branches());
            let found = (0..self.images).map(|image| self.measure(&removed, &[], image, true));
            let found = found.collect::<Result<Vec<_>>>()?;
            for (image, found) in found.iter().enumerate() {
                remaining.iter().for_each(|unit| self.note_cost(*unit, image, found));
            }
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
            work: PruneWork {
                branch_runs: self.subject.branch_runs(),
                whole_pass_runs: units.runs_of_whole_passes(self.subject.branches(), self.options.num_prune)
                    * self.images as u64,
            },
            times,
            importance,
            steps,
        })
    }

    /// The times of the parts: those in the journal, else those of the whole model on all images.
    fn measure_times(&mut self, needs_detections: bool) -> Result<PartTimes> {
        self.begin_stage("the whole model".into(), 1);
        if let Some(times) = self.journal.times() {
            return Ok(times);
        }
        let mut found = 0;
        for image in 0..self.images {
            (self.progress)(&self.state)?;
            found += self.subject.reference(image)?;
            self.state.done += 1;
        }
        if found == 0 && needs_detections {
            let message = format!(
                "objective {}: the model finds nothing in the images; expected classes that they show",
                self.options.objective
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let times = self.subject.times();
        self.journal.add_times(&times)?;
        Ok(times)
    }

    /// The unit whose removal costs least, as an index.
    fn choose(
        &mut self,
        removed: &BTreeSet<MaskedBranch>,
        units: &[Unit],
        order: &[usize],
        times: &PartTimes,
    ) -> Result<usize> {
        let objective = self.options.objective;
        let weights: Vec<f64> = match objective {
            Objective::DetectionsPerMs => {
                let global = self.subject.global_blocks();
                units.iter().map(|unit| times.weight(&unit.branches(), global)).collect()
            }
            _ => vec![1.0; units.len()],
        };
        let floors: Vec<_> = units.iter().map(|unit| self.floors(*unit, order)).collect();
        let floor = |unit: usize, seen: usize| Cost(floors[unit][seen], 0.0);
        let best = least::least(units.len(), order.len(), &floor, &mut |unit, seen| {
            let counts = objective != Objective::Features;
            let found = self.measure(removed, &units[unit].branches(), order[seen], counts)?;
            self.note_cost(units[unit], order[seen], &found);
            let Cost(first, second) = self.cost(&found);
            Ok(Cost(first / weights[unit], second / weights[unit]))
        })?;
        Ok(best.expect("there are more units than removals"))
    }

    fn note_cost(&mut self, unit: Unit, image: usize, found: &Measurement) {
        let Cost(cost, _) = self.cost(found);
        let most = self.most.entry((unit, image)).or_default();
        *most = most.max(cost);
    }

    /// For each number of images that were seen, the least that the others are taken to cost without this unit.
    fn floors(&self, unit: Unit, order: &[usize]) -> Vec<f64> {
        let mut floors = vec![0.0; order.len()];
        if self.options.exhaustive || self.options.objective != Objective::Features {
            return floors;
        }
        let mut rest = 0.0;
        for (floor, image) in floors.iter_mut().zip(order).rev() {
            rest += GROWTH * self.most.get(&(unit, *image)).copied().unwrap_or(0.0);
            *floor = rest;
        }
        floors
    }

    fn cost(&self, found: &Measurement) -> Cost {
        let distance = f64::from(found.relative_l2);
        match found.detections.filter(|_| self.options.objective != Objective::Features) {
            Some(found) => Cost(found.cost(), distance),
            None => Cost(distance, 0.0),
        }
    }

    /// The images, first those in which removals cost most: there, sums grow fast, and fewer images show which is the least.
    fn hardest_first(&self, alone: &[Vec<Measurement>]) -> Vec<usize> {
        let sum = |image: usize| {
            alone.iter().map(|found| self.cost(&found[image])).fold(Cost(0.0, 0.0), Cost::plus)
        };
        let mut order: Vec<_> = (0..self.images).collect();
        order.sort_by_cached_key(|&image| (Reverse(sum(image)), image));
        order
    }

    /// What it costs in an image to remove a unit besides what is removed: from the journal, else measured.
    fn measure(
        &mut self,
        removed: &BTreeSet<MaskedBranch>,
        unit: &[MaskedBranch],
        image: usize,
        detections: bool,
    ) -> Result<Measurement> {
        (self.progress)(&self.state)?;
        self.state.done = (self.state.done + 1).min(self.planned);
        let all: BTreeSet<_> = removed.iter().chain(unit).copied().collect();
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
    fn backbone_ms(&self, times: &PartTimes, removed: &BTreeSet<MaskedBranch>) -> f64 {
        let kept: Vec<_> = self.subject.branches().iter().filter(|b| !removed.contains(b)).copied().collect();
        times.embedding_ms + times.of(&kept, self.subject.global_blocks()) + times.neck_ms
    }
}
