//! From a frame to what the tracker needs of it.

use ocelli_engines::Tensor;
use ocelli_tracking::masklets::{DetectedMask, LogitMask, MaskletOptions};

use super::graphs::Sizes;
use crate::detector::{DecodeRequest, Detector, ImageFeatures, PromptDecoder};
use crate::postprocess::PostProcessOptions;
use crate::timing::StageTimes;
use ocelli_error::{Error, Result};

/// A frame's features and detections, for the tracker. The buffers are reused.
#[derive(Debug, Default)]
pub struct MaskFrame {
    /// `[1, hidden, P, P]`, the backbone's last features, on its device if it has one.
    pub(super) hidden: Tensor,
    /// By class; `None` for those that were not searched for.
    pub(super) detections: Vec<Option<Vec<DetectedMask>>>,
}

impl MaskFrame {
    /// A frame whose features `[1, hidden, P, P]` and detections, by class, come from elsewhere.
    pub fn new(hidden: Tensor, detections: Vec<Vec<DetectedMask>>) -> Self {
        Self { hidden, detections: detections.into_iter().map(Some).collect() }
    }

    /// Takes over the features, with what is found in them. `side` is that of the masks.
    #[doc(hidden)]
    pub fn detect(
        &mut self,
        features: &mut ImageFeatures,
        decoder: &mut PromptDecoder,
        request: Option<DecodeRequest<'_>>,
        side: usize,
        times: &mut StageTimes,
    ) -> Result<()> {
        self.detections.clear();
        if let Some(request) = request {
            self.detections.resize(request.prompts.len(), Some(Vec::new()));
            for found in decoder.decode_logits(features, request, times)? {
                let mask = LogitMask::new(side, side, found.logits)?;
                let detections = self.detections[found.class_id].get_or_insert_default();
                detections.push(DetectedMask { score: found.score, mask });
            }
        }
        std::mem::swap(&mut features.hidden, &mut self.hidden);
        Ok(())
    }

    /// Leaves out the detections of classes that were not searched for.
    pub(crate) fn leave_out(&mut self, searched: &[bool]) {
        let unsearched = self.detections.iter_mut().zip(searched).filter(|(_, searched)| !**searched);
        unsearched.for_each(|(detections, _)| *detections = None);
    }

    /// The detections before any suppression, by class and in the order of the decoder's queries; none of classes that were not
    /// searched for.
    pub fn detections(&self) -> impl ExactSizeIterator<Item = &[DetectedMask]> {
        self.detections.iter().map(|found| found.as_deref().unwrap_or_default())
    }
}

/// The side of the masks that the tracker takes.
pub(crate) fn mask_side(detector: &Detector) -> Result<usize> {
    if detector.tiling().is_some() {
        let message =
            "tile: the memory tracker follows what it sees in whole frames: build the detector without tiles";
        return Err(Error::invalid_argument(message).about("tile"));
    }
    Ok(4 * Sizes::of(detector.model())?.grid)
}

/// The choice of the detections that the tracker takes.
pub(crate) fn post_processing(options: &MaskletOptions) -> PostProcessOptions {
    PostProcessOptions { confidence: options.detection_threshold, nms: None, ..PostProcessOptions::default() }
}
