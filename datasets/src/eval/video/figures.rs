//! The figures of tracks.

use serde::Serialize;

use super::TrackSequence;
use super::clear::{ClearCounts, identity_hits};
use super::hota::HotaCounts;

/// The sums behind [`TrackFigures`]: those of sequences and classes add up, as TrackEval combines sequences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackCounts {
    hota: HotaCounts,
    clear: ClearCounts,
    identity_hits: u64,
}

/// Figures of tracks, as TrackEval computes them. Figures with decimals are 0 to 1; MOTA can be negative.
///
/// HOTA and its parts are means over the least overlaps 0.05, 0.10 … 0.95; the others are at 0.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TrackFigures {
    /// Higher order tracking accuracy: the geometric mean of `det_a` and `ass_a` at each level.
    pub hota: f64,
    /// Accuracy of detection.
    pub det_a: f64,
    /// Accuracy of association.
    pub ass_a: f64,
    /// Recall of detection.
    pub det_re: f64,
    /// Precision of detection.
    pub det_pr: f64,
    /// Recall of association.
    pub ass_re: f64,
    /// Precision of association.
    pub ass_pr: f64,
    /// Mean overlap of matches; 1 at levels without one.
    pub loc_a: f64,
    /// 1 minus misses, false positives and identity switches for each object.
    pub mota: f64,
    /// Mean overlap of the matches at 0.5.
    pub motp: f64,
    /// F1 of identities.
    pub idf1: f64,
    /// Recall of identities.
    pub idr: f64,
    /// Precision of identities.
    pub idp: f64,
    /// Boxes or masks of objects.
    pub objects: u64,
    /// Boxes or masks of tracks.
    pub tracked: u64,
    /// Objects that were found.
    pub true_positives: u64,
    /// Tracks without an object.
    pub false_positives: u64,
    /// Objects without a track.
    pub false_negatives: u64,
    /// Objects whose track's id changed.
    pub id_switches: u64,
    /// Objects that are tracked in more than 80 % of their frames.
    pub mostly_tracked: u64,
    /// Objects in between.
    pub partly_tracked: u64,
    /// Objects that are tracked in less than 20 % of their frames.
    pub mostly_lost: u64,
    /// Number of times that an object was lost and found again.
    pub fragmentations: u64,
}

impl TrackCounts {
    /// Counts a sequence.
    ///
    /// ```
    /// use ocelli_datasets::eval::video::{TrackCounts, TrackSequence};
    ///
    /// # fn main() -> ocelli::Result<()> {
    /// // One object in four frames, whose track's id changes after two.
    /// let mut sequence = TrackSequence::default();
    /// for track in [1, 1, 2, 2] {
    ///     sequence.push(vec![7], vec![track], vec![0.9])?;
    /// }
    /// let figures = TrackCounts::of(&sequence).figures();
    /// assert_eq!((figures.id_switches, figures.mota, figures.idf1), (1, 0.75, 0.5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(sequence: &TrackSequence) -> Self {
        Self {
            hota: HotaCounts::of(sequence),
            clear: ClearCounts::of(sequence),
            identity_hits: identity_hits(sequence),
        }
    }

    /// The figures.
    pub fn figures(&self) -> TrackFigures {
        let others = self.hota.figures(self.clear.figures());
        let (objects, tracks) = (others.objects as f64, others.tracked as f64);
        let share = |of: f64| self.identity_hits as f64 / of.max(1.0);
        let (idf1, idr, idp) = (share(0.5 * (objects + tracks)), share(objects), share(tracks));
        TrackFigures { idf1, idr, idp, ..others }
    }
}

impl std::iter::Sum for TrackCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.hota.add(&one.hota);
            sum.clear.add(&one.clear);
            sum.identity_hits += one.identity_hits;
            sum
        })
    }
}
