//! Boxes, and in time the tracks that they form.
//!
//! | noun | what it is |
//! |---|---|
//! | [`BoundingBox`] | an axis-aligned rectangle by its corners, with area, overlap and the usual notations |
//!
//! Nothing here knows what an image or a detector is: coordinates are numbers in whatever unit the caller
//! uses, x to the right and y downwards.
//!
//! ```
//! use ocelli_tracking::BoundingBox;
//!
//! let seen = BoundingBox::new(10.0, 20.0, 110.0, 220.0);
//! let expected = BoundingBox::from_ltwh([10.0, 20.0, 100.0, 100.0]);
//! assert_eq!(seen.iou(&expected), 0.5);
//! ```

#![forbid(unsafe_code)]

mod bounding_box;

pub use bounding_box::BoundingBox;
