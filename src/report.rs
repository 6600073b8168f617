//! The JSON form of results: detections and tracks with rounded numbers.

use std::time::UNIX_EPOCH;

use ocelli_tracking::{BoundingBox, Track, TrackState};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::detection::{Detection, with_five_decimals, with_two_decimals};
use crate::outcome::FrameOutcome;
use crate::timing::StageTimes;

pub use crate::detection::rounded;

/// The results of one frame, one line of [`JsonLines`](crate::sink::JsonLines).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameReport {
    /// The name of the source, if there are several; omitted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The index of the frame in the video.
    pub frame: u64,
    /// Time since the beginning in seconds, with six decimals.
    pub time_s: f64,
    /// The time when the frame of a live source was taken, in seconds since 1970-01-01 00:00 UTC, with six decimals; omitted
    /// for recorded frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_time: Option<f64>,
    /// The image file of the frame; omitted for frames of a video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Width of the frame in pixels.
    #[serde(default)]
    pub width: u32,
    /// Height of the frame in pixels.
    #[serde(default)]
    pub height: u32,
    /// `true` if the detector ran on it, and then omitted.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub detected: bool,
    /// The highest score first.
    pub detections: Vec<Detection>,
    /// By id; empty without a tracker.
    pub tracks: Vec<TrackRecord>,
    /// The ids of tracks that earlier frames had and that turned out to be false; omitted if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retracted: Vec<u64>,
}

/// A track in one frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrackRecord {
    /// The id of the track from 1, the same in all frames.
    pub id: u64,
    /// The index of the prompt.
    pub class_id: usize,
    /// The label of the prompt.
    pub label: String,
    /// 0 to 1, smoothed, written with five decimals.
    #[serde(serialize_with = "with_five_decimals")]
    pub score: f32,
    /// In pixels of the video, written with two decimals.
    #[serde(rename = "box", serialize_with = "with_two_decimals")]
    pub bbox: BoundingBox,
    /// `tracked`, or `lost` if its place is predicted.
    pub state: TrackState,
    /// The index of its detection in this frame, omitted if it was not detected.
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
            source: outcome.origin.as_ref().map(|origin| origin.name.to_string()),
            frame: outcome.index,
            time_s: rounded(outcome.time.as_secs_f64(), 1e6),
            wall_time: outcome
                .captured
                .and_then(|captured| captured.duration_since(UNIX_EPOCH).ok())
                .map(|since| rounded(since.as_secs_f64(), 1e6)),
            file: outcome.file.as_ref().map(|file| file.to_string_lossy().into_owned()),
            width: outcome.size.0,
            height: outcome.size.1,
            detected: outcome.detected,
            detections: outcome.detections.clone(),
            tracks: outcome.tracks.iter().map(|track| TrackRecord::new(track, &outcome.labels)).collect(),
            retracted: outcome.retracted.clone(),
        }
    }
}

fn yes() -> bool {
    true
}

/// The times of the stages in milliseconds, with two decimals.
pub fn timings(times: &StageTimes) -> Map<String, Value> {
    times.by_stage().into_iter().map(|(stage, ms)| (stage.to_owned(), rounded(ms, 1e2).into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::Mask;

    #[test]
    fn json_has_the_documented_form() {
        let mask = Mask::from_bitmap(&[1, 1, 0, 1, 0, 0], 3, 2).expect("six pixels");
        let mut record = Detection {
            class_id: 3,
            label: "\"red\" apple".into(),
            score: 0.931_234_5,
            bbox: BoundingBox::new(1.0, 2.346, 1_279.996, 719.5),
            mask: Some(mask),
        };
        let start = r#"{"class_id":3,"label":"\"red\" apple","score":0.93123,"box":[1.0,2.35,1280.0,719.5]"#;
        let json = serde_json::to_string(&record).expect("finite numbers have a JSON form");
        assert_eq!(json, format!("{start}{}", r#","mask":{"size":[2,3],"counts":"033"}}"#));
        let read: Detection = serde_json::from_str(&json).expect("just written");
        assert_eq!(read.mask, record.mask);
        assert!((read.score - 0.931_23).abs() < 1e-6);

        record.mask = None;
        let json = serde_json::to_string(&record).expect("finite numbers have a JSON form");
        assert_eq!(json, format!("{start}}}"));
    }
}
