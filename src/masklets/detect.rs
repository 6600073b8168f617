//! From a frame to what the tracker needs of it.

use ocelli_engines::Tensor;
use ocelli_tracking::masklets::{Detection, LogitMask, MaskletOptions};

use super::graphs::Sizes;
use crate::detector::{Detector, EmbeddedPrompts, ImageFeatures, PromptDecoder};
use crate::postprocess::PostProcessOptions;
use crate::timing::StageTimes;
use ocelli_error::{Error, ErrorKind, Result};

/// A frame's features and detections, for the tracker. The buffers are reused.
#[derive(Debug, Default)]
pub struct MaskFrame {
    /// `[1, hidden, P, P]`, the backbone's last features, on its device if it has one.
    pub(super) hidden: Tensor,
    /// By class.
    pub(super) detections: Vec<Vec<Detection>>,
}

impl MaskFrame {
    /// A frame whose features `[1, hidden, P, P]` and detections, by class, come from elsewhere.
    pub fn new(hidden: Tensor, detections: Vec<Vec<Detection>>) -> Self {
        Self { hidden, detections }
    }

    /// Takes over the features, with what is found in them. `side` is that of the masks.
    #[doc(hidden)]
    pub fn detect(
        &mut self,
        features: &mut ImageFeatures,
        decoder: &mut PromptDecoder,
        prompts: Option<&EmbeddedPrompts>,
        side: usize,
        times: &mut StageTimes,
    ) -> Result<()> {
        self.detections.clear();
        if let Some(prompts) = prompts {
            self.detections.resize_with(prompts.len(), Vec::new);
            for found in decoder.decode_logits(features, prompts, times)? {
                let mask = LogitMask::new(side, side, found.logits)?;
                self.detections[found.class_id].push(Detection { score: found.score, mask });
            }
        }
        std::mem::swap(&mut features.hidden, &mut self.hidden);
        Ok(())
    }

    /// The detections before any suppression, by class and in the order of the decoder's queries.
    pub fn detections(&self) -> &[Vec<Detection>] {
        &self.detections
    }
}

/// The side of the masks that the tracker takes.
pub(crate) fn mask_side(detector: &Detector) -> Result<usize> {
    if detector.tiling().is_some() {
        let message =
            "tile: the memory tracker follows what it sees in whole frames: build the detector without tiles";
        return Err(Error::new(ErrorKind::InvalidArgument, message).about("tile"));
    }
    Ok(4 * Sizes::of(detector.model())?.grid)
}

/// Which detections the tracker takes.
pub(crate) fn post_processing(options: &MaskletOptions) -> PostProcessOptions {
    PostProcessOptions { confidence: options.detection_threshold, nms: None, ..PostProcessOptions::default() }
}
