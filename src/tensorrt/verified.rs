//! The result of the numeric gate, as an engine's sidecar records it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ocelli_error::{Error, Result};

/// The limits of a candidate's differences from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// The least cosine of features and logits, for each input (0.999).
    pub min_cosine: f64,
    /// The largest difference of a box's edge, as a share of the image's side (0.01).
    pub max_box_difference: f32,
    /// The largest difference of a score (0.02).
    pub max_score_difference: f32,
    /// The least overlap of two boxes that are the same detection (0.7).
    pub min_iou: f32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_cosine: 0.999, max_box_difference: 0.01, max_score_difference: 0.02, min_iou: 0.7 }
    }
}

impl Limits {
    /// Refuses limits outside their range.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument), naming the limit.
    pub fn check(&self) -> Result<()> {
        let values = [
            ("min_cosine", self.min_cosine, -1.0..=1.0),
            ("max_box_difference", f64::from(self.max_box_difference), 0.0..=1.0),
            ("max_score_difference", f64::from(self.max_score_difference), 0.0..=1.0),
            ("min_iou", f64::from(self.min_iou), 0.0..=1.0),
        ];
        for (name, value, range) in values {
            if !range.contains(&value) {
                let expected = format!("a number from {} to {}", range.start(), range.end());
                return Err(Error::argument(name, value, expected));
            }
        }
        Ok(())
    }
}

/// The record of an accepted verification in an engine's sidecar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerificationSummary {
    /// The reference's engine and device.
    pub reference: String,
    /// The engine's library and device.
    pub candidate: String,
    /// The least cosine of each output.
    pub cosine: BTreeMap<String, f64>,
    /// The largest difference of a box's edge, as a share of the image's side.
    pub box_difference: f32,
    /// The largest difference of a score.
    pub score_difference: f32,
    /// Detections that both keep in the scenes.
    pub kept: usize,
    /// Detections that one side keeps where a rounding decides.
    pub borderline: usize,
    /// Drawn scenes.
    pub scenes: usize,
    /// Inputs of random pixels.
    pub random_inputs: usize,
    /// Of the random numbers and the scenes.
    pub seed: u64,
    /// The limits that it was held to.
    pub limits: Limits,
}
