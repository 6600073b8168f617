//! HOTA: Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking", IJCV 2021.

use std::collections::BTreeMap;

use super::{TrackFigures, TrackFrame, TrackSequence, assign};

/// The least overlaps at which matches count: 0.05, 0.10 … 0.95.
pub(super) const LEVELS: usize = 19;

/// The sums behind HOTA at each level; those of sequences and classes add up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HotaCounts {
    /// The hits, and sums over them: the association's accuracy, recall and precision, and the overlap.
    sums: [[f64; LEVELS]; 5],
}

fn level(index: usize) -> f64 {
    0.05 + index as f64 * 0.05
}

impl HotaCounts {
    pub(super) fn of(sequence: &TrackSequence) -> Self {
        let mut row_length: BTreeMap<u64, f64> = BTreeMap::new();
        let mut column_length = row_length.clone();
        let mut together: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for TrackFrame { objects: rows, tracks: columns, overlaps } in &sequence.frames {
            rows.iter().for_each(|row| *row_length.entry(*row).or_default() += 1.0);
            columns.iter().for_each(|column| *column_length.entry(*column).or_default() += 1.0);
            let width = columns.len();
            let of_row: Vec<f64> =
                (0..rows.len()).map(|row| overlaps[row * width..(row + 1) * width].iter().sum()).collect();
            let of_column: Vec<f64> = (0..width)
                .map(|column| (0..rows.len()).map(|row| overlaps[row * width + column]).sum())
                .collect();
            for (place, &overlap) in overlaps.iter().enumerate().filter(|(_, overlap)| **overlap > 0.0) {
                let (row, column) = (place / width, place % width);
                let total = of_column[column] + of_row[row] - overlap;
                if total > f64::EPSILON {
                    *together.entry((rows[row], columns[column])).or_default() += overlap / total;
                }
            }
        }
        let alignment = |row: u64, column: u64| {
            let both = together.get(&(row, column)).copied().unwrap_or(0.0);
            both / (row_length[&row] + column_length[&column] - both)
        };
        let mut sums = [[0.0; LEVELS]; 5];
        let [all_hits, accuracy, recall, precision, all_overlaps] = &mut sums;
        let mut matched: BTreeMap<(u64, u64), [f64; LEVELS]> = BTreeMap::new();
        for TrackFrame { objects: rows, tracks: columns, overlaps } in &sequence.frames {
            let width = columns.len();
            let score = |(place, overlap): (usize, &f64)| {
                // Most pairs have nothing in common.
                if *overlap == 0.0 {
                    0.0
                } else {
                    alignment(rows[place / width], columns[place % width]) * overlap
                }
            };
            let scores: Vec<f64> = overlaps.iter().enumerate().map(score).collect();
            for (row, column) in assign(&scores, rows.len(), width) {
                let overlap = overlaps[row * width + column];
                for index in (0..LEVELS).filter(|&index| overlap >= level(index) - f64::EPSILON) {
                    all_hits[index] += 1.0;
                    all_overlaps[index] += overlap;
                    matched.entry((rows[row], columns[column])).or_default()[index] += 1.0;
                }
            }
        }
        for ((row, column), hits) in &matched {
            let (objects, tracks) = (row_length[row], column_length[column]);
            for (index, &hits) in hits.iter().enumerate() {
                accuracy[index] += hits * (hits / (objects + tracks - hits).max(1.0));
                recall[index] += hits * (hits / objects.max(1.0));
                precision[index] += hits * (hits / tracks.max(1.0));
            }
        }
        Self { sums }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let sums = self.sums.as_flattened_mut().iter_mut().zip(other.sums.as_flattened());
        sums.for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The means over the levels, beside the other figures.
    pub(super) fn figures(&self, others: TrackFigures) -> TrackFigures {
        let [hits, accuracy, recall, precision, overlap] = &self.sums;
        let (objects, tracks) = (others.objects as f64, others.tracked as f64);
        let mean = |of: &dyn Fn(usize) -> f64| (0..LEVELS).map(of).sum::<f64>() / LEVELS as f64;
        let of_hits = |sum: &[f64; LEVELS], index: usize| sum[index] / hits[index].max(1.0);
        let det_a = |index: usize| hits[index] / (objects + tracks - hits[index]).max(1.0);
        TrackFigures {
            hota: mean(&|index| (det_a(index) * of_hits(accuracy, index)).sqrt()),
            det_a: mean(&det_a),
            ass_a: mean(&|index| of_hits(accuracy, index)),
            det_re: mean(&|index| hits[index] / objects.max(1.0)),
            det_pr: mean(&|index| hits[index] / tracks.max(1.0)),
            ass_re: mean(&|index| of_hits(recall, index)),
            ass_pr: mean(&|index| of_hits(precision, index)),
            // 1 without a hit, as TrackEval has it.
            loc_a: mean(&|index| overlap[index].max(1e-10) / hits[index].max(1e-10)),
            ..others
        }
    }
}
