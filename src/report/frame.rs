//! What is said of one frame of a video.

use ocelli_tracking::{BoundingBox, Track, TrackState};
use serde::{Deserialize, Serialize, Serializer};

use super::{DetectionRecord, rounded, with_five_decimals, with_two_decimals};
use crate::outcome::FrameOutcome;

/// One line of `demo-video --jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameReport {
    /// The frame's number in the video, from 0.
    pub frame: u64,
    /// When it was taken, in seconds since the beginning, written with six decimals.
    #[serde(serialize_with = "with_six_decimals")]
    pub time_s: f64,
    /// Whether the detector looked at it; left out where it did.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub detected: bool,
    /// The surest first.
    pub detections: Vec<DetectionRecord>,
    /// By id; empty without a tracker.
    pub tracks: Vec<TrackRecord>,
}

/// One track in one frame, as JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrackRecord {
    /// From 1, the same in all frames.
    pub id: u64,
    /// Which of the prompts, from 0.
    pub class_id: usize,
    /// The prompt's words.
    pub label: String,
    /// 0 to 1, smoothed, written with five decimals.
    #[serde(serialize_with = "with_five_decimals")]
    pub score: f32,
    /// In pixels of the video, written with two decimals.
    #[serde(rename = "box", serialize_with = "with_two_decimals")]
    pub bbox: BoundingBox,
    /// `tracked`, or `lost` where its place is guessed.
    pub state: TrackState,
    /// Which of the frame's detections it is, from 0; left out where it is none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection: Option<usize>,
}

impl TrackRecord {
    fn new(track: &Track, labels: &[impl AsRef<str>]) -> Self {
        Self {
            id: track.id,
            class_id: track.class_id,
            label: labels.get(track.class_id).map_or_else(String::new, |label| label.as_ref().to_owned()),
            score: track.score,
            bbox: track.bbox,
            state: track.state,
            detection: track.detection,
        }
    }
}

impl From<&FrameOutcome> for FrameReport {
    fn from(outcome: &FrameOutcome) -> Self {
        Self {
            frame: outcome.index,
            time_s: outcome.time.as_secs_f64(),
            detected: outcome.detected,
            detections: outcome.detections.iter().map(Into::into).collect(),
            tracks: outcome.tracks.iter().map(|track| TrackRecord::new(track, &outcome.labels)).collect(),
        }
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

fn with_six_decimals<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    rounded(*seconds, 1e6).serialize(serializer)
}
