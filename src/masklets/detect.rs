//! From a frame to what the tracker needs of it.

use ocelli_engines::Tensor;
use ocelli_tracking::masklets::{Detection, LogitMask, MaskletOptions};

use super::graphs::Sizes;
use crate::detector::{
    Detector, EmbeddedPrompts, ImageEncoder, ImageFeatures, PromptDecoder, Stages, TextEmbedder, Wanted,
};
use crate::frame_view::FrameView;
use crate::image::Image;
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
    pub(crate) fn detect(
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

/// Detects in the frames of a video, for a tracker.
pub struct MaskDetector {
    encoder: ImageEncoder,
    pub(super) decoder: PromptDecoder,
    /// `None`: frames get features, and no detections.
    pub(super) prompts: Option<EmbeddedPrompts>,
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
        let (mut new, _) = Self::without_prompts(detector)?;
        new.decoder.set_post_processing(post_processing(options))?;
        new.decoder.require_masks()?;
        new.prompts = Some(prompts);
        new.encoder.load()?;
        new.decoder.load()?;
        Ok(new)
    }

    /// Computes features alone, for objects that are clicked or given as masks; and what embeds texts later.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the model has no tracker.
    pub(super) fn without_prompts(detector: Detector) -> Result<(Self, TextEmbedder)> {
        let side = mask_side(&detector)?;
        let Stages { text, encoder, decoder, .. } = detector.into_stages();
        Ok((Self { encoder, decoder, prompts: None, features: ImageFeatures::default(), side }, text))
    }

    fn wanted(&self) -> Wanted {
        Wanted { masks: self.prompts.is_some(), hidden: true }
    }

    /// Encodes exemplars, which are boxes in this image.
    pub(super) fn keep_exemplars(
        &mut self,
        image: &Image,
        prompts: &EmbeddedPrompts,
    ) -> Result<EmbeddedPrompts> {
        let wanted = self.wanted();
        self.encoder.encode_into(image, wanted, &mut self.features, &mut StageTimes::default())?;
        self.decoder.keep_exemplars(&self.features, prompts)
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
        self.run_into(image, true, frame, times)
    }

    /// Computes the features of an image and, if it `detects`, what is looked for.
    pub(super) fn run_into<'i>(
        &mut self,
        image: impl Into<FrameView<'i>>,
        detects: bool,
        frame: &mut MaskFrame,
        times: &mut StageTimes,
    ) -> Result<()> {
        std::mem::swap(&mut self.features.hidden, &mut frame.hidden);
        let wanted = self.wanted();
        self.encoder.encode_into(image, wanted, &mut self.features, times)?;
        let prompts = self.prompts.as_ref().filter(|_| detects);
        frame.detect(&mut self.features, &mut self.decoder, prompts, self.side, times)
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
