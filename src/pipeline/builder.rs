//! Builds and starts pipelines.

use std::sync::Arc;

use ocelli_tracking::ByteTrackerOptions;

use super::config::PipelineConfig;
use super::memory::Memory;
use super::motion::MotionGate;
use super::pulled::{self, Observer, RunSummary};
use super::pushed::Pipeline;
use super::stages::{DetectorParts, Drawing, Loaded};
use super::stats::StatsRecorder;
use super::{FramePolicy, Latency};
use crate::cancellation::Cancellation;
use crate::detector::{Detector, EmbeddedPrompts, Stages, TiledSearch};
use crate::draw::{Annotator, Redaction};
use crate::masklets::{GivenObject, MaskletOptions, mask_side, open_tracker, post_processing};
use crate::outcome::FrameOutcome;
use crate::prompt::Prompts;
use crate::sink::Sink;
use crate::source::Source;
use ocelli_error::{Error, ErrorKind, Result};

/// Builds a [`Pipeline`], or runs a stream; created by [`Pipeline::builder`].
#[must_use]
pub struct PipelineBuilder {
    detector: Detector,
    more: Vec<Detector>,
    prompts: PromptInput,
    config: PipelineConfig,
    drawing: Drawing,
    observer: Option<Observer>,
}

enum PromptInput {
    /// Embedded when the pipeline starts.
    Prompts(Prompts),
    Embedded(EmbeddedPrompts),
    /// The labels of objects that are given.
    Labels(Arc<[Arc<str>]>),
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

    /// A pipeline that follows objects of the caller [by memory](PipelineBuilder::with_memory): nothing is detected, and frames
    /// leave at once. The ids of tracks are those of the objects plus 1; class ids are places in `labels`.
    pub fn builder_of_objects(
        detector: Detector,
        labels: impl IntoIterator<Item = Arc<str>>,
        objects: Vec<GivenObject>,
        options: MaskletOptions,
    ) -> PipelineBuilder {
        let mut builder = PipelineBuilder::new(detector, PromptInput::Labels(labels.into_iter().collect()));
        builder.config.memory = Some(Memory { options, given: Some(objects) });
        builder
    }
}

impl PipelineBuilder {
    fn new(detector: Detector, prompts: PromptInput) -> Self {
        let annotator = Annotator::new();
        Self {
            detector,
            more: Vec::new(),
            prompts,
            config: PipelineConfig::default(),
            drawing: Box::new(move |picture, outcome| annotator.annotate(picture, &outcome.detections)),
            observer: None,
        }
    }

    /// Detectors of the same model with the same options on other devices: they take turns with the first one, frame by frame.
    /// Results are the same, in the same order.
    pub fn with_more_devices(mut self, detectors: impl IntoIterator<Item = Detector>) -> Self {
        self.more.extend(detectors);
        self
    }

    /// Tracks detections from frame to frame; off by default.
    pub fn with_tracker(mut self, options: ByteTrackerOptions) -> Self {
        self.config.tracker = Some(options);
        self
    }

    /// Follows objects with masks by the model's memory of them, in place of boxes; the model has to have a tracker, and the
    /// detector masks. Each frame has a [detection](FrameOutcome::detections) with a mask, and a [track](FrameOutcome::tracks)
    /// with the identity, for each object. Frames are written some frames later unless the options say otherwise. The
    /// thresholds are those of the options, not those of the detector.
    ///
    /// With several [devices](Self::with_more_devices) each object is tracked on the device that has the fewest when it
    /// appears. With a [tracker](Self::with_tracker) as well, the boxes around the masks of the detections are followed by it
    /// for a [comparison](FrameOutcome::compared).
    pub fn with_memory(mut self, options: MaskletOptions) -> Self {
        self.config.memory = Some(Memory { options, given: None });
        self
    }

    /// Estimates how the camera moves and moves the tracks with it, for cameras that move; off by default. It costs a few
    /// milliseconds a frame. Without a tracker it does nothing. See [`CameraMotionEstimator`](crate::pipeline::CameraMotionEstimator).
    pub fn with_camera_motion(mut self) -> Self {
        self.config.camera_motion = true;
        self
    }

    /// Tells the tracker what the detections look like in the backbone's features, so that it finds objects again that were
    /// hidden; off by default. Without a tracker it does nothing. See
    /// [`ByteTracker::update_with`](ocelli_tracking::ByteTracker::update_with).
    pub fn with_appearance(mut self) -> Self {
        self.config.appearance = true;
        self
    }

    /// The treatment of frames when a queue is full. By default [`run`](Self::run) uses [`FramePolicy::Latest`] for live
    /// sources; everything else uses [`FramePolicy::All`].
    pub fn with_policy(mut self, policy: FramePolicy) -> Self {
        self.config.policy = Some(policy);
        self
    }

    /// The number of frames that may wait before each stage, 1 to 1024. The default is 2, or 1 with [`FramePolicy::Latest`].
    /// Deeper queues add latency, and add throughput only if the stages' times vary.
    pub fn with_queue_depth(mut self, frames: usize) -> Self {
        self.config.queue_depth = Some(frames);
        self
    }

    /// The goal: frames per second, or results soon after the frame. The default is [`Latency::Balanced`] for live
    /// sources in [`run`](Self::run), else [`Latency::Throughput`]. The results of frames that are not dropped are the same.
    pub fn with_latency(mut self, latency: Latency) -> Self {
        self.config.latency = Some(latency);
        self
    }

    /// Runs the detector on every `frames`th frame, at least 1. The tracker predicts the frames in between; without a
    /// tracker they have no results.
    pub fn with_detect_every(mut self, frames: u64) -> Self {
        self.config.detect_every = frames;
        self
    }

    /// Runs the detector on frames with motion only, for cameras that do not move. A frame without motion has the detections
    /// of the last one that the detector looked at ([`FrameOutcome::still`]), and the tracker takes them as its own.
    pub fn with_motion_gate(mut self, gate: MotionGate) -> Self {
        self.config.motion = Some(gate);
        self
    }

    /// Makes the instances of some classes unrecognisable in the pictures that sinks get, annotated or not.
    pub fn with_redaction(mut self, redaction: Redaction) -> Self {
        self.config.redaction = Some(redaction);
        self
    }

    /// Decodes at most this many classes per frame, at least 1. Classes with live tracks or recent detections are
    /// decoded in every frame, the others in rotation. At least a quarter of the budget, rounded up, is reserved for
    /// the rotation. A class that is not decoded in a frame does not count as missed by the tracker.
    pub fn with_class_budget(mut self, classes: usize) -> Self {
        self.config.class_budget = Some(classes);
        self
    }

    /// Runs all stages on one thread, frame after frame, for comparison; only frames are read on another one. The results are
    /// bit-identical.
    pub fn with_sequential(mut self, sequential: bool) -> Self {
        self.config.sequential = sequential;
        self
    }

    /// Frames per second, used to convert time stamps to the tracker's frames. Defaults to the source's rate; if
    /// neither is known, the tracker counts frame indices.
    pub fn with_frame_rate(mut self, frames_per_second: f64) -> Self {
        self.config.frame_rate = Some(frames_per_second);
        self
    }

    /// Draws results when a sink asks for [`annotated`](crate::sink::Pictures::annotated) pictures. By default
    /// an [`Annotator`] draws the detections.
    pub fn with_drawing(
        mut self,
        draw: impl FnMut(&mut image::RgbImage, &FrameOutcome) -> Result<()> + Send + 'static,
    ) -> Self {
        self.drawing = Box::new(draw);
        self
    }

    /// A token to stop early. Frames that were already decoded still reach the sinks.
    pub fn with_cancellation(mut self, cancellation: Cancellation) -> Self {
        self.config.cancellation = cancellation;
        self
    }

    /// Where to record statistics; readable from any thread during the run and afterwards.
    pub fn with_stats(mut self, stats: StatsRecorder) -> Self {
        self.config.stats = stats;
        self
    }

    /// Called by [`run`](Self::run) on the calling thread after all sinks have written a frame, for a progress bar for
    /// example.
    pub fn with_observer(mut self, observer: impl FnMut(&FrameOutcome) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Runs a stream to its end: frames from `source`, results to all `sinks`, in order.
    ///
    /// The sinks run on the calling thread, one after the other; every other stage has its own thread. Pictures are
    /// kept and drawn only if a sink asks for them. Every sink is finished, however the run ends. A source that waits for
    /// its next frame does not hold up the end: a second after it, the thread of the source is detached.
    ///
    /// A detector in [low memory](crate::options::DetectorOptions::low_memory) processes groups of frames on the calling thread: 64,
    /// or fewer whose pictures and features take 256 MiB.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for invalid options; otherwise the first failure. A
    /// source's error is returned after all earlier frames have been written; an error in a later stage or a sink ends
    /// the run at once. A panic in a stage is reported as [`Execution`](crate::ErrorKind::Execution). Cancellation is not an
    /// error.
    pub fn run(
        mut self,
        source: impl Source + 'static,
        sinks: &mut [Box<dyn Sink + '_>],
    ) -> Result<RunSummary> {
        self.config.low_memory = self.detector.is_in_low_memory();
        self.config.check()?;
        let loaded = load(self.detector, self.more, self.prompts, &self.config)?;
        pulled::run(self.config, loaded, self.drawing, self.observer, source, sinks)
    }

    /// Starts a pipeline that frames are pushed into. Loads the engines and embeds the prompts before it returns.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for invalid options; what [`Detector::prepare`] returns.
    pub fn build(self) -> Result<Pipeline> {
        self.config.check()?;
        if self.detector.is_in_low_memory() {
            let message = "low_memory: a frame that is pushed needs both halves of the model: leave it out";
            return Err(Error::new(ErrorKind::InvalidArgument, message).about("low_memory"));
        }
        let loaded = load(self.detector, self.more, self.prompts, &self.config)?;
        Pipeline::start(self.config, loaded)
    }
}

/// Embeds the prompts, releases the text encoder, then loads the other engines, those of all devices at the same time.
fn load(
    mut detector: Detector,
    more: Vec<Detector>,
    prompts: PromptInput,
    config: &PipelineConfig,
) -> Result<Loaded> {
    if !more.is_empty() {
        let others = [
            (
                config.class_budget.is_some(),
                "class_budget, which chooses classes by what the frame before shows,",
            ),
            (config.sequential, "sequential"),
            (config.low_memory, "low_memory"),
            (config.latency == Some(Latency::Low), "latency low, which works on one frame at a time,"),
        ];
        if let Some((_, other)) = others.into_iter().find(|(is_set, _)| *is_set) {
            return Err(one_device(other));
        }
    }
    let (mut network, mut side) = (None, None);
    if let Some(Memory { options, given }) = &config.memory {
        let mut opened = open_tracker(&detector, options)?;
        for other in &more {
            opened.add_device(other.model(), other.engine_factory())?;
        }
        (network, side) = (Some(opened), Some((mask_side(&detector)?, options)));
        if let PromptInput::Labels(labels) = &prompts {
            check_objects(given.as_deref().unwrap_or_default(), labels)?;
        }
    }
    let tiles = detector.take_tiles();
    if tiles.is_some() && (config.class_budget.is_some() || config.appearance) {
        let other = if config.appearance { "appearance" } else { "class_budget" };
        let message = format!(
            "tile: a frame in tiles has no features of its own, which {other} needs: leave one of them out"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message).about("tile"));
    }
    let mut stages = detector.into_stages();
    let (prompts, labels) = match prompts {
        PromptInput::Prompts(prompts) => (stages.text.embed(&prompts)?, None),
        PromptInput::Embedded(prompts) => (prompts, None),
        PromptInput::Labels(labels) => (EmbeddedPrompts::default(), Some(labels)),
    };
    if prompts.is_empty() && labels.is_none() {
        let message = "no prompts: expected at least one class to search for";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let labels = labels.unwrap_or_else(|| prompts.labels());
    let more = more.into_iter().map(|mut detector| (detector.take_tiles(), detector.into_stages()));
    let (more, low_memory): (Vec<_>, _) = (more.collect(), config.low_memory);
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
    Ok(Loaded { devices: devices?, labels, network })
}

/// Checks the objects that are given in place of prompts.
fn check_objects(objects: &[GivenObject], labels: &[Arc<str>]) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    if objects.is_empty() {
        return invalid("no objects are given: expected at least one".into());
    }
    match objects.iter().find(|object| object.class_id >= labels.len()) {
        Some(GivenObject { id, class_id, .. }) => {
            invalid(format!("object {id}: there is no label {class_id}"))
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
    if let Some((_, options)) = memory {
        encoder.set_hidden(true);
        encoder.set_masks(detects);
        if detects {
            decoder.set_post_processing(post_processing(options))?;
            decoder.require_masks()?;
        }
    }
    if !low_memory {
        encoder.load()?;
        if detects {
            decoder.load()?;
        }
    }
    let (preprocessor, backbone) = encoder.into_halves();
    let mask_side = memory.map(|(side, _)| side);
    Ok(DetectorParts { preprocessor, backbone, decoder, tiles, mask_side, prompts })
}

fn one_device(what: &str) -> Error {
    let message = format!("devices: {what} runs on one device; leave the others out");
    Error::new(ErrorKind::InvalidArgument, message).about("devices")
}
