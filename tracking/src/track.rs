//! The input and output of a tracker.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BoundingBox;

/// One object detected in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrackerDetection {
    /// Its box. Detections with a box that is not finite or has no area are ignored.
    #[serde(rename = "box")]
    pub bbox: BoundingBox,
    /// Confidence of the detector, 0 to 1. Detections with a score of NaN are ignored.
    pub score: f32,
    /// The class, in any numbering.
    pub class_id: usize,
}

/// The state of a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TrackState {
    /// Detected in every frame since it started, but in fewer than `min_hits` frames and never with a score of
    /// `sure_threshold`: it may be a false positive. Tentative tracks are not reported.
    #[default]
    Tentative,
    /// Confirmed, and detected in the latest frame.
    Tracked,
    /// Confirmed, but not detected in the latest frame; its box is predicted from its motion.
    Lost,
}

/// One object over time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// The id of the track, counted from 1 in each tracker and never reused.
    pub id: u64,
    /// The class, by majority vote of its detections.
    pub class_id: usize,
    /// The smoothed score: 0.7 of the latest detection's plus 0.3 of its previous value.
    pub score: f32,
    /// The filtered box, with a width and height above 0; it may extend beyond the image.
    #[serde(rename = "box")]
    pub bbox: BoundingBox,
    /// Frames since its first detection, 0 in that frame.
    pub age_frames: f32,
    /// The number of frames in which it was detected, at least 1.
    pub hits: u32,
    /// Its state.
    pub state: TrackState,
    /// Velocity of its centre in x and y, in box units per frame.
    pub velocity: [f32; 2],
    /// Frames since its last detection, 0 if it was detected in this frame.
    pub frames_since_seen: f32,
    /// The index of its detection in the slice passed to the tracker, if it was detected in this frame.
    pub detection: Option<usize>,
}

/// Time stamps are rounded to nanoseconds or milliseconds, so a value close to a whole number of frames is rounded to it.
pub fn frames_between(last: Duration, now: Duration, frame_rate: f64) -> f32 {
    let frames = now.saturating_sub(last).as_secs_f64() * frame_rate;
    let whole = frames.round();
    (if whole >= 1.0 && (frames - whole).abs() < 0.05 { whole } else { frames }) as f32
}
