//! A pipeline's options.

use ocelli_tracking::ByteTrackerOptions;
use ocelli_tracking::masklets::MaskletOptions;
use serde::{Deserialize, Serialize};

use super::motion::MotionGate;
use ocelli_error::{Error, Result, read_by_name};

/// One frame that is ready when the stage is, and one to even out stages whose times vary.
const QUEUE_DEPTH: usize = 2;
/// Beyond this, more waiting frames only cost memory and latency.
const MAX_QUEUE_DEPTH: usize = 1024;

/// The treatment of a frame when the next queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

read_by_name!(FramePolicy, "policy", "\"all\" or \"latest\"");
read_by_name!(Latency, "latency", "\"low\", \"balanced\" or \"throughput\"");

/// The options of a [`Pipeline`](crate::Pipeline), as plain data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PipelineOptions {
    /// Tracks detections from frame to frame; off by default.
    pub tracker: Option<ByteTrackerOptions>,
    /// Follows objects with masks by the model's memory of them, in place of boxes; the model has to have a tracker, and the
    /// detector masks. Each frame has a [detection](crate::pipeline::FrameOutcome::detections) with a mask, and a [track](crate::pipeline::FrameOutcome::tracks)
    /// with the identity, for each object. Frames are written some frames later unless the options say otherwise. The
    /// thresholds are those of the options, not those of the detector.
    ///
    /// With several [devices](crate::PipelineBuilder::with_more_devices) each object is tracked on the device that has the fewest when
    /// it appears.
    pub memory: Option<MaskletOptions>,
    /// Estimates how the camera moves and moves the tracks with it, for cameras that move. It costs a few milliseconds a frame, and
    /// needs a tracker. See [`CameraMotionEstimator`](crate::pipeline::CameraMotionEstimator).
    pub camera_motion: bool,
    /// Tells the tracker what the detections look like in the backbone's features, so that it finds objects again that were
    /// hidden. It needs a tracker. See [`ByteTracker::update_with`](ocelli_tracking::ByteTracker::update_with).
    pub appearance: bool,
    /// The treatment of frames when a queue is full. By default [`run`](crate::PipelineBuilder::run) uses [`FramePolicy::Latest`] for
    /// live sources; everything else uses [`FramePolicy::All`].
    pub policy: Option<FramePolicy>,
    /// The number of frames that may wait before each stage, 1 to 1024. The default is 2, or 1 with [`FramePolicy::Latest`].
    /// Deeper queues add latency, and add throughput only if the stages' times vary.
    pub queue_depth: Option<usize>,
    /// The goal: frames per second, or results soon after the frame. The default is [`Latency::Balanced`] for live
    /// sources in [`run`](crate::PipelineBuilder::run), else [`Latency::Throughput`]. The results of frames that are not dropped are the
    /// same.
    pub latency: Option<Latency>,
    /// Runs the detector on every `detect_every`th frame, at least 1; on every frame by default. The tracker predicts the frames
    /// in between, or follows objects through them [by memory](Self::memory); without a tracker they have no results.
    pub detect_every: Option<u64>,
    /// Runs the detector on frames with motion only, for cameras that do not move. A frame without motion has the detections
    /// of the last one that the detector looked at ([`still`](crate::pipeline::FrameOutcome::still)), and the tracker takes them as its own.
    /// With [memory](Self::memory) it has the objects of the frame before, and nothing is computed.
    pub motion_gate: Option<MotionGate>,
    /// Decodes at most this many classes per frame, at least 1. Classes with live tracks or recent detections are
    /// decoded in every frame, the others in rotation. At least a quarter of the budget, rounded up, is reserved for
    /// the rotation. A class that is not decoded in a frame does not count as missed by the tracker.
    /// With [memory](Self::memory) recent detections alone count.
    pub class_budget: Option<usize>,
    /// Runs all stages on one thread, frame after frame, for comparison; only frames are read on another one. The results are
    /// bit-identical.
    pub sequential: bool,
    /// Frames per second, used to convert time stamps to the tracker's frames. Defaults to the source's rate; if
    /// neither is known, the tracker counts frame indices.
    pub frame_rate: Option<f64>,
}

impl PipelineOptions {
    /// The frames that a queue holds.
    pub(super) fn depth(&self, policy: FramePolicy, latency: Latency) -> usize {
        let is_deep = policy == FramePolicy::All && latency == Latency::Throughput;
        self.queue_depth.unwrap_or(if is_deep { QUEUE_DEPTH } else { 1 })
    }

    /// Checks the numbers.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        if let Some(depth) = self.queue_depth.filter(|depth| !(1..=MAX_QUEUE_DEPTH).contains(depth)) {
            return Err(Error::argument("queue_depth", depth, format!("1 to {MAX_QUEUE_DEPTH}")));
        }
        self.memory.map_or(Ok(()), |memory| memory.validate())?;
        if self.motion_gate.as_ref().is_some_and(|gate| gate.interval.is_zero()) {
            let message = "motion interval is 0: expected the maximum time between two detections";
            return Err(Error::invalid_argument(message).about("motion_gate"));
        }
        self.tracker.map_or(Ok(()), |tracker| tracker.validate())?;
        if self.detect_every == Some(0) {
            let expected = "at least 1, which runs the detector on every frame";
            return Err(Error::argument("detect_every", 0, expected));
        }
        if let (Some(frames), Some(ByteTrackerOptions { max_time_lost, .. })) =
            (self.detect_every, self.tracker)
            && frames > u64::from(max_time_lost)
        {
            return Err(Error::invalid_argument(format!(
                "detect_every is {frames}: tracks are dropped after {max_time_lost} frames, before the detector runs again; \
                 lower detect_every or raise max_time_lost"
            )).about("detect_every"));
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
