//! Linear assignment: matches rows with columns so that the sum of their overlaps is maximal.
//!
//! Shortest augmenting paths with dual prices (Jonker and Volgenant) over a sparse list of pairs instead of a matrix. A
//! search stays within a connected group of overlapping boxes, so the time grows linearly with the number of separate
//! objects. Pairs below the minimum overlap do not exist, so no pair of the optimum has to be removed afterwards.
//!
//! The crates `lapjv`, `lsap` and `pathfinding` take a dense matrix with invented costs for missing pairs and allocate on
//! each call. For a 500 × 500 matrix `lsap` takes 1.4 ms and `lapjv` 2 ms; a whole update of the tracker with 500 objects
//! takes 0.3 ms.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::overlaps::{Overlaps, Pair};

const NONE: u32 = u32::MAX;
/// The cost of an unmatched row: an overlap of 0. Costs are integers, so that sums are exact and the result does not
/// depend on rounding.
const ALONE: i64 = 1 << 30;

fn cost(pair: &Pair) -> i64 {
    ALONE - (f64::from(pair.iou) * ALONE as f64) as i64
}

/// The solver, which reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    column_of: Vec<u32>,
    row_of: Vec<u32>,
    /// Dual prices: the cost of a pair is at least the sum of its row's and column's price, and equal if it is matched.
    row_price: Vec<i64>,
    column_price: Vec<i64>,
    distance: Vec<i64>,
    came_from: Vec<u32>,
    reached: Vec<u32>,
    settled: Vec<u32>,
    queue: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Assignment {
    /// Matches rows with columns, each at most once and only in pairs of `overlaps`, with the maximal sum of overlaps.
    /// The result is deterministic.
    pub(crate) fn solve(&mut self, overlaps: &Overlaps) {
        let (rows, columns) = (overlaps.row_count(), overlaps.column_count);
        refill(&mut self.column_of, rows, NONE);
        refill(&mut self.row_of, columns, NONE);
        refill(&mut self.row_price, rows, ALONE);
        refill(&mut self.column_price, columns, 0);
        refill(&mut self.distance, columns, i64::MAX);
        refill(&mut self.came_from, columns, NONE);
        // Most rows get the column with the largest overlap; few compete for the same one.
        for row in 0..rows {
            let Some(best) = overlaps.of_row(row).iter().min_by_key(|pair| cost(pair)) else { continue };
            self.row_price[row] = cost(best);
            if self.row_of[best.column as usize] == NONE {
                self.row_of[best.column as usize] = row as u32;
                self.column_of[row] = best.column;
            }
        }
        for row in 0..rows {
            if self.column_of[row] == NONE && !overlaps.of_row(row).is_empty() {
                self.place(row, overlaps);
            }
        }
    }

    /// The column matched with `row`.
    pub(crate) fn column_of(&self, row: usize) -> Option<usize> {
        let column = self.column_of[row];
        (column != NONE).then_some(column as usize)
    }

    /// Finds the shortest augmenting path from the unmatched row `start`: to a free column, or to a row (possibly `start`)
    /// that becomes unmatched. The rows on the path pass their columns on.
    fn place(&mut self, start: usize, overlaps: &Overlaps) {
        let (mut row, mut so_far) = (start, 0);
        let (mut least_alone, mut row_alone) = (i64::MAX, start);
        let end_column = loop {
            let alone = so_far + ALONE - self.row_price[row];
            if alone < least_alone {
                (least_alone, row_alone) = (alone, row);
            }
            for pair in overlaps.of_row(row) {
                let column = pair.column as usize;
                let distance = so_far + cost(pair) - self.row_price[row] - self.column_price[column];
                if distance < self.distance[column] && distance < least_alone {
                    if self.distance[column] == i64::MAX {
                        self.reached.push(pair.column);
                    }
                    self.distance[column] = distance;
                    self.came_from[column] = row as u32;
                    self.queue.push(Reverse((distance, pair.column)));
                }
            }
            // Entries for which a shorter path was found are skipped.
            let nearest = loop {
                match self.queue.pop() {
                    Some(Reverse((distance, column))) if distance > self.distance[column as usize] => {}
                    Some(Reverse(entry)) => break entry,
                    None => break (i64::MAX, NONE),
                }
            };
            if nearest.0 >= least_alone {
                break NONE;
            }
            if self.row_of[nearest.1 as usize] == NONE {
                break nearest.1;
            }
            self.settled.push(nearest.1);
            so_far = nearest.0;
            row = self.row_of[nearest.1 as usize] as usize;
        };
        let total = if end_column == NONE { least_alone } else { self.distance[end_column as usize] };
        self.raise_prices(start, total);
        let mut column = end_column;
        if column == NONE {
            column = std::mem::replace(&mut self.column_of[row_alone], NONE);
        }
        while column != NONE {
            let row = self.came_from[column as usize];
            self.row_of[column as usize] = row;
            column = std::mem::replace(&mut self.column_of[row as usize], column);
        }
        for column in self.reached.drain(..) {
            self.distance[column as usize] = i64::MAX;
        }
        self.settled.clear();
        self.queue.clear();
    }

    /// Updates the prices after a search of length `total`, before columns are passed on.
    fn raise_prices(&mut self, start: usize, total: i64) {
        self.row_price[start] += total;
        for &column in &self.settled {
            let column = column as usize;
            let rest = total - self.distance[column];
            self.row_price[self.row_of[column] as usize] += rest;
            self.column_price[column] -= rest;
        }
    }
}

fn refill<T: Clone>(buffer: &mut Vec<T>, len: usize, value: T) {
    buffer.clear();
    buffer.resize(len, value);
}

#[cfg(test)]
mod tests {
    use super::Assignment;
    use crate::BoundingBox;
    use crate::overlaps::Overlaps;
    use crate::test_random::Random;

    /// The maximal sum of any matching of the rows `row..` with columns not in `used`.
    fn best_sum(overlaps: &Overlaps, row: usize, used: &mut [bool]) -> f64 {
        if row == overlaps.row_count() {
            return 0.0;
        }
        let mut best = best_sum(overlaps, row + 1, used);
        for pair in overlaps.of_row(row) {
            if !used[pair.column as usize] {
                used[pair.column as usize] = true;
                best = best.max(f64::from(pair.iou) + best_sum(overlaps, row + 1, used));
                used[pair.column as usize] = false;
            }
        }
        best
    }

    #[test]
    fn the_sum_is_maximal() {
        let mut random = Random::new(3);
        let (mut overlaps, mut assignment) = (Overlaps::default(), Assignment::default());
        let mut failures = Vec::new();
        let mut contested = 0;
        for case in 0..4000 {
            let least = [0.05, 0.3, 0.5][case % 3];
            // From separate objects to a crowd in one place; more rows than columns and vice versa.
            let spread = [2, 4, 12][case / 3 % 3] as f32;
            let mut boxes = || -> Vec<BoundingBox> {
                (0..random.below(8))
                    .map(|_| {
                        let [x, y] = [random.unit(), random.unit()].map(|v| spread * v);
                        let [w, h] = [random.unit(), random.unit()].map(|v| 3.0 + 3.0 * v);
                        BoundingBox::from_ltwh([x, y, w, h])
                    })
                    .collect()
            };
            let (rows, columns) = (boxes(), boxes());
            overlaps.find(&rows, &columns, least, |_, _| true);
            assignment.solve(&overlaps);
            let mut used = vec![false; columns.len()];
            let mut sum = 0.0;
            for row in 0..rows.len() {
                let Some(column) = assignment.column_of(row) else { continue };
                let pair = overlaps.of_row(row).iter().find(|pair| pair.column as usize == column);
                match pair {
                    Some(pair) if !used[column] => sum += f64::from(pair.iou),
                    _ => failures.push(format!("case {case}: row {row} cannot have column {column}")),
                }
                used[column] = true;
            }
            let greedy = (0..rows.len()).all(|row| overlaps.of_row(row).len() < 2);
            contested += usize::from(!greedy);
            let expected = best_sum(&overlaps, 0, &mut vec![false; columns.len()]);
            if (sum - expected).abs() > 1e-6 {
                failures.push(format!("case {case}: sum {sum}, the best is {expected}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(contested > 1000, "only {contested} cases had a choice");
    }

    #[test]
    fn two_rows_that_prefer_one_column_are_both_matched() {
        // The first row overlaps column 0 most, but the second row overlaps column 0 only.
        let rows = [[0.0, 0.0, 10.0, 10.0], [-4.0, 0.0, 6.0, 10.0]].map(BoundingBox::from);
        let columns = [[-1.0, 0.0, 9.0, 10.0], [3.0, 0.0, 13.0, 10.0]].map(BoundingBox::from);
        let (mut overlaps, mut assignment) = (Overlaps::default(), Assignment::default());
        overlaps.find(&rows, &columns, 0.3, |_, _| true);
        assignment.solve(&overlaps);
        assert_eq!([assignment.column_of(0), assignment.column_of(1)], [Some(1), Some(0)]);
    }
}
