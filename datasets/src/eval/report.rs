//! Everything that `ocelli eval --json` says.

use std::io::{self, Write};

use serde::Serialize;

use super::{Accuracy, ExemplarMasks, HitCounts, Protocol, TimingSummary};

/// An evaluation of one model, or of several on the same pictures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    /// What the pictures are, for people: a file of annotations, drawn scenes.
    pub truth: String,
    /// What the models were asked; `None` where answers came from a file.
    pub protocol: Option<Protocol>,
    /// How many pictures count.
    pub images: usize,
    /// How many things are marked in them, crowds left out.
    pub things: usize,
    /// How many classes each picture was asked for.
    pub classes: usize,
    /// Pictures that do not count because they could not be read.
    pub failed: Vec<String>,
    /// One for each model.
    pub models: Vec<ModelReport>,
    /// With two models, the second's figures less the first's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// What came of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelReport {
    /// A folder, a file, or `built-in`.
    pub name: String,
    /// What ran it; `None` where its answers came from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// How many detections.
    pub detections: usize,
    /// Accuracy of the boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bbox: Option<Accuracy>,
    /// Accuracy of the masks, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segm: Option<Accuracy>,
    /// Precision and recall at one threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_confidence: Option<HitCounts>,
    /// Masks of things that were boxed, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_truth_boxes: Option<ExemplarMasks>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing_ms: Option<TimingSummary>,
}

/// What the second model has more than the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Average precision of boxes, −1 to 1.
    pub ap: Option<f64>,
    /// At a least overlap of 0.50.
    pub ap50: Option<f64>,
    /// Average precision of masks, −1 to 1.
    pub segm_ap: Option<f64>,
    /// Mean mask IoU of boxed things, −1 to 1.
    pub mask_iou: Option<f64>,
    /// Milliseconds that half of the pictures took no longer than.
    pub total_p50_ms: Option<f64>,
    /// The first's over the second's median time: above 1 the second is quicker.
    pub speed_up: Option<f64>,
}

impl EvalReport {
    /// Fills in [`difference`](Self::difference) where there are two models.
    #[must_use]
    pub fn with_difference(mut self) -> Self {
        if let [a, b] = self.models.as_slice() {
            let less = |of: fn(&ModelReport) -> Option<f64>| Some(of(b)? - of(a)?);
            let median = |model: &ModelReport| model.timing_ms.as_ref().map(|timing| timing.total.p50);
            self.difference = Some(Difference {
                ap: less(|model| model.bbox.as_ref()?.ap),
                ap50: less(|model| model.bbox.as_ref()?.ap50),
                segm_ap: less(|model| model.segm.as_ref()?.ap),
                mask_iou: less(|model| model.from_truth_boxes.as_ref()?.mask_iou),
                total_p50_ms: less(|model| Some(model.timing_ms.as_ref()?.total.p50)),
                speed_up: median(a).zip(median(b)).map(|(a, b)| a / b),
            });
        }
        self
    }

    /// Writes the report as JSON on one line, which ends. Figures are 0 to 1.
    ///
    /// # Errors
    /// Where `writer` fails.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut writer, self)?;
        writer.write_all(b"\n")
    }
}
