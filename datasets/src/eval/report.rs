//! The report of an evaluation.

use ocelli::StageTimes;
use serde::Serialize;

use super::{Accuracy, ExemplarMasks, PrecisionRecall, Protocol};

/// An evaluation of one model, or of several on the same images.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EvalReport {
    /// A description of the images: a file of annotations, drawn scenes.
    pub truth: String,
    /// The protocol; `None` if the detections are from a file.
    pub protocol: Option<Protocol>,
    /// Number of images that count.
    pub images: usize,
    /// Number of instances in them, without crowds.
    pub instances: usize,
    /// Number of classes that are looked for in each image.
    pub classes: usize,
    /// Images that could not be read and do not count.
    pub failed: Vec<String>,
    /// One for each model.
    pub models: Vec<ModelReport>,
    /// With two models, the figures of the second minus those of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Peak memory of the process in MiB, if models ran in it and it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_mib: Option<f64>,
}

/// The figures of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelReport {
    /// A folder, a file, or `built-in`.
    pub name: String,
    /// The engine that ran it; `None` if the detections are from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Number of detections.
    pub detections: usize,
    /// The images for which a file of detections has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_detections: Vec<String>,
    /// Accuracy of the boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bbox: Option<Accuracy>,
    /// Accuracy of the masks, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segm: Option<Accuracy>,
    /// Precision and recall at one threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_confidence: Option<PrecisionRecall>,
    /// Masks of instances whose annotated boxes were the exemplars, if that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_truth_boxes: Option<ExemplarMasks>,
    /// The time of each stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing_ms: Option<TimingSummary>,
}

/// The figures of the second model minus those of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Average precision of boxes, −1 to 1.
    pub ap: Option<f64>,
    /// Its 95 % confidence interval, if there are enough images: see [`difference_interval`](super::difference_interval).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ap_interval: Option<[f64; 2]>,
    /// At an IoU threshold of 0.50.
    pub ap50: Option<f64>,
    /// Average precision of masks, −1 to 1.
    pub segm_ap: Option<f64>,
    /// Its 95 % confidence interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segm_ap_interval: Option<[f64; 2]>,
    /// Mean mask IoU of instances with exemplars, −1 to 1.
    pub mask_iou: Option<f64>,
    /// Median time of an image in milliseconds.
    pub total_p50_ms: Option<f64>,
    /// Median time of the first model divided by that of the second: above 1, the second is faster.
    pub speed_up: Option<f64>,
}

impl EvalReport {
    /// Fills in [`difference`](Self::difference) if there are two models, with the intervals of box and mask AP.
    #[must_use]
    pub fn with_difference(mut self, [ap_interval, segm_ap_interval]: [Option<[f64; 2]>; 2]) -> Self {
        if let [a, b] = self.models.as_slice() {
            let minus = |of: fn(&ModelReport) -> Option<f64>| Some(of(b)? - of(a)?);
            let median = |model: &ModelReport| model.timing_ms.as_ref().map(|timing| timing.total.p50);
            self.difference = Some(Difference {
                ap: minus(|model| model.bbox.as_ref()?.ap),
                ap_interval,
                ap50: minus(|model| model.bbox.as_ref()?.ap50),
                segm_ap: minus(|model| model.segm.as_ref()?.ap),
                segm_ap_interval,
                mask_iou: minus(|model| model.from_truth_boxes.as_ref()?.mask_iou),
                total_p50_ms: minus(|model| Some(model.timing_ms.as_ref()?.total.p50)),
                speed_up: median(a).zip(median(b)).map(|(a, b)| a / b),
            });
        }
        self
    }
}

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
