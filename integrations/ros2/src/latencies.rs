//! Robots act on results, so that their age counts: the time from an image's stamp to the publication of its detections.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

/// Frames that are remembered.
const FRAMES: usize = 1000;
/// A stamp that is further from now is of another clock: a recording, a simulation.
const OLDEST: Duration = Duration::from_secs(60);

/// The latencies of the newest frames, from their stamp to the publication of their detections.
#[derive(Debug, Default)]
pub struct Latencies {
    /// All frames.
    pub frames: u64,
    /// The latency, and the detector's part of it, in milliseconds.
    newest: VecDeque<(f64, f64)>,
}

/// The time since 1970.
pub fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Latencies {
    /// A frame was published at `now`; its detector took `detector_ms`.
    pub fn add(&mut self, stamp: Duration, now: Duration, detector_ms: f64) {
        self.frames += 1;
        let Some(latency) = now.checked_sub(stamp).filter(|latency| *latency < OLDEST) else { return };
        if self.newest.len() == FRAMES {
            self.newest.pop_front();
        }
        self.newest.push_back((latency.as_secs_f64() * 1e3, detector_ms));
    }

    /// A line for users, if stamps are of this machine's clock.
    pub fn summary(&self) -> Option<String> {
        let quantile = |of: fn(&(f64, f64)) -> f64, share: f64| {
            let mut sorted: Vec<f64> = self.newest.iter().map(of).collect();
            sorted.sort_by(f64::total_cmp);
            sorted[((sorted.len() - 1) as f64 * share).round() as usize]
        };
        (!self.newest.is_empty()).then(|| {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| quantile(|(latency, _)| *latency, share));
            let rest = quantile(|(latency, detector)| latency - detector, 0.5);
            format!(
                "latency from stamp to publication: p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, n {}; without the \
                 detector p50 {rest:.1} ms",
                self.newest.len()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_other_clocks_are_counted_alone() {
        let mut latencies = Latencies::default();
        let now = Duration::from_secs(1_000);
        latencies.add(Duration::from_secs(5), now, 1.0);
        latencies.add(Duration::from_secs(1_001), now, 1.0);
        assert_eq!((latencies.frames, latencies.summary()), (2, None));
        for _ in 0..=FRAMES {
            latencies.add(now - Duration::from_secs(2), now, 500.0);
        }
        let summary = latencies.summary().expect("frames of this clock");
        assert!(summary.contains("p99 2000.0 ms, n 1000; without the detector p50 1500.0 ms"), "{summary}");
    }
}
