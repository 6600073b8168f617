//! Finds the branches of a vision transformer that a model can do without.
//!
//! [`search`] removes each block and each branch of a block alone, which says how much it matters, and then, again and again,
//! the one whose removal costs least, as DART's search and BlockPruner (arXiv 2406.10594) do. What a removal costs is
//! measured on images, against the whole model: how far the features move. Which detections are lost, new or moved is reported.
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
//! branches of one kind, and kept in the journal; they decide nothing.

mod chain;
mod effect;
mod journal;
mod report;
mod subject;
#[cfg(test)]
mod tests;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ocelli::{Model, Prompts, Result, engine::EngineFactory};
use ocelli_error::refuse;
use ocelli_export::{Checkpoint, MaskedBranch};

use effect::Measurement;
use journal::{Identity, Journal};
use subject::Subject;
use units::Units;

pub use effect::{DetectionEffect, Effect};
pub use report::{Importance, PruneReport, PruneStep};
pub use subject::PartTimes;
pub use units::Unit;

/// The least that a removal is taken to cost, as a share of what it cost after fewer removals.
const GROWTH: f64 = 0.9;

/// Branches that are removed.
type Branches = BTreeSet<MaskedBranch>;

/// Options of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct PruneOptions {
    /// Removes whole blocks; otherwise branches (false).
    pub whole_blocks: bool,
    /// The number of blocks or branches to remove (8).
    pub num_prune: usize,
    /// Blocks and branches that stay, besides the blocks with attention over the whole image (none).
    pub protect: Vec<Unit>,
    /// Detections above this score count. The default, `None`, is the model's own threshold.
    pub confidence: Option<f32>,
    /// Measures candidates as if nothing were known from fewer removals, which takes longer (false).
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
            confidence: None,
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

/// The input of a search.
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
    /// The current step: `removal 3 of 8`.
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
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for options that do not fit the checkpoint, and without
/// images;
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
        refuse!("cannot search for blocks to prune: there are no images; expected at least one");
    }
    let threshold = options.confidence.unwrap_or(input.model.manifest().thresholds.confidence);
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
    /// The most that the features of the images move together without a unit, as far as they were measured.
    known: BTreeMap<Unit, f64>,
}

impl Search<'_, '_> {
    fn run(mut self, units: &Units, input: &PruneInput<'_>, confidence: f32) -> Result<PruneReport> {
        let times = self.measure_times()?;
        self.begin_stage("importance of each block".into(), units.alone.len());
        let nothing = Branches::new();
        let mut alone = vec![Vec::with_capacity(self.images); units.alone.len()];
        // Image by image, front to back: the tokens of the last candidate are where the next one's begin.
        for image in 0..self.images {
            for (unit, found) in units.alone.iter().zip(&mut alone) {
                found.push(self.measure(&nothing, &unit.branches(), image, false)?);
            }
        }
        for (unit, found) in units.alone.iter().zip(&alone) {
            self.known.insert(*unit, found.iter().map(|one| f64::from(one.relative_l2)).sum());
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
            let best = self.choose(&removed, &remaining)?;
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
            confidence,
            whole_blocks: self.options.whole_blocks,
            times,
            importance,
            steps,
        })
    }

    /// The times of the parts: those in the journal, else those of the whole model on all images.
    fn measure_times(&mut self) -> Result<PartTimes> {
        self.begin_stage("the whole model".into(), 1);
        if let Some(times) = self.journal.times {
            return Ok(times);
        }
        for image in 0..self.images {
            (self.progress)(&self.state)?;
            self.subject.reference(image)?;
            self.state.done += 1;
        }
        let times = self.subject.times();
        self.journal.add_times(&times)?;
        Ok(times)
    }

    /// The unit whose removal costs least, as an index; the first of equal ones.
    fn choose(&mut self, removed: &Branches, units: &[Unit]) -> Result<usize> {
        let known = |unit: usize| self.known.get(&units[unit]).copied().unwrap_or_default();
        let mut order: Vec<(f64, usize)> = (0..units.len()).map(|unit| (known(unit), unit)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut best: Option<(f64, usize)> = None;
        for (known, unit) in order {
            if !self.options.exhaustive && best.is_some_and(|(least, _)| GROWTH * known > least) {
                break;
            }
            let branches = units[unit].branches();
            let mut sum = 0.0;
            for image in 0..self.images {
                sum += f64::from(self.measure(removed, &branches, image, false)?.relative_l2);
                if best.is_some_and(|(least, _)| sum > least) {
                    break;
                }
            }
            if sum > known {
                self.known.insert(units[unit], sum);
            }
            if best.is_none_or(|least| (sum, unit) < least) {
                best = Some((sum, unit));
            }
        }
        Ok(best.expect("there are more units than removals").1)
    }

    /// The cost in an image of removing a unit besides what is removed: from the journal, else measured.
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
            // What a later stage counted is no part of this one: a search that continues has the same report.
            return Ok(Measurement { detections: known.detections.filter(|_| detections), ..known });
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
