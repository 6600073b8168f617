//! The results of one frame.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ocelli_tracking::Track;

use crate::detection::Detection;
use crate::frame::Origin;
use crate::image::Image;
use crate::timing::StageTimes;

/// Everything known about one frame when it leaves a pipeline.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FrameOutcome {
    /// The frame's index in its stream, from 0.
    pub index: u64,
    /// The time when the frame was taken, as reported by the source or the caller.
    pub time: Duration,
    /// The time when the frame of a live source was taken, by the clock of this machine; `None` for recorded frames.
    pub captured: Option<SystemTime>,
    /// The image file that the frame was read from; `None` for a frame of a video.
    pub file: Option<Arc<Path>>,
    /// The one of [several](crate::source::Several) sources that it is from; `index` and `time` are those of this source.
    pub origin: Option<Origin>,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// `true` if the detector ran on this frame; if not, `detections` is empty, unless the frame is [`still`](Self::still), or
    /// objects are followed [by memory](crate::options::PipelineOptions::memory).
    pub detected: bool,
    /// `true` if the detector did not run because nothing moves: `detections` are those of the last frame on which it ran, or that
    /// a tracker by memory saw.
    pub still: bool,
    /// By class id, whether the detector has searched for the class, where a class budget leaves some out; empty: for all.
    pub(crate) searched: Vec<bool>,
    /// The detections, highest score first.
    pub detections: Vec<Detection>,
    /// The tracks; empty without a tracker.
    pub tracks: Vec<Track>,
    /// The ids of tracks that earlier frames showed and that turned out to be false; only of a
    /// tracker [by memory](crate::options::PipelineOptions::memory) that does not hold frames back, or does not search all of them.
    pub retracted: Vec<u64>,
    /// Labels by class id.
    pub labels: Arc<[Arc<str>]>,
    /// The unmodified frame, if a sink asked for it.
    pub clean: Option<Image>,
    /// The frame with the results drawn in, if a sink asked for it.
    pub annotated: Option<Image>,
    /// The times of the stages.
    pub times: StageTimes,
}

impl FrameOutcome {
    /// `true` if the detector has searched this frame for a class.
    pub(crate) fn was_searched_for(&self, class: usize) -> bool {
        self.detected && self.searched.get(class).is_none_or(|searched| *searched)
    }

    /// The source's place among several; 0 of one.
    pub(crate) fn source_number(&self) -> usize {
        self.origin.as_ref().map_or(0, |origin| origin.number)
    }
}
