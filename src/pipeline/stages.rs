//! The work of each stage on one frame.
//!
//! Pipelined and sequential runs give bit-identical results because each stage sees its frames in the same order in both; with
//! frames on a GPU, as long as all of them stay there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ocelli_tracking::{Appearances, ByteTracker, ByteTrackerOptions, TrackerDetection, frames_between};

use super::FramePolicy;
use super::class_budget::ClassBudget;
use super::job::Job;
use super::memory::{Memory, MemoryStage};
use super::options::PipelineOptions;
use super::preprocess::PreprocessStage;
use super::queue::Queue;
use super::stage_loop::{StageLoop, StageWork};
use super::stats::StatsRecorder;
use crate::camera_motion::CameraMotionEstimator;
use crate::detection::Detection;
use crate::detector::{
    Backbone, DecodeRequest, EmbeddedPrompts, Group, ImageEncoder, PromptDecoder, TiledSearch, Wanted,
};
use crate::draw::Redaction;
use crate::image::Image;
use crate::outcome::FrameOutcome;
use crate::sink::Images;
use crate::threads::Stage;
use crate::tiles::WholeImage;
use ocelli_error::Result;

/// Draws results into an image.
pub(super) type Drawing = Box<dyn FnMut(&mut image::RgbImage, &FrameOutcome) -> Result<()> + Send>;

/// The loaded parts of a pipeline.
pub(super) struct Loaded {
    pub(super) devices: Vec<DetectorParts>,
    pub(super) labels: Arc<[Arc<str>]>,
    /// Set if objects are followed by the model's memory of them.
    pub(super) memory: Option<Memory>,
    /// Set if the backbone and the decoder are in memory one after the other.
    pub(super) low_memory: bool,
}

impl Loaded {
    /// The GPU that frames may stay on: that of all preprocessing, if nothing looks at pixels before it or searches them in tiles.
    pub(super) fn gpu(&self, options: &PipelineOptions) -> Option<usize> {
        let looks = options.motion_gate.is_some() || options.camera_motion;
        let of =
            |one: &DetectorParts| one.encoder.preprocessor.gpu().filter(|_| one.tiles.is_none() && !looks);
        let (first, others) = self.devices.split_first()?;
        of(first).filter(|gpu| others.iter().all(|other| of(other) == Some(*gpu)))
    }
}

/// The parts of a detector whose engines are loaded, and what it searches for.
pub(super) struct DetectorParts {
    pub(super) encoder: ImageEncoder,
    pub(super) wanted: Wanted,
    pub(super) decoder: PromptDecoder,
    /// Set if frames are searched in tiles.
    pub(super) tiles: Option<TiledSearch>,
    /// The side of the masks, if a tracker by memory takes them.
    pub(super) mask_side: Option<usize>,
    pub(super) prompts: EmbeddedPrompts,
}

/// The stages on a device.
pub(super) type OnDevice = (BackboneStage, DecodeStage);

/// The stage that follows objects from frame to frame.
pub(super) enum Track {
    Boxes(TrackStage),
    Memory(Box<MemoryStage>),
}

/// The work between preprocessing and the results, in the order of its queues. `in_groups`: with the backbone and the decoder in
/// memory one after the other.
pub(super) fn work_of(on_devices: Vec<OnDevice>, track: Track, in_groups: bool) -> Vec<StageWork> {
    let (backbones, mut decoders): (Vec<_>, Vec<_>) = on_devices.into_iter().unzip();
    let each = |mut backbone: BackboneStage| StageWork::each(Stage::Backbone, move |job| backbone.run(job));
    let backbone: fn(BackboneStage) -> StageWork = if in_groups { BackboneStage::in_groups } else { each };
    let mut work: Vec<_> = backbones.into_iter().map(backbone).collect();
    let track = match track {
        // Which classes are decoded depends on the tracks.
        Track::Boxes(mut track) if decoders.len() == 1 => {
            let mut decode = decoders.remove(0);
            work.push(StageWork::new(Stage::Decode, move |job, done| {
                // A run that stops does not decode the rest of a group.
                let Some(mut job) = job.filter(|_| !decode.shared.is_stopping()) else {
                    return Ok(());
                };
                let tracker = track.stream(&job).tracker.as_ref();
                decode.run(&mut job, tracker)?;
                track.run(&mut job);
                if job.ends_group {
                    decode.decoder.unload();
                }
                done.push(job);
                Ok(())
            }));
            return work;
        }
        Track::Boxes(mut track) => StageWork::each(Stage::Track, move |job| {
            track.run(job);
            Ok(())
        }),
        Track::Memory(mut track) => StageWork::new(Stage::Track, move |job, done| track.run(job, done)),
    };
    let decode = |mut decode: DecodeStage| StageWork::each(Stage::Decode, move |job| decode.run(job, None));
    work.extend(decoders.into_iter().map(decode));
    work.push(track);
    work
}

/// The queues before what runs on devices, and before a tracker that has a thread of its own.
pub(super) fn queues_of(
    devices: usize,
    in_order: bool,
    (depth, policy): (usize, FramePolicy),
    stats: &StatsRecorder,
) -> Vec<Queue<Job>> {
    let queue = |stage, policy| Queue::before(stage, depth, policy, stats);
    let backbones = (0..devices).map(|_| queue(Stage::Backbone, policy));
    let decoders = (0..devices).map(|_| queue(Stage::Decode, FramePolicy::All));
    backbones.chain(decoders).chain(in_order.then(|| queue(Stage::Track, FramePolicy::All))).collect()
}

/// The stages from a frame to its results, those between preprocessing and tracking once for each device; `keep_image` if
/// a later stage needs the image.
pub(super) fn into_stages(
    Loaded { devices, labels, memory, .. }: Loaded,
    options: &PipelineOptions,
    frame_rate: Option<f64>,
    keep_image: bool,
    shared: &Arc<StageLoop>,
) -> (PreprocessStage, Vec<OnDevice>, Track) {
    let classes = labels.len();
    let mut preprocessors = Vec::new();
    let mut on_devices = Vec::new();
    for DetectorParts { encoder, wanted, decoder, tiles, mask_side, prompts } in devices {
        // A search in tiles runs all stages itself.
        let (front, tiles) = match tiles {
            None => (Some((encoder.preprocessor, encoder.backbone)), None),
            Some(search) => (None, Some((search, encoder))),
        };
        let (preprocessor, backbone) = front.unzip();
        preprocessors.push(preprocessor);
        let decode = DecodeStage {
            decoder,
            tiles,
            mask_side,
            keep_image,
            prompts,
            appearance: options.appearance,
            slots: options.class_budget.filter(|&slots| slots < classes),
            budgets: Vec::new(),
            shared: shared.clone(),
        };
        on_devices.push((BackboneStage { backbone, wanted, shared: shared.clone() }, decode));
    }
    let preprocess =
        PreprocessStage::new(preprocessors, options, memory.is_some(), keep_image, shared.clone());
    if let Some(memory) = memory {
        let track = MemoryStage::new(memory, labels, shared.clone());
        return (preprocess, on_devices, Track::Memory(Box::new(track)));
    }
    let track = TrackStage {
        streams: Vec::new(),
        tracker: options.tracker,
        labels,
        tracked: Vec::new(),
        keeps_detections: options.motion_gate.is_some(),
        frame_rate,
        shared: shared.clone(),
    };
    (preprocess, on_devices, Track::Boxes(track))
}

pub(super) struct BackboneStage {
    /// `None` if frames are searched in tiles.
    backbone: Option<Backbone>,
    wanted: Wanted,
    shared: Arc<StageLoop>,
}

impl BackboneStage {
    pub(super) fn run(&mut self, job: &mut Job) -> Result<()> {
        let (Some(backbone), Some(pixels)) = (&mut self.backbone, job.pixels.take()) else { return Ok(()) };
        let start = Instant::now();
        let features = job.features.insert(self.shared.buffers.features[job.device].take());
        let times = &mut job.outcome.times;
        backbone.run_into(&pixels, job.outcome.size, self.wanted, features, times)?;
        self.shared.buffers.pixels[job.device].give(pixels);
        self.shared.stats.stage(Stage::Backbone, start.elapsed());
        Ok(())
    }

    /// Collects groups of frames, and drops the backbone before a group leaves.
    fn in_groups(mut self) -> StageWork {
        let (mut group, mut waiting) = (Group::default(), Vec::new());
        StageWork::new(Stage::Backbone, move |job, done| {
            let is_end = job.is_none();
            if let Some(mut job) = job {
                self.run(&mut job)?;
                group.add(job.bytes());
                waiting.push(job);
            }
            if is_end || group.is_full() {
                self.backbone.iter_mut().for_each(Backbone::unload);
                waiting.last_mut().into_iter().for_each(|job| job.ends_group = true);
                group = Group::default();
                done.append(&mut waiting);
            }
            Ok(())
        })
    }
}

/// Encoder-decoder and post-processing.
pub(super) struct DecodeStage {
    decoder: PromptDecoder,
    /// The search in tiles and the encoder, if frames are searched in tiles.
    tiles: Option<(TiledSearch, ImageEncoder)>,
    /// The side of the masks, if a tracker by memory takes them.
    mask_side: Option<usize>,
    /// Set if a later stage needs the image.
    keep_image: bool,
    prompts: EmbeddedPrompts,
    /// Tells the tracker what the detections look like.
    appearance: bool,
    /// Classes to decode in a frame, if not all.
    slots: Option<usize>,
    /// The choice of these classes, for each source.
    budgets: Vec<ClassBudget>,
    shared: Arc<StageLoop>,
}

/// The work that depends on the frames before: the tracker, and the detections of frames without motion.
pub(super) struct TrackStage {
    /// One for each source.
    streams: Vec<Stream>,
    tracker: Option<ByteTrackerOptions>,
    labels: Arc<[Arc<str>]>,
    /// The frame's detections as the tracker takes them.
    tracked: Vec<TrackerDetection>,
    /// Set if frames without motion have the detections of the last look.
    keeps_detections: bool,
    frame_rate: Option<f64>,
    shared: Arc<StageLoop>,
}

/// The state of a source from frame to frame.
#[derive(Default)]
pub(super) struct Stream {
    tracker: Option<ByteTracker>,
    camera: CameraMotionEstimator,
    frame_rate: Option<f64>,
    /// Index and time of the previous frame.
    previous: Option<(u64, Duration)>,
    /// The detections of the last look, if frames without motion have them, and the classes that it searched for.
    kept: (Vec<Detection>, Vec<bool>),
}

impl DecodeStage {
    /// Decodes all classes, or those that the budget of the frame's source plans; `tracker` is that of the source.
    pub(super) fn run(&mut self, job: &mut Job, tracker: Option<&ByteTracker>) -> Result<()> {
        self.search(job)?;
        self.decode(job, tracker)
    }

    /// Searches a frame in tiles, if it is to be.
    fn search(&mut self, job: &mut Job) -> Result<()> {
        let (Some((search, encoder)), true) = (&mut self.tiles, job.in_tiles) else { return Ok(()) };
        let start = Instant::now();
        let image = job.image.take().expect("it was kept because it is searched in tiles");
        let stages = (encoder, &mut self.decoder);
        let found = WholeImage::new(&image)
            .and_then(|mut whole| search.detect(stages, &mut whole, &self.prompts, &mut job.outcome.times))?;
        job.outcome.detections = found.items;
        if self.keep_image {
            job.image = Some(image);
        } else {
            self.shared.buffers.images.give(image);
        }
        self.shared.stats.stage(Stage::Decode, start.elapsed());
        Ok(())
    }

    fn decode(&mut self, job: &mut Job, tracker: Option<&ByteTracker>) -> Result<()> {
        let Some(mut features) = job.features.take() else { return Ok(()) };
        let start = Instant::now();
        let buffers = &self.shared.buffers;
        let source = job.outcome.source_number();
        let FrameOutcome { times, detections, detected, searched, .. } = &mut job.outcome;
        let known = self.prompts.len();
        let budget = match self.slots.filter(|_| *detected) {
            None => None,
            Some(slots) => {
                let count = self.budgets.len().max(source + 1);
                self.budgets.resize_with(count, || ClassBudget::new(slots, known));
                let budget = &mut self.budgets[source];
                let tracks = tracker.into_iter().flat_map(ByteTracker::tracks);
                match self.decoder.screen(&features, &self.prompts, times)? {
                    Some(passed) => budget.plan_among(&passed),
                    None => budget.plan(tracks.map(|track| track.class_id)),
                };
                searched.extend((0..known).map(|class| budget.is_planned(class)));
                Some(budget)
            }
        };
        let classes = budget.as_ref().map(|budget| budget.planned());
        let request = DecodeRequest { classes, ..(&self.prompts).into() };
        if let Some(side) = self.mask_side {
            let masks = job.masks.insert(buffers.masks[job.device].take());
            let request = Some(request).filter(|_| *detected && known > 0);
            masks.detect(&mut features, &mut self.decoder, request, side, times)?;
            masks.leave_out(searched);
            let found = masks.detections().enumerate().filter(|(_, found)| !found.is_empty());
            if let Some(budget) = budget {
                budget.detected(found.map(|(class, _)| class));
            }
        } else {
            self.decoder.decode_into(&features, request, times, detections)?;
            let found = detections.iter().map(|detection| detection.class_id);
            if let Some(budget) = budget {
                budget.detected(found);
            }
        }
        if self.appearance {
            let appearances = job.appearances.insert(buffers.appearances.take());
            let boxes = detections.iter().map(|detection| detection.bbox);
            self.decoder.appearances_into(&features, boxes, appearances)?;
        }
        buffers.features[job.device].give(features);
        self.shared.stats.stage(Stage::Decode, start.elapsed());
        Ok(())
    }
}

impl TrackStage {
    /// The state of the frame's source.
    pub(super) fn stream(&mut self, job: &Job) -> &mut Stream {
        let source = job.outcome.source_number();
        while self.streams.len() <= source {
            let build = |options| {
                let tracker = ByteTracker::new(options);
                tracker.expect("the options were checked when the pipeline was built")
            };
            self.streams.push(Stream { tracker: self.tracker.map(build), ..Stream::default() });
        }
        let frame_rate = job.outcome.origin.as_ref().map_or(self.frame_rate, |origin| origin.frame_rate);
        let stream = &mut self.streams[source];
        stream.frame_rate = frame_rate;
        stream
    }

    /// Frames come in order.
    pub(super) fn run(&mut self, job: &mut Job) {
        job.outcome.labels = self.labels.clone();
        let keeps_detections = self.keeps_detections;
        let stream = self.stream(job);
        if keeps_detections {
            let FrameOutcome { detections, searched, detected, still, .. } = &mut job.outcome;
            let (kept, kept_searched) = &mut stream.kept;
            if *detected {
                kept.clone_from(detections);
                kept_searched.clone_from(searched);
            } else if *still {
                detections.clone_from(kept);
                searched.clone_from(kept_searched);
            }
        }
        self.track(job);
    }

    fn track(&mut self, job: &mut Job) {
        let outcome = &mut job.outcome;
        let stream = &mut self.streams[outcome.source_number()];
        let frames = stream.frames_since_previous(outcome.index, outcome.time);
        let Some(tracker) = &mut stream.tracker else { return };
        let start = Instant::now();
        if let Some(reduced) = job.reduced.take() {
            // Since the last frame that came here: those that were dropped on the way do not count.
            let (motion, earlier) = stream.camera.next_reduced(reduced);
            tracker.compensate(&motion);
            earlier.into_iter().for_each(|earlier| self.shared.buffers.reduced.give(earlier));
        }
        let tracks = if outcome.detected || outcome.still {
            self.tracked.clear();
            self.tracked.extend(outcome.detections.iter().map(TrackerDetection::from));
            let is_decoded = |class: usize| outcome.searched.get(class).is_none_or(|searched| *searched);
            let unknown = Appearances::default();
            let appearances = job.appearances.as_ref().unwrap_or(&unknown);
            tracker.update_with(&self.tracked, appearances, frames, is_decoded)
        } else {
            tracker.predict(frames)
        };
        outcome.tracks.extend_from_slice(tracks);
        job.appearances.take().into_iter().for_each(|done| self.shared.buffers.appearances.give(done));
        self.shared.stats.stage(Stage::Track, start.elapsed());
    }
}

impl Stream {
    /// The time since the previous frame, in the tracker's frames.
    fn frames_since_previous(&mut self, index: u64, time: Duration) -> f32 {
        let Some((last_index, last_time)) = self.previous.replace((index, time)) else { return 1.0 };
        match self.frame_rate {
            Some(frame_rate) => frames_between(last_time, time, frame_rate),
            None => index.saturating_sub(last_index) as f32,
        }
    }
}

/// Produces the images that the sinks ask for.
pub(super) struct DrawStage {
    pub(super) drawing: Drawing,
    pub(super) images: Images,
    pub(super) redaction: Option<Redaction>,
    pub(super) shared: Arc<StageLoop>,
}

impl DrawStage {
    pub(super) fn run(&mut self, job: &mut Job) -> Result<()> {
        let start = Instant::now();
        let mut image = job.image.take().expect("it was kept because sinks need it");
        let outcome = &mut job.outcome;
        if let Some(redaction) = &mut self.redaction {
            let mut pixels = image.into_rgb_image();
            redaction.apply(&mut pixels, outcome);
            image = pixels.into();
        }
        if !self.images.annotated {
            outcome.clean = Some(image);
            return Ok(());
        }
        let canvas = if self.images.clean {
            let mut copy = self.shared.buffers.images.take();
            copy.reset_rgb8(image.width(), image.height())?.copy_from_slice(image.as_rgb8());
            outcome.clean = Some(image);
            copy
        } else {
            image
        };
        let mut canvas = canvas.into_rgb_image();
        (self.drawing)(&mut canvas, outcome)?;
        let (width, height) = canvas.dimensions();
        let mut pixels = canvas.into_raw();
        pixels.truncate(width as usize * height as usize * 3);
        outcome.annotated = Some(Image::from_rgb8(width, height, pixels)?);
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
        // previous time stamp, this one, frame rate, frames between
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
            let found = frames_between(last, now, rate);
            if (found - expected).abs() > 1e-6 {
                failures.push(format!("{last:?} to {now:?} at {rate}: expected {expected}, found {found}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
