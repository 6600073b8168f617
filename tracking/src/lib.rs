//! Multi-object tracking with ByteTrack, for the boxes of any detector.
//!
//! A [`ByteTracker`] takes the [`TrackerDetection`]s of one frame after the other and returns [`Track`]s, whose ids stay
//! the same from frame to frame:
//!
//! ```
//! use ocelli_tracking::{BoundingBox, ByteTracker, ByteTrackerOptions, TrackState, TrackerDetection};
//!
//! # fn main() -> ocelli_tracking::Result<()> {
//! let mut tracker = ByteTracker::new(ByteTrackerOptions { coast_frames: 3, ..Default::default() })?;
//! let car = |frame: f32| TrackerDetection {
//!     bbox: BoundingBox::from_ltwh([8.0 * frame, 50.0, 60.0, 40.0]),
//!     score: 0.9,
//!     class_id: 0,
//! };
//! for frame in 0..10 {
//!     let tracks = tracker.update(&[car(frame as f32)], 1.0);
//!     assert_eq!((tracks[0].id, tracks[0].state), (1, TrackState::Tracked));
//! }
//! // A frame without detections: the track is lost, and its box is predicted from its motion.
//! let tracks = tracker.update(&[], 1.0);
//! assert_eq!((tracks[0].id, tracks[0].state), (1, TrackState::Lost));
//! assert!((tracks[0].bbox.x1 - 80.0).abs() < 1.0);
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`BoundingBox`] | an axis-aligned box with area, overlap, clipping and the common notations |
//! | [`ByteTracker`] | the tracker |
//! | [`ByteTrackerOptions`] | thresholds, and whether a track can change its class ([`MatchClasses`]) |
//! | [`CameraMotion`] | how the camera moved between two frames, for [`ByteTracker::compensate`] |
//! | [`Appearances`] | what detections look like, for [`ByteTracker::update_with`] |
//! | [`ZoneCounter`] | counts tracks that cross lines and stay in zones |
//! | [`masklets`] | objects with masks that keep their identity: the life cycle of SAM 3's video predictor |
//! | [`MotBox`] | a line of a MOTChallenge file; [`read_mot`] reads and [`MotWriter`] writes such files |
//!
//! The crate knows neither images nor detectors. Coordinates are in any unit, x to the right and y downwards; time is
//! counted in frames, which may be fractions. Boxes, detections and tracks implement serde's traits.

#![forbid(unsafe_code)]

mod appearance;
mod assignment;
mod bounding_box;
mod byte_track;
mod camera;
mod kalman;
pub mod masklets;
mod mot;
mod overlaps;
#[cfg(test)]
mod test_random;
mod track;
mod zones;

pub use appearance::Appearances;
pub use bounding_box::{BoundingBox, suppress};
pub use byte_track::{ByteTracker, ByteTrackerOptions, MatchClasses};
pub use camera::CameraMotion;
pub use mot::{MotBox, MotWriter, read_mot};
pub use ocelli_error::{Error, ErrorKind, Result};
pub use track::{Track, TrackState, TrackerDetection, frames_between};
pub use zones::{
    Anchor, CountingLine, Direction, LineCounts, Zone, ZoneCounter, ZoneCounts, ZoneEvent, ZoneEventKind,
    ZoneOptions, is_inside,
};
