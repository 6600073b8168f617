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
/// `floor` is at most what the images from the given one on cost. The candidate with the lowest sum so far and floor of the rest
/// gets the next image, so the first candidate that has seen all images is the best. The floors decide how many images are
/// asked for; the result is wrong only if one is above the true cost.
pub(super) fn least(
    candidates: usize,
    images: usize,
    floor: &dyn Fn(usize, usize) -> Cost,
    cost: &mut dyn FnMut(usize, usize) -> Result<Cost>,
) -> Result<Option<usize>> {
    let none = Cost(0.0, 0.0);
    let mut open: BinaryHeap<_> =
        (0..candidates).map(|candidate| Reverse((floor(candidate, 0), candidate, 0, none))).collect();
    while let Some(Reverse((_, candidate, seen, sum))) = open.pop() {
        if seen == images {
            return Ok(Some(candidate));
        }
        let (sum, seen) = (sum.plus(cost(candidate, seen)?), seen + 1);
        let rest = if seen < images { floor(candidate, seen) } else { none };
        open.push(Reverse((sum.plus(rest), candidate, seen, sum)));
    }
    Ok(None)
}
