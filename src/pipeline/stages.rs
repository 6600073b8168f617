//! The work of each stage on one frame. Threads call it in parallel, the sequential loop in turn; the results cannot
//! differ, because a stage sees its frames in the same order in both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ocelli_tracking::{ByteTracker, TrackerDetection};

use super::builder::PipelineBuilder;
use super::class_budget::ClassBudget;
use super::control::{Drawing, Job, Pools};
use super::stats::{Stage, StatsRecorder};
use crate::detector::{Backbone, EmbeddedPrompts, ImagePreprocessor, PromptDecoder};
use crate::error::{Error, ErrorKind, Result};
use crate::frame_view::FrameView;
use crate::image::Image;
use crate::sink::Pictures;

/// What the stages share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) pools: Arc<Pools>,
    pub(super) stats: StatsRecorder,
}

/// The stages between source and sinks.
pub(super) struct Stages {
    pub(super) preprocess: PreprocessStage,
    pub(super) backbone: BackboneStage,
    pub(super) decode: DecodeStage,
    pub(super) draw: DrawStage,
}

impl Stages {
    /// Takes the builder's detector apart, encodes the words and loads the engines.
    pub(super) fn new(
        builder: PipelineBuilder,
        frame_rate: Option<f64>,
        pictures: Pictures,
        shared: &Shared,
    ) -> Result<Self> {
        let PipelineBuilder {
            detector, prompts, embedded, tracker, detect_every, class_budget, drawing, ..
        } = builder;
        let tracker = tracker.map(|options| ByteTracker::builder().options(options).build()).transpose();
        let tracker = tracker.map_err(|e| Error::new(ErrorKind::InvalidArgument, e.to_string()))?;
        let (mut text, mut encoder, mut decoder) = detector.into_stages();
        let embedded = match embedded {
            Some(embedded) if embedded.are_of(&prompts) => embedded,
            Some(_) => {
                let message = "embedded prompts: they are not those that the loop looks for";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            None => text.embed(&prompts)?,
        };
        drop(text);
        encoder.load()?;
        let (preprocessor, backbone) = encoder.into_stages();
        decoder.load()?;
        let budget = class_budget.filter(|&slots| slots < prompts.len());
        Ok(Self {
            preprocess: PreprocessStage {
                preprocessor,
                every: detect_every,
                until_next: 0,
                keep_picture: pictures != Pictures::default(),
                shared: shared.clone(),
            },
            backbone: BackboneStage { backbone, shared: shared.clone() },
            decode: DecodeStage {
                decoder,
                budget: budget.map(|slots| ClassBudget::new(slots, prompts.len())),
                labels: prompts.labels().into(),
                prompts: embedded,
                tracker,
                tracked: Vec::new(),
                frame_rate,
                last: None,
                shared: shared.clone(),
            },
            draw: DrawStage { drawing, pictures, shared: shared.clone() },
        })
    }
}

/// Decides which frames the detector looks at, and preprocesses those.
pub(super) struct PreprocessStage {
    preprocessor: ImagePreprocessor,
    every: u64,
    /// Frames to come before the next one that the detector looks at.
    until_next: u64,
    keep_picture: bool,
    shared: Shared,
}

impl PreprocessStage {
    /// A frame in the caller's memory. `is_replacing` says whether a frame that the detector was to look at waits to be
    /// replaced by this one, which then is its turn too.
    pub(super) fn run(&mut self, job: &mut Job, view: FrameView<'_>, is_replacing: bool) -> Result<()> {
        job.detect = self.until_next == 0 || is_replacing;
        self.until_next = if job.detect { self.every - 1 } else { self.until_next - 1 };
        if job.detect {
            let start = Instant::now();
            let pixels = job.pixels.insert(self.shared.pools.pixels.take());
            self.preprocessor.run_into(view, pixels, &mut job.outcome.times)?;
            self.shared.stats.stage(Stage::Preprocess, start.elapsed());
        }
        Ok(())
    }

    /// A frame of a source, whose picture goes back where nobody will want to see it.
    pub(super) fn run_picture(&mut self, job: &mut Job, is_replacing: bool) -> Result<()> {
        let picture = job.picture.take().expect("the source puts it there");
        let done = self.run(job, (&picture).into(), is_replacing);
        if self.keep_picture {
            job.picture = Some(picture);
        } else {
            self.shared.pools.pictures.give(picture);
        }
        done
    }
}

pub(super) struct BackboneStage {
    backbone: Backbone,
    shared: Shared,
}

impl BackboneStage {
    pub(super) fn run(&mut self, job: &mut Job) -> Result<()> {
        let Some(pixels) = job.pixels.take() else { return Ok(()) };
        let start = Instant::now();
        let features = job.features.insert(self.shared.pools.features.take());
        self.backbone.run_into(&pixels, job.outcome.size, features, &mut job.outcome.times)?;
        self.shared.pools.pixels.give(pixels);
        self.shared.stats.stage(Stage::Backbone, start.elapsed());
        Ok(())
    }
}

/// Encoder-decoder, post-processing and tracker; which classes are decoded depends on the tracks so far.
pub(super) struct DecodeStage {
    decoder: PromptDecoder,
    prompts: EmbeddedPrompts,
    budget: Option<ClassBudget>,
    tracker: Option<ByteTracker>,
    labels: Arc<[Arc<str>]>,
    /// The frame's detections as the tracker takes them.
    tracked: Vec<TrackerDetection>,
    frame_rate: Option<f64>,
    /// Number and time of the frame before.
    last: Option<(u64, Duration)>,
    shared: Shared,
}

impl DecodeStage {
    pub(super) fn run(&mut self, job: &mut Job) -> Result<()> {
        let features = job.features.take();
        let outcome = &mut job.outcome;
        outcome.labels = self.labels.clone();
        outcome.detected = features.is_some();
        if let Some(features) = features {
            let start = Instant::now();
            let tracks = self.tracker.iter().flat_map(ByteTracker::tracks);
            let tracks = tracks.map(|track| track.class_id);
            let classes = self.budget.as_mut().map(|budget| budget.plan(tracks));
            let (times, detections) = (&mut outcome.times, &mut outcome.detections);
            self.decoder.decode_into(&features, &self.prompts, classes, times, detections)?;
            if let Some(budget) = &mut self.budget {
                budget.detected(outcome.detections.iter().map(|detection| detection.class_id));
            }
            self.shared.pools.features.give(features);
            self.shared.stats.stage(Stage::Decode, start.elapsed());
        }
        let dt_frames = self.step(job.outcome.index, job.outcome.time);
        let Some(tracker) = &mut self.tracker else { return Ok(()) };
        let start = Instant::now();
        let outcome = &mut job.outcome;
        let tracks = if outcome.detected {
            self.tracked.clear();
            self.tracked.extend(outcome.detections.iter().map(|detection| TrackerDetection {
                bbox: detection.bbox,
                score: detection.score,
                class_id: detection.class_id,
            }));
            let budget = self.budget.as_ref();
            let is_watched = |class| budget.is_none_or(|budget| budget.is_looked_at(class));
            tracker.update_where(&self.tracked, dt_frames, is_watched)
        } else {
            tracker.predict(dt_frames)
        };
        outcome.tracks.extend_from_slice(tracks);
        self.shared.stats.stage(Stage::Track, start.elapsed());
        Ok(())
    }

    /// How many frames of the tracker's lie between the frame before and this one.
    fn step(&mut self, index: u64, time: Duration) -> f32 {
        let Some((last_index, last_time)) = self.last.replace((index, time)) else { return 1.0 };
        let Some(frame_rate) = self.frame_rate else { return index.saturating_sub(last_index) as f32 };
        frames_between(last_time, time, frame_rate)
    }
}

/// Time stamps are whole nanoseconds, or milliseconds: near a whole number of frames, a whole number is meant.
fn frames_between(last: Duration, now: Duration, frame_rate: f64) -> f32 {
    let frames = now.saturating_sub(last).as_secs_f64() * frame_rate;
    let whole = frames.round();
    (if whole >= 1.0 && (frames - whole).abs() < 0.05 { whole } else { frames }) as f32
}

/// Makes the pictures that sinks ask for.
pub(super) struct DrawStage {
    drawing: Drawing,
    pictures: Pictures,
    shared: Shared,
}

impl DrawStage {
    pub(super) fn is_needed(&self) -> bool {
        self.pictures != Pictures::default()
    }

    pub(super) fn run(&mut self, job: &mut Job) -> Result<()> {
        if !self.is_needed() {
            return Ok(());
        }
        let start = Instant::now();
        let picture = job.picture.take().expect("it was kept because sinks need it");
        let outcome = &mut job.outcome;
        if !self.pictures.annotated {
            outcome.clean = Some(picture);
            return Ok(());
        }
        let canvas = if self.pictures.clean {
            let mut copy = self.shared.pools.pictures.take();
            copy.reset_rgb8(picture.width(), picture.height())?.copy_from_slice(picture.as_rgb8());
            outcome.clean = Some(picture);
            copy
        } else {
            picture
        };
        let mut canvas = canvas.into_rgb_image();
        (self.drawing)(&mut canvas, outcome)?;
        let (width, height) = canvas.dimensions();
        outcome.annotated = Some(Image::from_rgb8(width, height, canvas.into_raw())?);
        self.shared.stats.stage(Stage::Draw, start.elapsed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_become_frames() {
        let nanos = Duration::from_nanos;
        // time of the frame before, of this one, frame rate, frames
        let cases = [
            (nanos(0), nanos(33_333_333), 30.0, 1.0),
            (nanos(33_333_333), nanos(66_666_667), 30.0, 1.0),
            (Duration::from_millis(33), Duration::from_millis(67), 30.0, 1.0),
            (nanos(0), Duration::from_millis(50), 30.0, 1.5),
            (nanos(0), Duration::from_secs(2), 25.0, 50.0),
            (nanos(0), Duration::from_micros(10), 30.0, 0.0003),
            (nanos(5), nanos(5), 30.0, 0.0),
            (nanos(9), nanos(5), 30.0, 0.0),
        ];
        let mut failures = Vec::new();
        for (last, now, rate, expected) in cases {
            let came = frames_between(last, now, rate);
            if (came - expected).abs() > 1e-6 {
                failures.push(format!("{last:?} to {now:?} at {rate}: expected {expected}, came {came}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
