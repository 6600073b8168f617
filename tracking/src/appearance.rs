//! The appearance of detections.

use std::collections::BTreeMap;

use crate::track::TrackerDetection;

/// The appearance of the detections of one frame: a feature vector for each, of which the direction counts.
///
/// [`ByteTracker::update_with`](crate::ByteTracker::update_with) compares them with those of the tracks. The buffer is reused.
#[derive(Debug, Clone, Default)]
pub struct Appearances {
    length: usize,
    values: Vec<f32>,
}

impl Appearances {
    /// Removes all vectors; the next ones have `length` elements.
    pub fn reset(&mut self, length: usize) {
        self.length = length;
        self.values.clear();
    }

    /// Adds the vector of the next detection. One that is zero or not finite says nothing about what its detection looks like.
    ///
    /// # Panics
    /// If it has not the length of [`reset`](Self::reset).
    pub fn push(&mut self, vector: &[f32]) {
        assert_eq!(vector.len(), self.length, "the vectors of a frame have one length");
        let start = self.values.len();
        self.values.extend_from_slice(vector);
        normalize(&mut self.values[start..]);
    }

    /// `true` if it has no vector.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The direction of the vector of a detection, of length 1 or zero; `None` beyond the last one.
    pub fn get(&self, detection: usize) -> Option<&[f32]> {
        let start = detection.checked_mul(self.length)?;
        self.values.get(start..start + self.length).filter(|direction| !direction.is_empty())
    }
}

/// Scales a vector to length 1; one without a direction becomes zero.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let scale = if length.is_finite() && length > 0.0 { 1.0 / length } else { 0.0 };
    for value in vector {
        *value = if scale > 0.0 { (f64::from(*value) * scale) as f32 } else { 0.0 };
    }
}

/// Weight of the latest detection in what a track looks like, as in BoT-SORT, and in what its class looks like.
const LATEST_LOOK: f32 = 0.1;
const LATEST_OF_CLASS: f32 = 0.02;

/// The appearance of a track: the direction of a running mean.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look(Vec<f32>);

impl Look {
    /// Takes in what the track looks like now.
    pub(crate) fn add(&mut self, direction: &[f32]) {
        if is_known(direction) {
            mix(&mut self.0, direction, LATEST_LOOK);
            normalize(&mut self.0);
        }
    }

    /// The likeness of this and a direction, beside what is typical of their class: the cosine, −1 to 1, of what each has more
    /// than `typical`. 0 if that is not known; `None` if this or the direction is not.
    pub(crate) fn similarity(&self, direction: &[f32], typical: Option<&[f32]>) -> Option<f32> {
        if self.0.len() != direction.len() || !is_known(&self.0) || !is_known(direction) {
            return None;
        }
        let Some(typical) = typical.filter(|typical| typical.len() == direction.len()) else {
            return Some(0.0);
        };
        let (mut product, mut squares) = (0.0, [0.0; 2]);
        for ((a, b), mean) in self.0.iter().zip(direction).zip(typical) {
            let [a, b] = [a - mean, b - mean];
            product += a * b;
            squares[0] += a * a;
            squares[1] += b * b;
        }
        let length = (squares[0] * squares[1]).sqrt();
        Some(if length > 0.0 { (product / length).clamp(-1.0, 1.0) } else { 0.0 })
    }
}

/// The typical appearance of each class: a running mean of its detections. Features of a detector say first of all what class an
/// object is of; what tells two of a class apart is the rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypicalLooks(BTreeMap<usize, Vec<f32>>);

impl TypicalLooks {
    /// Takes in the detections of a frame with at least this score.
    pub(crate) fn add(&mut self, detections: &[TrackerDetection], appearances: &Appearances, least: f32) {
        for (index, detection) in detections.iter().enumerate().filter(|(_, one)| one.score >= least) {
            if let Some(direction) = appearances.get(index).filter(|direction| is_known(direction)) {
                mix(self.0.entry(detection.class_id).or_default(), direction, LATEST_OF_CLASS);
            }
        }
    }

    /// That of a class, unless nothing was seen of it.
    pub(crate) fn of(&self, class_id: usize) -> Option<&[f32]> {
        self.0.get(&class_id).map(Vec::as_slice)
    }
}

fn is_known(direction: &[f32]) -> bool {
    direction.iter().any(|&value| value != 0.0)
}

/// Moves a running mean by `part` of the way to `new`; one of another length starts again.
fn mix(mean: &mut Vec<f32>, new: &[f32], part: f32) {
    if mean.len() != new.len() {
        mean.clear();
        mean.extend_from_slice(new);
    }
    for (value, new) in mean.iter_mut().zip(new) {
        *value += part * (new - *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typical_of_the_class_does_not_count() {
        let mut look = Look::default();
        assert_eq!(look.similarity(&[0.8, 0.6], None), None, "it was not seen");
        look.add(&[0.6, 0.8]);
        let cases = [
            (None, 0.0),
            (Some([0.0, 0.0]), 0.96),
            (Some([0.6, 0.6]), 0.0),
            (Some([1.0, 0.8]), 0.5f32.sqrt()),
            (Some([0.7, 0.7]), -1.0),
            // It is what is typical: nothing is left to compare.
            (Some([0.6, 0.8]), 0.0),
        ];
        for (typical, expected) in cases {
            let found = look.similarity(&[0.8, 0.6], typical.as_ref().map(|typical| &typical[..]));
            assert!(found.is_some_and(|found| (found - expected).abs() < 1e-5), "{typical:?}: {found:?}");
        }
        assert_eq!(look.similarity(&[0.0, 0.0], None), None);
        assert_eq!(look.similarity(&[1.0, 0.0, 0.0], None), None, "another model");
    }

    #[test]
    fn a_look_follows_slowly() {
        let mut look = Look::default();
        look.add(&[1.0, 0.0]);
        look.add(&[0.0, 0.0]);
        look.add(&[0.0, 1.0]);
        let mixed = [0.9, 0.1].map(|value: f32| value / 0.82f32.sqrt());
        assert!(look.0.iter().zip(mixed).all(|(a, b)| (a - b).abs() < 1e-6), "{look:?}");
    }
}
