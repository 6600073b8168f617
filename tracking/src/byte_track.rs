//! ByteTrack: associates detections with tracks, high scores first.

mod candidates;
mod class_votes;
mod followed;
mod matcher;
mod options;

pub use options::{ByteTrackerOptions, MatchClasses};

use crate::appearance::{Appearances, TypicalLooks};
use crate::camera::CameraMotion;
use crate::track::{Track, TrackState, TrackerDetection};
use candidates::{Candidates, Score};
use followed::Followed;
use matcher::Matcher;
use ocelli_error::Result;

/// The smallest weight of a pair that may be matched.
const LEAST_WEIGHT: f32 = 1e-3;
/// Consecutive updates in which a confirmed track overlaps an older one before it is removed as a duplicate.
const DUPLICATE_FRAMES: u32 = 5;

/// Tracks objects through a video by the overlap of their boxes.
///
/// An update has these steps (Zhang et al., "ByteTrack", 2022, with the settings of DART):
///
/// 1. A Kalman filter predicts the box of every track.
/// 2. All tracks, lost ones included, are matched with the detections of high score.
/// 3. Unmatched tracks are matched with the detections of low score.
/// 4. Unmatched tracks are matched with the remaining detections of high score; tracks that were detected in the frame
///    before need less overlap.
/// 5. The remaining detections of high score start new tracks. Unmatched tracks become lost and are removed after
///    `max_time_lost` frames; tentative ones are removed at once. Of tracks that stay in the same place, the oldest is
///    kept.
///
/// Each matching maximises the sum of all overlaps. DART excludes lost tracks from steps 2 and 3; including them raises
/// MOTA from 0.906 to 0.915 and IDF1 from 0.894 to 0.907 on the sequences in `tests/golden/tracking`.
///
/// Ids start at 1 in each tracker, and the same detections give the same tracks. Once its buffers have grown, an update
/// allocates nothing.
///
/// ```
/// use ocelli_tracking::{BoundingBox, ByteTracker, ByteTrackerOptions, TrackerDetection};
///
/// let mut tracker = ByteTracker::new(ByteTrackerOptions { min_hits: Some(1), ..Default::default() })?;
/// for frame in 0..3 {
///     let bbox = BoundingBox::from_ltwh([10.0 * frame as f32, 50.0, 60.0, 40.0]);
///     let tracks = tracker.update(&[TrackerDetection { bbox, score: 0.9, class_id: 0 }], 1.0);
///     assert_eq!(tracks[0].id, 1);
/// }
/// # Ok::<(), ocelli_tracking::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ByteTracker {
    options: ByteTrackerOptions,
    /// By id, oldest first.
    tracks: Vec<Followed>,
    reported: Vec<Track>,
    typical: TypicalLooks,
    last_id: u64,
    /// Frames since the latest update, in which no class was searched for.
    frames_predicted: f32,
    candidates: Candidates,
    matcher: Matcher,
}

impl ByteTracker {
    /// A tracker without tracks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for an option out of range.
    pub fn new(options: ByteTrackerOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self { options, ..Self::default() })
    }

    /// The options of the tracker.
    pub fn options(&self) -> &ByteTrackerOptions {
        &self.options
    }

    /// Updates the tracks with the detections of a frame and returns the confirmed tracks that were detected in it, by id;
    /// with [`coast_frames`](ByteTrackerOptions::coast_frames) also those lost for at most that long.
    ///
    /// Call it for every frame on which a detector ran, even without detections: that is how tracks become lost.
    /// `dt_frames` is the time since the last call in frames: 1 for the next frame of a video, else the elapsed time times
    /// the frame rate. A time that is not a positive number counts as 0.
    ///
    /// Detections with a score of NaN or below the low threshold, or with a box that is not finite or has no area, are
    /// ignored.
    pub fn update(&mut self, detections: &[TrackerDetection], dt_frames: f32) -> &[Track] {
        self.update_with(detections, &Appearances::default(), dt_frames, |_| true)
    }

    /// Like [`update`](Self::update), for a frame in which the detector looked for some classes only, and with what the detections
    /// look like.
    ///
    /// Unmatched tracks of the classes for which `is_watched` is false keep their state. A track that matched nothing by overlap,
    /// as after it was hidden, continues with a near detection that looks like it
    /// ([`appearance_weight`](ByteTrackerOptions::appearance_weight)).
    pub fn update_with(
        &mut self,
        detections: &[TrackerDetection],
        appearances: &Appearances,
        dt_frames: f32,
        is_watched: impl Fn(usize) -> bool,
    ) -> &[Track] {
        self.candidates.sort(detections, &self.options);
        let dt = forward(dt_frames);
        // The frames between two updates count for the classes of the second one only.
        let since_update = std::mem::take(&mut self.frames_predicted) + dt;
        let max_time_lost = self.options.max_time_lost as f32;
        self.tracks.retain_mut(|followed| {
            if !is_watched(followed.track.class_id) {
                followed.frames_unwatched += since_update;
            }
            let watched = followed.track.frames_since_seen + dt - followed.frames_unwatched;
            let alive = watched <= max_time_lost;
            if alive {
                followed.advance(dt);
            }
            alive
        });
        let ByteTrackerOptions { match_iou, low_match_iou, lost_match_iou, leftover_match_iou, .. } =
            self.options;
        let not_lost = |followed: &Followed| followed.track.state != TrackState::Lost;
        let seen = FrameDetections { detections, appearances };
        self.match_with(seen, Score::High, match_iou, |_| true);
        self.match_with(seen, Score::Low, low_match_iou, |_| true);
        self.match_with(seen, Score::High, lost_match_iou, |_| true);
        self.match_with(seen, Score::High, leftover_match_iou, not_lost);
        if self.options.appearance_weight > 0.0 && !appearances.is_empty() {
            self.match_by_look(seen);
            self.typical.add(detections, appearances, self.options.track_threshold);
        }
        self.settle_states(is_watched);
        self.start_tracks(seen);
        self.drop_duplicates();
        self.report();
        &self.reported
    }

    /// Advances the tracks by `dt_frames` for a frame on which no detector ran, and returns them at their predicted places.
    /// No track becomes lost; the `dt_frames` of the next [`update`](Self::update) counts from here.
    pub fn predict(&mut self, dt_frames: f32) -> &[Track] {
        let dt = forward(dt_frames);
        self.frames_predicted += dt;
        for followed in &mut self.tracks {
            followed.advance(dt);
        }
        self.report();
        &self.reported
    }

    /// Moves all tracks to where a camera that has moved by `motion` since the previous call of [`update`](Self::update) or
    /// [`predict`](Self::predict) sees them; to be called before the next one. Several calls add up.
    ///
    /// ```
    /// use ocelli_tracking::{BoundingBox, ByteTracker, ByteTrackerOptions, CameraMotion, TrackerDetection};
    ///
    /// let mut tracker = ByteTracker::new(ByteTrackerOptions { min_hits: Some(1), ..Default::default() })?;
    /// for frame in 0..3 {
    ///     // The object rests; the image moves by its whole width from frame to frame.
    ///     let bbox = BoundingBox::from_ltwh([60.0 * frame as f32, 50.0, 60.0, 40.0]);
    ///     if frame > 0 {
    ///         tracker.compensate(&CameraMotion::shift([60.0, 0.0])?);
    ///     }
    ///     let tracks = tracker.update(&[TrackerDetection { bbox, score: 0.9, class_id: 0 }], 1.0);
    ///     assert_eq!((tracks[0].id, tracks[0].velocity), (1, [0.0, 0.0]));
    /// }
    /// # Ok::<(), ocelli_tracking::Error>(())
    /// ```
    pub fn compensate(&mut self, motion: &CameraMotion) {
        for followed in &mut self.tracks {
            followed.compensate(motion);
        }
    }

    /// All tracks by id, including tentative and lost ones, after the latest call.
    pub fn tracks(&self) -> impl ExactSizeIterator<Item = &Track> {
        self.tracks.iter().map(|followed| &followed.track)
    }

    /// Removes all tracks, for another video; ids start at 1 again.
    pub fn reset(&mut self) {
        *self = Self { options: self.options, ..Self::default() };
    }

    /// Matches the unmatched tracks that `eligible` accepts with the unmatched detections of high or low score that overlap them by
    /// at least `least`.
    fn match_with(
        &mut self,
        seen: FrameDetections<'_>,
        score: Score,
        least: f32,
        eligible: impl Fn(&Followed) -> bool,
    ) {
        self.gather(seen, score, eligible);
        self.matcher.overlap(least, self.options.match_classes);
        self.settle(seen, score);
    }

    /// Matches unmatched tracks with unmatched detections of high score within reach: near ones that look alike first.
    fn match_by_look(&mut self, seen: FrameDetections<'_>) {
        self.gather(seen, Score::High, |_| true);
        let (tracks, typical, weight) = (&self.tracks, &self.typical, self.options.appearance_weight);
        self.matcher.pair(self.options.match_classes, |track, index| {
            let followed = &tracks[track];
            let nearness = followed.nearness(&seen.detections[index].bbox)?;
            let direction = seen.appearances.get(index)?;
            let similarity = followed.look.similarity(direction, typical.of(followed.track.class_id))?;
            Some((nearness + weight * similarity).max(LEAST_WEIGHT))
        });
        self.settle(seen, Score::High);
    }

    /// Gives the unmatched tracks that `eligible` accepts and the unmatched detections to the matcher.
    fn gather(&mut self, seen: FrameDetections<'_>, score: Score, eligible: impl Fn(&Followed) -> bool) {
        let matcher = &mut self.matcher;
        matcher.clear();
        for (index, followed) in self.tracks.iter().enumerate() {
            if !followed.is_detected() && eligible(followed) {
                matcher.rows.push(index, followed.track.bbox, followed.track.class_id);
            }
        }
        for index in self.candidates.left(score) {
            matcher.columns.push(index, seen.detections[index].bbox, seen.detections[index].class_id);
        }
    }

    /// Continues the tracks with the detections that the matcher finds for them.
    fn settle(&mut self, seen: FrameDetections<'_>, score: Score) {
        self.matcher.solve();
        for (row, column) in self.matcher.matches() {
            let followed = &mut self.tracks[row];
            followed.observe(&seen.detections[column], column);
            // What is hidden in part has a low score, and looks like what hides it.
            if let (Score::High, Some(direction)) = (score, seen.appearances.get(column)) {
                followed.look.add(direction);
            }
            self.candidates.take(column);
        }
    }

    /// Confirms tracks with enough detections, removes unmatched tentative ones and marks other unmatched ones as lost.
    fn settle_states(&mut self, is_watched: impl Fn(usize) -> bool) {
        let min_hits = self.options.min_hits();
        self.tracks.retain_mut(|followed| {
            if followed.is_detected() {
                // Lost tracks were confirmed before, perhaps by their score.
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

    /// Starts a track from each unmatched detection of high score that does not duplicate another track.
    ///
    /// A detection in the place of a matched track would start a duplicate in every frame, and each would take an id.
    fn start_tracks(&mut self, seen: FrameDetections<'_>) {
        let detections = seen.detections;
        let matcher = &mut self.matcher;
        matcher.clear();
        for index in self.candidates.left(Score::High) {
            if detections[index].score >= self.options.new_track_threshold() {
                matcher.rows.push(index, detections[index].bbox, detections[index].class_id);
            }
        }
        if matcher.row_count() == 0 {
            return;
        }
        for (index, followed) in self.tracks.iter().enumerate() {
            if followed.is_detected() {
                matcher.columns.push(index, followed.track.bbox, followed.track.class_id);
            }
        }
        matcher.suppress(self.options.duplicate_iou, self.options.match_classes);
        for (index, _) in matcher.suppressed().filter(|&(_, covered)| !covered) {
            self.last_id += 1;
            let mut followed = Followed::new(self.last_id, &detections[index], index);
            let is_sure = self.options.sure_threshold().is_some_and(|least| detections[index].score >= least);
            if is_sure || self.options.min_hits() <= 1 {
                followed.track.state = TrackState::Tracked;
            }
            if let Some(direction) = seen.appearances.get(index) {
                followed.look.add(direction);
            }
            self.tracks.push(followed);
        }
    }

    /// Keeps the oldest of tracks that stay in the same place.
    ///
    /// Objects that cross are in the same place for a moment, too. A confirmed track is therefore removed only after some
    /// consecutive frames, a tentative one at once.
    fn drop_duplicates(&mut self) {
        let matcher = &mut self.matcher;
        matcher.clear();
        for (index, followed) in self.tracks.iter_mut().enumerate() {
            if followed.is_detected() {
                matcher.rows.push(index, followed.track.bbox, followed.track.class_id);
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

    fn report(&mut self) {
        let coast_frames = self.options.coast_frames as f32;
        self.reported.clear();
        self.reported.extend(self.tracks.iter().map(|followed| followed.track).filter(|track| {
            match track.state {
                TrackState::Tentative => false,
                TrackState::Tracked => true,
                TrackState::Lost => track.frames_since_seen <= coast_frames,
            }
        }));
    }
}

/// The detections of a frame, and what they look like.
#[derive(Clone, Copy)]
struct FrameDetections<'a> {
    detections: &'a [TrackerDetection],
    appearances: &'a Appearances,
}

fn forward(dt_frames: f32) -> f32 {
    if dt_frames.is_finite() && dt_frames > 0.0 { dt_frames } else { 0.0 }
}

#[cfg(test)]
mod tests;
