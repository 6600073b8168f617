//! When frames were taken.

use std::time::{Duration, Instant};

/// Turns a decoder's time stamps into times that never decrease.
pub(super) enum Timeline {
    /// The time stamps of a file.
    Stamps {
        /// The frame interval in the header.
        nominal: Duration,
        /// The interval assumed before a frame without a valid time stamp.
        step: Duration,
        first: Option<Duration>,
        last: Option<Duration>,
    },
    /// The clock: cameras have no reliable time stamps, and those of streams start anywhere.
    Live { began: Option<Instant> },
}

impl Timeline {
    pub(super) fn new(frame_rate: Option<f64>) -> Self {
        let step = Duration::from_secs_f64(1.0 / frame_rate.unwrap_or(30.0));
        Self::Stamps { nominal: step, step, first: None, last: None }
    }

    pub(super) fn live() -> Self {
        Self::Live { began: None }
    }

    /// The time of the next frame, relative to the first.
    ///
    /// Decoders that delay frames lose the last few time stamps, and raw streams have none. A time stamp that does not
    /// increase is ignored, and the frame assumed to be one interval later.
    pub(super) fn next(&mut self, position_ms: f64) -> Duration {
        match self {
            Self::Live { began } => began.get_or_insert_with(Instant::now).elapsed(),
            Self::Stamps { nominal, step, first, last } => {
                let stamp = Duration::try_from_secs_f64(position_ms / 1e3).ok();
                let start = *first.get_or_insert(stamp.unwrap_or_default());
                let stamp = stamp.map(|stamp| stamp.saturating_sub(start));
                let time = match (*last, stamp) {
                    (None, _) => Duration::ZERO,
                    (Some(last), Some(stamp)) if stamp > last => {
                        // A gap is not the interval of the frames after it.
                        *step = (stamp - last).min(*nominal);
                        stamp
                    }
                    (Some(last), _) => last.saturating_add(*step),
                };
                *last = Some(time);
                time
            }
        }
    }

    /// When the last frame ends.
    pub(super) fn end(&self) -> Duration {
        match self {
            Self::Live { began } => began.map_or(Duration::ZERO, |began| began.elapsed()),
            Self::Stamps { step, last, .. } => last.map_or(Duration::ZERO, |last| last.saturating_add(*step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_never_decrease() {
        let cases: [(&str, f64, &[f64], &[u64], u64); 7] = [
            ("constant", 25.0, &[0.0, 40.0, 80.0], &[0, 40, 80], 120),
            ("variable", 25.0, &[0.0, 40.0, 1040.0, 1060.0], &[0, 40, 1040, 1060], 1080),
            ("held back", 20.0, &[0.0, 40.0, 80.0, 0.0, 0.0], &[0, 40, 80, 120, 160], 200),
            ("damaged", 25.0, &[0.0, 40.0, 2000.0, 120.0, 160.0], &[0, 40, 2000, 2040, 2080], 2120),
            ("no stamps", 50.0, &[0.0, 0.0, 0.0], &[0, 20, 40], 60),
            ("begins late", 25.0, &[1400.0, 1440.0], &[0, 40], 80),
            ("no numbers", 25.0, &[-1.0, f64::NAN, 80.0], &[0, 40, 80], 120),
        ];
        for (name, rate, stamps, expected, end) in cases {
            let mut timeline = Timeline::new(Some(rate));
            let found: Vec<u64> = stamps.iter().map(|ms| timeline.next(*ms).as_millis() as u64).collect();
            assert_eq!((found.as_slice(), timeline.end().as_millis() as u64), (expected, end), "{name}");
        }
    }
}
