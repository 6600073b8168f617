//! The stages of a detector, for programs that run them one by one or each on its own thread.

use ocelli_engines::Tensor;

use super::Detections;
use super::decode::PromptDecoder;
use super::encode::{Backbone, ImagePreprocessor, Wanted};
use super::features::ImageFeatures;
use super::segment::ObjectSegmenter;
use super::text::{EmbeddedPrompts, TextEmbedder};
use crate::frame_view::FrameView;
use crate::timing::{Instant, StageTimes, milliseconds_since};
use ocelli_error::Result;

/// The stages of a [`Detector`](crate::Detector): text to embedded prompts, an image to features, both to detections.
///
/// ```
/// use ocelli::{Detector, Image, Prompts, StageTimes, stages::{ImageFeatures, Stages, Wanted}};
///
/// # fn main() -> ocelli::Result<()> {
/// let Stages { mut text, mut encoder, mut decoder, .. } = Detector::builder().build()?.into_stages();
/// let image = Image::open("demos/scenes/park.png")?;
/// let (mut features, mut times) = (ImageFeatures::default(), StageTimes::default());
/// encoder.encode_into(&image, Wanted::default(), &mut features, &mut times)?;
/// for name in ["dog", "tree"] {
///     let prompts = text.embed(&Prompts::new([name])?)?;
///     println!("{name}: {}", decoder.decode(&features, &prompts, &mut times)?.len());
/// }
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct Stages {
    /// Encodes phrases, and keeps them.
    pub text: TextEmbedder,
    /// Computes the features of images.
    pub encoder: ImageEncoder,
    /// Finds the instances of prompts in features.
    pub decoder: PromptDecoder,
    /// Finds the masks of clicked objects in features.
    pub segmenter: ObjectSegmenter,
    /// Keeps one half of the model in memory at a time.
    pub(crate) low_memory: bool,
}

impl Stages {
    /// The encoder; in low memory, what needs its features is dropped.
    pub(super) fn encoder_alone(&mut self) -> &mut ImageEncoder {
        if self.low_memory {
            self.decoder.unload();
            self.segmenter.unload();
        }
        &mut self.encoder
    }

    /// In low memory, drops the encoder.
    pub(super) fn drop_encoder(&mut self) {
        if self.low_memory {
            self.encoder.unload();
        }
    }

    /// Detects in features, and adds the time to `times`.
    pub(super) fn detect(
        &mut self,
        features: &ImageFeatures,
        prompts: &EmbeddedPrompts,
        mut times: StageTimes,
    ) -> Result<Detections> {
        let start = Instant::now();
        self.drop_encoder();
        let items = self.decoder.decode(features, prompts, &mut times)?;
        let semantic = self.decoder.take_semantic_maps();
        times.total += milliseconds_since(start);
        Ok(Detections { items, semantic, times })
    }
}

/// Computes the features of images: preprocessing and backbone, with the buffer between them.
pub struct ImageEncoder {
    /// From an image to the backbone's pixels.
    pub preprocessor: ImagePreprocessor,
    /// From pixels to features.
    pub backbone: Backbone,
    pixels: Tensor,
}

impl ImageEncoder {
    pub(crate) fn new(preprocessor: ImagePreprocessor, backbone: Backbone) -> Self {
        Self { preprocessor, backbone, pixels: Tensor::empty() }
    }

    /// Loads the backbone unless it is loaded, and lets preprocessing run on its device.
    pub fn load(&mut self) -> Result<()> {
        self.backbone.load()?;
        self.preprocessor.run_on(self.backbone.device());
        Ok(())
    }

    /// Drops the engine; it is loaded again when it is needed.
    pub fn unload(&mut self) {
        self.backbone.unload();
    }

    /// Computes the features of an image of any size and format, and adds the times of both stages to `times`.
    ///
    /// # Errors
    /// As [`load`](Self::load), [`ImagePreprocessor::run_into`] and [`Backbone::run_into`].
    pub fn encode_into<'i>(
        &mut self,
        image: impl Into<FrameView<'i>>,
        wanted: Wanted,
        features: &mut ImageFeatures,
        times: &mut StageTimes,
    ) -> Result<()> {
        let image = image.into();
        self.load()?;
        self.preprocessor.run_into(image, &mut self.pixels, times)?;
        self.backbone.run_into(&self.pixels, (image.width, image.height), wanted, features, times)
    }
}
