//! A pipeline's options.

use ocelli_tracking::ByteTrackerOptions;

use super::memory::Memory;
use super::motion::MotionGate;
use super::stats::StatsRecorder;
use crate::cancellation::Cancellation;
use crate::draw::Redaction;
use ocelli_error::{Error, ErrorKind, Result};

/// One frame that is ready when the stage is, and one to even out stages whose times vary.
const QUEUE_DEPTH: usize = 2;
/// Beyond this, more waiting frames only cost memory and latency.
const MAX_QUEUE_DEPTH: usize = 1024;

/// The treatment of a frame when the next queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FramePolicy {
    /// Wait for room, so that every frame is processed. Right for files.
    #[default]
    All,
    /// Drop the frame that has waited longest, so that the newest frame is processed next. Right for cameras and
    /// streams. Dropped frames are counted.
    Latest,
}

/// The trade between a frame's time in queues and frames per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Latency {
    /// One frame at a time: no frame waits behind another. Right where all stages share the same cores, which gain little
    /// from working on several frames.
    Low,
    /// As many frames at a time as keep the slowest stage busy: the times of all stages over that of the slowest, rounded
    /// up, as measured during the run.
    Balanced,
    /// Queues between all stages, which also even out stages whose times vary.
    #[default]
    Throughput,
}

/// The options of a pipeline, as plain data: the builder fills it in, [`run`](super::pulled::run) and
/// [`Pipeline::start`](super::pushed::Pipeline::start) read it.
pub(super) struct PipelineConfig {
    pub(super) tracker: Option<ByteTrackerOptions>,
    /// Set if objects are followed by the model's memory of them.
    pub(super) memory: Option<Memory>,
    pub(super) camera_motion: bool,
    pub(super) appearance: bool,
    pub(super) policy: Option<FramePolicy>,
    pub(super) queue_depth: Option<usize>,
    pub(super) latency: Option<Latency>,
    pub(super) detect_every: u64,
    pub(super) motion: Option<MotionGate>,
    pub(super) redaction: Option<Redaction>,
    pub(super) class_budget: Option<usize>,
    pub(super) sequential: bool,
    /// Whether the backbone and the decoder are in memory one after the other.
    pub(super) low_memory: bool,
    pub(super) frame_rate: Option<f64>,
    pub(super) cancellation: Cancellation,
    pub(super) stats: StatsRecorder,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self {
            tracker: None,
            memory: None,
            camera_motion: false,
            appearance: false,
            policy: None,
            queue_depth: None,
            latency: None,
            detect_every: 1,
            motion: None,
            redaction: None,
            class_budget: None,
            sequential: false,
            low_memory: false,
            frame_rate: None,
            cancellation: Cancellation::new(),
            stats: StatsRecorder::new(),
        }
    }
}

impl PipelineConfig {
    pub(super) fn depth(&self, policy: FramePolicy) -> usize {
        self.queue_depth.unwrap_or(match policy {
            FramePolicy::All => QUEUE_DEPTH,
            FramePolicy::Latest => 1,
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        if let Some(depth) = self.queue_depth.filter(|depth| !(1..=MAX_QUEUE_DEPTH).contains(depth)) {
            return Err(Error::argument("queue_depth", depth, format!("1 to {MAX_QUEUE_DEPTH}")));
        }
        if let Some(memory) = &self.memory {
            memory.options.validate()?;
            let others = [
                (
                    "detect_every",
                    self.detect_every != 1,
                    "it takes the features and detections of every frame",
                ),
                ("motion_gate", self.motion.is_some(), "it takes the features and detections of every frame"),
                (
                    "class_budget",
                    self.class_budget.is_some(),
                    "a class that is not searched for counts as missed",
                ),
                ("camera_motion", self.camera_motion, "it finds objects by their masks, wherever they move"),
                ("appearance", self.appearance, "it knows what objects look like by itself"),
                ("low_memory", self.low_memory, "it needs the whole model for each frame"),
            ];
            if let Some((other, _, why)) = others.into_iter().find(|(_, is_set, _)| *is_set) {
                let message = format!("{other} beside tracking by memory: {why}; leave one of them out");
                return Err(Error::new(ErrorKind::InvalidArgument, message).about(other));
            }
        }
        if self.detect_every == 0 {
            let expected = "at least 1, which runs the detector on every frame";
            return Err(Error::argument("detect_every", 0, expected));
        }
        let max_time_lost = self.tracker.map_or(u64::MAX, |tracker| u64::from(tracker.max_time_lost));
        if self.detect_every > max_time_lost {
            let message = format!(
                "detect_every is {}: tracks are dropped after {max_time_lost} frames, before the detector runs again; \
                 lower detect_every or raise max_time_lost",
                self.detect_every
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).about("detect_every"));
        }
        if self.class_budget == Some(0) {
            return Err(Error::argument("class_budget", 0, "at least 1 class per frame"));
        }
        if let Some(rate) = self.frame_rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(Error::argument("frame_rate", rate, "a number above 0"));
        }
        Ok(())
    }
}
