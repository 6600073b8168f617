//! Kalman filter for boxes: constant velocity, noise proportional to the size of the box.
//!
//! The usual state is a vector of eight, `[cx, cy, w, h]` and their velocities, with 8×8 matrices. None of the matrices
//! couples two of the four coordinates: the transition moves each by its own velocity, the measurement is of each alone,
//! and the noise is diagonal. A block-diagonal covariance stays block-diagonal, so the filter **is** four independent
//! filters of position and velocity. Each needs 3 covariances, and a division instead of a matrix inverse. Nothing is
//! approximated; a test compares it with the 8×8 filter.

use crate::BoundingBox;
use crate::camera::CameraMotion;

/// Standard deviation of a measured position, and of the motion per frame, relative to the side of the box.
const POSITION_NOISE: f64 = 1.0 / 15.0;
/// Standard deviation of the change of a velocity per frame, relative to the side of the box.
const VELOCITY_NOISE: f64 = 1.0 / 40.0;
/// Factors for the first position and for the first velocity, which is unknown and taken as 0.
const FIRST_POSITION: f64 = 2.0;
const FIRST_VELOCITY: f64 = 10.0;
/// A prediction shrinks a side to this fraction at most, so that sides stay positive.
const LEAST_SHRINK: f64 = 0.5;

/// The coordinates: centre x, centre y, width, height.
type Lanes = [f64; 4];
const WIDTH: usize = 2;
const HEIGHT: usize = 3;

/// A moving box, in any unit and in frames.
#[derive(Debug, Clone)]
pub(crate) struct BoxFilter {
    position: Lanes,
    velocity: Lanes,
    /// For each coordinate the variance of its position, the covariance with its velocity, the variance of its velocity.
    variance: Lanes,
    covariance: Lanes,
    velocity_variance: Lanes,
}

impl BoxFilter {
    /// A box at rest from one detection, whose sides are finite and above 0.
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

    /// Advances the box by `dt` frames, `dt` ≥ 0 and not necessarily an integer.
    ///
    /// The noise of `dt` frames is the sum of `dt` steps of one frame: `n` steps add `n·q + n(n−1)(2n−1)/6·r` to the
    /// variance of a position, `n(n−1)/2·r` to the covariance and `n·r` to the variance of the velocity, where `q` and `r`
    /// are the noise of one step. These polynomials hold for fractions, too, so that an interval can be split anywhere with
    /// the same result. They are a covariance for `n` < 1 as long as `q` ≥ `r`/12; here `q` ≈ 7·`r`.
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

    /// Corrects the state with a detected box.
    ///
    /// The gain is between 0 and 1, so a filtered side is between the predicted and the detected one and stays positive.
    pub(crate) fn correct(&mut self, detected: &BoundingBox) {
        let detected = to_lanes(detected);
        for (lane, side) in sides(&self.position).into_iter().enumerate() {
            let noise = square(POSITION_NOISE * side);
            let total = self.variance[lane] + noise;
            let gain = self.variance[lane] / total;
            let velocity_gain = self.covariance[lane] / total;
            let residual = detected[lane] - self.position[lane];
            self.position[lane] += gain * residual;
            self.velocity[lane] += velocity_gain * residual;
            self.velocity_variance[lane] -= velocity_gain * self.covariance[lane];
            self.covariance[lane] *= noise / total;
            self.variance[lane] *= noise / total;
        }
    }

    /// Keeps the width and height constant until the next detection.
    ///
    /// For a lost track: most often the last change of its size was an occluder moving over it.
    pub(crate) fn hold_size(&mut self) {
        self.velocity[WIDTH] = 0.0;
        self.velocity[HEIGHT] = 0.0;
    }

    /// Moves the box, its velocity and their variances to where the camera sees them after `motion`.
    ///
    /// The four filters stay independent: what a rotation couples between x and y is left out, as the rotation from one
    /// frame to the next is small.
    pub(crate) fn compensate(&mut self, motion: &CameraMotion) {
        let ([x, y], sides) = (motion.point(self.centre()), motion.scale());
        let [dx, dy] = motion.turn([self.velocity[0], self.velocity[1]]);
        let [_, _, width, height] = self.position;
        self.position = [x, y, width * sides[0], height * sides[1]];
        self.velocity = [dx, dy, self.velocity[WIDTH] * sides[0], self.velocity[HEIGHT] * sides[1]];
        let squares = motion.matrix().map(|[a, b, _]| [square(a), square(b)]);
        for of in [&mut self.variance, &mut self.covariance, &mut self.velocity_variance] {
            let [x, y, width, height] = *of;
            let [first, second] = squares.map(|[a, b]| a * x + b * y);
            *of = [first, second, width * square(sides[0]), height * square(sides[1])];
        }
    }

    /// The centre in x and y.
    pub(crate) fn centre(&self) -> [f64; 2] {
        [self.position[0], self.position[1]]
    }

    pub(crate) fn bbox(&self) -> BoundingBox {
        BoundingBox::from_cxcywh(self.position.map(|value| value as f32))
    }

    /// Velocity of the centre in x and y, in units per frame.
    pub(crate) fn centre_velocity(&self) -> [f32; 2] {
        [self.velocity[0] as f32, self.velocity[1] as f32]
    }
}

fn to_lanes(bbox: &BoundingBox) -> Lanes {
    // In f64, because `to_cxcywh` in f32 overflows for the largest coordinates.
    let [x1, y1, x2, y2] = bbox.to_xyxy().map(f64::from);
    [0.5 * (x1 + x2), 0.5 * (y1 + y2), x2 - x1, y2 - y1]
}

/// The side to which the noise of each coordinate is proportional.
fn sides(position: &Lanes) -> Lanes {
    let [_, _, width, height] = *position;
    [width, height, width, height]
}

fn square(value: f64) -> f64 {
    value * value
}

#[cfg(test)]
mod tests;
