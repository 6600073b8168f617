//! The candidate with the lowest sum of costs.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use ocelli::Result;

/// What a removal costs, never negative; the second number decides among equal first ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost(pub f64, pub f64);

impl Cost {
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0, self.1 + other.1)
    }
}

impl Eq for Cost {}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

/// The candidate whose cost, summed over all images, is the lowest; the first of equal ones. `cost` is asked for as few
/// candidates and images as possible.
///
/// The candidate with the lowest sum so far gets the next image. A sum never decreases, so the first candidate that has seen
/// all images is the best.
pub(super) fn least(
    candidates: usize,
    images: usize,
    cost: &mut dyn FnMut(usize, usize) -> Result<Cost>,
) -> Result<Option<usize>> {
    let mut open: BinaryHeap<_> =
        (0..candidates).map(|candidate| Reverse((Cost(0.0, 0.0), candidate, 0))).collect();
    while let Some(Reverse((sum, candidate, seen))) = open.pop() {
        if seen == images {
            return Ok(Some(candidate));
        }
        let sum = sum.plus(cost(candidate, seen)?);
        open.push(Reverse((sum, candidate, seen + 1)));
    }
    Ok(None)
}
