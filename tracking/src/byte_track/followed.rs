//! A track with its filter and counters.

use super::class_votes::ClassVotes;
use crate::BoundingBox;
use crate::appearance::Look;
use crate::camera::CameraMotion;
use crate::kalman::BoxFilter;
use crate::track::{Track, TrackerDetection};

/// Weight of the latest score in the score of a track.
const LATEST_SCORE_WEIGHT: f32 = 0.7;

/// The reach of the search for a track by its looks, in its diagonals a frame since it was last detected, and at most.
const REACH_SPEED: f32 = 0.25;
const LARGEST_REACH: f32 = 2.0;

/// A track with its filter and counters.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) track: Track,
    pub(super) filter: BoxFilter,
    votes: ClassVotes,
    /// Its appearance, if the detector has one.
    pub(super) look: Look,
    /// Consecutive updates in which it overlapped an older track.
    pub(super) frames_covered: u32,
    /// Frames since its last detection in which the detector did not look for its class.
    pub(super) frames_unwatched: f32,
    /// The latest detection, where the camera would see it now.
    last_seen: BoxFilter,
}

impl Followed {
    pub(super) fn new(id: u64, detection: &TrackerDetection, index: usize) -> Self {
        let filter = BoxFilter::new(&detection.bbox);
        Self {
            track: Track {
                id,
                class_id: detection.class_id,
                score: detection.score,
                bbox: detection.bbox,
                hits: 1,
                detection: Some(index),
                ..Track::default()
            },
            last_seen: filter.clone(),
            filter,
            votes: ClassVotes::new(detection.class_id, detection.score),
            look: Look::default(),
            frames_covered: 0,
            frames_unwatched: 0.0,
        }
    }

    pub(super) fn is_detected(&self) -> bool {
        self.track.detection.is_some()
    }

    pub(super) fn advance(&mut self, dt: f32) {
        self.filter.predict(f64::from(dt));
        self.track.age_frames += dt;
        self.track.frames_since_seen += dt;
        self.track.detection = None;
        self.follow_filter();
    }

    /// Moves all that is remembered to where the camera sees it now.
    pub(super) fn compensate(&mut self, motion: &CameraMotion) {
        for filter in [&mut self.filter, &mut self.last_seen] {
            filter.compensate(motion);
        }
        self.follow_filter();
    }

    /// Continues the track with a detection.
    pub(super) fn observe(&mut self, detection: &TrackerDetection, index: usize) {
        self.filter.correct(&detection.bbox);
        self.last_seen = BoxFilter::new(&detection.bbox);
        let track = &mut self.track;
        track.score = LATEST_SCORE_WEIGHT * detection.score + (1.0 - LATEST_SCORE_WEIGHT) * track.score;
        track.class_id = self.votes.add(detection.class_id, detection.score, track.class_id);
        track.hits = track.hits.saturating_add(1);
        track.frames_since_seen = 0.0;
        self.frames_unwatched = 0.0;
        track.detection = Some(index);
        self.follow_filter();
    }

    /// The nearness of a box to the place where the object was last detected or is predicted, from 1 to 0 at the limit of its
    /// reach; `None` beyond, or if it would have grown to twice its size or shrunk to half of it.
    pub(super) fn nearness(&self, bbox: &BoundingBox) -> Option<f32> {
        let seen = self.last_seen.bbox();
        let size = |bbox: &BoundingBox| bbox.width().hypot(bbox.height());
        let ratio = size(bbox) / size(&seen);
        let [x, y] = centre(bbox);
        let reach =
            size(&seen).max(size(bbox)) * (REACH_SPEED * self.track.frames_since_seen).min(LARGEST_REACH);
        let away = |from: &BoundingBox| {
            let [from_x, from_y] = centre(from);
            (x - from_x).hypot(y - from_y) / reach
        };
        let nearness = 1.0 - away(&self.track.bbox).min(away(&seen));
        ((0.5..=2.0).contains(&ratio) && nearness > 0.0).then_some(nearness)
    }

    fn follow_filter(&mut self) {
        self.track.bbox = self.filter.bbox();
        self.track.velocity = self.filter.centre_velocity();
    }
}

fn centre(bbox: &BoundingBox) -> [f32; 2] {
    [0.5 * (bbox.x1 + bbox.x2), 0.5 * (bbox.y1 + bbox.y2)]
}
