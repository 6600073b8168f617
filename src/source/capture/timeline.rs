//! When frames were taken.

use std::time::{Duration, Instant, SystemTime};

/// How far apart an entry of the index and the decoder's time stamp of the same frame may be.
const SAME_FRAME: Duration = Duration::from_micros(500);
/// How many entries of the index are searched for a time stamp: a decoder may leave damaged frames out.
const SEARCHED: usize = 64;

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
    /// The index of a file: decoders that hold frames back lose the time stamps of the last ones.
    Index {
        times: Vec<Duration>,
        next: usize,
        first: Option<Duration>,
        step: Duration,
        /// The time of the last frame that the index does not have.
        beyond: Option<Duration>,
    },
    /// The stream's clock, or this machine's.
    Live { began: Option<Instant>, clock: StreamClock, last: Duration },
}

impl Timeline {
    pub(super) fn new(frame_rate: Option<f64>) -> Self {
        let step = interval(frame_rate);
        Self::Stamps { nominal: step, step, first: None, last: None }
    }

    /// The times of a file's frames, in order and from zero.
    pub(super) fn indexed(times: Vec<Duration>, frame_rate: Option<f64>) -> Self {
        Self::Index { times, next: 0, first: None, step: interval(frame_rate), beyond: None }
    }

    pub(super) fn live() -> Self {
        Self::Live { began: None, clock: StreamClock::default(), last: Duration::ZERO }
    }

    /// The time of the next frame relative to the first, and when it was taken if it is live.
    ///
    /// Decoders that delay frames lose the last few time stamps, and raw streams have none. A time stamp that does not
    /// increase is ignored, and the frame assumed to be one interval later, or the next one of the index. Frames beyond the
    /// end of the index have the decoder's time stamps.
    pub(super) fn next(&mut self, position_ms: f64) -> (Duration, Option<SystemTime>) {
        let stamp = Duration::try_from_secs_f64(position_ms / 1e3).ok();
        let time = match self {
            Self::Live { began, clock, last } => {
                let arrived = began.get_or_insert_with(Instant::now).elapsed();
                *last = clock.taken(arrived, stamp).max(*last);
                let captured = SystemTime::now().checked_sub(arrived.saturating_sub(*last));
                return (*last, captured);
            }
            Self::Index { times, next, first, step, beyond } => {
                let start = *first.get_or_insert(stamp.unwrap_or_default());
                let stamp = stamp.and_then(|stamp| stamp.checked_sub(start));
                let rest = times.get(*next..).unwrap_or_default().iter().take(SEARCHED);
                let found =
                    stamp.and_then(|stamp| rest.clone().position(|time| time.abs_diff(stamp) <= SAME_FRAME));
                let at = *next + found.unwrap_or(0);
                *next = at + 1;
                times.get(at).copied().unwrap_or_else(|| {
                    let last = beyond.or(times.last().copied()).unwrap_or_default();
                    let stamp = stamp.filter(|stamp| *stamp > last.saturating_add(SAME_FRAME));
                    *beyond.insert(stamp.unwrap_or(last.saturating_add(*step)))
                })
            }
            Self::Stamps { nominal, step, first, last } => {
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
        };
        (time, None)
    }

    /// When the last frame ends.
    pub(super) fn end(&self) -> Duration {
        match self {
            Self::Live { began, .. } => began.map_or(Duration::ZERO, |began| began.elapsed()),
            Self::Stamps { step, last, .. } => last.map_or(Duration::ZERO, |last| last.saturating_add(*step)),
            Self::Index { times, next, step, beyond, .. } => {
                let shown = next.checked_sub(1).and_then(|at| times.get(at)).copied();
                beyond.or(shown).map_or(Duration::ZERO, |last| last.saturating_add(*step))
            }
        }
    }
}

fn interval(frame_rate: Option<f64>) -> Duration {
    Duration::from_secs_f64(1.0 / frame_rate.unwrap_or(30.0))
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
    /// When a frame was taken that has arrived now.
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
            let found: Vec<u64> = stamps.iter().map(|ms| timeline.next(*ms).0.as_millis() as u64).collect();
            assert_eq!((found.as_slice(), timeline.end().as_millis() as u64), (expected, end), "{name}");
        }
    }

    #[test]
    fn the_index_has_the_times_that_the_decoder_lost() {
        let index: Vec<Duration> = [0, 40, 60, 160, 200, 320].map(Duration::from_millis).to_vec();
        // The decoder's time stamps and the times: stamps that are lost, stamps from 1.4 s on, a frame left out.
        let cases: [(&str, &[f64], &[u64], u64); 5] = [
            ("held back", &[0.0, 40.0, 60.0, 160.0, 0.0, 0.0], &[0, 40, 60, 160, 200, 320], 360),
            ("begins late", &[1400.0, 1440.0, 1460.0], &[0, 40, 60], 100),
            ("left out", &[0.0, 40.0, 160.0, 160.0, 0.0], &[0, 40, 160, 200, 320], 360),
            ("too many", &[0.0, 40.0, 60.0, 160.0, 0.0, 0.0, 0.0], &[0, 40, 60, 160, 200, 320, 360], 400),
            (
                "beyond",
                &[0.0, 40.0, 60.0, 160.0, 200.0, 320.0, 420.0, 430.0, 0.0],
                &[0, 40, 60, 160, 200, 320, 420, 430, 470],
                510,
            ),
        ];
        for (name, stamps, expected, end) in cases {
            let mut timeline = Timeline::indexed(index.clone(), Some(25.0));
            let found: Vec<u64> = stamps.iter().map(|ms| timeline.next(*ms).0.as_millis() as u64).collect();
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
