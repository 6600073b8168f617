//! Options of a loop.

use ocelli_tracking::ByteTrackerOptions;

use super::control::Drawing;
use super::embedded::Pipeline;
use super::stats::{PipelineStats, StatsRecorder};
use super::{FramePolicy, run};
use crate::cancellation::Cancellation;
use crate::detector::{Detector, EmbeddedPrompts};
use crate::draw::Annotator;
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::Prompts;
use crate::sink::{FrameOutcome, Sink};
use crate::source::Source;

/// Frames that may wait before a stage unless told otherwise: one to be taken at once, one to smooth what varies.
const QUEUE_DEPTH: usize = 2;
/// More frames than this waiting before a stage help nobody and hold memory.
const MAX_QUEUE_DEPTH: usize = 1024;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// Whether the [`Cancellation`] ended it before the source did. What was finished is whole.
    pub cancelled: bool,
    /// Counts and times; the same that the [`StatsRecorder`] has.
    pub stats: PipelineStats,
}

pub(super) type Observer = Box<dyn FnMut(&FrameOutcome) + Send>;

/// Makes a [`Pipeline`], or runs a stream; from [`Pipeline::builder`].
pub struct PipelineBuilder {
    pub(super) detector: Detector,
    pub(super) prompts: Prompts,
    pub(super) embedded: Option<EmbeddedPrompts>,
    pub(super) tracker: Option<ByteTrackerOptions>,
    pub(super) policy: Option<FramePolicy>,
    pub(super) queue_depth: Option<usize>,
    pub(super) detect_every: u64,
    pub(super) class_budget: Option<usize>,
    pub(super) sequential: bool,
    pub(super) frame_rate: Option<f64>,
    pub(super) max_frames: Option<u64>,
    pub(super) drawing: Drawing,
    pub(super) cancellation: Cancellation,
    pub(super) stats: StatsRecorder,
    pub(super) observer: Option<Observer>,
}

impl Pipeline {
    /// A loop that looks for `prompts` with `detector`, with the defaults of the command line, to be changed step by
    /// step.
    pub fn builder(detector: Detector, prompts: Prompts) -> PipelineBuilder {
        let annotator = Annotator::new();
        PipelineBuilder {
            detector,
            prompts,
            embedded: None,
            tracker: None,
            policy: None,
            queue_depth: None,
            detect_every: 1,
            class_budget: None,
            sequential: false,
            frame_rate: None,
            max_frames: None,
            drawing: Box::new(move |picture, outcome| annotator.annotate(picture, &outcome.detections)),
            cancellation: Cancellation::new(),
            stats: StatsRecorder::new(),
            observer: None,
        }
    }
}

impl PipelineBuilder {
    /// Examples that were looked at in another picture, or in a frame of before: what
    /// [`Detector::exemplar_features`] made of the very prompts that the loop looks for. Without, the boxes of examples
    /// are places in each frame.
    #[must_use]
    pub fn with_embedded_prompts(mut self, embedded: EmbeddedPrompts) -> Self {
        self.embedded = Some(embedded);
        self
    }

    /// Follows what is detected from frame to frame; off by default.
    #[must_use]
    pub fn with_tracker(mut self, options: ByteTrackerOptions) -> Self {
        self.tracker = Some(options);
        self
    }

    /// What becomes of frames for which there is no room yet. By default [`run`](Self::run) takes
    /// [`FramePolicy::Latest`] for live sources, and everything else is [`FramePolicy::All`].
    #[must_use]
    pub fn with_policy(mut self, policy: FramePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// How many frames may wait before each stage, 1 to 1024; 2 by default, and 1 where only the newest counts. Latency
    /// grows with it; throughput only where the stages' times vary.
    #[must_use]
    pub fn with_queue_depth(mut self, frames: usize) -> Self {
        self.queue_depth = Some(frames);
        self
    }

    /// Runs the detector on every `frames`th frame, at least 1; the tracker predicts between them, and without a
    /// tracker those frames have no results.
    #[must_use]
    pub fn with_detect_every(mut self, frames: u64) -> Self {
        self.detect_every = frames;
        self
    }

    /// Decodes at most this many classes a frame, at least 1, however many are looked for: those with live tracks or
    /// recent detections in every frame, the others in turn. A quarter of them, at least one, is always kept for the
    /// turn. A track whose class was not looked at in a frame is carried on, not missed.
    #[must_use]
    pub fn with_class_budget(mut self, classes: usize) -> Self {
        self.class_budget = Some(classes);
        self
    }

    /// Does everything on one thread, frame after frame, to compare: the results are the same to the bit.
    #[must_use]
    pub fn with_sequential(mut self, sequential: bool) -> Self {
        self.sequential = sequential;
        self
    }

    /// Frames per second that a tracker's "frame" is counted in: time stamps become frames with it. By default the
    /// source's; where neither is known, each frame is one further than the last, those left out counted.
    #[must_use]
    pub fn with_frame_rate(mut self, frames_per_second: f64) -> Self {
        self.frame_rate = Some(frames_per_second);
        self
    }

    /// Ends a run after this many frames were read.
    #[must_use]
    pub fn with_max_frames(mut self, frames: u64) -> Self {
        self.max_frames = Some(frames);
        self
    }

    /// How results are drawn, where a sink asks for [`annotated`](crate::sink::Pictures::annotated) pictures: into the
    /// picture, from everything known of the frame. By default an [`Annotator`] draws the detections.
    #[must_use]
    pub fn with_drawing(
        mut self,
        draw: impl FnMut(&mut image::RgbImage, &FrameOutcome) -> Result<()> + Send + 'static,
    ) -> Self {
        self.drawing = Box::new(draw);
        self
    }

    /// Who may end it early. What has been through the encoder-decoder by then still reaches the sinks.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Where it counts and measures; to be read from any thread while it runs, and after.
    #[must_use]
    pub fn with_stats(mut self, stats: StatsRecorder) -> Self {
        self.stats = stats;
        self
    }

    /// Called by [`run`](Self::run) on its thread for each frame that all sinks have taken, for a progress bar or a
    /// status line.
    #[must_use]
    pub fn with_observer(mut self, observer: impl FnMut(&FrameOutcome) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Runs a stream to its end: frames from `source`, results to all of `sinks`, in order.
    ///
    /// The sinks work on the calling thread, one after the other; everything else on threads of its own. Pictures are
    /// kept and drawn only where a sink asks for them. Each sink is finished, however the run ends.
    ///
    /// # Errors
    /// What is wrong with the options; then the first thing that failed: a source's error once all frames before it
    /// have been through, a stage's or a sink's at once. A panic in a stage is
    /// [`ErrorKind::Engine`] with what it said. A run that was cancelled is none.
    pub fn run(self, source: impl Source, sinks: &mut [Box<dyn Sink + '_>]) -> Result<RunSummary> {
        self.check()?;
        run::run(self, source, sinks)
    }

    /// Starts a loop that frames are pushed into. Engines are loaded and words encoded before it returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that make no sense; what [`Detector::prepare`] finds.
    pub fn build(self) -> Result<Pipeline> {
        self.check()?;
        Pipeline::start(self)
    }

    pub(super) fn depth(&self, policy: FramePolicy) -> usize {
        self.queue_depth.unwrap_or(match policy {
            FramePolicy::All => QUEUE_DEPTH,
            FramePolicy::Latest => 1,
        })
    }

    fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if let Some(depth) = self.queue_depth.filter(|depth| !(1..=MAX_QUEUE_DEPTH).contains(depth)) {
            return invalid(format!("queue depth is {depth}: expected 1 to {MAX_QUEUE_DEPTH}"));
        }
        if self.detect_every == 0 {
            return invalid("--detect-every is 0: 1 runs the detector on every frame".into());
        }
        let max_time_lost = self.tracker.map_or(u64::MAX, |tracker| u64::from(tracker.max_time_lost));
        if self.detect_every > max_time_lost {
            return invalid(format!(
                "--detect-every is {}: a track is given up after {max_time_lost} frames, before the detector looks \
                 again; raise --max-time-lost",
                self.detect_every
            ));
        }
        if self.class_budget == Some(0) {
            return invalid("--class-budget is 0: at least one class is decoded a frame".into());
        }
        if let Some(rate) = self.frame_rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return invalid(format!("frame rate is {rate}: expected a number above 0"));
        }
        if self.prompts.is_empty() {
            return invalid("nothing to look for: name at least one class".into());
        }
        Ok(())
    }
}
