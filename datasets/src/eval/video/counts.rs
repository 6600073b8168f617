//! What is counted of tracks.

use super::clear::{ClearCounts, identity_hits};
use super::hota::HotaCounts;
use super::{TrackFigures, TrackSequence};

/// The sums behind [`TrackFigures`]: those of sequences and classes add up, as TrackEval combines sequences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackCounts {
    hota: HotaCounts,
    clear: ClearCounts,
    identity_hits: u64,
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
