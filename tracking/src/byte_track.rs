//! ByteTrack: boxes of one frame to boxes of the next, certain ones first.

mod candidates;
mod class_votes;
mod matcher;
mod options;

pub use options::{ByteTrackerBuilder, ByteTrackerOptions, MatchClasses};

use crate::kalman::BoxFilter;
use crate::track::{Track, TrackState, TrackerDetection};
use candidates::{Candidates, Score};
use class_votes::ClassVotes;
use matcher::Matcher;

/// What the latest score weighs in a track's score.
const SCORE_OF_NOW: f32 = 0.7;
/// For how many updates on end a confirmed track is where an older one is before it goes as its duplicate.
const DUPLICATE_FRAMES: u32 = 5;

/// Follows objects through a video by where their boxes are.
///
/// A frame goes through these steps (Zhang et al., "ByteTrack", 2022, with the settings that DART runs it with):
/// every track is moved to where it should be; tracks in sight are matched with detections of high score, those
/// left over with detections of low score, and whatever is still left over, lost tracks with it, with the
/// remaining detections of high score. Each match is the best for all tracks and detections together. What remains
/// of the detections of high score starts tracks; tracks that were not seen are lost and given up in time, or at once
/// while they are tentative; of tracks that stay in the same place, the oldest is kept.
///
/// A tracker shares nothing with others: its ids start at 1 and depend on its detections alone, and the same
/// detections give the same tracks. Once its buffers have grown, an update allocates nothing.
///
/// ```
/// use ocelli_tracking::{BoundingBox, ByteTracker, TrackerDetection};
///
/// let mut tracker = ByteTracker::builder().min_hits(1).build()?;
/// for frame in 0..3 {
///     let bbox = BoundingBox::from_ltwh([10.0 * frame as f32, 50.0, 60.0, 40.0]);
///     let tracks = tracker.update(&[TrackerDetection { bbox, score: 0.9, class_id: 0 }], 1.0);
///     assert_eq!(tracks[0].id, 1);
/// }
/// # Ok::<(), ocelli_tracking::Error>(())
/// ```
#[derive(Debug)]
pub struct ByteTracker {
    options: ByteTrackerOptions,
    /// Oldest first, which is by id.
    tracks: Vec<Followed>,
    shown: Vec<Track>,
    last_id: u64,
    candidates: Candidates,
    matcher: Matcher,
}

/// A track and what it takes to carry it on.
#[derive(Debug)]
struct Followed {
    track: Track,
    filter: BoxFilter,
    votes: ClassVotes,
    /// In how many updates on end it has been where an older track is.
    frames_covered: u32,
    /// Of the frames since it was last seen, those in which nobody looked for its class.
    frames_unwatched: f32,
}

impl Followed {
    fn new(id: u64, detection: &TrackerDetection, index: usize) -> Self {
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
            filter: BoxFilter::new(&detection.bbox),
            votes: ClassVotes::new(detection.class_id, detection.score),
            frames_covered: 0,
            frames_unwatched: 0.0,
        }
    }

    fn is_seen(&self) -> bool {
        self.track.detection.is_some()
    }

    fn advance(&mut self, dt: f32) {
        self.filter.predict(f64::from(dt));
        self.track.age_frames += dt;
        self.track.frames_since_seen += dt;
        self.track.detection = None;
        self.follow_filter();
    }

    fn observe(&mut self, detection: &TrackerDetection, index: usize) {
        self.filter.correct(&detection.bbox);
        let track = &mut self.track;
        track.score = SCORE_OF_NOW * detection.score + (1.0 - SCORE_OF_NOW) * track.score;
        track.class_id = self.votes.add(detection.class_id, detection.score, track.class_id);
        track.hits = track.hits.saturating_add(1);
        track.frames_since_seen = 0.0;
        self.frames_unwatched = 0.0;
        track.detection = Some(index);
        self.follow_filter();
    }

    fn follow_filter(&mut self) {
        self.track.bbox = self.filter.bbox();
        self.track.velocity = self.filter.centre_velocity();
    }
}

impl ByteTracker {
    /// Starts from the default options.
    pub fn builder() -> ByteTrackerBuilder {
        ByteTrackerBuilder::default()
    }

    fn with_valid_options(options: ByteTrackerOptions) -> Self {
        Self {
            options,
            tracks: Vec::new(),
            shown: Vec::new(),
            last_id: 0,
            candidates: Candidates::default(),
            matcher: Matcher::default(),
        }
    }

    /// The options that it was built with.
    pub fn options(&self) -> &ByteTrackerOptions {
        &self.options
    }

    /// Takes in what was detected in a frame `dt_frames` after the one before, and gives the tracks seen in it,
    /// by id; with [`coast_frames`](ByteTrackerOptions::coast_frames) also those not seen for at most so long.
    ///
    /// Call it for every frame that a detector looked at: without detections too, as that is what loses tracks.
    /// `dt_frames` is 1 for the next frame of a video, and the time passed times the frame rate in general. A time
    /// that is no positive number counts as 0, so a clock that stands or runs backwards moves nothing.
    ///
    /// Detections are ignored whose score is no number or below the low threshold, and whose box is not finite or
    /// has no area: a detector's overflow must not become a track.
    pub fn update(&mut self, detections: &[TrackerDetection], dt_frames: f32) -> &[Track] {
        self.update_where(detections, dt_frames, |_| true)
    }

    /// As [`update`](Self::update), for a frame in which a detector looked for some classes only: tracks of a class that
    /// `is_watched` denies are carried on as they were where nothing matches them. Not to have looked says nothing.
    pub fn update_where(
        &mut self,
        detections: &[TrackerDetection],
        dt_frames: f32,
        is_watched: impl Fn(usize) -> bool,
    ) -> &[Track] {
        self.candidates.sort(detections, &self.options);
        let dt = forward(dt_frames);
        let max_time_lost = self.options.max_time_lost as f32;
        self.tracks.retain_mut(|followed| {
            if !is_watched(followed.track.class_id) {
                followed.frames_unwatched += dt;
            }
            let watched = followed.track.frames_since_seen + dt - followed.frames_unwatched;
            let alive = watched <= max_time_lost;
            if alive {
                followed.advance(dt);
            }
            alive
        });
        let [match_iou, low_match_iou, lost_match_iou] =
            [self.options.match_iou, self.options.low_match_iou, self.options.lost_match_iou];
        let in_sight = |followed: &Followed| followed.track.state != TrackState::Lost;
        self.match_with(detections, Score::High, match_iou, in_sight);
        self.match_with(detections, Score::Low, low_match_iou, in_sight);
        self.match_with(detections, Score::High, lost_match_iou, |_| true);
        self.settle_states(is_watched);
        self.start_tracks(detections);
        self.drop_duplicates();
        self.show();
        &self.shown
    }

    /// Moves the tracks `dt_frames` on without a detector having looked, and gives those in sight where they should
    /// be by now. None is lost by this; the next [`update`](Self::update) takes the time from here.
    pub fn predict(&mut self, dt_frames: f32) -> &[Track] {
        for followed in &mut self.tracks {
            followed.advance(forward(dt_frames));
        }
        self.show();
        &self.shown
    }

    /// All tracks by id, tentative and lost ones with them, as they were left by the latest call.
    pub fn tracks(&self) -> impl ExactSizeIterator<Item = &Track> {
        self.tracks.iter().map(|followed| &followed.track)
    }

    /// Forgets everything, for another video: ids start at 1 again.
    pub fn reset(&mut self) {
        self.tracks.clear();
        self.shown.clear();
        self.last_id = 0;
    }

    /// Matches the tracks not seen yet that `eligible` takes with the detections of high or low score not taken yet.
    fn match_with(
        &mut self,
        detections: &[TrackerDetection],
        score: Score,
        least_iou: f32,
        eligible: impl Fn(&Followed) -> bool,
    ) {
        let matcher = &mut self.matcher;
        matcher.clear();
        for (index, followed) in self.tracks.iter().enumerate() {
            if !followed.is_seen() && eligible(followed) {
                matcher.add_row(index, followed.track.bbox, followed.track.class_id);
            }
        }
        for index in self.candidates.left(score) {
            matcher.add_column(index, detections[index].bbox, detections[index].class_id);
        }
        matcher.solve(least_iou, self.options.match_classes);
        for (row, column) in matcher.matches() {
            self.tracks[row].observe(&detections[column], column);
            self.candidates.take(column);
        }
    }

    /// Confirms tracks that were seen often enough, gives up tentative ones that were missed, loses the others.
    fn settle_states(&mut self, is_watched: impl Fn(usize) -> bool) {
        let min_hits = self.options.min_hits;
        self.tracks.retain_mut(|followed| {
            if followed.is_seen() {
                // Lost ones were confirmed before, perhaps by their score alone.
                if followed.track.state == TrackState::Lost || followed.track.hits >= min_hits {
                    followed.track.state = TrackState::Tracked;
                }
            } else if !is_watched(followed.track.class_id) {
                return true;
            } else if followed.track.state == TrackState::Tentative {
                return false;
            } else {
                followed.track.state = TrackState::Lost;
                followed.filter.hold_size();
            }
            true
        });
    }

    /// Starts a track from each detection of high score that is left and in nobody's place.
    ///
    /// A detection in the place of a track just seen would start one that goes as a duplicate, frame after frame,
    /// each time using up an id.
    fn start_tracks(&mut self, detections: &[TrackerDetection]) {
        let matcher = &mut self.matcher;
        matcher.clear();
        for index in self.candidates.left(Score::High) {
            if detections[index].score >= self.options.new_track_threshold {
                matcher.add_row(index, detections[index].bbox, detections[index].class_id);
            }
        }
        if matcher.row_count() == 0 {
            return;
        }
        for (index, followed) in self.tracks.iter().enumerate() {
            if followed.is_seen() {
                matcher.add_column(index, followed.track.bbox, followed.track.class_id);
            }
        }
        matcher.suppress(self.options.duplicate_iou, self.options.match_classes);
        for (index, _) in matcher.suppressed().filter(|&(_, covered)| !covered) {
            self.last_id += 1;
            let mut followed = Followed::new(self.last_id, &detections[index], index);
            let is_sure = self.options.sure_threshold.is_some_and(|least| detections[index].score >= least);
            if is_sure || self.options.min_hits <= 1 {
                followed.track.state = TrackState::Tracked;
            }
            self.tracks.push(followed);
        }
    }

    /// Of tracks that stay in the same place, keeps the oldest.
    ///
    /// Two objects that cross are in the same place too, for a moment. So a confirmed track goes only when it has
    /// been in another's place for some frames on end, a tentative one at once.
    fn drop_duplicates(&mut self) {
        let matcher = &mut self.matcher;
        matcher.clear();
        for (index, followed) in self.tracks.iter_mut().enumerate() {
            if followed.is_seen() {
                matcher.add_row(index, followed.track.bbox, followed.track.class_id);
            } else {
                followed.frames_covered = 0;
            }
        }
        matcher.suppress(self.options.duplicate_iou, self.options.match_classes);
        for (index, covered) in matcher.suppressed() {
            let followed = &mut self.tracks[index];
            followed.frames_covered = if covered { followed.frames_covered + 1 } else { 0 };
        }
        self.tracks.retain(|followed| match followed.track.state {
            TrackState::Tentative => followed.frames_covered == 0,
            _ => followed.frames_covered < DUPLICATE_FRAMES,
        });
    }

    fn show(&mut self) {
        let coast_frames = self.options.coast_frames as f32;
        self.shown.clear();
        self.shown.extend(self.tracks.iter().map(|followed| followed.track).filter(
            |track| match track.state {
                TrackState::Tentative => false,
                TrackState::Tracked => true,
                TrackState::Lost => track.frames_since_seen <= coast_frames,
            },
        ));
    }
}

fn forward(dt_frames: f32) -> f32 {
    if dt_frames.is_finite() && dt_frames > 0.0 { dt_frames } else { 0.0 }
}

#[cfg(test)]
mod tests;
