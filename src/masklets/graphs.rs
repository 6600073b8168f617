//! The tracker's graphs, and the features of the current frame.

use ocelli_engines::{Device, Engine, RowWriter, Tensor};
use ocelli_export::contract::{file, tensor};

use crate::detector::ClickFeatures;
use crate::engine::EngineFactory;
use crate::model::Model;
use ocelli_error::{Error, Result};

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
    /// Those of the decoder; in SAM 3 also for objects that are given.
    pub(super) decoder: ClickFeatures,
    pub(super) memory_pixel: Tensor,
    pub(super) query_0: Tensor,
    /// Of SAM 3.1.
    pub(super) image: Tensor,
    pub(super) image_query: Tensor,
}

impl Features {
    /// Those for objects that are given.
    fn given<'f>(
        &'f self,
        buckets: Option<&'f mut BucketGraphs>,
        device: Option<&Device>,
    ) -> Result<&'f ClickFeatures> {
        let Some(BucketGraphs { interactive, hidden, given, .. }) = buckets else { return Ok(&self.decoder) };
        if given.is_none() {
            let mut made = ClickFeatures::default();
            made.run(interactive, device, hidden, Vec::new())?;
            *given = Some(made);
        }
        Ok(given.as_ref().expect("it was computed above"))
    }
}

/// The graphs that SAM 3.1 has besides.
pub(super) struct BucketGraphs {
    interactive: Box<dyn Engine>,
    /// The planes of masks that were tracked.
    pub(super) planes: Box<dyn Engine>,
    pub(super) writer: RowWriter,
    /// The planes of masks that were given.
    pub(super) planes_stored: Box<dyn Engine>,
    /// The backbone's features of the frame.
    hidden: Tensor,
    /// Those for objects that are given, once the frame has one.
    given: Option<ClickFeatures>,
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
    pub(super) buckets: Option<BucketGraphs>,
    /// `[1, 16P, 16P]`, what the encoder of memories gets where no mask is one of a prompt.
    pub(super) no_prompts: Tensor,
}

impl Graphs {
    pub(super) fn load(model: &Model, factory: &EngineFactory) -> Result<Self> {
        let sizes = Sizes::of(model)?;
        let load = |name| model.load_graph(factory, name);
        let fine = 16 * sizes.grid;
        let has_buckets = model.manifest().multiplex.is_some();
        let [features, step, init, encoder] = if has_buckets {
            [file::MUX_FEATURES, file::MUX_STEP, file::MUX_INIT, file::MUX_MEMORY]
        } else {
            [file::TRACK_FEATURES, file::TRACK_STEP, file::TRACK_INIT, file::MEMORY_ENCODER]
        };
        let buckets = || {
            Ok::<_, Error>(BucketGraphs {
                interactive: load(file::MUX_INTERACTIVE)?,
                writer: RowWriter::default(),
                planes: load(file::MUX_PLANES)?,
                planes_stored: load(file::MUX_PLANES_STORED)?,
                hidden: Tensor::empty(),
                given: None,
            })
        };
        let mut graphs = Self {
            features: load(features)?,
            step: load(step)?,
            init: load(init)?,
            encoder: load(encoder)?,
            points: None,
            buckets: has_buckets.then(buckets).transpose()?,
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
        let Features { decoder, memory_pixel, query_0, image, image_query } = &mut self.frame;
        let mut others = vec![(tensor::MEMORY_PIXEL, memory_pixel), (tensor::QUERY_0, query_0)];
        if let Some(buckets) = &mut self.buckets {
            others.extend([(tensor::IMAGE, image), (tensor::IMAGE_QUERY, image_query)]);
            (buckets.hidden, buckets.given) = (hidden.clone(), None);
        }
        decoder.run(&mut self.features, device.as_ref(), hidden, others)
    }

    /// The graph of masks that are given, and the features that it reads.
    pub(super) fn init(&mut self) -> Result<(&mut Box<dyn Engine>, &ClickFeatures)> {
        let device = self.device();
        Ok((&mut self.init, self.frame.given(self.buckets.as_mut(), device.as_ref())?))
    }

    /// The graph of clicks, and the features that it reads.
    pub(super) fn points(&mut self) -> Result<(&mut Box<dyn Engine>, &ClickFeatures)> {
        if self.points.is_none() {
            let name = if self.buckets.is_some() { file::MUX_POINTS } else { file::TRACK_POINTS };
            self.points = Some(self.model.load_graph(&self.factory, name)?);
        }
        let device = self.device();
        let features = self.frame.given(self.buckets.as_mut(), device.as_ref())?;
        Ok((self.points.as_mut().expect("it was loaded above"), features))
    }
}
