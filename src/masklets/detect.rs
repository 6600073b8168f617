//! From a frame to what the tracker needs of it.

use ocelli_engines::Tensor;
use ocelli_tracking::masklets::{Detection, LogitMask, MaskletOptions};

use super::graphs::Sizes;
use crate::detector::{Detector, EmbeddedPrompts, ImageEncoder, ImageFeatures, PromptDecoder, Stages};
use crate::frame_view::FrameView;
use crate::postprocess::PostProcessOptions;
use crate::timing::StageTimes;
use ocelli_error::Result;

/// What the tracker needs of a frame. The buffers are reused.
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

    /// The detections before any suppression, by class and in the order of the decoder's queries.
    pub fn detections(&self) -> &[Vec<Detection>] {
        &self.detections
    }
}

/// Detects in the frames of a video, for a tracker.
pub struct MaskDetector {
    encoder: ImageEncoder,
    decoder: PromptDecoder,
    prompts: EmbeddedPrompts,
    features: ImageFeatures,
    side: usize,
}

impl MaskDetector {
    /// Detects the classes of `prompts`, each of which is a text or has kept exemplars. The thresholds are those of the
    /// options, not those of the detector.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the model has no tracker, or the detector was built without
    /// masks; errors of loading the graphs.
    pub fn new(detector: Detector, prompts: EmbeddedPrompts, options: &MaskletOptions) -> Result<Self> {
        let sizes = Sizes::of(detector.model())?;
        let Stages { mut encoder, mut decoder, .. } = detector.into_stages();
        decoder.set_post_processing(PostProcessOptions {
            score_threshold: options.detection_threshold,
            nms_iou: None,
            ..PostProcessOptions::default()
        })?;
        decoder.require_masks()?;
        encoder.set_hidden(true);
        encoder.load()?;
        decoder.load()?;
        let features = ImageFeatures::default();
        Ok(Self { encoder, decoder, prompts, features, side: 4 * sizes.grid })
    }

    /// Detects in an image, and adds the times of the stages to `times`.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](crate::ErrorKind::Execution) if a graph fails or returns values that are not finite.
    pub fn detect_into<'i>(
        &mut self,
        image: impl Into<FrameView<'i>>,
        frame: &mut MaskFrame,
        times: &mut StageTimes,
    ) -> Result<()> {
        self.features.swap_hidden(&mut frame.hidden);
        self.encoder.encode_into(image, &mut self.features, times)?;
        frame.detections.clear();
        frame.detections.resize_with(self.prompts.len(), Vec::new);
        for found in self.decoder.decode_logits(&self.features, &self.prompts, times)? {
            let mask = LogitMask::new(self.side, self.side, found.logits)?;
            frame.detections[found.class_id].push(Detection { score: found.score, mask });
        }
        self.features.swap_hidden(&mut frame.hidden);
        Ok(())
    }
}
