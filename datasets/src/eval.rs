//! How well a detector finds what people marked: COCO's average precision, precision and recall, masks, time.
//!
//! A [`Truth`] is what people marked, or what a program drew. A [`Protocol`] says what a detector is asked to return;
//! its answers, collected or read from a file, are [`Predictions`]. [`average_precision`] compares the two as
//! pycocotools does, [`count_hits`] at one threshold, and [`ExemplarMasks`] the masks of things that were boxed.
//!
//! ```
//! use ocelli_datasets::eval::{Overlap, Predictions, TruthBuilder, average_precision};
//! use ocelli::BoundingBox;
//!
//! # fn main() -> ocelli::Result<()> {
//! let mut truth = TruthBuilder::new(["cup"]);
//! let picture = truth.add_picture("table.png", 200, 100);
//! truth.add_thing(picture, 0, BoundingBox::new(10.0, 10.0, 60.0, 70.0), None);
//! let truth = truth.build()?;
//!
//! let mut found = Predictions::default();
//! found.push(picture, truth.categories()[0].id, BoundingBox::new(10.0, 10.0, 60.0, 70.0), 0.9, None);
//! let accuracy = average_precision(&truth, &found, &truth.picture_ids(), Overlap::Boxes)?;
//! assert!(accuracy.ap.is_some_and(|ap| (ap - 1.0).abs() < 1e-9));
//! # Ok(())
//! # }
//! ```

mod accuracy;
mod exemplars;
mod hits;
mod predictions;
mod protocol;
mod report;
mod table;
mod timing;
mod truth;

pub use accuracy::{Accuracy, ClassAccuracy, Overlap, average_precision};
pub use exemplars::ExemplarMasks;
pub use hits::{HitCounts, LEAST_IOU, count_hits};
pub use predictions::Predictions;
pub use protocol::Protocol;
pub use report::{Difference, EvalReport, ModelReport};
pub use table::write_report;
pub use timing::{StageTiming, TimingSummary};
pub use truth::{Category, Picture, Thing, Truth, TruthBuilder};

#[cfg(test)]
mod tests;
