//! Options of a tracker.

use ocelli_error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The default of `low_threshold`.
const LOW_THRESHOLD: f32 = 0.1;
/// The distance of the default of `new_track_threshold` above `track_threshold`. Of 0, 0.05, 0.1, 0.15 and 0.2 it has the best
/// mean of MOTA and IDF1 on `tests/golden/tracking`.
const NEW_TRACK_MARGIN: f32 = 0.05;
/// MOTA on `tests/golden/tracking`, which has occlusions, misses and false positives, is 0.905 with 4 hits, 0.908 with 1, 0.911
/// with 2, and 0.914 with 2 and a `sure_threshold` of 0.8.
const MIN_HITS: u32 = 2;
/// The default of `sure_threshold`.
const SURE_THRESHOLD: f32 = 0.8;

/// Whether a track may take a detection of another class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchClasses {
    /// Yes: an object whose class flickers stays one track, whose class is the majority vote of its detections. For classes
    /// that exclude each other; a rider could take over the track of the bicycle.
    Any,
    /// No: each class is tracked separately.
    #[default]
    Same,
}

ocelli_error::read_by_name!(MatchClasses, "match_classes", "\"same\" or \"any\"");

/// The options of a [`ByteTracker`](crate::ByteTracker), with defaults in brackets.
///
/// Overlaps are minimum IoUs, 0 to 1. The match threshold of other trackers is often a maximum cost, 1 − IoU: their 0.8 is
/// a minimum IoU of 0.2.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ByteTrackerOptions {
    /// Detections with at least this score are matched first and can start tracks (0.5).
    pub track_threshold: f32,
    /// Detections with at least this score but below `track_threshold` can only continue existing tracks (`None`: 0.1, or
    /// `track_threshold` if that is lower).
    pub low_threshold: Option<f32>,
    /// The minimum score that starts a track, if it is above `track_threshold` (`None`: 0.05 above `track_threshold`).
    pub new_track_threshold: Option<f32>,
    /// Minimum overlap of a track with a detection of high score (0.5).
    pub match_iou: f32,
    /// Minimum overlap of a track with a detection of low score (0.4).
    pub low_match_iou: f32,
    /// Minimum overlap of a lost track with an unmatched detection of high score, if it is below `match_iou` (0.5). The
    /// longer a track is lost, the worse its predicted box: lower values make it take over other objects.
    pub lost_match_iou: f32,
    /// Minimum overlap of a track that was detected in the frame before with an unmatched detection of high score (0.3),
    /// for objects that turn or stop.
    pub leftover_match_iou: f32,
    /// Of tracks that keep overlapping this much, the younger is removed as a duplicate (0.85).
    pub duplicate_iou: f32,
    /// The maximum number of frames between two detections of a track, at least 1; then it is removed (30).
    pub max_time_lost: u32,
    /// The number of consecutive frames with detections that confirms a track, at least 1 (`None`: 2, or 1 for a track that
    /// starts with `sure_threshold`).
    pub min_hits: Option<u32>,
    /// A track that starts with at least this score is confirmed at once (`None`: 0.8, or not at all if `min_hits` is set).
    pub sure_threshold: Option<f32>,
    /// Number of frames for which a lost track is still reported, at its predicted place (0).
    pub coast_frames: u32,
    /// Whether a track may take a detection of another class ([`MatchClasses::Same`]).
    pub match_classes: MatchClasses,
    /// Non-maximum suppression of the detections across classes: of those that overlap more than this, only the one with
    /// the highest score is used (`None`: all are used).
    pub nms_iou: Option<f32>,
    /// The weight of what a detection looks like, relative to how near it is, when a track that matched nothing is looked for
    /// within reach of where it was (0.5; 0: not looked for). Without [`Appearances`](crate::Appearances) it changes nothing.
    pub appearance_weight: f32,
}

impl Default for ByteTrackerOptions {
    fn default() -> Self {
        Self {
            track_threshold: 0.5,
            low_threshold: None,
            new_track_threshold: None,
            match_iou: 0.5,
            low_match_iou: 0.4,
            lost_match_iou: 0.5,
            leftover_match_iou: 0.3,
            duplicate_iou: 0.85,
            max_time_lost: 30,
            min_hits: None,
            sure_threshold: None,
            coast_frames: 0,
            match_classes: MatchClasses::Same,
            nms_iou: None,
            appearance_weight: 0.5,
        }
    }
}

impl ByteTrackerOptions {
    /// The minimum score of a detection that continues a track: as set, or its default.
    pub fn low_threshold(&self) -> f32 {
        self.low_threshold.unwrap_or(LOW_THRESHOLD.min(self.track_threshold))
    }

    /// The minimum score of a detection that starts a track: as set, or its default.
    pub fn new_track_threshold(&self) -> f32 {
        self.new_track_threshold.unwrap_or((self.track_threshold + NEW_TRACK_MARGIN).min(1.0))
    }

    /// The number of consecutive detections that confirms a track: as set, or its default.
    pub fn min_hits(&self) -> u32 {
        self.min_hits.unwrap_or(MIN_HITS)
    }

    /// The score that confirms a track at once: as set, or its default. `None`: no score does.
    pub fn sure_threshold(&self) -> Option<f32> {
        self.sure_threshold.or(self.min_hits.is_none().then_some(SURE_THRESHOLD))
    }

    /// Checks the range of every option.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) with the option, its value and its range.
    pub fn validate(&self) -> Result<()> {
        let shares = [
            ("track_threshold", self.track_threshold),
            ("low_threshold", self.low_threshold()),
            ("new_track_threshold", self.new_track_threshold()),
            ("match_iou", self.match_iou),
            ("low_match_iou", self.low_match_iou),
            ("lost_match_iou", self.lost_match_iou),
            ("leftover_match_iou", self.leftover_match_iou),
            ("duplicate_iou", self.duplicate_iou),
            ("sure_threshold", self.sure_threshold().unwrap_or(1.0)),
            ("nms_iou", self.nms_iou.unwrap_or(1.0)),
            ("appearance_weight", self.appearance_weight),
        ];
        shares.into_iter().try_for_each(|(name, value)| Error::check_share(name, value))?;
        if self.duplicate_iou == 0.0 {
            return Err(Error::argument("duplicate_iou", 0, "above 0; at 1 only equal boxes are duplicates"));
        }
        if self.low_threshold() > self.track_threshold {
            let most = format!("at most track_threshold, which is {}", self.track_threshold);
            return Err(Error::argument("low_threshold", self.low_threshold(), most));
        }
        if self.min_hits() == 0 {
            let expected = "at least 1, which reports a track from its first frame";
            return Err(Error::argument("min_hits", 0, expected));
        }
        if self.max_time_lost == 0 {
            let expected = "at least 1, which removes a track after its first missed frame";
            return Err(Error::argument("max_time_lost", 0, expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ByteTrackerOptions;
    use crate::ByteTracker;
    use ocelli_error::ErrorKind;

    #[test]
    fn defaults_depend_on_the_options_that_are_set() {
        type Set = fn(&mut ByteTrackerOptions);
        // What is set; low threshold, new-track threshold, hits, sure threshold.
        let cases: &[(&str, Set, (f32, f32, u32, Option<f32>))] = &[
            ("nothing", |_| (), (0.1, 0.55, 2, Some(0.8))),
            ("a lower track threshold", |o| o.track_threshold = 0.05, (0.05, 0.1, 2, Some(0.8))),
            ("a higher track threshold", |o| o.track_threshold = 0.975, (0.1, 1.0, 2, Some(0.8))),
            ("the low threshold", |o| o.low_threshold = Some(0.3), (0.3, 0.55, 2, Some(0.8))),
            ("the new-track threshold", |o| o.new_track_threshold = Some(0.2), (0.1, 0.2, 2, Some(0.8))),
            ("hits", |o| o.min_hits = Some(2), (0.1, 0.55, 2, None)),
            ("the sure threshold", |o| o.sure_threshold = Some(0.9), (0.1, 0.55, 2, Some(0.9))),
            (
                "hits and the sure threshold",
                |o| (o.min_hits, o.sure_threshold) = (Some(4), Some(0.9)),
                (0.1, 0.55, 4, Some(0.9)),
            ),
        ];
        let mut failures = Vec::new();
        for &(what, set, expected) in cases {
            let mut options = ByteTrackerOptions::default();
            set(&mut options);
            let found = (
                options.low_threshold(),
                options.new_track_threshold(),
                options.min_hits(),
                options.sure_threshold(),
            );
            if found != expected || options.validate().is_err() {
                failures.push(format!("{what}: {found:?}, expected {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn errors_name_options_out_of_range() {
        type Set = fn(&mut ByteTrackerOptions);
        let cases: &[(Set, Option<&str>)] = &[
            (|_| (), None),
            (
                |o| (o.match_iou, o.low_match_iou, o.lost_match_iou, o.duplicate_iou) = (0.0, 0.0, 1.0, 1.0),
                None,
            ),
            (|o| (o.track_threshold, o.low_threshold) = (0.1, Some(0.1)), None),
            (|o| o.track_threshold = 0.05, None),
            (|o| o.match_iou = 1.01, Some("match_iou is 1.01: expected")),
            (|o| o.track_threshold = f32::NAN, Some("track_threshold is NaN: expected")),
            (|o| o.sure_threshold = Some(7.0), Some("sure_threshold is 7: expected")),
            (|o| (o.sure_threshold, o.nms_iou) = (None, None), None),
            (|o| o.nms_iou = Some(-0.1), Some("nms_iou is -0.1: expected")),
            (
                |o| o.low_threshold = Some(0.6),
                Some("low_threshold is 0.6: expected at most track_threshold, which is 0.5"),
            ),
            (|o| o.duplicate_iou = 0.0, Some("duplicate_iou is 0: expected above 0")),
            (|o| o.max_time_lost = 0, Some("max_time_lost is 0: expected at least 1")),
            (|o| o.min_hits = Some(0), Some("min_hits is 0: expected at least 1")),
        ];
        let mut failures = Vec::new();
        for &(set, expected) in cases {
            let mut options = ByteTrackerOptions::default();
            set(&mut options);
            let came = ByteTracker::new(options).err();
            let fits = match (&came, expected) {
                (None, None) => true,
                (Some(error), Some(part)) => {
                    error.kind() == ErrorKind::InvalidArgument
                        && error.to_string().contains(part)
                        && error.parameter() == part.split(' ').next()
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
