//! Matching and suppression of boxes, which the caller identifies by numbers.

use crate::BoundingBox;
use crate::assignment::Assignment;
use crate::byte_track::MatchClasses;
use crate::overlaps::Overlaps;

/// Two sets of boxes to match, or one to suppress duplicates in. The buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    pub(crate) rows: Side,
    pub(crate) columns: Side,
    overlaps: Overlaps,
    assignment: Assignment,
    suppressed: Vec<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Side {
    /// The caller's numbers for the boxes.
    indices: Vec<usize>,
    boxes: Vec<BoundingBox>,
    classes: Vec<usize>,
}

impl Side {
    fn clear(&mut self) {
        self.indices.clear();
        self.boxes.clear();
        self.classes.clear();
    }

    pub(crate) fn push(&mut self, index: usize, bbox: BoundingBox, class_id: usize) {
        self.indices.push(index);
        self.boxes.push(bbox);
        self.classes.push(class_id);
    }

    fn overlap(&self, other: &Side, least: f32, match_classes: MatchClasses, overlaps: &mut Overlaps) {
        match match_classes {
            MatchClasses::Any => overlaps.find(&self.boxes, &other.boxes, least, |_, _| true),
            MatchClasses::Same => overlaps.find(&self.boxes, &other.boxes, least, |row, column| {
                self.classes[row] == other.classes[column]
            }),
        }
    }
}

impl Matcher {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.columns.clear();
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.indices.len()
    }

    /// Finds the rows and columns that overlap by at least `least`.
    pub(crate) fn overlap(&mut self, least: f32, match_classes: MatchClasses) {
        self.rows.overlap(&self.columns, least, match_classes, &mut self.overlaps);
    }

    /// Takes the rows and columns with a weight above 0 for a pair, wherever they are.
    pub(crate) fn pair(&mut self, match_classes: MatchClasses, weigh: impl Fn(usize, usize) -> Option<f32>) {
        let (rows, columns) = (&self.rows, &self.columns);
        self.overlaps.weigh_all(rows.indices.len(), columns.indices.len(), |row, column| {
            let allowed = match_classes == MatchClasses::Any || rows.classes[row] == columns.classes[column];
            if allowed { weigh(rows.indices[row], columns.indices[column]) } else { None }
        });
    }

    /// Matches the rows and columns of [`overlap`](Self::overlap) or [`pair`](Self::pair), with the maximal sum of weights.
    pub(crate) fn solve(&mut self) {
        self.assignment.solve(&self.overlaps);
    }

    /// The matches of [`solve`](Self::solve) by the caller's numbers for row and column.
    pub(crate) fn matches(&self) -> impl Iterator<Item = (usize, usize)> {
        self.rows.indices.iter().enumerate().filter_map(|(row, &index)| {
            self.assignment.column_of(row).map(|column| (index, self.columns.indices[column]))
        })
    }

    /// Marks rows that overlap a column, or an earlier row that is not marked itself, by at least `least`.
    pub(crate) fn suppress(&mut self, least: f32, match_classes: MatchClasses) {
        self.suppressed.clear();
        if !self.columns.indices.is_empty() {
            self.rows.overlap(&self.columns, least, match_classes, &mut self.overlaps);
            self.suppressed.extend((0..self.row_count()).map(|row| !self.overlaps.of_row(row).is_empty()));
        } else {
            self.suppressed.resize(self.row_count(), false);
        }
        self.rows.overlap(&self.rows, least, match_classes, &mut self.overlaps);
        for row in 0..self.row_count() {
            let earlier = self.overlaps.of_row(row).iter().map(|pair| pair.column as usize);
            if earlier.take_while(|&other| other < row).any(|other| !self.suppressed[other]) {
                self.suppressed[row] = true;
            }
        }
    }

    /// The rows by the caller's numbers, and whether [`suppress`](Self::suppress) marked them.
    pub(crate) fn suppressed(&self) -> impl Iterator<Item = (usize, bool)> {
        self.rows.indices.iter().copied().zip(self.suppressed.iter().copied())
    }
}
