//! The half that sees only the image.

use std::time::Instant;

use ocelli_engines::{Engine, Tensor};
use ocelli_export::contract::{Prompting, tensor};

use super::{StageTimes, milliseconds};
use crate::engine::EngineFactory;
use crate::error::{Error, ErrorKind, Result};
use crate::image::ImageView;
use crate::model::Model;
use crate::preprocess::{PreprocessConfig, Preprocessor};

/// What the backbone says of an image; its buffers go round.
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

/// Preprocessing and the backbone.
pub struct ImageEncoder {
    model: Model,
    factory: EngineFactory,
    masks: bool,
    preprocessor: Preprocessor,
    /// One graph, or two that chain.
    engines: Vec<Box<dyn Engine>>,
    pixels: Tensor,
    tokens: Tensor,
}

impl ImageEncoder {
    pub(super) fn new(model: &Model, factory: EngineFactory, masks: bool) -> Result<Self> {
        let manifest = model.manifest();
        let mut config = PreprocessConfig::new(manifest.imgsz);
        config.mean = manifest.preprocessing.mean;
        config.std = manifest.preprocessing.std;
        Ok(Self {
            model: model.clone(),
            factory,
            masks,
            preprocessor: Preprocessor::new(config)?,
            engines: Vec::new(),
            pixels: Tensor::empty(),
            tokens: Tensor::empty(),
        })
    }

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

    /// Lets the backbone go; it is loaded again when it is needed.
    pub fn unload(&mut self) {
        self.engines.clear();
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
        let start = Instant::now();
        let side = self.model.manifest().imgsz;
        self.preprocessor.run_into(image, self.pixels.reset_f32(&[1, 3, side, side]))?;
        times.preprocess += milliseconds(start);

        let start = Instant::now();
        features.size = (image.width(), image.height());
        let official = self.model.manifest().prompting == Prompting::Official;
        let [fine, middle, coarse] = &mut features.fpn;
        let mut outputs = vec![(tensor::FPN[2], coarse)];
        if self.masks {
            outputs.extend([(tensor::FPN[0], fine), (tensor::FPN[1], middle)]);
        }
        if official {
            outputs.push((tensor::IMAGE_PROMPT, &mut features.image_prompt));
        }
        match self.engines.as_mut_slice() {
            [whole] => whole.run(&[(tensor::PIXEL_VALUES, &self.pixels)], &mut outputs)?,
            [first, second] => {
                first.run(
                    &[(tensor::PIXEL_VALUES, &self.pixels)],
                    &mut [(tensor::TOKENS, &mut self.tokens)],
                )?;
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
