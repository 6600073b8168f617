//! Objects and tracks of a sequence, frame by frame, with the overlap of each pair.

use hotcoco::primitives::assign::lsap;
use ocelli::{Error, Result};

use crate::eval::entries::repeated;

/// The purpose of an object of the ground truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is to be found.
    Counts,
    /// It may be found: a track on it is removed, and neither correct nor wrong. Hidden objects, and MOTChallenge's
    /// distractors.
    Distractor,
    /// It is as if it were not annotated.
    Ignored,
}

/// A box of the ground truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectBox {
    /// The id of the object.
    pub id: u64,
    /// Left, top, width and height in pixels.
    pub ltwh: [f64; 4],
    /// The purpose of the box.
    pub role: Role,
}

/// A box of a tracker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackBox {
    /// The id of the track.
    pub id: u64,
    /// Left, top, width and height in pixels.
    pub ltwh: [f64; 4],
}

/// Objects and tracks of one frame.
#[derive(Clone, Debug)]
pub(super) struct TrackFrame {
    pub(super) objects: Vec<u64>,
    pub(super) tracks: Vec<u64>,
    /// IoU, 0 to 1. // [object, track]
    pub(super) overlaps: Vec<f64>,
}

/// The objects of one class and the tracks of a video. Classes and videos are evaluated one by one, and their
/// [`TrackCounts`](super::TrackCounts) are added.
#[derive(Clone, Debug, Default)]
pub struct TrackSequence {
    pub(super) frames: Vec<TrackFrame>,
}

impl TrackSequence {
    /// Adds a frame. `overlaps` has the IoU of each object with each track, object by object.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if an id appears twice, or `overlaps` does not
    /// have a number from 0 to 1 for each pair.
    pub fn push(&mut self, objects: Vec<u64>, tracks: Vec<u64>, overlaps: Vec<f64>) -> Result<()> {
        let refuse = |why: String| {
            Err(Error::invalid_argument(format!("frame {} of the sequence: {why}", self.frames.len() + 1)))
        };
        for (what, ids) in [("objects", &objects), ("tracks", &tracks)] {
            if let Some(id) = repeated(ids.iter().copied()) {
                return refuse(format!("two {what} have the id {id}"));
            }
        }
        if overlaps.len() != objects.len() * tracks.len() {
            let (count, rows, columns) = (overlaps.len(), objects.len(), tracks.len());
            return refuse(format!("{count} overlaps: expected {rows} objects × {columns} tracks"));
        }
        if let Some(value) = overlaps.iter().find(|value| !(0.0..=1.0).contains(*value)) {
            return refuse(format!("an overlap is {value}: expected 0 to 1"));
        }
        self.frames.push(TrackFrame { objects, tracks, overlaps });
        Ok(())
    }

    /// Adds a frame of boxes. Tracks on distractors are removed as MOTChallenge's evaluation does: those that the best
    /// assignment of tracks to all boxes, at an IoU of at least 0.5, gives to a distractor.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if an id appears twice.
    pub fn push_boxes(&mut self, objects: &[ObjectBox], tracks: &[TrackBox]) -> Result<()> {
        let overlaps: Vec<f64> =
            objects.iter().flat_map(|one| tracks.iter().map(|track| box_iou(one.ltwh, track.ltwh))).collect();
        if overlaps.iter().any(|overlap| !overlap.is_finite()) {
            let message = format!("frame {} of the sequence: a box is not finite", self.frames.len() + 1);
            return Err(Error::invalid_argument(message));
        }
        let columns = tracks.len();
        let mut is_kept = vec![true; columns];
        let score = |&overlap: &f64| if overlap < 0.5 - f64::EPSILON { 0.0 } else { overlap };
        let scores: Vec<f64> = overlaps.iter().map(score).collect();
        for (row, column) in matches(&scores, objects.len(), columns) {
            is_kept[column] = objects[row].role != Role::Distractor;
        }
        let counted = objects.iter().enumerate().filter(|(_, one)| one.role == Role::Counts);
        let rows: Vec<usize> = counted.map(|(row, _)| row).collect();
        let kept: Vec<usize> = (0..columns).filter(|&column| is_kept[column]).collect();
        let objects = rows.iter().map(|&row| objects[row].id).collect();
        let tracks = kept.iter().map(|&column| tracks[column].id).collect();
        self.push(objects, tracks, part(&overlaps, columns, &rows, &kept))
    }
}

/// Some rows and columns of a matrix.
pub(super) fn part(matrix: &[f64], columns: usize, rows: &[usize], kept: &[usize]) -> Vec<f64> {
    rows.iter().flat_map(|row| kept.iter().map(move |column| matrix[row * columns + column])).collect()
}

/// The pairs of the best assignment with a score.
pub(super) fn matches(scores: &[f64], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    let mut pairs = assign(scores, rows, columns);
    pairs.retain(|(row, column)| scores[row * columns + column] > f64::EPSILON);
    pairs
}

/// The assignment with the greatest sum, with SciPy's choice among equal ones, on which figures can depend. Rows ascend.
pub(super) fn assign(scores: &[f64], rows: usize, columns: usize) -> Vec<(usize, usize)> {
    let (row, column) = lsap(scores, rows, columns, true);
    row.into_iter().zip(column).collect()
}

/// IoU of two boxes of left, top, width and height, computed step by step as TrackEval does.
fn box_iou(a: [f64; 4], b: [f64; 4]) -> f64 {
    let corners = |[left, top, width, height]: [f64; 4]| [left, top, left + width, top + height];
    let (a, b) = (corners(a), corners(b));
    let side = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.0);
    let area = |corners: [f64; 4]| (corners[2] - corners[0]) * (corners[3] - corners[1]);
    let (common, area_a, area_b) = (side(0) * side(1), area(a), area(b));
    let either = area_a + area_b - common;
    if area_a <= f64::EPSILON || area_b <= f64::EPSILON || either <= f64::EPSILON {
        return 0.0;
    }
    // Rounding can make it more.
    (common / either).min(1.0)
}
