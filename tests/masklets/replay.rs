//! A golden session, run on exported graphs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ocelli::engines::Tensor;
use ocelli::export::ExportOptions;
use ocelli::masklets::{
    DetectorPrompt, FrameNetwork, MaskFrame, MaskFrames, MaskletNetwork, MaskletOptions, Retention,
    RunDirection, SessionSource, Sessions, StreamObject, TrackedFrame, VideoShape,
};
use ocelli::tracking::masklets::{
    DetectedMask, EncodeBatch, FrameReport, LogitMask, MaskNetwork, MaskPromptBatch, MaskletSession,
    PointPrompt, TrackBatch, TrackedMask,
};
use ocelli::{
    Detector, EngineKind, Image, Model, StageTimes,
    engine::{EngineFactory, EngineOptions},
    postprocess::PostProcessOptions,
    stages::{EmbeddedPrompts, ImageFeatures, Stages, TextCacheFile, Wanted},
};
use serde_json::{Value, json};

use crate::parity::exported::{Exported, Outcome, Runner};
use crate::parity::golden::{Golden, f32s};
use crate::parity::report::Report;

/// Whose memories and pointers a step starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// The reference's.
    Open,
    /// Those of the steps before it.
    Closed,
}

/// A session and the model that runs it.
pub struct Replay<'g> {
    golden: &'g Golden,
    /// The files of the model.
    _exported: Exported,
    model: Model,
    factory: EngineFactory,
}

impl<'g> Replay<'g> {
    pub fn new(golden: &'g Golden, runner: Runner, options: &ExportOptions) -> Outcome<Self> {
        let exported = Exported::on(runner, &golden.open_checkpoint()?, options)?;
        let model = Model::open(&exported.path(""))?;
        let kind = match runner {
            Runner::OnnxRuntime => EngineKind::Cpu,
            Runner::Embedded => EngineKind::Embedded,
            Runner::OpenVino => "openvino".parse()?,
            Runner::WebGpu => EngineKind::WebGpu { ordinal: 0 },
            Runner::Cuda => "cuda".parse()?,
        };
        let factory =
            EngineFactory::start(&EngineOptions { kind, threads: Some(1), ..EngineOptions::default() })?;
        Ok(Self { golden, _exported: exported, model, factory })
    }

    pub fn keeps_memories_on_a_device(&self) -> Outcome<bool> {
        Ok(MaskletNetwork::load(&self.model, &self.factory)?.bank().device().is_some())
    }

    pub fn options(&self) -> MaskletOptions {
        options(self.golden)
    }

    pub fn video(&self) -> VideoShape {
        let side = |index: usize| self.golden.value("video")[index].as_u64().expect("two sides") as usize;
        let frames = self.golden.value("shown").as_array().map(Vec::len);
        VideoShape { frames, width: side(0), height: side(1) }
    }

    /// A frame with its features and its drawn detections.
    pub fn frame(&self, frame: usize) -> Outcome<MaskFrame> {
        let (hidden, detections) = self.parts(frame)?;
        Ok(MaskFrame::new(hidden, vec![detections]))
    }

    fn parts(&self, frame: usize) -> Outcome<(Tensor, Vec<DetectedMask>)> {
        let hidden = self.golden.tensor(&format!("{frame}.hidden")).clone();
        let side = self.options().mask_side();
        let drawn = self.golden.value("detections")[frame].as_array().ok_or("no detections")?;
        Ok((hidden, drawn.iter().map(|drawn| paint(side, drawn)).collect::<Outcome<_>>()?))
    }

    /// The frames as the source of a session, which adds to `count` for each frame that it computes.
    pub fn source(&self, count: &Arc<AtomicUsize>) -> Outcome<SessionSource> {
        let video = self.video();
        let frames = 0..video.frames.unwrap_or(0);
        let frames = frames.map(|frame| self.parts(frame)).collect::<Outcome<Vec<_>>>()?;
        let count = Arc::clone(count);
        Ok(SessionSource::features(video, move |number, target| {
            count.fetch_add(1, Ordering::Relaxed);
            let (hidden, detections) = frames[number].clone();
            *target = MaskFrame::new(hidden, vec![detections]);
            Ok(())
        }))
    }

    /// A detector of the same model; its own graphs are not used.
    pub fn detector(&self) -> Outcome<Detector> {
        let builder = Detector::builder().with_open_model(self.model.clone()).with_masks(true);
        Ok(builder.with_engine_factory(self.factory.clone()).with_text_cache(TextCacheFile::None).build()?)
    }

    /// Compares every step, and every frame that is shown.
    pub fn run(&self, report: &mut Report, mode: Loop) -> Outcome<()> {
        self.run_on(1, report, mode)
    }

    /// As [`run`](Self::run), with the objects on so many devices.
    pub fn run_on(&self, devices: usize, report: &mut Report, mode: Loop) -> Outcome<()> {
        let mut network = MaskletNetwork::load(&self.model, &self.factory)?;
        (1..devices).try_for_each(|_| network.add_device(&self.model, &self.factory))?;
        let mut bank = network.bank();
        let mut source = Drawn { replay: self, frame: MaskFrame::default() };
        let inner = FrameNetwork { network: &mut network, bank: &mut bank, class_id: 0, source: &mut source };
        let mut checked =
            Checked { inner, golden: self.golden, mode, report, steps: 0, batches: BTreeMap::new() };
        let mut session = MaskletSession::new(self.video(), Retention::Window, self.options())?;
        let mut steps = vec![session.prompt(DetectorPrompt::Text, 0, &mut checked)?];
        checked.check_step(steps[0].report.as_ref());
        session.propagate(RunDirection::Forward, None, None)?;
        let mut objects = vec![0; devices];
        while let Some(step) = session.advance(&mut checked)? {
            checked.check_step(step.report.as_ref());
            steps.push(step);
            let now = checked.inner.network.objects();
            objects.iter_mut().zip(now).for_each(|(most, now)| *most = now.max(*most));
        }
        let count = checked.steps;
        report.expect("there are 11 steps", count == 11);
        let rows = bank.rows();
        report.expect("the bank grew with its slots", rows >= session.slot_counts()[0] && rows <= 64);
        if devices > 1 {
            report.expect("every device has objects", objects.iter().all(|count| *count > 0));
            return Ok(());
        }

        let detector = self.detector()?;
        let mut tracker = Tracker::new(&detector, Some(1), self.video(), self.options())?;
        let mut shown = Vec::new();
        for frame in 0..10 {
            shown.extend(tracker.push(&self.frame(frame)?, &[])?);
        }
        shown.extend(tracker.finish()?);
        compare_shown(report, self.golden, &shown);
        Ok(())
    }
}

/// The frames of a golden.
struct Drawn<'r, 'g> {
    replay: &'r Replay<'g>,
    frame: MaskFrame,
}

impl MaskFrames for Drawn<'_, '_> {
    fn frame(&mut self, number: usize) -> ocelli::Result<&MaskFrame> {
        self.frame = self.replay.frame(number).expect("the golden has every frame");
        Ok(&self.frame)
    }
}

pub fn options(golden: &Golden) -> MaskletOptions {
    let with = golden.value("with_disambiguation") == &Value::Bool(true);
    let mut options = if with {
        MaskletOptions::default()
    } else {
        MaskletOptions::default().without_temporal_disambiguation()
    };
    options.patch_grid = golden.number("grid");
    options
}

/// `[score, [left, top, right, bottom], logit]`, the sides as shares.
pub fn paint(side: usize, drawn: &Value) -> Outcome<DetectedMask> {
    let number = |value: &Value| value.as_f64().ok_or("expected a number");
    let (score, logit) = (number(&drawn[0])? as f32, number(&drawn[2])? as f32);
    let mut edges = [0; 4];
    for (index, edge) in edges.iter_mut().enumerate() {
        // Python rounds halves to even.
        *edge = (number(&drawn[1][index])? * side as f64).round_ties_even() as usize;
    }
    let [left, top, right, bottom] = edges;
    let inside =
        |pixel: usize| (left..right).contains(&(pixel % side)) && (top..bottom).contains(&(pixel / side));
    let logits = (0..side * side).map(|pixel| if inside(pixel) { logit } else { -logit }).collect();
    Ok(DetectedMask { score, mask: LogitMask::new(side, side, logits)? })
}

/// Compares shown frames: the same objects with the same pixels, but for one in a thousand at their borders.
pub fn compare_shown(report: &mut Report, golden: &Golden, shown: &[TrackedFrame]) {
    let expected = golden.value("shown").as_array().expect("the script writes frames");
    report.expect(
        format!("{} frames are shown, not {}", expected.len(), shown.len()),
        shown.len() == expected.len(),
    );
    for (shown, expected) in shown.iter().zip(expected) {
        let ids: Vec<u64> = shown.objects.iter().map(|object| object.id).collect();
        let (frame, same) =
            (shown.frame, json!([shown.frame, ids]) == json!([expected["frame"], expected["ids"]]));
        report.expect(format!("frame {frame} shows {ids:?}, not {}", expected["ids"]), same);
        for (index, object) in shown.objects.iter().enumerate() {
            let bits = object.mask.to_bitmap();
            let runs = expected["masks"][index].as_array().expect("the script writes runs");
            let reference = runs.iter().enumerate().flat_map(|(place, run)| {
                let length = run.as_u64().expect("a run is a number") as usize;
                std::iter::repeat_n((place % 2) as u8, length)
            });
            let different = bits.iter().zip(reference).filter(|(ours, theirs)| *ours != theirs).count();
            let few = different * 500 <= bits.len();
            report.expect(format!("frame {frame}, object {}: {different} pixels differ", object.id), few);
            let score = expected["scores"][index].as_f64().unwrap_or(-1.0);
            report.expect(
                format!("frame {frame}, object {}: score", object.id),
                (f64::from(object.score) - score).abs() < 1e-6,
            );
        }
    }
}

/// A network whose answers are compared, and in an open loop replaced by the reference's.
struct Checked<'a, 'g> {
    inner: FrameNetwork<'a>,
    golden: &'g Golden,
    mode: Loop,
    report: &'a mut Report,
    /// Steps that have begun.
    steps: usize,
    /// Objects of this step that read so many memories and pointers.
    batches: BTreeMap<(u64, u64), u64>,
}

impl Checked<'_, '_> {
    fn key(&self, id: u32, name: &str) -> String {
        format!("{}.{id}.{name}", self.steps - 1)
    }

    fn compare(&mut self, id: u32, name: &str, shape: &[usize], ours: Vec<f32>) -> Tensor {
        let key = self.key(id, name);
        let Some(reference) = self.golden.find(&key).cloned() else {
            self.report.problem(key, "is not in the golden");
            return Tensor::f32(shape, ours).expect("the shape fits");
        };
        let ours = Tensor::f32(shape, ours).expect("the shape fits");
        self.report.compare(key, &ours, &reference);
        reference
    }

    /// The bytes copied from the device of the memories so far; `None` if they are in host memory.
    fn bytes_to_host(&self) -> Option<u64> {
        self.inner.bank.device().map(|device| device.transferred().to_host)
    }

    fn pointer(&mut self, id: u32, name: &str, slot: ocelli::tracking::masklets::PointerSlot) -> Outcome<()> {
        let ours = self.inner.bank.pointer(slot).ok_or("the pointer was not written")?.to_vec();
        let reference = self.compare(id, name, &[ours.len()], ours);
        if self.mode == Loop::Open {
            self.inner.bank.set_pointer(slot, &reference)?;
        }
        Ok(())
    }

    /// Compares the decisions of the step that has ended.
    fn check_step(&mut self, found: Option<&FrameReport>) {
        let step = self.steps - 1;
        let expected = &self.golden.value("steps")[step];
        let Some(found) = found else { return self.report.problem(format!("step {step}"), "has no report") };
        let ours = [
            ("frame", json!(found.frame)),
            ("detections", json!(found.detections)),
            ("tracked", json!(found.tracked)),
            ("unmatched", json!(found.unmatched)),
            ("removed", json!(found.removed)),
            ("born", json!(found.born)),
            ("matches", json!(found.matches)),
            ("reconditioned", json!(found.reconditioned)),
            ("occluded", json!(found.occluded)),
            ("shrunk", json!(found.shrunk)),
            ("present", json!(found.present)),
            ("objects", json!(found.objects)),
        ];
        for (name, ours) in ours {
            let theirs = &expected[name];
            self.report.expect(format!("step {step}: {name} {ours}, not {theirs}"), ours == *theirs);
        }
        let mut batches: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for batch in expected["batches"].as_array().expect("the script writes batches") {
            let number = |index: usize| batch[index].as_u64().expect("three numbers");
            *batches.entry((number(1), number(2))).or_default() += number(0);
        }
        let ours = std::mem::take(&mut self.batches);
        self.report.expect(format!("step {step}: batches {ours:?}, not {batches:?}"), ours == batches);
    }
}

/// Errors of the test itself, in the type of the library.
fn failed(error: Box<dyn std::error::Error>) -> ocelli::Error {
    ocelli::Error::new(ocelli::ErrorKind::Internal, error.to_string())
}

impl MaskNetwork for Checked<'_, '_> {
    fn load(&mut self, frame: usize) -> ocelli::Result<()> {
        self.steps += 1;
        self.inner.load(frame)
    }

    fn detect(&mut self, frame: usize) -> ocelli::Result<Option<Vec<DetectedMask>>> {
        self.inner.detect(frame)
    }

    fn track(&mut self, batch: &TrackBatch) -> ocelli::Result<Vec<TrackedMask>> {
        let key = (batch.buckets[0].memories.len() as u64, batch.buckets[0].pointers.len() as u64);
        *self.batches.entry(key).or_default() += batch.buckets.len() as u64;
        let before = self.bytes_to_host();
        let mut tracked = self.inner.track(batch)?;
        if let Some(before) = before {
            // The masks, the object score, the IoU and the pointer of each object.
            let side = tracked.first().map_or(0, |tracked| tracked.mask.width());
            let width = self.inner.bank.pointer(batch.buckets[0].pointer).map_or(0, <[f32]>::len);
            let expected = batch.buckets.len() * 4 * (side * side + 2 + width);
            let copied = self.bytes_to_host().unwrap_or(0) - before;
            self.report.expect(
                format!("tracking copies {copied} bytes to the host, not {expected}"),
                copied == expected as u64,
            );
        }
        for ((bucket, id), found) in batch.buckets.iter().zip(batch.objects()).zip(&mut tracked) {
            let side = found.mask.width();
            let mask = self.compare(id, "masks", &[side, side], found.mask.values().to_vec());
            let score = self.compare(id, "object_score", &[], vec![found.object_score]);
            let iou = self.compare(id, "iou", &[], vec![found.iou]);
            self.pointer(id, "pointer", bucket.pointer).map_err(failed)?;
            if self.mode == Loop::Open {
                let mask = LogitMask::new(side, side, f32s(&mask).to_vec())?;
                *found = TrackedMask { mask, object_score: f32s(&score)[0], iou: f32s(&iou)[0] };
            }
        }
        Ok(tracked)
    }

    fn prompt_masks(&mut self, batch: &MaskPromptBatch<'_>) -> ocelli::Result<()> {
        self.inner.prompt_masks(batch)?;
        for prompt in batch.prompts {
            self.pointer(prompt.id, "prompt_pointer", prompt.pointer).map_err(failed)?;
        }
        Ok(())
    }

    fn prompt_points(&mut self, prompt: &PointPrompt<'_>) -> ocelli::Result<TrackedMask> {
        self.inner.prompt_points(prompt)
    }

    fn encode(&mut self, batch: &EncodeBatch<'_>) -> ocelli::Result<()> {
        let before = self.bytes_to_host();
        self.inner.encode(batch)?;
        let after = self.bytes_to_host();
        self.report.expect(format!("memories stay on the device: {before:?}, {after:?}"), before == after);
        // The engine's error, besides that of rounding to the 8 bits of a bfloat16.
        let tolerance = if self.mode == Loop::Open { 1e-4 } else { 1e-3 };
        for object in &batch.objects {
            let key = self.key(object.id, "memory");
            let Some(reference) = self.golden.find(&key) else {
                self.report.problem(key, "is not in the golden");
                continue;
            };
            let ours = self.inner.bank.memory(object.slot)?;
            let largest = f32s(reference).iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            let pairs = || f32s(&ours).iter().zip(f32s(reference));
            let is_far =
                |&(a, b): &(&f32, &f32)| (a - b).abs() > tolerance * largest + b.abs() * (1.01 / 256.0);
            let far = pairs().filter(is_far).count();
            let most = pairs().map(|(a, b)| (a - b).abs() / largest).fold(0.0, f32::max);
            let rounded = f32s(&ours).iter().all(|value| value.to_bits() & 0xffff == 0);
            let complete = ours.len() == reference.len() && rounded;
            self.report.expect(
                format!("{key} is as close as 16 bits allow: {far} values are not, by {most:.3}"),
                far == 0 && complete,
            );
            if self.mode == Loop::Open {
                self.inner.bank.set_memory(object.slot, reference)?;
            }
        }
        Ok(())
    }
}

/// The detector of a model that has been exported, and what keeps its files.
pub fn embedded(golden: &Golden) -> Outcome<Replay<'_>> {
    Replay::new(golden, Runner::Embedded, &ExportOptions::default())
}

/// A detector that finds something in any image, and the options for it.
pub fn eager(replay: &Replay<'_>) -> MaskletOptions {
    let mut options = replay.options();
    options.detection_threshold = 0.0;
    options
}

/// The tracker of a pipeline, frame by frame.
pub struct Tracker {
    network: MaskletNetwork,
    sessions: Sessions,
}

impl Tracker {
    /// For so many classes; without them, for objects that are given.
    pub fn new(
        detector: &Detector,
        classes: Option<usize>,
        video: VideoShape,
        options: MaskletOptions,
    ) -> ocelli::Result<Self> {
        let network = MaskletNetwork::of(detector, &options)?;
        Ok(Self { sessions: Sessions::new(&network, classes, video, options)?, network })
    }

    pub fn push(&mut self, frame: &MaskFrame, objects: &[StreamObject]) -> ocelli::Result<Vec<TrackedFrame>> {
        self.sessions.push(&mut self.network, frame, objects)
    }

    pub fn finish(&mut self) -> ocelli::Result<Vec<TrackedFrame>> {
        self.sessions.finish()
    }
}

/// Detects in images as a pipeline with memory does.
pub struct MaskDetector {
    stages: Stages,
    prompts: EmbeddedPrompts,
    features: ImageFeatures,
    frame: MaskFrame,
    side: usize,
    pub times: StageTimes,
}

impl MaskDetector {
    pub fn new(replay: &Replay<'_>, phrases: &[&str], options: &MaskletOptions) -> Outcome<Self> {
        let mut detector = replay.detector()?;
        let prompts = detector.prepare(&ocelli::Prompts::new(phrases.iter().copied())?)?;
        let side = options.mask_side();
        let mut stages = detector.into_stages();
        let confidence = options.detection_threshold;
        let post = PostProcessOptions { confidence, nms: None, ..PostProcessOptions::default() };
        stages.decoder.set_post_processing(post)?;
        let (features, frame, times) =
            (ImageFeatures::default(), MaskFrame::default(), StageTimes::default());
        Ok(Self { stages, prompts, features, frame, side, times })
    }

    pub fn detect(&mut self, image: &Image) -> ocelli::Result<&MaskFrame> {
        let Self { stages, prompts, features, frame, side, times } = self;
        stages.encoder.encode_into(image, Wanted { masks: true, hidden: true }, features, times)?;
        let request = Some((&*prompts).into());
        frame.detect(features, &mut stages.decoder, request, *side, times)?;
        Ok(frame)
    }
}
