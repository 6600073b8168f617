//! Time stamps of a decoder are missing, repeat or jump, and the times of frames must never decrease.

use std::time::{Duration, Instant, SystemTime};

/// Turns a decoder's time stamps into times that never decrease.
pub(super) enum Timeline {
    /// The time stamps of a file.
    Stamps {
        /// The frame interval in the header.
        nominal: Duration,
        /// The interval assumed before a frame without a valid time stamp.
        step: Duration,
        last: Option<Duration>,
    },
    /// The stream's clock, or this machine's.
    Live { began: Option<Instant>, clock: StreamClock, last: Duration },
}

impl Timeline {
    pub(super) fn new(frame_rate: Option<f64>) -> Self {
        let step = Duration::from_secs_f64(1.0 / frame_rate.unwrap_or(30.0));
        Self::Stamps { nominal: step, step, last: None }
    }

    pub(super) fn live() -> Self {
        Self::Live { began: None, clock: StreamClock::default(), last: Duration::ZERO }
    }

    /// The time of the next frame relative to the first, and when it was taken if it is live.
    ///
    /// Raw streams have no time stamps. A time stamp that does not increase is ignored, and the frame assumed to be one
    /// interval later.
    pub(super) fn next(&mut self, stamp: Option<Duration>) -> (Duration, Option<SystemTime>) {
        let time = match self {
            Self::Live { began, clock, last } => {
                let arrived = began.get_or_insert_with(Instant::now).elapsed();
                *last = clock.taken(arrived, stamp).max(*last);
                let captured = SystemTime::now().checked_sub(arrived.saturating_sub(*last));
                return (*last, captured);
            }
            Self::Stamps { nominal, step, last } => {
                let time = match (*last, stamp) {
                    (None, stamp) => stamp.unwrap_or_default(),
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
        };
        (time, None)
    }

    /// The end of the last frame.
    pub(super) fn end(&self) -> Duration {
        match self {
            Self::Live { began, .. } => began.map_or(Duration::ZERO, |began| began.elapsed()),
            Self::Stamps { step, last, .. } => last.map_or(Duration::ZERO, |last| last.saturating_add(*step)),
        }
    }
}

/// The clock of a live stream, whose time stamps start anywhere and need not keep time: some streams number their frames only.
///
/// A stream's time stamps are believed once the least delay of two seconds differs from that of the two seconds before by
/// less than 50 ms. A frame was taken as long before its arrival as it is late beyond the least delay; a delay that all
/// frames have in common cannot be known.
#[derive(Default)]
pub(super) struct StreamClock {
    began: Duration,
    last: Option<f64>,
    /// The least arrival minus stamp, in seconds: of these two seconds, and of those before.
    least: Option<f64>,
    before: Option<f64>,
    trusted: bool,
}

const WINDOW: Duration = Duration::from_secs(2);
const SAME_PACE_S: f64 = 0.05;
/// A greater difference is a stream that started over.
const JUMP_S: f64 = 2.0;

impl StreamClock {
    /// The time when a frame was taken that has arrived now.
    pub(super) fn taken(&mut self, arrived: Duration, stamp: Option<Duration>) -> Duration {
        let stamp = stamp.map_or(0.0, |stamp| stamp.as_secs_f64());
        let delay = arrived.as_secs_f64() - stamp;
        let jumped = self.before.is_some_and(|before| (delay - before).abs() > JUMP_S);
        if jumped || self.last.is_some_and(|last| stamp <= last) {
            *self = Self { began: arrived, ..Self::default() };
        }
        self.last = Some(stamp);
        let least = self.least.map_or(delay, |least| least.min(delay));
        self.least = Some(least);
        if arrived.saturating_sub(self.began) >= WINDOW {
            self.trusted = self.before.is_some_and(|before| (least - before).abs() <= SAME_PACE_S);
            (self.before, self.least, self.began) = (Some(least), None, arrived);
        }
        match self.before.filter(|_| self.trusted) {
            Some(before) => {
                let taken = Duration::try_from_secs_f64(stamp + before.min(least));
                taken.map_or(arrived, |taken| taken.min(arrived))
            }
            None => arrived,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_never_decrease() {
        let none = u64::MAX;
        let cases: [(&str, f64, &[u64], &[u64], u64); 6] = [
            ("constant", 25.0, &[0, 40, 80], &[0, 40, 80], 120),
            ("variable", 25.0, &[0, 40, 1040, 1060], &[0, 40, 1040, 1060], 1080),
            ("lost", 20.0, &[0, 40, 80, none, 0], &[0, 40, 80, 120, 160], 200),
            ("damaged", 25.0, &[0, 40, 2000, 120, 160], &[0, 40, 2000, 2040, 2080], 2120),
            ("no stamps", 50.0, &[none, none, none], &[0, 20, 40], 60),
            ("begins without", 25.0, &[none, 80], &[0, 80], 120),
        ];
        for (name, rate, stamps, expected, end) in cases {
            let mut timeline = Timeline::new(Some(rate));
            let stamp = |ms: u64| (ms != none).then(|| Duration::from_millis(ms));
            let found: Vec<u64> =
                stamps.iter().map(|ms| timeline.next(stamp(*ms)).0.as_millis() as u64).collect();
            assert_eq!((found.as_slice(), timeline.end().as_millis() as u64), (expected, end), "{name}");
        }
    }

    /// Frames of 25 a second that arrive up to 30 ms late.
    #[test]
    fn a_stream_that_keeps_time_is_timed_by_its_clock() {
        let late = [0, 7, 30, 2, 19];
        // The interval of the stamps in ms, and whether they are believed.
        for (step, believed) in [(40, true), (50, false), (0, false)] {
            let mut clock = StreamClock::default();
            let mut wrong = 0;
            for index in 0..500u64 {
                let arrived = Duration::from_millis(40 * index + late[index as usize % late.len()]);
                let taken = clock.taken(arrived, Some(Duration::from_millis(9000 + step * index)));
                let expected =
                    if believed && index > 110 { Duration::from_millis(40 * index) } else { arrived };
                let off = taken.abs_diff(expected);
                wrong += u32::from(off > Duration::from_millis(1) && (!believed || index > 110));
            }
            assert_eq!(wrong, 0, "{step} ms");
        }
    }
}
