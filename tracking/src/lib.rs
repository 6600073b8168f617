//! Boxes, and the tracks that they form over time.
//!
//! | noun | what it is |
//! |---|---|
//! | [`BoundingBox`] | an axis-aligned rectangle by its corners, with area, overlap and the usual notations |
//! | [`ByteTracker`] | follows objects from frame to frame: [`TrackerDetection`]s in, [`Track`]s out |
//! | [`ByteTrackerOptions`] | its thresholds, and whether classes may mix ([`MatchClasses`]) |
//! | [`MotBox`] | a line of a MOTChallenge file; read with [`read_mot`], written with [`MotWriter`] |
//!
//! Nothing here knows what an image or a detector is: coordinates are numbers in whatever unit the caller
//! uses, x to the right and y downwards, and time is counted in frames, not necessarily whole ones.
//!
//! ```
//! use ocelli_tracking::BoundingBox;
//!
//! let seen = BoundingBox::new(10.0, 20.0, 110.0, 220.0);
//! let expected = BoundingBox::from_ltwh([10.0, 20.0, 100.0, 100.0]);
//! assert_eq!(seen.iou(&expected), 0.5);
//! ```

#![forbid(unsafe_code)]

mod assignment;
mod bounding_box;
mod byte_track;
mod error;
mod kalman;
mod mot;
mod overlaps;
#[cfg(test)]
mod test_random;
mod track;

pub use bounding_box::BoundingBox;
pub use byte_track::{ByteTracker, ByteTrackerBuilder, ByteTrackerOptions, MatchClasses};
pub use error::{Error, ErrorKind, Result};
pub use mot::{MotBox, MotWriter, read_mot};
pub use track::{Track, TrackState, TrackerDetection};
