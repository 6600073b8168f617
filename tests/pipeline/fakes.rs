//! A model without a network: fake engines whose output depends on the image only and arrives after a known delay.
//!
//! Each image has a single grey level. Every class is detected once, in a box whose position encodes the level and the
//! class, so an outcome with another frame's pixels, features or boxes is recognized.

// Two test programs share this file, and neither uses all of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ocelli::engines::fake::FakeEngine;
use ocelli::engines::{Dim, ElementType, Engine, EngineSpec, Tensor, TensorSpec};
use ocelli::export::MixedPrecision;
use ocelli::export::contract::{
    FORMAT_VERSION, Manifest, Precision, Preprocessing, Prompting, SpecialTokens, Target, Thresholds, dim,
    file, tensor,
};
use ocelli::sink::Images;
use ocelli::{
    Detection, Detector, Error, ErrorKind, Frame, Model, Prompts, Result, Sink, Source,
    engine::EngineFactory, pipeline::FrameOutcome, source::SourceInfo, stages::TextCacheFile,
};
use tempfile::TempDir;

const SIDE: usize = 28;
const GRID: usize = 2;
const WIDTH: usize = 4;
const QUERIES: usize = 2;
const CONTEXT: usize = 8;

/// The behaviour of the fake engines.
#[derive(Clone, Default)]
pub struct Fakes {
    pub backbone: Duration,
    pub decode: Duration,
    /// The run, from 1, in which the backbone fails; 0 is never. The same for panics, and for the decoder.
    pub backbone_fails: usize,
    pub backbone_panics: usize,
    pub decode_fails: usize,
    pub decode_panics: usize,
    /// The run, from 1, from which on classes are detected.
    pub found_from: usize,
    /// One half of the model is in memory at a time.
    pub low_memory: bool,
    /// Called with the name of a graph at the start of each of its runs.
    pub on_run: Option<Arc<dyn Fn(&str) + Send + Sync>>,
    /// The graphs that were loaded (+) and dropped (-).
    pub events: Arc<Mutex<Vec<String>>>,
}

/// Notes when an engine is loaded and dropped.
struct Loaded {
    name: &'static str,
    on_run: Option<Arc<dyn Fn(&str) + Send + Sync>>,
    events: Arc<Mutex<Vec<String>>>,
}

impl Loaded {
    fn new(name: &'static str, fakes: &Fakes) -> Self {
        let loaded = Self { name, on_run: fakes.on_run.clone(), events: fakes.events.clone() };
        loaded.note('+');
        loaded
    }

    fn run(&self) {
        self.on_run.iter().for_each(|on_run| on_run(self.name));
    }

    fn note(&self, sign: char) {
        self.events
            .lock()
            .expect("no thread panics while it holds the lock")
            .push(format!("{sign}{}", self.name));
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.note('-');
    }
}

/// A detector with fake engines; its model folder is only needed while it is built.
pub fn detector(fakes: &Fakes) -> Detector {
    let folder = folder();
    let model = Model::open(folder.path()).expect("the folder is a model");
    let (low_memory, fakes) = (fakes.low_memory, fakes.clone());
    let factory = EngineFactory::custom("fakes", move |graph: &Path| {
        let name = graph.file_name().and_then(|name| name.to_str()).expect("a graph has a name");
        Ok(match name {
            file::TEXT_ENCODER => Box::new(text_encoder()) as Box<dyn Engine>,
            file::BACKBONE => Box::new(backbone(&fakes)),
            file::ENCODER_DECODER => Box::new(encoder_decoder(&fakes)),
            other => {
                return Err(Error::new(ErrorKind::Unavailable, format!("{other}: no such fake")));
            }
        })
    });
    Detector::builder()
        .with_open_model(model)
        .with_engine_factory(factory)
        .with_text_cache(TextCacheFile::None)
        .with_class_chunk(100)
        .with_options(|options| options.low_memory = low_memory)
        .build()
        .expect("fakes load")
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    ocelli::builtin::write_checkpoint(folder.path()).expect("it writes");
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        exporter: "none".into(),
        weights_sha256: "0".repeat(64),
        text_sha256: None,
        imgsz: SIDE,
        patch_size: SIDE / GRID,
        model_width: WIDTH,
        num_queries: QUERIES,
        context_length: CONTEXT,
        special_tokens: SpecialTokens { bos: 0, eos: 1, pad: 1 },
        text_padding: None,
        license: None,
        preprocessing: Preprocessing { resize: "bilinear-antialias".into(), mean: [0.0; 3], std: [1.0; 3] },
        thresholds: Thresholds { confidence: 0.3, nms: 0.7 },
        prompting: Prompting::Official,
        target: Target::OnnxRuntime,
        precision: Precision::Fp32,
        mixed_precision: MixedPrecision::None,
        keep_fp32: Vec::new(),
        calibration: None,
        tracker: None,
        multiplex: None,
        detection_only: true,
        skip_blocks: Vec::new(),
        mask_blocks: Vec::new(),
        split_block: None,
        files: BTreeMap::new(),
    };
    let text = serde_json::to_string(&manifest).expect("a manifest is JSON");
    std::fs::write(folder.path().join(file::MANIFEST), text).expect("it writes");
    folder
}

fn spec(name: &str, element: ElementType, shape: &[Dim]) -> TensorSpec {
    TensorSpec::new(name, element, shape.iter().cloned())
}

fn text_encoder() -> FakeEngine {
    let tokens = [dim::CLASSES.into(), CONTEXT.into()];
    FakeEngine::zeros(EngineSpec {
        inputs: vec![
            spec(tensor::INPUT_IDS, ElementType::I64, &tokens),
            spec(tensor::ATTENTION_MASK, ElementType::I64, &tokens),
        ],
        outputs: vec![spec(
            tensor::TEXT_FEATURES,
            ElementType::F32,
            &[dim::CLASSES.into(), CONTEXT.into(), WIDTH.into()],
        )],
    })
}

/// Fails or panics in the given runs.
fn trouble(run: usize, fails: usize, panics: usize) -> Result<()> {
    assert_ne!(run, panics, "this run was to panic");
    if run == fails {
        return Err(Error::new(ErrorKind::Execution, "this run was to fail"));
    }
    Ok(())
}

/// All features are the grey level of the image, 0 to 1.
fn backbone(fakes: &Fakes) -> FakeEngine {
    let (fails, panics, mut runs) = (fakes.backbone_fails, fakes.backbone_panics, 0);
    let spec = EngineSpec {
        inputs: vec![spec(
            tensor::PIXEL_VALUES,
            ElementType::F32,
            &[1.into(), 3.into(), SIDE.into(), SIDE.into()],
        )],
        outputs: vec![
            spec(tensor::FPN[2], ElementType::F32, &[1.into(), WIDTH.into(), GRID.into(), GRID.into()]),
            spec(tensor::IMAGE_PROMPT, ElementType::F32, &[1.into(), 1.into(), WIDTH.into()]),
        ],
    };
    let loaded = Loaded::new("backbone", fakes);
    let engine = FakeEngine::new(spec, move |inputs, outputs| {
        loaded.run();
        runs += 1;
        trouble(runs, fails, panics)?;
        let level = inputs[0].1.as_f32()?[0];
        for (name, output) in outputs.iter_mut() {
            let shape: &[usize] =
                if *name == tensor::FPN[2] { &[1, WIDTH, GRID, GRID] } else { &[1, 1, WIDTH] };
            output.reset_f32(shape).fill(level);
        }
        Ok(())
    });
    engine.with_delay(fakes.backbone)
}

/// Detects every class once: the left edge encodes the level, the top edge the class.
fn encoder_decoder(fakes: &Fakes) -> FakeEngine {
    let (fails, panics, from, mut runs) = (fakes.decode_fails, fakes.decode_panics, fakes.found_from, 0);
    let tokens = || [Dim::from(dim::CLASSES), dim::PROMPT_TOKENS.into()];
    let [classes, prompt_tokens] = tokens();
    let queries = || [Dim::from(dim::CLASSES), QUERIES.into()];
    let [first, second] = queries();
    let spec = EngineSpec {
        inputs: vec![
            spec(tensor::FPN[2], ElementType::F32, &[1.into(), WIDTH.into(), GRID.into(), GRID.into()]),
            spec(tensor::PROMPT_FEATURES, ElementType::F32, &[classes, prompt_tokens, WIDTH.into()]),
            spec(tensor::PROMPT_MASK, ElementType::I64, &tokens()),
        ],
        outputs: vec![
            spec(tensor::LOGITS, ElementType::F32, &queries()),
            spec(tensor::BOXES, ElementType::F32, &[first, second, 4.into()]),
            spec(tensor::PRESENCE, ElementType::F32, &[dim::CLASSES.into(), 1.into()]),
        ],
    };
    let loaded = Loaded::new("decoder", fakes);
    let engine = FakeEngine::new(spec, move |inputs, outputs| {
        loaded.run();
        runs += 1;
        trouble(runs, fails, panics)?;
        let tensor_of = |wanted: &str| -> &Tensor {
            inputs.iter().find(|(name, _)| *name == wanted).expect("the engine checked the names").1
        };
        let level = tensor_of(tensor::FPN[2]).as_f32()?[0];
        let classes = tensor_of(tensor::PROMPT_MASK).shape()[0];
        let logit = if runs >= from { 4.0 } else { -4.0 };
        for (name, output) in outputs.iter_mut() {
            match *name {
                tensor::LOGITS => {
                    let rows = output.reset_f32(&[classes, QUERIES]).chunks_exact_mut(QUERIES);
                    rows.for_each(|row| row.copy_from_slice(&[logit, -4.0]));
                }
                tensor::BOXES => {
                    let rows = output.reset_f32(&[classes, QUERIES, 4]).chunks_exact_mut(QUERIES * 4);
                    for (class, row) in rows.enumerate() {
                        let (x, y) = (0.5 * level, 0.5 * class as f32 / classes as f32);
                        let edges = [x, y, x + 0.25, y + 0.5 / classes as f32];
                        row.chunks_exact_mut(4).for_each(|query| query.copy_from_slice(&edges));
                    }
                }
                _ => output.reset_f32(&[classes, 1]).fill(4.0),
            }
        }
        Ok(())
    });
    engine.with_delay(fakes.decode)
}

/// The difference between the grey levels of consecutive frames, by default.
const STEP: u64 = 37;

/// The grey level of a frame.
pub fn level_of(index: u64) -> u8 {
    (index * STEP % 256) as u8
}

/// The grey level that a detection of [`encoder_decoder`] encodes.
pub fn level_found(detection: &Detection, width: u32) -> u8 {
    (detection.bbox.x1 / width as f32 * 2.0 * 255.0).round() as u8
}

pub fn prompts(classes: usize) -> Prompts {
    Prompts::new((0..classes).map(|class| format!("class {class}"))).expect("they have names")
}

/// Frames with the grey levels of [`level_of`]; they can be slow, fail or panic.
pub struct Levels {
    info: SourceInfo,
    pub frames: u64,
    pub delay: Duration,
    pub fails_at: Option<u64>,
    pub panics_at: Option<u64>,
    /// The difference between the levels of consecutive frames; 0 is a still image.
    pub step: u64,
    /// The time between frames.
    pub interval: Duration,
    next: u64,
}

impl Levels {
    pub fn new(frames: u64, width: u32, height: u32) -> Self {
        let mut info = SourceInfo::default();
        info.name = "levels".into();
        info.size = Some((width, height));
        info.frame_rate = Some(25.0);
        info.frame_count = Some(frames);
        let (delay, interval) = (Duration::ZERO, Duration::from_millis(40));
        Self { info, frames, delay, fails_at: None, panics_at: None, step: STEP, interval, next: 0 }
    }

    pub fn live(mut self) -> Self {
        self.info.live = true;
        self
    }
}

impl Source for Levels {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.fails_at == Some(self.next) {
            return Err(Error::new(ErrorKind::InvalidData, "levels: cut short"));
        }
        assert_ne!(self.panics_at, Some(self.next), "the source was to panic");
        if self.next == self.frames {
            return Ok(false);
        }
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        let (width, height) = self.info.size.expect("it has one");
        frame.image.reset_rgb8(width, height)?.fill((self.next * self.step % 256) as u8);
        frame.index = self.next;
        frame.time = self.interval * self.next as u32;
        self.next += 1;
        Ok(true)
    }
}

/// The results that a [`Keep`] has received.
#[derive(Default)]
pub struct Kept {
    pub outcomes: Vec<FrameOutcome>,
    pub finished: usize,
}

/// A sink that keeps a copy of everything; it can be slow, fail or panic.
#[derive(Default)]
pub struct Keep {
    pub kept: Arc<Mutex<Kept>>,
    pub wants: Images,
    pub delay: Duration,
    pub fails_at: Option<u64>,
    pub panics_at: Option<u64>,
    pub finish_fails: bool,
}

impl Sink for Keep {
    fn images(&self) -> Images {
        self.wants
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        if self.fails_at == Some(outcome.index) {
            return Err(Error::new(ErrorKind::Io, "keep: no room"));
        }
        assert_ne!(self.panics_at, Some(outcome.index), "the sink was to panic");
        self.kept.lock().expect("no thread panics while it holds the lock").outcomes.push(outcome.clone());
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.kept.lock().expect("no thread panics while it holds the lock").finished += 1;
        if self.finish_fails { Err(Error::new(ErrorKind::Io, "keep: cannot finish")) } else { Ok(()) }
    }
}

/// A sink that only counts.
pub struct Count(pub Arc<AtomicUsize>);

impl Sink for Count {
    fn write(&mut self, _: &FrameOutcome) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Everything in an outcome except the times, for bit-exact comparison.
pub fn facts(outcome: &FrameOutcome) -> String {
    let boxes: Vec<_> = outcome
        .detections
        .iter()
        .map(|d| (d.class_id, d.label.clone(), d.score.to_bits(), d.bbox.to_xyxy().map(f32::to_bits)))
        .collect();
    let FrameOutcome { index, time, size, detected, tracks, .. } = outcome;
    format!("{index} {time:?} {size:?} {detected} {boxes:?} {tracks:?}")
}
