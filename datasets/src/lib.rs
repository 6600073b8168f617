//! What turns detections into data sets and figures.
//!
//! - [`label`] writes data sets (YOLO, YOLO-seg, COCO) from a folder of images, and merges shards;
//! - [`eval`] measures average precision, precision, recall and time against annotated images;
//! - [`verify`] compares two ways of running a model: other engines, other precisions, other exports;
//! - [`scenes`] draws annotated images and videos of pictograms, which the built-in model knows.
//!
//! ```
//! use ocelli_datasets::scenes::{SceneGenerator, SceneOptions};
//!
//! # fn main() -> ocelli::Result<()> {
//! let scene = SceneGenerator::new(7, SceneOptions::default())?.scene(0);
//! assert!(!scene.objects.is_empty());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod eval;
pub mod label;
pub mod scenes;
pub mod verify;
