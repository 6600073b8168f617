use super::{BoxFilter, POSITION_NOISE, VELOCITY_NOISE};
use crate::BoundingBox;

type Matrix = [[f64; 8]; 8];

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..8).map(|k| a[i][k] * b[k][j]).sum()))
}

fn transposed(a: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| a[j][i]))
}

fn diagonal(values: [f64; 8]) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| if i == j { values[i] * values[i] } else { 0.0 }))
}

/// The textbook filter with a state of eight, for steps of one frame.
struct Dense {
    mean: [f64; 8],
    covariance: Matrix,
}

impl Dense {
    fn stds(&self, position: f64, velocity: f64) -> [f64; 8] {
        let (w, h) = (self.mean[2], self.mean[3]);
        let (p, v) = (position * POSITION_NOISE, velocity * VELOCITY_NOISE);
        [p * w, p * h, p * w, p * h, v * w, v * h, v * w, v * h]
    }

    fn new(cxcywh: [f64; 4]) -> Self {
        let mut filter = Self { mean: [0.0; 8], covariance: [[0.0; 8]; 8] };
        filter.mean[..4].copy_from_slice(&cxcywh);
        filter.covariance = diagonal(filter.stds(2.0, 10.0));
        filter
    }

    fn predict(&mut self) {
        let noise = diagonal(self.stds(1.0, 1.0));
        let transition: Matrix =
            std::array::from_fn(|i| std::array::from_fn(|j| if j == i || j == i + 4 { 1.0 } else { 0.0 }));
        let mean = self.mean;
        self.mean = std::array::from_fn(|i| (0..8).map(|k| transition[i][k] * mean[k]).sum());
        let moved = product(&product(&transition, &self.covariance), &transposed(&transition));
        self.covariance = std::array::from_fn(|i| std::array::from_fn(|j| moved[i][j] + noise[i][j]));
    }

    fn correct(&mut self, seen: [f64; 4]) {
        let noise = diagonal(self.stds(1.0, 0.0));
        // Inverse of the 4×4 innovation covariance by Gauss-Jordan elimination, without use of its zeros.
        let mut left: [[f64; 4]; 4] =
            std::array::from_fn(|i| std::array::from_fn(|j| self.covariance[i][j] + noise[i][j]));
        let mut inverse: [[f64; 4]; 4] =
            std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
        for column in 0..4 {
            let pivot = left[column][column];
            for k in 0..4 {
                left[column][k] /= pivot;
                inverse[column][k] /= pivot;
            }
            for row in (0..4).filter(|&row| row != column) {
                let factor = left[row][column];
                for k in 0..4 {
                    left[row][k] -= factor * left[column][k];
                    inverse[row][k] -= factor * inverse[column][k];
                }
            }
        }
        let gain: [[f64; 4]; 8] = std::array::from_fn(|i| {
            std::array::from_fn(|j| (0..4).map(|k| self.covariance[i][k] * inverse[k][j]).sum())
        });
        let surprise: [f64; 4] = std::array::from_fn(|k| seen[k] - self.mean[k]);
        let before = self.covariance;
        for (i, gain) in gain.iter().enumerate() {
            self.mean[i] += (0..4).map(|k| gain[k] * surprise[k]).sum::<f64>();
            self.covariance[i] =
                std::array::from_fn(|j| before[i][j] - (0..4).map(|k| gain[k] * before[k][j]).sum::<f64>());
        }
    }
}

/// A moving box with a wobble in every coordinate.
fn seen_at(frame: usize) -> BoundingBox {
    let t = frame as f32;
    BoundingBox::from_cxcywh([
        300.0 + 7.0 * t + 3.0 * (1.3 * t).sin(),
        200.0 - 2.0 * t + 2.0 * (2.1 * t).cos(),
        40.0 + 1.5 * t + (0.7 * t).sin(),
        90.0 - 0.8 * t + 2.0 * (1.9 * t).sin(),
    ])
}

fn largest_difference(filter: &BoxFilter, dense: &Dense) -> f64 {
    let mut worst = 0.0f64;
    for lane in 0..4 {
        let pairs = [
            (filter.position[lane], dense.mean[lane]),
            (filter.velocity[lane], dense.mean[lane + 4]),
            (filter.variance[lane], dense.covariance[lane][lane]),
            (filter.covariance[lane], dense.covariance[lane][lane + 4]),
            (filter.velocity_variance[lane], dense.covariance[lane + 4][lane + 4]),
        ];
        for (came, expected) in pairs {
            worst = worst.max((came - expected).abs() / (1.0 + expected.abs()));
        }
    }
    worst
}

#[test]
fn four_filters_equal_the_filter_with_a_state_of_eight() {
    let mut filter = BoxFilter::new(&seen_at(0));
    let mut dense = Dense::new(super::to_lanes(&seen_at(0)));
    let mut failures = Vec::new();
    for frame in 1..60 {
        filter.predict(1.0);
        dense.predict();
        // No detections in frames 20 to 27: predictions alone must agree, too.
        if !(20..28).contains(&frame) {
            filter.correct(&seen_at(frame));
            dense.correct(super::to_lanes(&seen_at(frame)));
        }
        let difference = largest_difference(&filter, &dense);
        if difference > 1e-9 {
            failures.push(format!("frame {frame}: differs by {difference:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn an_interval_can_be_split_anywhere() {
    let cases: &[&[f64]] =
        &[&[1.0, 1.0, 1.0], &[0.5, 2.5], &[2.9, 0.1], &[0.25, 0.25, 1.5, 1.0], &[3.0, 0.0]];
    let mut start = BoxFilter::new(&seen_at(0));
    for frame in 1..10 {
        start.predict(1.0);
        start.correct(&seen_at(frame));
    }
    // The noise depends on the size at the start of a step, so a changing size would differ slightly.
    start.hold_size();
    let mut whole = start.clone();
    whole.predict(3.0);
    let mut failures = Vec::new();
    for &steps in cases {
        let mut cut = start.clone();
        for &step in steps {
            cut.predict(step);
        }
        for (name, came, expected) in [
            ("position", cut.position, whole.position),
            ("variance", cut.variance, whole.variance),
            ("covariance", cut.covariance, whole.covariance),
            ("velocity variance", cut.velocity_variance, whole.velocity_variance),
        ] {
            if (0..4).any(|lane| (came[lane] - expected[lane]).abs() > 1e-9 * expected[lane].abs()) {
                failures.push(format!("{steps:?}: {name} {came:?}, expected {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sides_and_variances_stay_positive() {
    // Shrinks quickly, then is lost for long; in units from pixels to fractions of an image and beyond.
    let mut failures = Vec::new();
    for scale in [1.0f32, 1e-3, 1e4, 1e-18, 1e18] {
        for dt in [0.01, 1.0, 7.3] {
            let mut filter =
                BoxFilter::new(&BoundingBox::from_cxcywh([5.0, 5.0, 10.0, 10.0].map(|v| v * scale)));
            for side in [8.0, 5.0, 2.0, 0.1] {
                filter.predict(dt);
                filter.correct(&BoundingBox::from_cxcywh([5.0, 5.0, side, side].map(|v| v * scale)));
            }
            for step in 0..40 {
                filter.predict(dt);
                let bbox = filter.bbox();
                let spread = filter.variance.iter().chain(&filter.velocity_variance);
                if !bbox.has_area() || !bbox.is_finite() || spread.clone().any(|&v| v.is_nan() || v <= 0.0) {
                    failures.push(format!("scale {scale}, dt {dt}, step {step}: {filter:?}"));
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
