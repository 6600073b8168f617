//! The features of a session's frames: computed, kept, or computed again.

use std::collections::VecDeque;

use ocelli_engines::Tensor;
use ocelli_tracking::masklets::DetectorPrompt;
use serde::{Deserialize, Serialize};

use super::VideoSessionOptions;
use super::source::{Images, SessionSource};
use crate::detector::{
    Detector, EmbeddedPrompts, ImageEncoder, ImageFeatures, PromptDecoder, Stages, TextEmbedder, Wanted,
};
use crate::masklets::detect::{MaskFrame, mask_side, post_processing};
use crate::masklets::network::MaskFrames;
use crate::prompt::Prompts;
use crate::timing::StageTimes;
use ocelli_error::Result;

/// The memory that keeps the backbone's features of frames. With engines on the CPU, device and host are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepFeatures {
    /// In the memory of the backbone's device.
    Device,
    /// In host memory; they are copied to the device when they are needed.
    Host,
    /// Nowhere: a frame that is passed again is computed again.
    #[default]
    None,
}

ocelli_error::read_by_name!(KeepFeatures, "keep_features", "\"none\", \"device\" or \"host\"");

/// The frames of a session.
pub(super) struct Frames {
    pub(super) source: SessionSource,
    encoder: ImageEncoder,
    decoder: PromptDecoder,
    text: TextEmbedder,
    /// `None`: frames get features, and no detections.
    prompts: Option<EmbeddedPrompts>,
    features: ImageFeatures,
    mask_side: usize,
    /// The prompt that is looked for, and the frame on which it was asked for.
    asked: Option<(DetectorPrompt, usize)>,
    keep: KeepFeatures,
    most: usize,
    /// The frames used least recently first.
    kept: VecDeque<(usize, MaskFrame)>,
    /// The current frame, if it is not kept.
    current: MaskFrame,
}

impl Frames {
    pub(super) fn new(
        detector: Detector,
        source: SessionSource,
        options: &VideoSessionOptions,
    ) -> Result<Self> {
        let mask_side = mask_side(&detector)?;
        let Stages { text, encoder, mut decoder, .. } = detector.into_stages();
        decoder.set_post_processing(post_processing(&options.masklets))?;
        let keep = if options.kept_frames == 0 { KeepFeatures::None } else { options.keep_features };
        Ok(Self {
            source,
            encoder,
            decoder,
            text,
            prompts: None,
            features: ImageFeatures::default(),
            mask_side,
            asked: None,
            keep,
            most: options.kept_frames,
            kept: VecDeque::new(),
            current: MaskFrame::default(),
        })
    }

    /// Changes the video; what was kept of the one before is freed.
    pub(super) fn set_source(&mut self, source: SessionSource) {
        self.source = source;
        self.kept.clear();
    }

    /// Drops the pushed images before this frame, and their features.
    pub(super) fn forget_before(&mut self, frame: usize) {
        self.source.forget_before(frame);
        self.kept.retain(|(kept, _)| *kept >= frame);
    }

    /// Changes what is looked for; exemplars are boxes in `frame`.
    pub(super) fn set_prompts(
        &mut self,
        asked: Option<(&Prompts, DetectorPrompt)>,
        frame: usize,
    ) -> Result<()> {
        let Some((prompts, kind)) = asked else {
            (self.prompts, self.asked) = (None, None);
            return Ok(());
        };
        self.decoder.require_masks()?;
        let mut embedded = self.text.embed(prompts)?;
        let has_exemplars = prompts.iter().any(|prompt| !prompt.exemplars().is_empty());
        if has_exemplars && !matches!(self.source.images, Images::Features(_)) {
            let (wanted, mut times) = (self.wanted(), StageTimes::default());
            self.encoder.encode_into(&*self.source.read(frame)?, wanted, &mut self.features, &mut times)?;
            embedded = self.decoder.keep_exemplars(&self.features, &embedded)?;
        }
        self.prompts = Some(embedded);
        self.asked = Some((kind, frame));
        // Their detections are those of another prompt.
        self.kept.clear();
        Ok(())
    }

    fn compute(&mut self, number: usize) -> Result<()> {
        if let Images::Features(source) = &mut self.source.images {
            return source(number, &mut self.current);
        }
        let detects = match self.asked {
            Some((DetectorPrompt::Text, _)) => true,
            Some((DetectorPrompt::Box, frame)) => frame == number,
            None => false,
        };
        let (wanted, mut times) = (self.wanted(), StageTimes::default());
        let Self { source, encoder, decoder, features, current, .. } = self;
        std::mem::swap(&mut features.hidden, &mut current.hidden);
        encoder.encode_into(&*source.read(number)?, wanted, features, &mut times)?;
        let request = self.prompts.as_ref().filter(|_| detects).map(Into::into);
        current.detect(features, decoder, request, self.mask_side, &mut times)
    }

    fn wanted(&self) -> Wanted {
        Wanted { masks: self.prompts.is_some(), hidden: true }
    }
}

impl MaskFrames for Frames {
    fn frame(&mut self, number: usize) -> Result<&MaskFrame> {
        if let Some(place) = self.kept.iter().position(|(kept, _)| *kept == number) {
            let found = self.kept.remove(place).expect("it was found there");
            self.kept.push_back(found);
        } else {
            self.compute(number)?;
            if self.keep == KeepFeatures::None {
                return Ok(&self.current);
            }
            // The buffers of the frame that goes are those of the next one.
            let freed = if self.kept.len() >= self.most { self.kept.pop_front() } else { None };
            let freed = freed.map(|(_, frame)| frame).unwrap_or_default();
            let mut frame = std::mem::replace(&mut self.current, freed);
            if self.keep == KeepFeatures::Host && frame.hidden.device().is_some() {
                let mut host = Tensor::empty();
                frame.hidden.copy_to_host_into(&mut host)?;
                // The next frame is computed where this one was.
                self.current.hidden = std::mem::replace(&mut frame.hidden, host);
            }
            self.kept.push_back((number, frame));
        }
        Ok(self.kept.back().map_or(&self.current, |(_, frame)| frame))
    }
}
