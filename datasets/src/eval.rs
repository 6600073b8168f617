//! Evaluates detections against ground truth: COCO's average precision, precision and recall, mask IoU and time.
//!
//! A [`Truth`] has the annotated instances of images, a [`Protocol`] says which detections count, and [`Predictions`] are the
//! detections, collected from a detector or read from a file. [`average_precision`] compares them as pycocotools does,
//! [`precision_recall`] at one score threshold, and [`ExemplarMasks`] measures masks of instances whose boxes are exemplars.
//! An [`EvalTask`] does all of it for each [`Contender`], a model or a results file, and makes the [`EvalReport`].
//! [`video`] evaluates tracks, and masks in videos.
//!
//! ```
//! use ocelli_datasets::eval::{Overlap, Predictions, TruthBuilder, average_precision};
//! use ocelli::BoundingBox;
//!
//! # fn main() -> ocelli::Result<()> {
//! let mut truth = TruthBuilder::new(["cup"]);
//! let image = truth.add_image("table.png", 200, 100);
//! truth.add_instance(image, 0, BoundingBox::new(10.0, 10.0, 60.0, 70.0), None);
//! let truth = truth.build()?;
//!
//! let mut found = Predictions::default();
//! found.push(image, truth.categories()[0].id, BoundingBox::new(10.0, 10.0, 60.0, 70.0), 0.9, None);
//! let accuracy = average_precision(&truth, &found, &truth.image_ids(), Overlap::Boxes)?;
//! assert!(accuracy.ap.is_some_and(|ap| (ap - 1.0).abs() < 1e-9));
//! # Ok(())
//! # }
//! ```

mod accuracy;
pub(crate) mod annotations;
mod configurations;
mod contender;
pub(crate) mod entries;
mod exemplars;
mod folders;
mod images;
mod journal;
mod labelled;
mod precision_recall;
mod predictions;
mod report;
mod table;
mod task;
mod truth;
pub mod video;

pub use accuracy::{Accuracy, ClassAccuracy, Overlap, average_precision, difference_interval};
pub use configurations::{ConfigurationReport, ConfigurationsReport};
pub use contender::Contender;
pub use exemplars::ExemplarMasks;
pub use hotcoco::types::{Category, Image as TruthImage};
pub use images::{EvalImages, EvalStep};
pub use journal::{EvalIdentity, EvalJournal, ImageResult};
pub use precision_recall::{MIN_IOU, PrecisionRecall, precision_recall};
pub use predictions::Predictions;
pub use report::{Difference, EvalReport, ModelReport, StageTiming, TimingSummary};
pub use table::write_report;
pub use task::{EvalOptions, EvalTask, Protocol};
pub use truth::{Instance, Truth, TruthBuilder};

#[cfg(test)]
mod inputs;
#[cfg(test)]
mod tests;
