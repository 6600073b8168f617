//! The time that the detector takes for an image.

use serde::Serialize;

use ocelli::StageTimes;

/// Milliseconds of one stage over many images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageTiming {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl StageTiming {
    /// Computes them from durations; `None` without durations.
    pub fn of(milliseconds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = milliseconds.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        // The smallest value that is not below this share of all values.
        let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).max(1) - 1];
        (!sorted.is_empty()).then(|| Self {
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        })
    }
}

/// The time of each stage, without reading images. The warm-up, which detects the first image once more, is not included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimingSummary {
    /// Number of images.
    pub images: usize,
    /// Preprocessing.
    pub preprocess: StageTiming,
    /// The image backbone.
    pub backbone: StageTiming,
    /// The encoder-decoder for all classes, with thresholds and suppression.
    pub decode: StageTiming,
    /// The masks of the detections.
    pub masks: StageTiming,
    /// All stages.
    pub total: StageTiming,
}

impl TimingSummary {
    /// Computes it from the times of images; `None` without images.
    pub fn of(times: &[StageTimes]) -> Option<Self> {
        let stage = |one: fn(&StageTimes) -> f64| StageTiming::of(times.iter().map(one));
        Some(Self {
            images: times.len(),
            preprocess: stage(|times| times.preprocess)?,
            backbone: stage(|times| times.backbone)?,
            decode: stage(|times| times.decode)?,
            masks: stage(|times| times.masks)?,
            total: stage(|times| times.total)?,
        })
    }
}
