//! The half that sees only the image.

use std::sync::Arc;
use std::time::Instant;

use ocelli_engines::{Device, Engine, Tensor};
use ocelli_export::contract::{Prompting, tensor};

use super::residence::{keep_at, same};
use super::{StageTimes, milliseconds};
use crate::engine::EngineFactory;
use crate::error::{Error, ErrorKind, Result};
use crate::frame_view::FrameView;
use crate::image::ImageView;
use crate::model::Model;
use crate::preprocess::{PlacedPreprocessor, PreprocessConfig};

/// What the backbone says of an image; its buffers go round. They lie where the backbone works: on its device, if it has
/// one.
#[derive(Debug)]
pub struct ImageFeatures {
    /// `[1, D, 4P, 4P]` and `[1, D, 2P, 2P]` where masks are wanted, and `[1, D, P, P]`.
    pub(super) fpn: [Tensor; 3],
    /// `[1, 1, D]` where the model's prompts have a CLS token.
    pub(super) image_prompt: Tensor,
    /// Pixels of the image.
    pub(super) size: (u32, u32),
}

impl Default for ImageFeatures {
    fn default() -> Self {
        let empty = Tensor::empty;
        Self { fpn: [empty(), empty(), empty()], image_prompt: empty(), size: (0, 0) }
    }
}

impl ImageFeatures {
    /// The backbone's outputs by name, wherever they are: those that the model has and that were asked for.
    #[doc(hidden)]
    pub fn tensors(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let outputs =
            tensor::FPN.into_iter().zip(&self.fpn).chain([(tensor::IMAGE_PROMPT, &self.image_prompt)]);
        outputs.filter(|(_, tensor)| !tensor.is_empty())
    }
}

/// Pixels of any size and format to the backbone's input, in the host's memory or on the backbone's device.
pub struct ImagePreprocessor {
    preprocessor: PlacedPreprocessor,
}

impl ImagePreprocessor {
    fn new(model: &Model) -> Result<Self> {
        let manifest = model.manifest();
        let mut config = PreprocessConfig::new(manifest.imgsz);
        config.mean = manifest.preprocessing.mean;
        config.std = manifest.preprocessing.std;
        Ok(Self { preprocessor: PlacedPreprocessor::new(config)? })
    }

    /// Has it work where the [backbone](Backbone::device) does. Where that is a GPU that its kernels cannot be compiled for,
    /// it works on the host as before, with the same result, and the log says why.
    pub fn place_at(&mut self, device: Option<Arc<dyn Device>>) {
        self.preprocessor.place_at(device.as_ref());
    }

    /// Picture → `pixels` [1, 3, S, S], read where it lies; the time is added to `times`. On a device the work is enqueued
    /// when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where the picture's bytes are too few, [`ErrorKind::Engine`] where a device fails.
    pub fn run_into<'a>(
        &mut self,
        picture: impl Into<FrameView<'a>>,
        pixels: &mut Tensor,
        times: &mut StageTimes,
    ) -> Result<()> {
        let start = Instant::now();
        self.preprocessor.run_into(picture, pixels)?;
        times.preprocess += milliseconds(start);
        Ok(())
    }
}

/// The image backbone.
pub struct Backbone {
    model: Model,
    factory: EngineFactory,
    masks: bool,
    /// One graph, or two that chain.
    engines: Vec<Box<dyn Engine>>,
    tokens: Tensor,
}

impl Backbone {
    /// Loads the backbone where that has not been done.
    ///
    /// # Errors
    /// As [`EngineFactory::load`].
    pub fn load(&mut self) -> Result<()> {
        if self.engines.is_empty() {
            let files = self.model.manifest().backbone_files();
            let load = |name| self.model.load_graph(&self.factory, name);
            self.engines = files.into_iter().map(load).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// The device that reads the pixels, once the backbone is [loaded](Self::load); none for the host's memory.
    pub fn device(&self) -> Option<Arc<dyn Device>> {
        self.engines.first()?.device()
    }

    /// Lets the backbone go; it is loaded again when it is needed.
    pub fn unload(&mut self) {
        self.engines.clear();
    }

    /// `pixels` [1, 3, S, S] of a picture of `size` (width, height) → features; the time is added to `times`.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when a graph fails.
    pub fn run_into(
        &mut self,
        pixels: &Tensor,
        size: (u32, u32),
        features: &mut ImageFeatures,
        times: &mut StageTimes,
    ) -> Result<()> {
        self.load()?;
        let start = Instant::now();
        features.size = size;
        let official = self.model.manifest().prompting == Prompting::Official;
        let place = self.engines.last().and_then(Engine::device);
        let tensors = features.fpn.iter_mut().chain([&mut features.image_prompt]);
        tensors.for_each(|tensor| keep_at(tensor, &place));
        let [fine, middle, coarse] = &mut features.fpn;
        let mut outputs = vec![(tensor::FPN[2], coarse)];
        if self.masks {
            outputs.extend([(tensor::FPN[0], fine), (tensor::FPN[1], middle)]);
        }
        if official {
            outputs.push((tensor::IMAGE_PROMPT, &mut features.image_prompt));
        }
        match self.engines.as_mut_slice() {
            [whole] => whole.run(&[(tensor::PIXEL_VALUES, pixels)], &mut outputs)?,
            [first, second] => {
                keep_at(&mut self.tokens, if same(&first.device(), &place) { &place } else { &None });
                first.run(&[(tensor::PIXEL_VALUES, pixels)], &mut [(tensor::TOKENS, &mut self.tokens)])?;
                second.run(&[(tensor::TOKENS, &self.tokens)], &mut outputs)?;
            }
            other => {
                let message = format!("backbone, {} graphs: expected one or two", other.len());
                return Err(Error::new(ErrorKind::Engine, message));
            }
        }
        times.backbone += milliseconds(start);
        Ok(())
    }
}

/// Preprocessing and the backbone.
pub struct ImageEncoder {
    preprocessor: ImagePreprocessor,
    backbone: Backbone,
    pixels: Tensor,
}

impl ImageEncoder {
    pub(super) fn new(model: &Model, factory: EngineFactory, masks: bool) -> Result<Self> {
        let backbone =
            Backbone { model: model.clone(), factory, masks, engines: Vec::new(), tokens: Tensor::empty() };
        Ok(Self { preprocessor: ImagePreprocessor::new(model)?, backbone, pixels: Tensor::empty() })
    }

    /// Loads the backbone where that has not been done.
    ///
    /// # Errors
    /// As [`EngineFactory::load`].
    pub fn load(&mut self) -> Result<()> {
        self.backbone.load()?;
        self.preprocessor.place_at(self.backbone.device());
        Ok(())
    }

    /// Image → features; the times of the two stages are added to `times`.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] when a graph fails.
    pub fn encode_into(
        &mut self,
        image: ImageView<'_>,
        features: &mut ImageFeatures,
        times: &mut StageTimes,
    ) -> Result<()> {
        self.load()?;
        self.preprocessor.run_into(image, &mut self.pixels, times)?;
        self.backbone.run_into(&self.pixels, (image.width(), image.height()), features, times)
    }

    /// The two halves, for a loop that runs them on threads of their own.
    pub fn into_stages(self) -> (ImagePreprocessor, Backbone) {
        (self.preprocessor, self.backbone)
    }
}
