//! The overlapping pairs of two sets of boxes, without testing every pair.

use crate::BoundingBox;

/// Pairs of a row and a column with the overlap of their boxes, grouped by row in order of column.
///
/// The buffers are reused: once they have grown, a search allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    /// The start of each row in `pairs`, and the end of the last.
    starts: Vec<usize>,
    pairs: Vec<Pair>,
    by_left: Vec<(f32, u32)>,
    pub(crate) column_count: usize,
}

/// A column that overlaps a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    pub(crate) column: u32,
    pub(crate) iou: f32,
}

impl Overlaps {
    /// Finds all overlapping pairs with an IoU of at least `least` that `allowed(row, column)` accepts. The boxes are
    /// finite and have an area.
    ///
    /// With the columns sorted by left edge, those that can reach IoU `t` with a row at `x1` of width `w` are adjacent.
    /// The intersection is at most as high as either box, so IoU ≤ its width / `w` and IoU ≤ its width / the column's
    /// width. By the first, a column starts at `x1 + (1 − t)·w` at the latest and is at most `w / t` wide; by the second,
    /// it starts at `x1 − (1/t − 1)·w` at the earliest.
    pub(crate) fn find(
        &mut self,
        rows: &[BoundingBox],
        columns: &[BoundingBox],
        least: f32,
        allowed: impl Fn(usize, usize) -> bool,
    ) {
        self.starts.clear();
        self.pairs.clear();
        self.column_count = columns.len();
        self.by_left.clear();
        self.by_left.extend(columns.iter().zip(0u32..).map(|(bbox, index)| (bbox.x1, index)));
        self.by_left.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (row, bbox) in rows.iter().enumerate() {
            let start = self.pairs.len();
            self.starts.push(start);
            let width = bbox.width();
            // Slack for rounding, so that no pair is lost that the exact test below accepts.
            let slack = 1e-5 * (bbox.x1.abs() + bbox.x2.abs());
            let latest = bbox.x1 + (1.0 - least) * width + slack;
            // Minus infinity if `least` is 0.
            let earliest = bbox.x1 - (1.0 / least - 1.0) * width * (1.0 + 1e-5) - slack;
            let first = self.by_left.partition_point(|&(left, _)| left < earliest);
            for &(left, column) in &self.by_left[first..] {
                if left > latest {
                    break;
                }
                let other = &columns[column as usize];
                if other.y1 >= bbox.y2 || other.y2 <= bbox.y1 || other.x2 <= bbox.x1 {
                    continue;
                }
                let iou = bbox.iou(other);
                if iou > 0.0 && iou >= least && allowed(row, column as usize) {
                    self.pairs.push(Pair { column, iou });
                }
            }
            self.pairs[start..].sort_unstable_by_key(|pair| pair.column);
        }
        self.starts.push(self.pairs.len());
    }

    /// Takes the pairs of `rows` and `columns` for which `weigh(row, column)` has a weight, overlapping or not.
    pub(crate) fn weigh_all(
        &mut self,
        rows: usize,
        columns: usize,
        weigh: impl Fn(usize, usize) -> Option<f32>,
    ) {
        self.starts.clear();
        self.pairs.clear();
        self.column_count = columns;
        for row in 0..rows {
            self.starts.push(self.pairs.len());
            let weighed = (0..columns).filter_map(|column| weigh(row, column).map(|iou| (column, iou)));
            self.pairs.extend(weighed.map(|(column, iou)| Pair { column: column as u32, iou }));
        }
        self.starts.push(self.pairs.len());
    }

    pub(crate) fn row_count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The columns that `row` overlaps.
    pub(crate) fn of_row(&self, row: usize) -> &[Pair] {
        &self.pairs[self.starts[row]..self.starts[row + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::{Overlaps, Pair};
    use crate::BoundingBox;
    use crate::test_random::Random;

    #[test]
    fn the_pairs_are_those_of_an_exhaustive_search() {
        let mut random = Random::new(7);
        let mut overlaps = Overlaps::default();
        let mut failures = Vec::new();
        let mut found = 0;
        for (case, &least) in [0.0, 0.1, 0.3, 0.5, 0.85, 1.0].iter().cycle().take(240).enumerate() {
            // Boxes on grids of integers and of fractions, near and far from the origin: some boxes and edges are equal.
            let (offset, step) = [(0.0, 1.0), (0.0, 0.013), (-40.0, 1.0), (90_000.0, 1.0)][case % 4];
            let mut boxes = |count| -> Vec<BoundingBox> {
                (0..count)
                    .map(|_| {
                        let [x, y] = [random.below(20), random.below(20)].map(|v| offset + step * v as f32);
                        let [w, h] = [1 + random.below(9), 1 + random.below(9)].map(|v| step * v as f32);
                        BoundingBox::from_ltwh([x, y, w, h])
                    })
                    .collect()
            };
            let (rows, columns) = (boxes(40), boxes(40));
            let odd = |row: usize, column: usize| !(row + column).is_multiple_of(3);
            overlaps.find(&rows, &columns, least, odd);
            for (row, bbox) in rows.iter().enumerate() {
                let expected: Vec<Pair> = columns
                    .iter()
                    .zip(0u32..)
                    .map(|(other, column)| Pair { column, iou: bbox.iou(other) })
                    .filter(|pair| pair.iou >= least && pair.iou > 0.0 && odd(row, pair.column as usize))
                    .collect();
                found += expected.len();
                if overlaps.of_row(row) != expected {
                    failures
                        .push(format!("least {least}: {:?}, expected {expected:?}", overlaps.of_row(row)));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(found > 10_000, "only {found} pairs were there to find");
    }
}
