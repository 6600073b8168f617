//! Arguments of the comparison of two models.

use clap::Args;
use ocelli::Result;
use ocelli_verify::{Limits, VerificationOptions};

use super::check_confidence;

/// How strictly two ways of running a model are compared.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Comparison")]
pub struct VerificationArgs {
    /// Drawn scenes to detect in
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub scenes: usize,
    /// Images of random pixels to run
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub random_inputs: usize,
    /// Random seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Minimum cosine similarity of features and logits
    #[arg(long, default_value_t = 0.999, value_name = "COSINE")]
    pub min_cosine: f64,
    /// Maximum difference of a box's edge, as a share of the image's side
    #[arg(long, default_value_t = 0.01, value_name = "SHARE")]
    pub max_box_difference: f32,
    /// Maximum difference of a score
    #[arg(long, default_value_t = 0.02, value_name = "SCORE")]
    pub max_score_difference: f32,
    /// Minimum IoU of two boxes that count as the same detection
    #[arg(long, default_value_t = 0.7, value_name = "IOU")]
    pub min_iou: f32,
    /// Keep detections with a higher score [default: the model's threshold]
    #[arg(long, alias = "conf", value_name = "SCORE")]
    pub confidence: Option<f32>,
}

impl VerificationArgs {
    /// The options of a comparison.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for numbers out of their range.
    pub fn options(&self) -> Result<VerificationOptions> {
        let Self { scenes, random_inputs, seed, confidence, .. } = *self;
        let Self { min_cosine, max_box_difference, max_score_difference, min_iou, .. } = *self;
        let limits = Limits { min_cosine, max_box_difference, max_score_difference, min_iou };
        limits.check()?;
        check_confidence(confidence)?;
        let defaults = VerificationOptions::default();
        Ok(VerificationOptions { random_inputs, scenes, seed, confidence, limits, ..defaults })
    }
}
