//! What a tracker can be told.

use crate::byte_track::ByteTracker;
use crate::error::{Error, ErrorKind, Result};

/// Whether a track may take a detection of another class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MatchClasses {
    /// Yes: an object whose class flickers stays one track, and its detections' votes decide what it is. Right
    /// where classes exclude each other; a rider may take over the bicycle's track.
    Any,
    /// No: objects of different classes never share a track, and each class is tracked by itself.
    #[default]
    Same,
}

/// The options of a [`ByteTracker`], with the defaults in brackets.
///
/// Overlaps are least IoUs, 0 to 1. Other trackers' "match thresholds" are often the greatest cost, 1 − IoU, which
/// is something else: their 0.8 is a least IoU of 0.2.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ByteTrackerOptions {
    /// Detections with at least this score are matched first and may start tracks (0.5).
    pub track_threshold: f32,
    /// Detections below `track_threshold` with at least this score can only carry tracks on (0.1).
    pub low_threshold: f32,
    /// The least score that starts a track, where it is above `track_threshold` (0.55).
    pub new_track_threshold: f32,
    /// Least overlap of a tracked object with a detection of high score (0.5).
    pub match_iou: f32,
    /// Least overlap of a tracked object with a detection of low score (0.4).
    pub low_match_iou: f32,
    /// Least overlap of a lost object with a detection of high score (0.3).
    pub lost_match_iou: f32,
    /// Tracks that go on overlapping this much are one object, and the younger goes (0.85).
    pub duplicate_iou: f32,
    /// The most frames between two sights of one track, at least 1; past them it is given up (30).
    pub max_time_lost: u32,
    /// In how many frames on end an object must be seen before it counts as tracked, at least 1 (2).
    pub min_hits: u32,
    /// A track that starts with at least this score counts as tracked at once, whatever `min_hits` says (0.8; none:
    /// `min_hits` alone decides).
    pub sure_threshold: Option<f32>,
    /// For how many frames a lost track is still given out, at its guessed place (0: not at all).
    pub coast_frames: u32,
    /// Whether a track may take a detection of another class ([`MatchClasses::Same`]).
    pub match_classes: MatchClasses,
    /// Of detections that overlap more than this, of whatever classes, only the one with the best score is looked
    /// at (all are looked at).
    pub nms_iou: Option<f32>,
}

impl Default for ByteTrackerOptions {
    fn default() -> Self {
        Self {
            track_threshold: 0.5,
            low_threshold: 0.1,
            // Measured beside 0.5, 0.6, 0.65 and 0.7 (`tests/golden/tracking`): it has the best mean of MOTA and IDF1.
            new_track_threshold: 0.55,
            match_iou: 0.5,
            low_match_iou: 0.4,
            lost_match_iou: 0.3,
            duplicate_iou: 0.85,
            max_time_lost: 30,
            // Measured together on simulated scenes with occlusions, misses and false alarms: MOTA is 0.881 with 4 hits
            // alone, 0.896 with 2, and 0.901 with 2 and sure starts. One hit shows a hundred false alarms more.
            min_hits: 2,
            sure_threshold: Some(0.8),
            coast_frames: 0,
            match_classes: MatchClasses::Same,
            nms_iou: None,
        }
    }
}

impl ByteTrackerOptions {
    /// Checks that every option is within its range.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] names the option, what it is and what it may be.
    pub fn validate(&self) -> Result<()> {
        let shares = [
            ("track_threshold", self.track_threshold),
            ("low_threshold", self.low_threshold),
            ("new_track_threshold", self.new_track_threshold),
            ("match_iou", self.match_iou),
            ("low_match_iou", self.low_match_iou),
            ("lost_match_iou", self.lost_match_iou),
            ("duplicate_iou", self.duplicate_iou),
            ("sure_threshold", self.sure_threshold.unwrap_or(1.0)),
            ("nms_iou", self.nms_iou.unwrap_or(1.0)),
        ];
        for (name, value) in shares {
            // The contrapositive, so that NaN is refused too.
            if !(0.0..=1.0).contains(&value) {
                return Err(refused(name, value, "a number from 0 to 1"));
            }
        }
        if self.duplicate_iou == 0.0 {
            return Err(refused(
                "duplicate_iou",
                self.duplicate_iou,
                "above 0; at 1 only equal boxes are one",
            ));
        }
        if self.low_threshold > self.track_threshold {
            let most = format!("at most track_threshold, which is {}", self.track_threshold);
            return Err(refused("low_threshold", self.low_threshold, &most));
        }
        if self.min_hits == 0 {
            return Err(refused(
                "min_hits",
                self.min_hits,
                "at least 1, which shows a track from its first frame",
            ));
        }
        if self.max_time_lost == 0 {
            return Err(refused(
                "max_time_lost",
                self.max_time_lost,
                "at least 1, which takes being seen each frame",
            ));
        }
        Ok(())
    }
}

fn refused(name: &str, value: impl std::fmt::Display, expected: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("Tracker option refused, {name}: {value} is not {expected}"),
    )
}

/// Builds a [`ByteTracker`]; what is not set stays at its default of [`ByteTrackerOptions`].
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct ByteTrackerBuilder {
    options: ByteTrackerOptions,
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {$(
        #[doc = concat!("Sets [`", stringify!($name), "`](ByteTrackerOptions::", stringify!($name), ").")]
        pub fn $name(mut self, $name: $type) -> Self {
            self.options.$name = $name;
            self
        }
    )*};
}

impl ByteTrackerBuilder {
    setters! {
        track_threshold: f32,
        low_threshold: f32,
        new_track_threshold: f32,
        match_iou: f32,
        low_match_iou: f32,
        lost_match_iou: f32,
        duplicate_iou: f32,
        max_time_lost: u32,
        min_hits: u32,
        sure_threshold: Option<f32>,
        coast_frames: u32,
        match_classes: MatchClasses,
        nms_iou: Option<f32>,
    }

    /// Starts from `options` instead of the defaults.
    pub fn options(mut self, options: ByteTrackerOptions) -> Self {
        self.options = options;
        self
    }

    /// The tracker, which has seen nothing yet.
    ///
    /// # Errors
    /// As of [`ByteTrackerOptions::validate`].
    pub fn build(self) -> Result<ByteTracker> {
        self.options.validate()?;
        Ok(ByteTracker::with_valid_options(self.options))
    }
}

#[cfg(test)]
mod tests {
    use super::ByteTrackerBuilder;
    use crate::ByteTracker;
    use crate::error::ErrorKind;

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        type Set = fn(ByteTrackerBuilder) -> ByteTrackerBuilder;
        let cases: &[(Set, Option<&str>)] = &[
            (|b| b, None),
            (|b| b.match_iou(0.0).low_match_iou(0.0).lost_match_iou(1.0).duplicate_iou(1.0), None),
            (|b| b.track_threshold(0.1).low_threshold(0.1), None),
            (|b| b.match_iou(1.01), Some("match_iou: 1.01 is not")),
            (|b| b.track_threshold(f32::NAN), Some("track_threshold: NaN is not")),
            (|b| b.sure_threshold(Some(7.0)), Some("sure_threshold: 7 is not")),
            (|b| b.sure_threshold(None).nms_iou(None), None),
            (|b| b.nms_iou(Some(-0.1)), Some("nms_iou: -0.1 is not")),
            (
                |b| b.low_threshold(0.6),
                Some("low_threshold: 0.6 is not at most track_threshold, which is 0.5"),
            ),
            (|b| b.duplicate_iou(0.0), Some("duplicate_iou: 0 is not above 0")),
            (|b| b.max_time_lost(0), Some("max_time_lost: 0 is not at least 1")),
            (|b| b.min_hits(0), Some("min_hits: 0 is not at least 1")),
        ];
        let mut failures = Vec::new();
        for &(set, expected) in cases {
            let came = set(ByteTracker::builder()).build().err();
            let fits = match (&came, expected) {
                (None, None) => true,
                (Some(error), Some(part)) => {
                    error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(part)
                }
                _ => false,
            };
            if !fits {
                failures.push(format!("expected {expected:?}, came {came:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
