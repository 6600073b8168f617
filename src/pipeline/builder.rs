//! Builds and starts pipelines.

use std::sync::Arc;

use ocelli_tracking::ByteTrackerOptions;

use super::FramePolicy;
use super::memory::Memory;
use super::options::PipelineOptions;
use super::pulled::{self, Run, RunSummary};
use super::pushed::Pipeline;
use super::stages::{DetectorParts, Loaded};
use super::stats::StatsRecorder;
use crate::cancellation::Cancellation;
use crate::detector::{Detector, EmbeddedPrompts, Stages, TiledSearch, Wanted};
use crate::draw::{Annotator, Redaction};
use crate::masklets::{GivenObject, MaskletNetwork, MaskletOptions, mask_side, post_processing};
use crate::options::DetectorOptions;
use crate::outcome::FrameOutcome;
use crate::prompt::Prompts;
use crate::sink::Sink;
use crate::source::Source;
use ocelli_error::{Error, Result, refuse};

/// Builds a [`Pipeline`], or runs a stream; created by [`Pipeline::builder`].
#[must_use]
pub struct PipelineBuilder {
    detector: Detector,
    more: Vec<Detector>,
    prompts: PromptInput,
    run: Run,
}

enum PromptInput {
    /// Embedded when the pipeline starts.
    Prompts(Prompts),
    Embedded(EmbeddedPrompts),
    /// Objects that are given, and their labels.
    Objects(Arc<[Arc<str>]>, Vec<GivenObject>),
}

impl Pipeline {
    /// A pipeline that searches for `prompts` with `detector`. Exemplar boxes apply to each frame.
    pub fn builder(detector: Detector, prompts: Prompts) -> PipelineBuilder {
        PipelineBuilder::new(detector, PromptInput::Prompts(prompts))
    }

    /// As [`builder`](Self::builder), with prompts that are embedded already: by [`Detector::prepare`], or by
    /// [`Detector::exemplar_features`] from examples in another image.
    pub fn builder_embedded(detector: Detector, prompts: EmbeddedPrompts) -> PipelineBuilder {
        PipelineBuilder::new(detector, PromptInput::Embedded(prompts))
    }

    /// A pipeline that follows objects of the caller [by memory](PipelineOptions::memory): nothing is detected, and frames
    /// leave at once. The ids of tracks are those of the objects plus 1; class ids are places in `labels`.
    pub fn builder_of_objects(
        detector: Detector,
        labels: impl IntoIterator<Item = Arc<str>>,
        objects: Vec<GivenObject>,
        options: MaskletOptions,
    ) -> PipelineBuilder {
        let given = PromptInput::Objects(labels.into_iter().collect(), objects);
        PipelineBuilder::new(detector, given).with_options(|it| it.memory = Some(options))
    }
}

impl PipelineBuilder {
    /// The settings and the loaded parts that `run` runs, and the side of the model's images.
    #[cfg(test)]
    pub(super) fn loaded(self) -> Result<(Run, Loaded, usize)> {
        let side = self.detector.model().manifest().imgsz;
        let loaded = load(self.detector, self.more, self.prompts, &self.run.options)?;
        Ok((self.run, loaded, side))
    }

    fn new(detector: Detector, prompts: PromptInput) -> Self {
        let annotator = Annotator::new();
        let run = Run {
            options: PipelineOptions::default(),
            redaction: None,
            drawing: Box::new(move |image, outcome| annotator.annotate(image, &outcome.detections)),
            observer: None,
            cancellation: Cancellation::new(),
            stats: StatsRecorder::new(),
        };
        Self { detector, more: Vec::new(), prompts, run }
    }

    /// Detectors of the same model with the same options on other devices: they take turns with the first one, frame by frame.
    /// Results are the same, in the same order.
    pub fn with_more_devices(mut self, detectors: impl IntoIterator<Item = Detector>) -> Self {
        self.more.extend(detectors);
        self
    }

    /// Sets any of the [options](PipelineOptions).
    pub fn with_options(mut self, set: impl FnOnce(&mut PipelineOptions)) -> Self {
        set(&mut self.run.options);
        self
    }

    setters! {
        /// As [`PipelineOptions::tracker`].
        with_tracker(tracker: ByteTrackerOptions) => run.options.tracker;

        /// As [`PipelineOptions::policy`].
        with_policy(policy: FramePolicy) => run.options.policy;

        /// As [`PipelineOptions::sequential`].
        with_sequential(sequential: bool) => run.options.sequential;

        /// As [`PipelineOptions::frame_rate`].
        with_frame_rate(frames_per_second: f64) => run.options.frame_rate;

        /// Makes the instances of some classes unrecognisable in the images that sinks get, annotated or not.
        with_redaction(redaction: Redaction) => run.redaction;

        /// A token to stop early. Frames that were already decoded still reach the sinks.
        with_cancellation(cancellation: Cancellation) => run.cancellation;

        /// The recorder of statistics; readable from any thread during the run and afterwards.
        with_stats(stats: StatsRecorder) => run.stats;
    }

    /// Draws results when a sink asks for [`annotated`](crate::sink::Images::annotated) images. By default
    /// an [`Annotator`] draws the detections.
    pub fn with_drawing(
        mut self,
        draw: impl FnMut(&mut image::RgbImage, &FrameOutcome) -> Result<()> + Send + 'static,
    ) -> Self {
        self.run.drawing = Box::new(draw);
        self
    }

    /// Called by [`run`](Self::run) on the calling thread after all sinks have written a frame, for a progress bar for
    /// example.
    pub fn with_observer(mut self, observer: impl FnMut(&FrameOutcome) + Send + 'static) -> Self {
        self.run.observer = Some(Box::new(observer));
        self
    }

    /// Runs a stream to its end: frames from `source`, results to all `sinks`, in order.
    ///
    /// The sinks run on the calling thread, one after the other; every other stage has its own thread. Images are
    /// kept and drawn only if a sink asks for them. Every sink is finished, however the run ends. A source that waits for
    /// its next frame does not hold up the end: a second after it, the thread of the source is detached.
    ///
    /// A detector in [low memory](crate::options::DetectorOptions::low_memory) processes groups of frames on the calling thread: 64,
    /// or fewer whose images and features take 256 MiB.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for invalid options; otherwise the first failure. A
    /// source's error is returned after all earlier frames have been written; an error in a later stage or a sink ends
    /// the run at once. A panic in a stage is reported as [`Execution`](crate::ErrorKind::Execution). Cancellation is not an
    /// error.
    pub fn run(self, source: impl Source + 'static, sinks: &mut [Box<dyn Sink + '_>]) -> Result<RunSummary> {
        let loaded = load(self.detector, self.more, self.prompts, &self.run.options)?;
        pulled::run(self.run, loaded, source, sinks)
    }

    /// Starts a pipeline that frames are pushed into. Loads the engines and embeds the prompts before it returns.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for invalid options; what [`Detector::prepare`] returns.
    pub fn build(self) -> Result<Pipeline> {
        if self.detector.is_in_low_memory() {
            let message = "low_memory: a frame that is pushed needs both halves of the model: leave it out";
            return Err(Error::invalid_argument(message).about("low_memory"));
        }
        let loaded = load(self.detector, self.more, self.prompts, &self.run.options)?;
        Pipeline::start(self.run, loaded)
    }
}

/// Embeds the prompts, releases the text encoder, then loads the other engines, those of all devices at the same time.
fn load(
    mut detector: Detector,
    more: Vec<Detector>,
    prompts: PromptInput,
    options: &PipelineOptions,
) -> Result<Loaded> {
    let low_memory = detector.is_in_low_memory();
    let form = DetectorOptions { low_memory, tiling: detector.tiling(), ..DetectorOptions::default() };
    options.check(&form, 1 + more.len(), !matches!(prompts, PromptInput::Objects(..)))?;
    let (mut network, mut side) = (None, None);
    if let Some(tracking) = &options.memory {
        let mut opened = MaskletNetwork::of(&detector, tracking)?;
        for other in &more {
            opened.add_device(other.model(), other.engine_factory())?;
        }
        (network, side) = (Some(opened), Some((mask_side(&detector)?, tracking)));
    }
    let tiles = detector.tiles.take();
    let mut stages = detector.into_stages();
    let (prompts, given) = match prompts {
        PromptInput::Prompts(prompts) => (stages.text.embed(&prompts)?, None),
        PromptInput::Embedded(prompts) => (prompts, None),
        PromptInput::Objects(labels, objects) => (EmbeddedPrompts::default(), Some((labels, objects))),
    };
    if prompts.is_empty() && (given.is_none() || options.memory.is_none()) {
        return Err(Error::invalid_argument("no prompts: expected at least one class to search for"));
    }
    let (labels, given) = given.unzip();
    let labels = labels.unwrap_or_else(|| prompts.labels());
    if let Some(objects) = &given {
        check_objects(objects, &labels)?;
    }
    let memory = network.zip(options.memory).map(|(network, options)| Memory { network, options, given });
    let more = more.into_iter().map(|mut detector| (detector.tiles.take(), detector.into_stages()));
    let more: Vec<_> = more.collect();
    let devices = std::thread::scope(|scope| {
        let prompts = &prompts;
        let load = |(tiles, stages)| {
            scope.spawn(move || load_device(stages, tiles, side, prompts.clone(), low_memory))
        };
        let more: Vec<_> = more.into_iter().map(load).collect();
        let mut loaded = vec![load_device(stages, tiles, side, prompts.clone(), low_memory)];
        loaded.extend(more.into_iter().map(|thread| thread.join().expect("loading does not panic")));
        loaded.into_iter().collect::<Result<_>>()
    });
    Ok(Loaded { devices: devices?, labels, memory, low_memory })
}

/// Checks the objects that are given in place of prompts.
fn check_objects(objects: &[GivenObject], labels: &[Arc<str>]) -> Result<()> {
    if objects.is_empty() {
        refuse!("no objects are given: expected at least one");
    }
    match objects.iter().find(|object| object.class_id >= labels.len()) {
        Some(GivenObject { id, class_id, .. }) => {
            refuse!("object {id}: there is no label {class_id}")
        }
        None => Ok(()),
    }
}

/// The parts of one device, without their engines if `low_memory` is set. With the side of its masks, for a tracker by memory.
fn load_device(
    stages: Stages,
    tiles: Option<TiledSearch>,
    memory: Option<(usize, &MaskletOptions)>,
    prompts: EmbeddedPrompts,
    low_memory: bool,
) -> Result<DetectorParts> {
    let Stages { text, mut encoder, mut decoder, .. } = stages;
    drop(text);
    let detects = !prompts.is_empty();
    if let Some((_, options)) = memory
        && detects
    {
        decoder.set_post_processing(post_processing(options))?;
        decoder.require_masks()?;
    }
    if !low_memory {
        encoder.load()?;
        if detects {
            decoder.load()?;
        }
    }
    let mask_side = memory.map(|(side, _)| side);
    let wanted = Wanted { masks: detects, hidden: mask_side.is_some() };
    Ok(DetectorParts { encoder, wanted, decoder, tiles, mask_side, prompts })
}
