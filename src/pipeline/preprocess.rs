//! The first stage: which frames the detector looks at, on which device, and their pixels as the backbone's input.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::Job;
use super::motion::{MotionGate, MotionWatch};
use super::options::PipelineOptions;
use super::stage_loop::StageLoop;
use crate::detector::ImagePreprocessor;
use crate::frame_view::FrameView;
use crate::threads::Stage;
use ocelli_error::Result;
use ocelli_images::DeviceFrame;

/// Preprocesses the frames that the detector runs on.
pub(super) struct PreprocessStage {
    /// For each device; `None` if frames are searched in tiles.
    preprocessors: Vec<Option<ImagePreprocessor>>,
    /// The device that takes the next frame that is computed: they take turns.
    pub(super) device: usize,
    /// Frames so far.
    turn: u64,
    /// The detector runs on every `every`th frame.
    every: u64,
    /// Set if a tracker by memory needs the features of the others as well.
    has_memory: bool,
    /// Frames until the detector runs again, for each source.
    until_next: Vec<u64>,
    motion: Option<MotionGate>,
    /// The watch for motion of each source.
    watches: Vec<MotionWatch>,
    /// Reduces the frames for the tracker's estimate of the camera's motion.
    camera_motion: bool,
    /// Set if a later stage needs the image.
    keep_image: bool,
    shared: Arc<StageLoop>,
}

/// The pixels of a frame: in the caller's memory, or on a GPU.
pub(super) enum Pixels<'a> {
    View(FrameView<'a>),
    OnGpu(&'a DeviceFrame),
}

impl PreprocessStage {
    /// `preprocessors` are those of the devices; `has_memory`: whether objects are followed by memory.
    pub(super) fn new(
        preprocessors: Vec<Option<ImagePreprocessor>>,
        options: &PipelineOptions,
        has_memory: bool,
        keep_image: bool,
        shared: Arc<StageLoop>,
    ) -> Self {
        Self {
            preprocessors,
            device: 0,
            turn: 0,
            every: options.detect_every.unwrap_or(1),
            has_memory,
            until_next: Vec::new(),
            motion: options.motion_gate.clone(),
            watches: Vec::new(),
            camera_motion: options.camera_motion,
            keep_image,
            shared,
        }
    }

    /// Preprocesses a frame. If it replaces a frame that the detector was going to run on, the detector runs on the next frame of the
    /// same source instead, which may be this one.
    pub(super) fn run(&mut self, job: &mut Job, frame: &Pixels<'_>) -> Result<()> {
        let source = job.outcome.source_number();
        if self.until_next.len() <= source {
            self.until_next.resize(source + 1, 0);
        }
        if let Some((replaced, was_searched)) = self.shared.would_replace(self.device) {
            self.until_next.get_mut(replaced).filter(|_| was_searched).into_iter().for_each(|next| *next = 0);
            self.watches.get_mut(replaced).into_iter().for_each(MotionWatch::forget);
        }
        if let (true, Pixels::View(view)) = (self.camera_motion, frame) {
            job.reduced.insert(self.shared.buffers.reduced.take()).read(view);
        }
        let is_due = self.until_next[source] == 0;
        let is_moving = self.is_moving(source, frame, job.outcome.time, is_due);
        let (compute, detect) = ((is_due || self.has_memory) && is_moving, is_due && is_moving);
        (job.turn, job.device) = (self.turn, self.device);
        self.turn += 1;
        if compute {
            self.device = (self.device + 1) % self.preprocessors.len();
        }
        (job.outcome.detected, job.outcome.still) = (detect, !is_moving);
        let until_next = &mut self.until_next[source];
        // A frame without motion does not put the next look off.
        *until_next = if detect { self.every - 1 } else { until_next.saturating_sub(1) };
        let Some(preprocessor) = &mut self.preprocessors[job.device] else {
            job.in_tiles = detect;
            if let (true, None, Pixels::View(view)) = (detect, &job.image, frame) {
                job.image = Some(view.to_image()?);
            }
            return Ok(());
        };
        if compute {
            let start = Instant::now();
            let pixels = job.pixels.insert(self.shared.buffers.pixels[job.device].take());
            let times = &mut job.outcome.times;
            match frame {
                Pixels::View(view) => preprocessor.run_into(*view, pixels, times)?,
                Pixels::OnGpu(frame) => preprocessor.run_device_into(frame, pixels, times)?,
            }
            self.shared.stats.stage(Stage::Preprocess, start.elapsed());
        }
        Ok(())
    }

    /// `true` if the detector has to look at a frame; always without a gate.
    fn is_moving(&mut self, source: usize, frame: &Pixels<'_>, time: Duration, is_due: bool) -> bool {
        let (Some(gate), Pixels::View(view)) = (&self.motion, frame) else { return true };
        while self.watches.len() <= source {
            self.watches.push(MotionWatch::new(gate, self.watches.len()));
        }
        self.watches[source].look(view, time, is_due)
    }

    /// Preprocesses a source's frame, and returns its image to the pool unless a later stage needs it. A frame on a GPU is given
    /// back here, and becomes an image only then.
    pub(super) fn run_image(&mut self, job: &mut Job) -> Result<()> {
        let mut image = job.image.take().expect("the source has put it there");
        let done = match job.on_gpu.take() {
            Some(frame) => self
                .run(job, &Pixels::OnGpu(&frame))
                .and_then(|()| if self.keep_image { frame.to_image_into(&mut image) } else { Ok(()) }),
            None => self.run(job, &Pixels::View((&image).into())),
        };
        if self.keep_image || job.in_tiles {
            job.image = Some(image);
        } else {
            self.shared.buffers.images.give(image);
        }
        done
    }
}
