//! From an image to its features.

use ocelli_engines::{Device, Engine, Tensor};
use ocelli_export::contract::{Prompting, tensor};

use super::engine_io::move_to;
use super::features::ImageFeatures;
use crate::engine::EngineFactory;
use crate::frame_view::FrameView;
use crate::model::Model;
#[cfg(not(target_family = "wasm"))]
use crate::preprocess::DevicePreprocessor;
use crate::preprocess::{PreprocessConfig, Preprocessor};
use crate::process_memory::log_memory_after;
use crate::timing::{Instant, STAGE_TARGET, StageTimes, milliseconds_since};
use ocelli_error::{Error, Result};
use ocelli_images::DeviceFrame;

/// Turns pixels of any size and format into the backbone's input, on the CPU or on the backbone's device.
pub struct ImagePreprocessor {
    cpu: Preprocessor,
    #[cfg(not(target_family = "wasm"))]
    gpu: Option<DevicePreprocessor>,
    /// The device chosen by [`run_on`](Self::run_on).
    device: Option<Device>,
    /// The stand-in for a GPU.
    #[cfg(test)]
    pub(crate) fake_gpu: Option<FakeGpu>,
}

/// A function with the arguments of [`DevicePreprocessor::run_device_into`], and the ordinal of its GPU.
#[cfg(test)]
pub(crate) struct FakeGpu(
    pub(crate) usize,
    pub(crate) Box<dyn FnMut(&DeviceFrame, &mut Tensor) -> Result<()> + Send>,
);

impl ImagePreprocessor {
    pub(super) fn new(model: &Model) -> Result<Self> {
        let manifest = model.manifest();
        let mut config = PreprocessConfig::new(manifest.imgsz);
        config.mean = manifest.preprocessing.mean;
        config.std = manifest.preprocessing.std;
        Ok(Self {
            cpu: Preprocessor::new(config)?,
            #[cfg(not(target_family = "wasm"))]
            gpu: None,
            device: None,
            #[cfg(test)]
            fake_gpu: None,
        })
    }

    /// Selects where to run: on the [backbone's device](Backbone::device), or on the CPU without one. If the kernel cannot
    /// be compiled for the device, it runs on the CPU with the same result, and logs a warning.
    pub fn run_on(&mut self, device: Option<Device>) {
        if device == self.device {
            return;
        }
        self.device = device;
        #[cfg(not(target_family = "wasm"))]
        {
            let gpu = self.device.as_ref().and_then(Device::as_cuda);
            let made = gpu.map(|gpu| DevicePreprocessor::new(gpu, *self.cpu.config())).transpose();
            self.gpu = made.unwrap_or_else(|error| {
                let name = self.device.as_ref().map_or("the GPU", Device::name);
                tracing::warn!("preprocessing runs on the CPU, not on {name}: {error}");
                None
            });
        }
    }

    /// The GPU that it runs on, as CUDA counts: [`run_device_into`](Self::run_device_into) reads frames there without a copy.
    pub fn gpu(&self) -> Option<usize> {
        #[cfg(test)]
        if let Some(FakeGpu(ordinal, _)) = self.fake_gpu {
            return Some(ordinal);
        }
        #[cfg(not(target_family = "wasm"))]
        if self.gpu.is_some() {
            return self.device.as_ref()?.as_cuda().map(|gpu| gpu.ordinal());
        }
        None
    }

    /// As [`run_into`](Self::run_into), of a frame in the memory of [its GPU](Self::gpu), which has been read when this returns.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the frame is elsewhere,
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if the GPU fails.
    #[cfg_attr(target_family = "wasm", allow(unused_variables, reason = "there is no GPU"))]
    pub fn run_device_into(
        &mut self,
        frame: &DeviceFrame,
        pixels: &mut Tensor,
        times: &mut StageTimes,
    ) -> Result<()> {
        #[cfg(test)]
        if let Some(FakeGpu(_, run)) = &mut self.fake_gpu {
            return run(frame, pixels);
        }
        #[cfg(not(target_family = "wasm"))]
        if let Some(gpu) = &mut self.gpu {
            let start = Instant::now();
            gpu.run_device_into(frame, pixels)?;
            times.preprocess += milliseconds_since(start);
            return Ok(());
        }
        Err(Error::invalid_argument(format!("{frame:?}: preprocessing runs on the CPU")))
    }

    /// Writes `pixels` [1, 3, S, S] and adds the time to `times`. On a device, the work is only enqueued when this returns.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the image has too few bytes,
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a device fails.
    pub fn run_into<'a>(
        &mut self,
        image: impl Into<FrameView<'a>>,
        pixels: &mut Tensor,
        times: &mut StageTimes,
    ) -> Result<()> {
        let start = Instant::now();
        let image = image.into();
        let side = self.cpu.config().imgsz;
        #[cfg(not(target_family = "wasm"))]
        if let Some(gpu) = &mut self.gpu {
            gpu.run_into(image, pixels)?;
            times.preprocess += milliseconds_since(start);
            return Ok(());
        }
        self.cpu.run_into(image, pixels.reset_f32(&[1, 3, side, side]))?;
        times.preprocess += milliseconds_since(start);
        Ok(())
    }
}

/// The features of an image that are wanted beside those for detections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Those that [masks](super::DecodeRequest::masks) are computed from, which a detector has that was built with masks; by default
    /// they are wanted.
    pub masks: bool,
    /// Those that an [`ObjectSegmenter`](super::ObjectSegmenter) and a tracker need, which only a model with a tracker has; by
    /// default they are not wanted.
    pub hidden: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { masks: true, hidden: false }
    }
}

/// Computes image features from pixels.
pub struct Backbone {
    model: Model,
    factory: EngineFactory,
    /// Set if it was built for masks.
    masks: bool,
    /// One graph, or two that run one after the other.
    engines: Vec<Box<dyn Engine>>,
    /// Set once the engines have run.
    has_run: bool,
    tokens: Tensor,
}

impl Backbone {
    pub(super) fn new(model: &Model, factory: EngineFactory, masks: bool) -> Self {
        Self {
            model: model.clone(),
            factory,
            masks,
            engines: Vec::new(),
            has_run: false,
            tokens: Tensor::empty(),
        }
    }

    /// Loads the backbone unless it is loaded.
    pub fn load(&mut self) -> Result<()> {
        if self.engines.is_empty() {
            tracing::debug!(target: STAGE_TARGET, "loading the backbone");
            let files = self.model.manifest().backbone_files();
            let load = |name| self.model.load_graph(&self.factory, name);
            self.engines = files.into_iter().map(load).collect::<Result<_>>()?;
            self.has_run = false;
            log_memory_after("loading the backbone");
        }
        Ok(())
    }

    /// The device that the [loaded](Self::load) backbone runs on, if it can read pixels there.
    pub fn device(&self) -> Option<Device> {
        self.engines.first()?.device()
    }

    /// Drops the engines; they are loaded again when they are needed.
    pub fn unload(&mut self) {
        if !self.engines.is_empty() {
            self.engines.clear();
            log_memory_after("dropping the backbone");
        }
    }

    /// `true` if the loaded graph has the output `hidden`: an engine file may have been built without it.
    pub fn has_hidden(&self) -> bool {
        self.engines.last().is_some_and(|engine| engine.spec().output(tensor::HIDDEN).is_some())
    }

    /// `true` if the detector was built with masks or semantic maps.
    pub fn supports_masks(&self) -> bool {
        self.masks
    }

    /// Computes the features of `pixels` [1, 3, S, S], made from an image of `size` (width, height), and adds the time to
    /// `times`.
    ///
    /// # Errors
    /// [`Execution`](ocelli_error::ErrorKind::Execution) if a graph fails.
    pub fn run_into(
        &mut self,
        pixels: &Tensor,
        size: (u32, u32),
        wanted: Wanted,
        features: &mut ImageFeatures,
        times: &mut StageTimes,
    ) -> Result<()> {
        tracing::debug!(target: STAGE_TARGET, "backbone");
        self.load()?;
        let start = Instant::now();
        features.size = size;
        features.clicks.take();
        let official = self.model.manifest().prompting == Prompting::Official;
        let device = self.engines.last().and_then(|engine| engine.device());
        features.tensors.iter_mut().for_each(|tensor| move_to(tensor, device.as_ref()));
        let hidden = &mut features.hidden;
        let [fine, middle, coarse, image_prompt] = &mut features.tensors;
        let mut outputs = vec![(tensor::FPN[2], coarse)];
        if self.masks && wanted.masks {
            outputs.extend([(tensor::FPN[0], fine), (tensor::FPN[1], middle)]);
        } else {
            // Those of another image must not be taken for those of this one.
            (*fine, *middle) = (Tensor::empty(), Tensor::empty());
        }
        if official {
            outputs.push((tensor::IMAGE_PROMPT, image_prompt));
        }
        if wanted.hidden {
            move_to(hidden, device.as_ref());
            outputs.push((tensor::HIDDEN, hidden));
        } else {
            *hidden = Tensor::empty();
        }
        match self.engines.as_mut_slice() {
            [whole] => whole.run(&[(tensor::PIXEL_VALUES, pixels)], &mut outputs)?,
            [first, second] => {
                move_to(&mut self.tokens, device.as_ref().filter(|_| first.device() == device));
                first.run(&[(tensor::PIXEL_VALUES, pixels)], &mut [(tensor::TOKENS, &mut self.tokens)])?;
                second.run(&[(tensor::TOKENS, &self.tokens)], &mut outputs)?;
            }
            other => {
                let message = format!("backbone, {} graphs: expected one or two", other.len());
                return Err(Error::execution(message));
            }
        }
        times.backbone += milliseconds_since(start);
        if !std::mem::replace(&mut self.has_run, true) {
            log_memory_after("the backbone's first image");
        }
        Ok(())
    }
}
