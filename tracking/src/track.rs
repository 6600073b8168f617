//! What goes into a tracker and what comes out.

use serde::{Deserialize, Serialize};

use crate::BoundingBox;

/// One object that a detector saw in one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrackerDetection {
    /// Where it was seen. One that is not finite or has no area is ignored.
    pub bbox: BoundingBox,
    /// How certain the detector is, 0 to 1. One that is no number (NaN) is ignored.
    pub score: f32,
    /// Which class it is of, by any numbering.
    pub class_id: usize,
}

/// How far a track has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrackState {
    /// Seen in every frame since it began, but in fewer than `min_hits` and without a sure score: it may be a false
    /// alarm.
    Tentative,
    /// Seen often or surely enough, and in the latest frame that a detector looked at.
    Tracked,
    /// Not seen in the latest frame; where it is is guessed from how it moved.
    Lost,
}

/// One object over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Track {
    /// The track's number, from 1 in each tracker; never given twice.
    pub id: u64,
    /// The class that the detections voted for, by the detector's numbering.
    pub class_id: usize,
    /// The smoothed score: 0.7 of the latest plus 0.3 of what it was before.
    pub score: f32,
    /// Where the filter takes it to be. Its width and height are above 0; it may reach out of the image.
    pub bbox: BoundingBox,
    /// Frames since it was first seen, 0 in that frame.
    pub age_frames: f32,
    /// In how many frames it was seen, at least 1.
    pub hits: u32,
    /// How far it has come.
    pub state: TrackState,
    /// How its centre moves in x and y, in units of the boxes per frame.
    pub velocity: [f32; 2],
    /// Frames since it was last seen, 0 when it was seen in this one.
    pub frames_since_seen: f32,
    /// Which of this frame's detections it is, as an index into what was given; nothing when it was not seen.
    pub detection: Option<usize>,
}
