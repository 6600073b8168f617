//! Quantiles of measurements.

use serde::Serialize;

/// Quantiles of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Number of measurements.
    pub n: usize,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Minimum.
    pub min: f64,
}

impl Quantiles {
    /// The quantiles of `values`, by nearest rank; all zero without values.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let at = (share * values.len() as f64).ceil() as usize;
            values.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { n: values.len(), p50: rank(0.5), p90: rank(0.9), p99: rank(0.99), min: rank(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let cases = [
            (vec![], (0.0, 0.0, 0.0)),
            (vec![5.0], (5.0, 5.0, 5.0)),
            (vec![3.0, 1.0, 2.0], (2.0, 3.0, 3.0)),
            ((1..=100).map(f64::from).collect(), (50.0, 90.0, 99.0)),
        ];
        for (values, expected) in cases {
            let q = Quantiles::of(values.clone());
            assert_eq!((q.p50, q.p90, q.p99), expected, "{values:?}");
        }
    }
}
