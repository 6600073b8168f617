//! The tracker's graphs, and the features of the current frame.

use std::borrow::Cow;

use ocelli_engines::{Device, Engine, Tensor};
use ocelli_export::contract::{file, tensor};

use crate::detector::engine_io::{move_to, readable_on};
use crate::engine::EngineFactory;
use crate::model::Model;
use ocelli_error::Result;

/// The sizes of a model with a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// P.
    pub(super) grid: usize,
    /// S.
    pub(super) image: usize,
    /// D.
    pub(super) width: usize,
    /// Numbers of a memory for each patch.
    pub(super) memory: usize,
    /// The last row of the table of times, that of conditioning frames.
    pub(super) last_time: usize,
}

impl Sizes {
    /// The sizes of a model.
    ///
    /// # Errors
    /// [`Mismatch`](crate::ErrorKind::Mismatch) if it has no tracker.
    pub(super) fn of(model: &Model) -> Result<Self> {
        let (manifest, tracker) = (model.manifest(), model.tracker("memory tracker")?);
        Ok(Self {
            grid: manifest.grid(),
            image: manifest.imgsz,
            width: manifest.model_width,
            memory: tracker.memory_width,
            last_time: tracker.times.saturating_sub(1),
        })
    }
}

/// The features of a frame, on the device that the engines share, if they do.
#[derive(Default)]
pub(super) struct Features {
    pub(super) high_res: [Tensor; 2],
    pub(super) pixel: Tensor,
    pub(super) memory_pixel: Tensor,
    pub(super) query_0: Tensor,
}

/// The loaded graphs.
pub(super) struct Graphs {
    model: Model,
    factory: EngineFactory,
    pub(super) sizes: Sizes,
    features: Box<dyn Engine>,
    pub(super) step: Box<dyn Engine>,
    pub(super) init: Box<dyn Engine>,
    pub(super) encoder: Box<dyn Engine>,
    /// Loaded with the first click.
    points: Option<Box<dyn Engine>>,
    pub(super) frame: Features,
    /// `[1, 16P, 16P]`, what the encoder of memories gets where no mask is one of a prompt.
    pub(super) no_prompts: Tensor,
}

impl Graphs {
    pub(super) fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let sizes = Sizes::of(model)?;
        let load = |name| model.load_graph(factory, name);
        let fine = 16 * sizes.grid;
        let mut graphs = Self {
            features: load(file::TRACK_FEATURES)?,
            step: load(file::TRACK_STEP)?,
            init: load(file::TRACK_INIT)?,
            encoder: load(file::MEMORY_ENCODER)?,
            points: None,
            model: model.clone(),
            factory: factory.clone(),
            sizes,
            frame: Features::default(),
            no_prompts: Tensor::zeros::<f32>(&[1, fine, fine]),
        };
        if let Some(device) = graphs.device() {
            let mut on_device = Tensor::on(device);
            on_device.copy_from_host(&graphs.no_prompts)?;
            graphs.no_prompts = on_device;
        }
        Ok(graphs)
    }

    /// The device of all graphs, if they share one.
    pub(super) fn device(&self) -> Option<Device> {
        let device = self.features.device()?;
        let others = [&self.step, &self.init, &self.encoder];
        others.into_iter().all(|engine| engine.device().as_ref() == Some(&device)).then_some(device)
    }

    /// Computes the features of a frame from the backbone's.
    pub(super) fn run_features(&mut self, hidden: &Tensor) -> Result<()> {
        let device = self.device();
        let Features { high_res: [fine, middle], pixel, memory_pixel, query_0 } = &mut self.frame;
        let mut outputs = [
            (tensor::HIGH_RES[0], fine),
            (tensor::HIGH_RES[1], middle),
            (tensor::PIXEL, pixel),
            (tensor::MEMORY_PIXEL, memory_pixel),
            (tensor::QUERY_0, query_0),
        ];
        outputs.iter_mut().for_each(|(_, tensor)| move_to(tensor, device.as_ref()));
        let hidden = readable_on(self.features.device().as_ref(), Cow::Borrowed(hidden))?;
        self.features.run(&[(tensor::HIDDEN, &hidden)], &mut outputs)
    }

    /// The graph of clicks with the features that it reads.
    pub(super) fn points(&mut self) -> Result<(&mut Box<dyn Engine>, &Features)> {
        if self.points.is_none() {
            self.points = Some(self.model.load_graph(&self.factory, file::TRACK_POINTS)?);
        }
        let points = self.points.as_mut().expect("it was loaded above");
        Ok((points, &self.frame))
    }
}
