//! A track with its filter and counters.

use super::class_votes::ClassVotes;
use crate::BoundingBox;
use crate::appearance::Look;
use crate::camera::CameraMotion;
use crate::kalman::BoxFilter;
use crate::track::{Track, TrackState, TrackerDetection};

/// Weight of the latest score in the score of a track.
const LATEST_SCORE_WEIGHT: f32 = 0.7;
/// A direction is that from the detection three detections ago to the latest one, as in OC-SORT.
const DIRECTION_SPAN: usize = 3;

/// How far a track is looked for by what it looks like, in its diagonals a frame since it was last detected, and at most.
const REACH_SPEED: f32 = 0.25;
const LARGEST_REACH: f32 = 2.0;

/// A track with its filter and counters.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) track: Track,
    pub(super) filter: BoxFilter,
    votes: ClassVotes,
    /// What it looks like, if the detector says so.
    pub(super) look: Look,
    /// Consecutive updates in which it overlapped an older track.
    pub(super) frames_covered: u32,
    /// Frames since its last detection in which the detector did not look for its class.
    pub(super) frames_unwatched: f32,
    /// The latest detection, and the filter after it, where the camera would see them now.
    pub(super) last_seen: BoxFilter,
    filter_then: BoxFilter,
    /// The centres of the latest detections, the newest first.
    centres: [[f64; 2]; DIRECTION_SPAN + 1],
    centre_count: usize,
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
                age_frames: 0.0,
                hits: 1,
                state: TrackState::Tentative,
                velocity: [0.0; 2],
                frames_since_seen: 0.0,
                detection: Some(index),
            },
            last_seen: filter.clone(),
            filter_then: filter.clone(),
            centres: [filter.centre(); DIRECTION_SPAN + 1],
            centre_count: 1,
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
        for filter in [&mut self.filter, &mut self.last_seen, &mut self.filter_then] {
            filter.compensate(motion);
        }
        for centre in &mut self.centres {
            *centre = motion.point(*centre);
        }
        self.follow_filter();
    }

    /// Continues the track with a detection; with `replay` from its last detection on along a straight line to this one,
    /// instead of along the prediction.
    pub(super) fn observe(&mut self, detection: &TrackerDetection, index: usize, replay: bool) {
        if replay && self.track.frames_since_seen > 1.0 {
            self.replay_to(detection);
        }
        self.filter.correct(&detection.bbox);
        self.remember(detection);
        let track = &mut self.track;
        track.score = LATEST_SCORE_WEIGHT * detection.score + (1.0 - LATEST_SCORE_WEIGHT) * track.score;
        track.class_id = self.votes.add(detection.class_id, detection.score, track.class_id);
        track.hits = track.hits.saturating_add(1);
        track.frames_since_seen = 0.0;
        self.frames_unwatched = 0.0;
        track.detection = Some(index);
        self.follow_filter();
    }

    /// OC-SORT's observation-centric re-update: takes the filter back to the last detection, and corrects it in each frame
    /// since then with a box between that detection and this one.
    fn replay_to(&mut self, detection: &TrackerDetection) {
        let frames = f64::from(self.track.frames_since_seen);
        let steps = frames.round().max(1.0);
        self.filter = self.filter_then.clone();
        let (from, to) = (self.last_seen.bbox().to_xyxy(), detection.bbox.to_xyxy());
        for step in 1..=steps as u32 {
            self.filter.predict(frames / steps);
            let part = (f64::from(step) / steps) as f32;
            if f64::from(step) < steps {
                let between: [f32; 4] =
                    std::array::from_fn(|edge| from[edge] + part * (to[edge] - from[edge]));
                self.filter.correct(&between.into());
            }
        }
    }

    fn remember(&mut self, detection: &TrackerDetection) {
        self.last_seen = BoxFilter::new(&detection.bbox);
        self.filter_then = self.filter.clone();
        self.centres.rotate_right(1);
        self.centres[0] = self.last_seen.centre();
        self.centre_count = (self.centre_count + 1).min(self.centres.len());
    }

    /// How well a detection with this centre continues the direction of the latest detections: 0.5 straight on, 0 at a right
    /// angle or if the direction is not known, −0.5 back. OC-SORT's observation-centric momentum.
    pub(super) fn direction_fit(&self, centre: [f64; 2]) -> f64 {
        let oldest = self.centres[self.centre_count - 1];
        let [before, after] = [self.centres[0], centre].map(|to| [to[0] - oldest[0], to[1] - oldest[1]]);
        let turn = (before[0] * after[1] - before[1] * after[0]).abs();
        let along = before[0] * after[0] + before[1] * after[1];
        if turn == 0.0 && along == 0.0 {
            return 0.0;
        }
        0.5 - turn.atan2(along) / std::f64::consts::PI
    }

    /// How near a box is to where the object was last detected or is predicted, from 1 to 0 at the limit of its reach; `None`
    /// beyond, or if it would have grown to twice its size or shrunk to half of it.
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
