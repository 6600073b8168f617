//! The filter that says where a box will be: constant velocity, noise in proportion to the box.
//!
//! The usual state is one vector of eight, `[cx, cy, w, h]` and their velocities, with 8×8 matrices. None of
//! those matrices joins two of the four coordinates: the transition moves each by its own velocity, the
//! measurement sees each by itself, and the noise is diagonal. A covariance that starts block-diagonal therefore
//! stays so, and the filter **is** four filters of position and velocity. Run as such it needs 3 numbers of
//! covariance a coordinate in place of 64, no matrix inverse (a division), and its four coordinates are four
//! lanes of the same arithmetic. Nothing is approximated; the test runs the 8×8 filter beside it.

use crate::BoundingBox;

/// Standard deviation of a position, measured or per frame of motion, as a share of the box's side.
const POSITION_NOISE: f64 = 1.0 / 15.0;
/// Standard deviation that a velocity gains per frame, as a share of the box's side.
const VELOCITY_NOISE: f64 = 1.0 / 40.0;
/// How much less certain the first position and the first velocity (unseen, taken as 0) are.
const FIRST_POSITION: f64 = 2.0;
const FIRST_VELOCITY: f64 = 10.0;
/// A prediction leaves at least this share of a side. Below 1 and above 0: sides stay positive.
const LEAST_SHRINK: f64 = 0.5;

/// The coordinates: centre x, centre y, width, height.
type Lanes = [f64; 4];
const WIDTH: usize = 2;
const HEIGHT: usize = 3;

/// One box in motion, in the caller's units and frames.
#[derive(Debug, Clone)]
pub(crate) struct BoxFilter {
    position: Lanes,
    velocity: Lanes,
    /// Covariance of each coordinate: of its position, of both, of its velocity.
    variance: Lanes,
    covariance: Lanes,
    velocity_variance: Lanes,
}

impl BoxFilter {
    /// A box at rest that was seen once. Its sides are finite and longer than 0.
    pub(crate) fn new(bbox: &BoundingBox) -> Self {
        let position = to_lanes(bbox);
        let side = sides(&position);
        Self {
            position,
            velocity: [0.0; 4],
            variance: side.map(|side| square(FIRST_POSITION * POSITION_NOISE * side)),
            covariance: [0.0; 4],
            velocity_variance: side.map(|side| square(FIRST_VELOCITY * VELOCITY_NOISE * side)),
        }
    }

    /// Moves the box `dt` frames on, `dt` ≥ 0 and not necessarily whole.
    ///
    /// The noise of `dt` frames is what `dt` steps of one frame add up to: `n` such steps give a position
    /// `n·q + n(n−1)(2n−1)/6·r`, the pair `n(n−1)/2·r` and a velocity `n·r`, with `q` and `r` the noise of one.
    /// These are polynomials in `n` that hold for fractions too, so that an interval may be cut anywhere and
    /// comes to the same. They stay a covariance for `n` < 1 as long as `q` ≥ `r`/12, and here `q` ≈ 7·`r`.
    pub(crate) fn predict(&mut self, dt: f64) {
        let least = [self.position[WIDTH] * LEAST_SHRINK, self.position[HEIGHT] * LEAST_SHRINK];
        let (twice, thrice) = (dt * (dt - 1.0) / 2.0, dt * (dt - 1.0) * (2.0 * dt - 1.0) / 6.0);
        for (lane, side) in sides(&self.position).into_iter().enumerate() {
            let step = square(POSITION_NOISE * side);
            let drift = square(VELOCITY_NOISE * side);
            let speed_variance = self.velocity_variance[lane];
            let covariance = self.covariance[lane];
            self.position[lane] += dt * self.velocity[lane];
            self.variance[lane] += dt * (2.0 * covariance + dt * speed_variance) + dt * step + thrice * drift;
            self.covariance[lane] = covariance + dt * speed_variance + twice * drift;
            self.velocity_variance[lane] = speed_variance + dt * drift;
        }
        for (lane, least) in [WIDTH, HEIGHT].into_iter().zip(least) {
            if self.position[lane] < least {
                self.position[lane] = least;
                self.velocity[lane] = 0.0;
            }
        }
    }

    /// Takes in where the box was seen.
    ///
    /// A filtered side lies between the predicted and the seen one, as the gain is between 0 and 1: positive sides
    /// stay positive.
    pub(crate) fn correct(&mut self, seen: &BoundingBox) {
        let seen = to_lanes(seen);
        for (lane, side) in sides(&self.position).into_iter().enumerate() {
            let noise = square(POSITION_NOISE * side);
            let total = self.variance[lane] + noise;
            let gain = self.variance[lane] / total;
            let velocity_gain = self.covariance[lane] / total;
            let surprise = seen[lane] - self.position[lane];
            self.position[lane] += gain * surprise;
            self.velocity[lane] += velocity_gain * surprise;
            self.velocity_variance[lane] -= velocity_gain * self.covariance[lane];
            self.covariance[lane] *= noise / total;
            self.variance[lane] *= noise / total;
        }
    }

    /// Keeps the width and height as they are until the next sight.
    ///
    /// For a box out of sight: the last change of its size was most often the occluder's edge moving over it.
    pub(crate) fn hold_size(&mut self) {
        self.velocity[WIDTH] = 0.0;
        self.velocity[HEIGHT] = 0.0;
    }

    pub(crate) fn bbox(&self) -> BoundingBox {
        BoundingBox::from_cxcywh(self.position.map(|value| value as f32))
    }

    /// The centre's motion in x and y, in units per frame.
    pub(crate) fn centre_velocity(&self) -> [f32; 2] {
        [self.velocity[0] as f32, self.velocity[1] as f32]
    }
}

fn to_lanes(bbox: &BoundingBox) -> Lanes {
    // In f64 from the edges on: `to_cxcywh` in f32 would overflow for the largest coordinates.
    let [x1, y1, x2, y2] = bbox.to_xyxy().map(f64::from);
    [0.5 * (x1 + x2), 0.5 * (y1 + y2), x2 - x1, y2 - y1]
}

/// The side that each coordinate's noise is a share of.
fn sides(position: &Lanes) -> Lanes {
    let [_, _, width, height] = *position;
    [width, height, width, height]
}

fn square(value: f64) -> f64 {
    value * value
}

#[cfg(test)]
mod tests;
