//! From an image and prompts to detections.

// Dependencies: features ← engine_io ← text, encode, segment ← chunk_prompts, exemplars, masks, screen ← decode ← appearance,
// stages ← tiled ← builder.
mod appearance;
mod builder;
mod chunk_prompts;
mod decode;
mod encode;
pub(crate) mod engine_io;
mod exemplars;
mod features;
mod masks;
mod screen;
mod segment;
mod stages;
mod text;
mod tiled;

use crate::detection::Detections;
use crate::engine::EngineFactory;
use crate::frame_view::FrameView;
use crate::image::Image;
use crate::model::Model;
use crate::postprocess::PostProcessOptions;
use crate::prompt::{ObjectPrompt, Prompts};
use crate::tiles::{Regions, Tiling, WholeImage};
use crate::timing::{Instant, StageTimes, milliseconds_since};
use ocelli_error::Result;

pub use builder::DetectorBuilder;
pub use decode::{DecodeRequest, PromptDecoder};
#[cfg(test)]
pub(crate) use encode::FakeGpu;
pub use encode::{Backbone, ImagePreprocessor, Wanted};
pub use features::ImageFeatures;
pub(crate) use features::{ClickFeatures, Group};
pub use screen::{ScreenCalibration, Screening};
pub(crate) use segment::PointInputs;
pub use segment::{ObjectMask, ObjectSegmenter};
pub use stages::{ImageEncoder, Stages};
pub use text::{EmbeddedPrompts, TextCacheFile, TextEmbedder};
use tiled::encode_part;
pub use tiled::{SearchStages, TiledSearch};

/// An open-vocabulary detector: a model, its engines and their buffers.
///
/// Engines are loaded on first use. The text encoder, the larger half of a full-size model, is loaded only if a phrase is
/// not in the cache, and it is dropped before the backbone is loaded.
pub struct Detector {
    model: Model,
    stages: Stages,
    features: ImageFeatures,
    /// Searches large images, if the detector was built with tiles.
    pub(crate) tiles: Option<TiledSearch>,
    engine: String,
    factory: EngineFactory,
}

impl Detector {
    /// Detects the instances of `prompts` in an image: an [`Image`](crate::Image), or a [`FrameView`] of pixels
    /// in RGB or in the format of a camera.
    ///
    /// Boxes are in pixels of the image and clipped to it. The order is deterministic: the highest score first.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a phrase without text or an exemplar outside the image;
    /// on first use also the errors of [`prepare`](Self::prepare).
    pub fn detect<'i>(&mut self, image: impl Into<FrameView<'i>>, prompts: &Prompts) -> Result<Detections> {
        let start = Instant::now();
        let embedded = self.stages.text.embed(prompts)?;
        let text = milliseconds_since(start);
        let mut found = self.detect_embedded(image, &embedded)?;
        found.times.text = text;
        found.times.total = milliseconds_since(start);
        Ok(found)
    }

    /// As [`detect`](Self::detect), with prompts that are encoded already.
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an exemplar outside the image.
    pub fn detect_embedded<'i>(
        &mut self,
        image: impl Into<FrameView<'i>>,
        prompts: &EmbeddedPrompts,
    ) -> Result<Detections> {
        self.detect_regions(&mut WholeImage::new(image)?, prompts)
    }

    /// As [`detect_embedded`](Self::detect_embedded), in the next of several images: 64, or fewer whose features take 256 MiB, each
    /// as a whole. The backbone runs on all of them at once; the iterator searches one image at a time, in order. It has no
    /// results at the end of `images`, and the error of an image in its place.
    ///
    /// In [low memory](crate::options::DetectorOptions::low_memory), each half of the model is loaded once for a group.
    pub fn detect_group(
        &mut self,
        images: &mut dyn Iterator<Item = Result<Image>>,
        prompts: &EmbeddedPrompts,
    ) -> impl ExactSizeIterator<Item = Result<Detections>> {
        let (mut group, mut encoded) = (Group::default(), Vec::new());
        while !group.is_full()
            && let Some(image) = images.next()
        {
            let (start, mut times) = (Instant::now(), StageTimes::default());
            let mut features = ImageFeatures::default();
            let encoder = self.stages.encoder_alone();
            let done = image
                .and_then(|image| encoder.encode_into(&image, Wanted::default(), &mut features, &mut times));
            times.total = milliseconds_since(start);
            group.add(features.bytes());
            encoded.push(done.map(|()| (features, times)));
        }
        let stages = &mut self.stages;
        encoded.into_iter().map(move |done| {
            let (features, times) = done?;
            stages.detect(&features, prompts, times)
        })
    }

    /// As [`detect_embedded`](Self::detect_embedded), in an image that is read in parts, for instance from a
    /// [`TiledImage`](crate::tiles::TiledImage): with [tiles](crate::options::DetectorOptions::tiling) if the detector was built with them.
    ///
    /// # Errors
    /// As [`detect`](Self::detect), and those of the image.
    pub fn detect_regions(
        &mut self,
        image: &mut dyn Regions,
        prompts: &EmbeddedPrompts,
    ) -> Result<Detections> {
        let (start, mut times) = (Instant::now(), StageTimes::default());
        if let Some(tiles) = &mut self.tiles {
            let stages = (&mut self.stages.encoder, &mut self.stages.decoder);
            return tiles.detect(stages, image, prompts, &mut times);
        }
        let how = (self.stages.decoder.input().0, Wanted::default());
        encode_part(self.stages.encoder_alone(), how, image, None, &mut self.features, &mut times)?;
        times.total = milliseconds_since(start);
        self.stages.detect(&self.features, prompts, times)
    }

    /// The tiles of large images, if the detector was built with them.
    pub fn tiling(&self) -> Option<Tiling> {
        self.tiles.as_ref().map(TiledSearch::tiling)
    }

    /// Computes the features of an image, for [`detect_features`](Self::detect_features) and [`segment`](Self::segment): each
    /// further search in the same image, and each click, costs a decoder alone.
    ///
    /// ```
    /// # use ocelli::{Detector, Image, Prompts};
    /// # fn main() -> ocelli::Result<()> {
    /// let mut detector = Detector::builder().build()?;
    /// let features = detector.encode(&Image::open("demos/scenes/park.png")?)?;
    /// let dogs = detector.detect_features(&features, &Prompts::new(["dog"])?)?;
    /// let trees = detector.detect_features(&features, &Prompts::new(["tree"])?)?;
    /// assert_eq!((dogs.len(), trees.len()), (2, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) if a graph fails; on first use also the errors of
    /// [`prepare`](Self::prepare).
    pub fn encode<'i>(&mut self, image: impl Into<FrameView<'i>>) -> Result<ImageFeatures> {
        let mut features = ImageFeatures::default();
        let has_clicks = self.model().manifest().has_tracker();
        let encoder = self.stages.encoder_alone();
        encoder.load()?;
        let wanted = Wanted { hidden: has_clicks && encoder.backbone.has_hidden(), ..Wanted::default() };
        encoder.encode_into(image, wanted, &mut features, &mut StageTimes::default())?;
        Ok(features)
    }

    /// The mask of each object that clicks, a box or a mask show, in the features of an image that this detector has
    /// [encoded](Self::encode): SAM's promptable segmentation.
    ///
    /// The model needs a tracker, as Meta's and facebook/sam3 have, and the detector is [built with
    /// masks](crate::options::DetectorOptions::masks) if it exports a checkpoint. Several objects are decoded together, each as if it were
    /// alone. The first call for an image also computes what all clicks in it share.
    ///
    /// ```no_run
    /// use ocelli::{Detector, Image, ModelSource, ObjectPrompt};
    ///
    /// # fn main() -> ocelli::Result<()> {
    /// let model = ModelSource::Folder("sam3".into());
    /// let mut detector = Detector::builder().with_model(model).with_masks(true).build()?;
    /// let features = detector.encode(&Image::open("street.jpg")?)?;
    /// let clicked = ObjectPrompt::new("dog").with_point(310.0, 220.0, true);
    /// let found = detector.segment(&features, &[clicked.clone()])?;
    ///
    /// let refined = clicked.with_point(350.0, 80.0, false).with_logits(found[0].logits.clone());
    /// let found = detector.segment(&features, &[refined])?;
    /// println!("{} pixels, IoU {:.2}", found[0].mask.area(), found[0].predicted_iou);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a prompt that does not [fit](ObjectPrompt::check) the image,
    /// [`Mismatch`](crate::ErrorKind::Mismatch) for a model without a tracker,
    /// [`Execution`](crate::ErrorKind::Execution) if a graph fails.
    pub fn segment(&mut self, features: &ImageFeatures, objects: &[ObjectPrompt]) -> Result<Vec<ObjectMask>> {
        Ok(self.segment_each(features, objects, false)?.into_iter().flatten().collect())
    }

    /// As [`segment`](Self::segment) or, with `multimask`, three masks for each object, in the model's order: often a part, the
    /// object, and a group of objects. The caller chooses, for instance by the predicted IoU.
    pub fn segment_each(
        &mut self,
        features: &ImageFeatures,
        objects: &[ObjectPrompt],
        multimask: bool,
    ) -> Result<Vec<Vec<ObjectMask>>> {
        self.stages.drop_encoder();
        self.stages.segmenter.segment_each(features, objects, multimask)
    }

    /// Loads everything that [`segment`](Self::segment) needs, so that errors are returned before an image is encoded.
    ///
    /// # Errors
    /// [`Mismatch`](crate::ErrorKind::Mismatch) for a model without a tracker, and the errors of [`prepare`](Self::prepare).
    pub fn prepare_segment(&mut self) -> Result<()> {
        self.stages.segmenter.load()?;
        self.stages.encoder_alone().load()
    }

    /// As [`detect`](Self::detect), in the features of an image that this detector has [encoded](Self::encode).
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an exemplar outside the image; on first use also the errors
    /// of [`prepare`](Self::prepare).
    pub fn detect_features(&mut self, features: &ImageFeatures, prompts: &Prompts) -> Result<Detections> {
        let (start, mut times) = (Instant::now(), StageTimes::default());
        let embedded = self.stages.text.embed(prompts)?;
        times.text = milliseconds_since(start);
        times.total = times.text;
        self.stages.detect(features, &embedded, times)
    }

    /// Encodes prompts whose exemplars are boxes in `image`, to detect their instances in other images with
    /// [`detect_embedded`](Self::detect_embedded) or in a video.
    ///
    /// The models are trained with exemplars in the image that is searched, not in another image. It works best if the two
    /// images are similar, for instance frames of one video, and if the prompt has text too. In `image` itself the result
    /// is that of [`detect`](Self::detect).
    ///
    /// # Errors
    /// [`Execution`](crate::ErrorKind::Execution) if a graph fails or returns values that are not finite,
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an exemplar outside the image.
    pub fn exemplar_features<'i>(
        &mut self,
        image: impl Into<FrameView<'i>>,
        prompts: &Prompts,
    ) -> Result<EmbeddedPrompts> {
        let embedded = self.stages.text.embed(prompts)?;
        let encoder = self.stages.encoder_alone();
        encoder.encode_into(image, Wanted::default(), &mut self.features, &mut StageTimes::default())?;
        self.stages.drop_encoder();
        self.stages.decoder.keep_exemplars(&self.features, &embedded)
    }

    /// Loads everything that detecting `prompts` needs, so that the first image takes no longer than the others and errors
    /// are returned early. Returns the prompts for [`detect_embedded`](Self::detect_embedded) and
    /// [`Pipeline::builder_embedded`](crate::Pipeline::builder_embedded). In [low
    /// memory](crate::options::DetectorOptions::low_memory), it encodes the prompts alone.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Io`](crate::ErrorKind::Io) or
    /// [`InvalidData`](crate::ErrorKind::InvalidData) if a file or a library is missing or corrupt.
    pub fn prepare(&mut self, prompts: &Prompts) -> Result<EmbeddedPrompts> {
        let embedded = self.stages.text.embed(prompts)?;
        if self.stages.low_memory {
            return Ok(embedded);
        }
        let Stages { encoder, decoder, .. } = &mut self.stages;
        // An engine compiles a graph mostly on one thread.
        #[cfg(not(target_family = "wasm"))]
        if self.factory.loads_in_parallel() {
            return std::thread::scope(|scope| {
                let decoder = scope.spawn(|| decoder.load());
                encoder.load().and(decoder.join().expect("loading does not panic"))
            })
            .map(|()| embedded);
        }
        encoder.load()?;
        decoder.load()?;
        Ok(embedded)
    }

    /// Changes the [confidence](crate::options::DetectorOptions::confidence) for the images that follow, as a slider does.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a threshold outside 0 to 1.
    pub fn set_confidence(&mut self, confidence: f32) -> Result<()> {
        let options = PostProcessOptions { confidence, ..self.stages.decoder.post_processing().clone() };
        self.stages.decoder.set_post_processing(options)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// `true` if it was built for [low memory](crate::options::DetectorOptions::low_memory).
    pub fn is_in_low_memory(&self) -> bool {
        self.stages.low_memory
    }

    /// A description of the engine for users: `ONNX Runtime 1.31.1, CPU, 2 threads`.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The factory of the engines, for programs that run the model's graphs themselves
    /// ([`Model::load_graph`](crate::Model::load_graph)).
    pub fn engine_factory(&self) -> &EngineFactory {
        &self.factory
    }

    /// The stages, to run them on different threads.
    pub fn into_stages(self) -> Stages {
        self.stages
    }
}
