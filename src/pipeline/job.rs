//! Frames in flight, and the buffers that they reuse.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ocelli_engines::Tensor;
use ocelli_tracking::Appearances;

use super::gate::Ticket;
use crate::camera_motion::ReducedFrame;
use crate::detector::ImageFeatures;
use crate::image::Image;
use crate::masklets::MaskFrame;
use crate::outcome::FrameOutcome;
use ocelli_images::DeviceFrame;

/// A frame in flight, with what the stages have produced so far.
#[derive(Default)]
pub(super) struct Job {
    /// The time when the frame entered the pipeline.
    entered: Option<Instant>,
    /// Since when it waits for the next stage, and how long it has waited for all before.
    queued: Option<Instant>,
    pub(super) waited: Duration,
    /// Its place among all frames that were preprocessed, and the device that takes it, from 0.
    pub(super) turn: u64,
    pub(super) device: usize,
    /// Drops the decoder after it, in low memory.
    pub(super) ends_group: bool,
    /// Its place, if the number of frames in flight is limited.
    pub(super) ticket: Option<Ticket>,
    /// The frame's image, as long as a stage needs it.
    pub(super) image: Option<Image>,
    /// The frame on a GPU, in place of its image, until it is preprocessed.
    pub(super) on_gpu: Option<DeviceFrame>,
    /// Set if the detector is to search the image in tiles.
    pub(super) in_tiles: bool,
    /// The frame, reduced, if the camera's motion is estimated.
    pub(super) reduced: Option<ReducedFrame>,
    /// The backbone's input, if the detector is to run on this frame.
    pub(super) pixels: Option<Tensor>,
    /// The backbone's output.
    pub(super) features: Option<ImageFeatures>,
    /// The looks of the detections, if the tracker is to know them.
    pub(super) appearances: Option<Appearances>,
    /// The features and detections for a tracker by memory.
    pub(super) masks: Option<MaskFrame>,
    pub(super) outcome: FrameOutcome,
}

impl Job {
    /// The frame begins to wait for a stage.
    pub(super) fn wait(&mut self) {
        self.queued = Some(Instant::now());
    }

    /// A stage has taken the frame.
    pub(super) fn taken(&mut self) {
        self.waited += self.queued.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// The time since the frame entered the pipeline.
    pub(super) fn age(&self) -> Duration {
        self.entered.map_or(Duration::ZERO, |entered| entered.elapsed())
    }

    /// The bytes of its image and its features.
    pub(super) fn bytes(&self) -> usize {
        let image = self.image.as_ref().map_or(0, |image| image.as_rgb8().len());
        image + self.features.as_ref().map_or(0, ImageFeatures::bytes)
    }
}

/// Pools of free buffers.
pub(super) struct Buffers {
    pub(super) images: Pool<Image>,
    pub(super) reduced: Pool<ReducedFrame>,
    /// For each device, in whose memory they may be.
    pub(super) pixels: Vec<Pool<Tensor>>,
    pub(super) features: Vec<Pool<ImageFeatures>>,
    pub(super) masks: Vec<Pool<MaskFrame>>,
    pub(super) appearances: Pool<Appearances>,
    outcomes: Pool<FrameOutcome>,
}

/// Free buffers of one kind.
pub(super) struct Pool<T> {
    free: Mutex<Vec<T>>,
    make: fn() -> T,
    capacity: usize,
}

impl<T> Pool<T> {
    fn new(capacity: usize, make: fn() -> T) -> Self {
        Self { free: Mutex::new(Vec::with_capacity(capacity)), make, capacity }
    }

    pub(super) fn take(&self) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(self.make)
    }

    pub(super) fn give(&self, buffer: T) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.capacity {
            free.push(buffer);
        }
    }
}

impl Buffers {
    /// Pools that keep at most `capacity` buffers of each kind.
    pub(super) fn new(capacity: usize, devices: usize) -> Self {
        Self {
            images: Pool::new(capacity, Image::default),
            reduced: Pool::new(capacity, ReducedFrame::default),
            pixels: (0..devices).map(|_| Pool::new(capacity, Tensor::empty)).collect(),
            features: (0..devices).map(|_| Pool::new(capacity, ImageFeatures::default)).collect(),
            masks: (0..devices).map(|_| Pool::new(capacity, MaskFrame::default)).collect(),
            appearances: Pool::new(capacity, Appearances::default),
            outcomes: Pool::new(capacity, FrameOutcome::default),
        }
    }

    /// A job for a frame that has just entered.
    pub(super) fn job(&self, index: u64, time: Duration, size: (u32, u32), entered: Instant) -> Job {
        let mut outcome = self.outcomes.take();
        (outcome.index, outcome.time, outcome.size) = (index, time, size);
        outcome.times = Default::default();
        (outcome.captured, outcome.file, outcome.origin) = (None, None, None);
        (outcome.detected, outcome.still) = (false, false);
        outcome.searched.clear();
        outcome.detections.clear();
        outcome.tracks.clear();
        outcome.retracted.clear();
        Job { entered: Some(entered), outcome, ..Job::default() }
    }

    /// Returns all buffers of a finished or dropped job.
    pub(super) fn recycle(&self, job: Job) {
        job.image.into_iter().for_each(|image| self.images.give(image));
        job.reduced.into_iter().for_each(|reduced| self.reduced.give(reduced));
        job.pixels.into_iter().for_each(|pixels| self.pixels[job.device].give(pixels));
        job.features.into_iter().for_each(|features| self.features[job.device].give(features));
        job.masks.into_iter().for_each(|masks| self.masks[job.device].give(masks));
        job.appearances.into_iter().for_each(|appearances| self.appearances.give(appearances));
        self.recycle_outcome(job.outcome);
    }

    pub(super) fn recycle_outcome(&self, mut outcome: FrameOutcome) {
        let images = [outcome.clean.take(), outcome.annotated.take()];
        images.into_iter().flatten().for_each(|image| self.images.give(image));
        self.outcomes.give(outcome);
    }
}
