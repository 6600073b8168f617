//! The tracker of a page.

use ocelli::draw::track_color;
use ocelli::tracking::{ByteTracker, ByteTrackerOptions, Track, TrackerDetection};
use serde::Serialize;
use wasm_bindgen::prelude::*;

use crate::{from_json, hex, js_error, to_json};

#[derive(Serialize)]
struct Drawn<'t> {
    #[serde(flatten)]
    track: &'t Track,
    color: String,
}

/// Follows detections from frame to frame (ByteTrack).
#[wasm_bindgen]
pub struct Tracker(ByteTracker);

#[wasm_bindgen]
impl Tracker {
    /// A tracker with the default options.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Result<Self, JsError> {
        Ok(Self(ByteTracker::new(ByteTrackerOptions::default()).map_err(js_error)?))
    }

    /// Updates the tracks with the detections of a frame, a JSON list, `frames` after the last one. Returns the confirmed
    /// tracks as JSON.
    pub fn update(&mut self, detections: &str, frames: f32) -> Result<String, JsError> {
        let detections: Vec<TrackerDetection> = from_json("detections", detections)?;
        let tracks = self.0.update(&detections, frames);
        let drawn: Vec<_> =
            tracks.iter().map(|track| Drawn { track, color: hex(track_color(track.id)) }).collect();
        to_json(&drawn)
    }

    /// Removes all tracks, for another video.
    pub fn reset(&mut self) {
        self.0.reset();
    }
}
