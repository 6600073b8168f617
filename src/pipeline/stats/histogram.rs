//! A histogram of durations, of fixed size.

use std::time::Duration;

use super::Quantiles;

/// Bins per doubling. Bins are 4.4 % wide, so a bin's middle is within 2.2 % of the durations in it.
const PER_DOUBLING: f64 = 16.0;
/// The smallest duration; 32 doublings reach from a microsecond to more than an hour.
const SMALLEST_MS: f64 = 1e-3;
const BINS: usize = 32 * PER_DOUBLING as usize;

/// Counts durations on a logarithmic scale.
#[derive(Clone)]
pub(super) struct Histogram {
    bins: [u64; BINS],
    pub(super) count: u64,
    pub(super) sum_ms: f64,
    max_ms: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bins: [0; BINS], count: 0, sum_ms: 0.0, max_ms: 0.0 }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, duration: Duration) {
        let ms = duration.as_secs_f64() * 1e3;
        let bin = ((ms / SMALLEST_MS).log2() * PER_DOUBLING).max(0.0) as usize;
        self.bins[bin.min(BINS - 1)] += 1;
        self.count += 1;
        self.sum_ms += ms;
        self.max_ms = self.max_ms.max(ms);
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        let mean = if self.count > 0 { self.sum_ms / self.count as f64 } else { 0.0 };
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| self.quantile(share));
        Quantiles { n: self.count, mean, p50, p90, p99, max: self.max_ms }
    }

    /// The middle of the bin that holds the nearest rank, at most the longest duration.
    fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bin, count) in self.bins.iter().enumerate() {
            below += count;
            if below >= rank {
                let middle = SMALLEST_MS * ((bin as f64 + 0.5) / PER_DOUBLING).exp2();
                return middle.min(self.max_ms);
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_per_cent() {
        let mut failures = Vec::new();
        // Durations in milliseconds, sorted.
        let cases: [Vec<f64>; 5] = [
            vec![7.0],
            vec![0.004, 0.005, 900.0],
            (1..=1000).map(|i| f64::from(i) * 0.1).collect(),
            (0..500).map(|i| 0.002 * 1.03f64.powi(i)).collect(),
            vec![3.6e6],
        ];
        for values in cases {
            let mut histogram = Histogram::default();
            values.iter().for_each(|ms| histogram.add(Duration::from_secs_f64(ms / 1e3)));
            let q = histogram.quantiles();
            for (share, found) in [(0.5, q.p50), (0.9, q.p90), (0.99, q.p99)] {
                let rank = (share * values.len() as f64).ceil() as usize;
                let expected = values[rank - 1];
                if (found / expected - 1.0).abs() > 0.03 {
                    failures.push(format!(
                        "{} values, {share}: expected {expected}, found {found}",
                        values.len()
                    ));
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert_eq!(Histogram::default().quantiles(), Quantiles::default());
    }

    #[test]
    fn durations_out_of_range_count_in_the_outer_bins() {
        let mut histogram = Histogram::default();
        histogram.add(Duration::ZERO);
        histogram.add(Duration::from_secs(1 << 40));
        let q = histogram.quantiles();
        assert_eq!(q.n, 2);
        assert!(q.p50 <= 2e-3 && q.p99 >= 3.6e6, "{q:?}");
    }
}
