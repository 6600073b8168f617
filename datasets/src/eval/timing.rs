//! How long pictures took.

use serde::Serialize;

use ocelli::StageTimes;

/// Milliseconds of one stage over many pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageTiming {
    /// The mean.
    pub mean: f64,
    /// Half of the pictures took no longer.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
}

impl StageTiming {
    /// Of these durations; `None` where there are none.
    pub fn of(milliseconds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = milliseconds.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        // The smallest value that the share of all values is not above.
        let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).max(1) - 1];
        (!sorted.is_empty()).then(|| Self {
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        })
    }
}

/// How long the stages took; reading the pictures is not in it, and neither is the first picture, which is done twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimingSummary {
    /// How many pictures.
    pub images: usize,
    /// Pixels to the backbone's input.
    pub preprocess: StageTiming,
    /// The image backbone.
    pub backbone: StageTiming,
    /// Encoder-decoder over all classes, with thresholds and suppression.
    pub decode: StageTiming,
    /// Masks of what was kept.
    pub masks: StageTiming,
    /// All of it.
    pub total: StageTiming,
}

impl TimingSummary {
    /// Of the times of some pictures; `None` where there are none.
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
