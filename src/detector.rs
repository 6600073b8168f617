//! From an image and prompts to detections.

mod builder;
mod decode;
mod device_memory;
mod encode;
mod prompt_chunk;
mod spill;
mod text;

use std::time::Instant;

use crate::detection::Detection;
use crate::engine::EngineFactory;
use crate::image::ImageView;
use crate::mask::SemanticMap;
use crate::model::Model;
use crate::prompt::Prompts;
use crate::timing::StageTimes;
use ocelli_error::Result;

pub use builder::{DetectorBuilder, PrepareEngines, TextCacheFile};
pub use decode::PromptDecoder;
pub use encode::{Backbone, ImageEncoder, ImageFeatures, ImagePreprocessor};
pub use text::{EmbeddedPrompts, TextEmbedder};

/// What was found in one image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detections {
    /// The highest score first.
    pub items: Vec<Detection>,
    /// Where each class that was found is, taken together; empty unless
    /// [asked for](DetectorBuilder::with_semantic_maps).
    pub semantic: Vec<SemanticMap>,
    /// How long it took.
    pub times: StageTimes,
}

/// An open-vocabulary detector: a model, its engines, and the buffers that go round between them.
///
/// Engines are loaded when they are first needed: the text encoder, the larger half of a full-size model, only where a
/// phrase is not in the cache, and it is let go before the backbone comes in.
pub struct Detector {
    model: Model,
    text: TextEmbedder,
    encoder: ImageEncoder,
    decoder: PromptDecoder,
    features: ImageFeatures,
    engine: String,
    factory: EngineFactory,
}

impl Detector {
    /// A detector with the built-in model and the defaults of the command line, to be changed step by step.
    pub fn builder() -> DetectorBuilder {
        DetectorBuilder::default()
    }

    /// Finds everything that `prompts` name in an image.
    ///
    /// Boxes are in pixels of the image and inside it; detections come in a fixed order, the highest score first.
    ///
    /// # Errors
    /// [`Engine`](crate::ErrorKind::Execution) when a graph fails or returns numbers that are none,
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a phrase without words; on first use also what
    /// [`prepare`](Self::prepare) finds.
    pub fn detect<'i>(&mut self, image: impl Into<ImageView<'i>>, prompts: &Prompts) -> Result<Detections> {
        let start = Instant::now();
        let embedded = self.text.embed(prompts)?;
        let text = milliseconds(start);
        let mut found = self.detect_embedded(image, &embedded)?;
        found.times.text = text;
        found.times.total = milliseconds(start);
        Ok(found)
    }

    /// As [`detect`](Self::detect), with prompts that are encoded already.
    ///
    /// # Errors
    /// As [`detect`](Self::detect).
    pub fn detect_embedded<'i>(
        &mut self,
        image: impl Into<ImageView<'i>>,
        prompts: &EmbeddedPrompts,
    ) -> Result<Detections> {
        let start = Instant::now();
        let mut times = StageTimes::default();
        self.encoder.encode_into(image.into(), &mut self.features, &mut times)?;
        let items = self.decoder.decode(&self.features, prompts, &mut times)?;
        let semantic = self.decoder.take_semantic_maps();
        times.total = milliseconds(start);
        Ok(Detections { items, semantic, times })
    }

    /// Encodes prompts whose examples are boxes in `image`, to be looked for in other images with
    /// [`detect_embedded`](Self::detect_embedded) or in a video.
    ///
    /// The model is trained with examples in the very image that it searches; an example from another image is a
    /// use it was not trained for. The nearer the two images are, frames of one video for instance, the better it
    /// works; the class's words beside the example help. In the image itself the result is the same as
    /// [`detect`](Self::detect)'s.
    ///
    /// # Errors
    /// As [`detect`](Self::detect).
    pub fn exemplar_features<'i>(
        &mut self,
        image: impl Into<ImageView<'i>>,
        prompts: &Prompts,
    ) -> Result<EmbeddedPrompts> {
        let embedded = self.text.embed(prompts)?;
        self.encoder.encode_into(image.into(), &mut self.features, &mut StageTimes::default())?;
        self.decoder.keep_exemplars(&self.features, &embedded)
    }

    /// Loads what detecting `prompts` needs, so that the first image does not wait for it and errors come early. Returns
    /// the prompts in the form that [`detect_embedded`](Self::detect_embedded) and
    /// [`Pipeline::builder_embedded`](crate::Pipeline::builder_embedded) take.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Io`](crate::ErrorKind::Io) or
    /// [`InvalidData`](crate::ErrorKind::InvalidData) where a file or a library is missing or damaged.
    pub fn prepare(&mut self, prompts: &Prompts) -> Result<EmbeddedPrompts> {
        let embedded = self.text.embed(prompts)?;
        self.encoder.load()?;
        self.decoder.load()?;
        Ok(embedded)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What runs the graphs, for people: `ONNX Runtime 1.31.1, CPU, 2 threads`.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// What makes the engines, for a program that runs the model's graphs itself
    /// ([`Model::load_graph`](crate::Model::load_graph)).
    pub fn engine_factory(&self) -> &EngineFactory {
        &self.factory
    }

    /// The parts, for a loop that runs them on threads of their own.
    pub fn into_stages(self) -> (TextEmbedder, ImageEncoder, PromptDecoder) {
        (self.text, self.encoder, self.decoder)
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
