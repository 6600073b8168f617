//! Failures that repeat.

use std::time::{Duration, Instant};

/// The same failure is reported once in this time.
const SILENCE: Duration = Duration::from_secs(5);

/// Says which failures to report: a camera that sends what cannot be used does so with every frame.
#[derive(Debug, Default)]
pub struct Failures {
    last: Option<(String, Instant)>,
}

impl Failures {
    /// `true` if a failure that happens now is to be reported: one that differs from the last, or that was reported five seconds
    /// ago.
    pub fn is_news(&mut self, failure: &str, now: Instant) -> bool {
        let repeated = |(last, at): &(String, Instant)| last == failure && now.duration_since(*at) < SILENCE;
        if self.last.as_ref().is_some_and(repeated) {
            return false;
        }
        self.last = Some((failure.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_is_reported_once_in_a_while() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let cases =
            [(0, "dark", true), (1, "dark", false), (2, "torn", true), (4, "dark", true), (8, "dark", false)];
        for (second, failure, expected) in cases.into_iter().chain([(9, "dark", true)]) {
            let now = start + Duration::from_secs(second);
            assert_eq!(failures.is_news(failure, now), expected, "{failure} after {second} s");
        }
    }
}
