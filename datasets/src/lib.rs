//! Data sets for the [`ocelli`] detector: label images and evaluate models.
//!
//! - [`label`] runs a detector on images and writes a data set that trainers read (YOLO, YOLO-seg, COCO). A
//!   [`LabelJob`](label::LabelJob) can be stopped at any time and continued, and shards of it can be merged.
//! - [`eval`] compares [`Predictions`](eval::Predictions) with a [`Truth`](eval::Truth): average precision, precision and
//!   recall, mask IoU and time.
//!
//! Drawn scenes are the ground truth here, and the built-in model is evaluated on them:
//!
//! ```
//! use ocelli::{Detector, Prompts};
//! use ocelli_datasets::eval::{Overlap, Predictions, Protocol, TruthBuilder, average_precision};
//! use ocelli_verify::scenes::{SceneGenerator, SceneOptions};
//!
//! # fn main() -> ocelli::Result<()> {
//! let labels = ["dog", "car"];
//! let options = SceneOptions { labels: labels.map(String::from).to_vec(), ..SceneOptions::default() };
//! let scenes = SceneGenerator::new(7, options)?;
//! let mut detector = Detector::builder().with_post_processing(Protocol::Practical.post_processing()).build()?;
//! let prompts = Prompts::new(labels)?;
//!
//! let (mut truth, mut predictions) = (TruthBuilder::new(labels), Predictions::default());
//! for index in 0..3 {
//!     let scene = scenes.scene(index);
//!     let image = truth.add_image(format!("scene {index}"), scene.image.width(), scene.image.height());
//!     for object in &scene.objects {
//!         let class = labels.iter().position(|label| *label == object.label).expect("only these are drawn");
//!         truth.add_instance(image, class, object.bbox, None);
//!     }
//!     // The categories of a `TruthBuilder` are 1, 2, 3 and so on.
//!     predictions.push_detections(image, &detector.detect(&scene.image, &prompts)?.items, &[1, 2]);
//! }
//! let truth = truth.build()?;
//! let accuracy = average_precision(&truth, &predictions, &truth.image_ids(), Overlap::Boxes)?;
//! assert!(accuracy.ap50.is_some_and(|ap| ap > 0.5));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod closest;
pub mod eval;
pub mod label;
pub mod table;

pub use closest::closest;
