//! The options of a detector, as plain data: programs, bindings and servers fill in this one form, and it is checked here. It can
//! be read from a file, with the names of the fields; what the command line takes as text is text there, too.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options: ocelli::options::DetectorOptions = serde_json::from_str(
//!     r#"{"model": "built-in", "engine": {"kind": "embedded"}, "confidence": 0.5, "masks": true, "tiling": {"size": "1024x768"}}"#,
//! )?;
//! options.check()?;
//! let mistake = serde_json::from_str::<ocelli::options::PipelineOptions>(r#"{"tracker": {"match_iuo": 0.5}}"#);
//! assert!(mistake.is_err_and(|why| why.to_string().contains("match_iou")));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ocelli_engines::default_threads;
use ocelli_export::Pruning;
use ocelli_export::contract::{Precision, Thresholds};
use serde::{Deserialize, Serialize};

use crate::engine::{EngineKind, EngineOptions};
use crate::model::ModelSource;
use crate::postprocess::PostProcessOptions;
use crate::stages::{Screening, TextCacheFile};
use crate::tiles::{TileSize, Tiling};
use ocelli_error::{Error, Result};

use crate::pipeline::options::Latency;
pub use crate::pipeline::options::PipelineOptions;

ocelli_error::written_as_text!(EngineKind, PrecisionChoice, TileSize);

/// The options of a [`Detector`](crate::Detector); the defaults are those of `ocelli detect`.
///
/// ```
/// use ocelli::{Detector, Image, Prompts, options::DetectorOptions};
///
/// # fn main() -> ocelli::Result<()> {
/// let options = DetectorOptions { confidence: Some(0.5), class_chunk: Some(2), ..DetectorOptions::default() };
/// let mut detector = Detector::with(options).build()?;
/// let found = detector.detect(&Image::open("demos/scenes/park.png")?, &Prompts::new(["dog"])?)?;
/// assert_eq!(found.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DetectorOptions {
    /// The model; the built-in one by default.
    pub model: ModelSource,
    /// The tokeniser of a checkpoint that has none beside it.
    pub tokenizer: Option<PathBuf>,
    /// Side of the model's square input in pixels; the model's own by default.
    pub imgsz: Option<usize>,
    /// The number format in which a checkpoint or the built-in model is exported; 32-bit floating point by default.
    ///
    /// OpenVINO computes in [`Bf16`](Precision::Bf16) or [`Fp16`](Precision::Fp16) with a model of 32-bit weights, which is
    /// what is exported or named then.
    pub precision: Option<PrecisionChoice>,
    /// Blocks and branches of the backbone that the export of a checkpoint or of the built-in model leaves out.
    pub pruning: Pruning,
    /// The engine that runs the graphs.
    pub engine: EngineOptions,
    /// The file that keeps text features between runs.
    pub text_cache: TextCacheFile,
    /// Detections with a score above this are kept, 0 to 1. The default is that of `model.json`: 0.3 unless edited.
    pub confidence: Option<f32>,
    /// Thresholds by class id, the index of the prompt, in place of [`confidence`](Self::confidence).
    pub class_confidence: BTreeMap<usize, f32>,
    /// Of two boxes of one class with an IoU above this, 0 to 1, the one with the lower score is dropped; 1 keeps all. The
    /// default is that of `model.json`: 0.7 unless edited.
    pub nms: Option<f32>,
    /// As [`nms`](Self::nms), for boxes of any classes; off by default.
    pub class_agnostic_nms: Option<f32>,
    /// The most detections of an image; those with the highest scores are kept. The default is no limit.
    pub max_detections: Option<usize>,
    /// Classes that are decoded at once; 4 by default. More need more memory; the result is the same.
    pub class_chunk: Option<usize>,
    /// Adds masks to detections; off by default, which saves the computation.
    pub masks: bool,
    /// Adds a [`SemanticMap`](crate::mask::SemanticMap) of each class that is found. Without masks it costs one pass of the mask
    /// head for each class, with masks nearly nothing.
    pub semantic_maps: bool,
    /// Rules out classes in a first, coarse pass and decodes the others alone; off by default.
    ///
    /// The model needs the graph of this pass: a checkpoint and the built-in model are exported with it.
    pub screening: Option<Screening>,
    /// Searches images that are larger than the model's input in [tiles](crate::tiles), too; off by default.
    ///
    /// It applies to [`detect`](crate::Detector::detect), [`detect_embedded`](crate::Detector::detect_embedded) and
    /// [`detect_regions`](crate::Detector::detect_regions).
    pub tiling: Option<Tiling>,
    /// Keeps one half of the model in memory at a time: the backbone, or what finds instances in its features. The results are
    /// the same.
    ///
    /// A half is loaded when it is needed, which takes time. [`detect_group`](crate::Detector::detect_group) and
    /// [`PipelineBuilder::run`](crate::PipelineBuilder::run) load each once for a group of images. It does not go with
    /// [tiles](Self::tiling).
    pub low_memory: bool,
}

/// The number format of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PrecisionChoice {
    /// The fastest one of the engine in which detections stay close to those in 32 bits: bfloat16 with OpenVINO on CPUs that
    /// have instructions for it, elsewhere 32 bits. `docs/accuracy.md` says how close.
    Auto,
    /// This one.
    Of(Precision),
}

impl fmt::Display for PrecisionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Of(precision) => precision.fmt(f),
        }
    }
}

impl FromStr for PrecisionChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Of).map_err(|error: Error| {
                let message = error.to_string().replace("expected ", "expected auto, ");
                Error::new(error.kind(), message).about("precision")
            }),
        }
    }
}

impl DetectorOptions {
    /// These options for each device of one engine, as [`EngineKind::list`] reads them: `cuda:0,1`. They share the threads.
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`EngineKind::list`], and for engine files with several devices.
    pub fn for_devices(&self, devices: &str) -> Result<Vec<Self>> {
        self.check()?;
        let kinds = EngineKind::list(devices)?;
        let engine = &self.engine;
        if kinds.len() > 1 && (engine.trt_backbone.is_some() || engine.trt_encoder_decoder.is_some()) {
            let message = "engine: engine files run on one GPU; name one, or leave the files out";
            return Err(Error::invalid_argument(message).about("engine"));
        }
        let shared = || Some((engine.threads.unwrap_or_else(default_threads) / kinds.len()).max(1));
        let threads = if kinds.len() < 2 { engine.threads } else { shared() };
        let on = |kind| Self { engine: EngineOptions { kind, threads, ..engine.clone() }, ..self.clone() };
        Ok(kinds.into_iter().map(on).collect())
    }

    /// Checks the numbers, and options that exclude each other, without opening a file.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument), which names the option.
    pub fn check(&self) -> Result<()> {
        self.post_processing(Thresholds { confidence: 0.0, nms: 1.0 }).validate()?;
        if let Some(Screening::At(threshold)) = self.screening {
            Error::check_share("screen", threshold)?;
        }
        if self.class_chunk == Some(0) {
            return Err(Error::argument("class_chunk", 0, "at least 1"));
        }
        self.engine.check()?;
        self.tiling.map_or(Ok(()), |tiling| tiling.check())?;
        if self.tiling.is_some() && self.low_memory {
            let message = "low_memory: a search in tiles needs both halves of the model for each tile: leave one of them out";
            return Err(Error::invalid_argument(message).about("low_memory"));
        }
        Ok(())
    }

    /// Sets all options of post-processing. They replace the thresholds of the model and those set before.
    pub fn set_post_processing(&mut self, options: PostProcessOptions) {
        self.confidence = Some(options.confidence);
        self.class_confidence = options.class_confidence;
        self.nms = Some(options.nms.unwrap_or(KEEPS_ALL));
        self.class_agnostic_nms = options.class_agnostic_nms;
        self.max_detections = options.max_detections;
    }

    /// The options of post-processing for a model with these thresholds.
    pub(crate) fn post_processing(&self, model: Thresholds) -> PostProcessOptions {
        PostProcessOptions {
            confidence: self.confidence.unwrap_or(model.confidence),
            class_confidence: self.class_confidence.clone(),
            nms: Some(self.nms.unwrap_or(model.nms)).filter(|iou| *iou != KEEPS_ALL),
            class_agnostic_nms: self.class_agnostic_nms,
            max_detections: self.max_detections,
        }
    }
}

impl PipelineOptions {
    /// Checks the numbers, and options that exclude each other, without loading anything.
    ///
    /// `detector` has the options of each of the `devices`. `detects` is false where objects are
    /// [given](crate::Pipeline::builder_of_objects) in place of prompts.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument), which names the option.
    pub fn check(&self, detector: &DetectorOptions, devices: usize, detects: bool) -> Result<()> {
        self.check_numbers()?;
        let (tracks, budget) = (self.tracker.is_some(), self.class_budget.is_some());
        let low = self.latency == Some(Latency::Low);
        let nothing = "nothing is detected where objects are given";
        let beside_objects = [
            ("detect_every", self.detect_every.is_some_and(|frames| frames != 1), nothing),
            ("motion_gate", self.motion_gate.is_some(), nothing),
            ("class_budget", budget, nothing),
        ];
        let beside_memory = [
            ("tracker", tracks, "each follows the objects by itself; compare two runs"),
            ("camera_motion", self.camera_motion, "it finds objects by their masks, wherever they move"),
            ("appearance", self.appearance, "it knows what objects look like by itself"),
            ("low_memory", detector.low_memory, "it needs the whole model for each frame"),
            ("tile", detector.tiling.is_some(), "it follows what it sees in whole frames"),
        ];
        let features = "a frame in tiles has no features of its own, which it needs";
        let beside_tile = [("class_budget", budget, features), ("appearance", self.appearance, features)];
        let beside_devices = [
            ("class_budget", budget, "it chooses classes by what the frame before shows, on one device"),
            ("sequential", self.sequential, "it runs on one device"),
            ("low_memory", detector.low_memory, "it runs on one device"),
            ("latency low", low, "it works on one frame at a time, on one device"),
        ];
        let memory = self.memory.is_some();
        let groups = [
            ("objects that are given", memory && !detects, &beside_objects[..]),
            ("memory", memory, &beside_memory),
            ("tile", detector.tiling.is_some(), &beside_tile),
            ("several devices", devices > 1, &beside_devices),
        ];
        for (other, _, options) in groups.into_iter().filter(|(_, is_set, _)| *is_set) {
            if let Some((option, _, why)) = options.iter().find(|(_, is_set, _)| *is_set) {
                let remedy =
                    if other == "several devices" { "name one device" } else { "leave one of them out" };
                let message = format!("{option} beside {other}: {why}; {remedy}");
                let name = option.strip_suffix(" low").unwrap_or(option);
                return Err(Error::invalid_argument(message).about(name));
            }
        }
        let of_tracks = [
            ("camera_motion", self.camera_motion, "moves tracks"),
            ("appearance", self.appearance, "finds tracks again"),
        ];
        match of_tracks.into_iter().find(|(_, is_set, _)| *is_set && !tracks) {
            Some((option, _, what)) => {
                Err(Error::invalid_argument(format!("{option} {what}: set tracker")).about(option))
            }
            None => Ok(()),
        }
    }
}

/// No two boxes have a larger IoU.
const KEEPS_ALL: f32 = 1.0;

#[cfg(test)]
mod tests {
    use ocelli_tracking::ByteTrackerOptions;
    use ocelli_tracking::masklets::MaskletOptions;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::pipeline::MotionGate;
    use crate::pipeline::options::FramePolicy;

    fn read_again<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(options: &T) -> Value {
        let text = serde_json::to_string(options).expect("they have a form");
        assert_eq!(&serde_json::from_str::<T>(&text).expect("it can be read"), options);
        serde_json::from_str(&text).expect("it is JSON")
    }

    #[test]
    fn options_are_the_same_when_read_again() {
        let engine = EngineOptions {
            kind: EngineKind::Cuda { ordinal: 1 },
            threads: Some(2),
            trt_backbone: Some("b.engine".into()),
            tf32: true,
            ..EngineOptions::default()
        };
        let options = DetectorOptions {
            model: ModelSource::Folder("/models/mine".into()),
            precision: Some(PrecisionChoice::Of(Precision::Int8Static)),
            pruning: Pruning {
                skip_blocks: [3].into(),
                mask_blocks: ["25:attn".parse().expect("a branch")].into(),
                split_block: Some(9),
            },
            engine,
            text_cache: TextCacheFile::File("words.cache".into()),
            class_confidence: [(0, 0.25), (7, 0.75)].into(),
            screening: Some(Screening::At(0.125)),
            tiling: Some(Tiling::new(TileSize::Pixels { width: 640, height: 480 }).with_most_tiles(9)),
            low_memory: true,
            ..DetectorOptions::default()
        };
        let form = read_again(&options);
        assert_eq!(form["model"], "/models/mine");
        assert_eq!(form["precision"], "int8-static");
        assert_eq!(form["engine"]["kind"], "cuda:1");
        assert_eq!(form["pruning"]["mask_blocks"], json!(["25:attn"]));
        assert_eq!(form["tiling"]["size"], "640x480");
        assert_eq!(form["screening"], 0.125);

        let defaults = DetectorOptions {
            precision: Some(PrecisionChoice::Auto),
            text_cache: TextCacheFile::None,
            screening: Some(Screening::Calibrated),
            tiling: Some(Tiling::default()),
            ..DetectorOptions::default()
        };
        let form = read_again(&defaults);
        assert_eq!(
            (&form["precision"], &form["text_cache"], &form["screening"]),
            (&json!("auto"), &json!("none"), &json!("calibrated"))
        );

        let mut memory = MaskletOptions::default();
        memory.occlusion_iou = 0.5;
        let form = read_again(&PipelineOptions {
            tracker: Some(ByteTrackerOptions { min_hits: Some(3), ..ByteTrackerOptions::default() }),
            memory: Some(memory),
            policy: Some(FramePolicy::Latest),
            latency: Some(Latency::Low),
            motion_gate: Some(MotionGate { ignored: vec![vec![vec![[0.0, 0.5]]]], ..MotionGate::default() }),
            ..PipelineOptions::default()
        });
        assert_eq!((&form["policy"], &form["tracker"]["match_classes"]), (&json!("latest"), &json!("same")));
    }

    #[test]
    fn options_that_exclude_each_other_are_named() {
        type Set = fn(&mut PipelineOptions, &mut DetectorOptions);
        let memory = |options: &mut PipelineOptions| options.memory = Some(MaskletOptions::default());
        let tracker = |options: &mut PipelineOptions| options.tracker = Some(ByteTrackerOptions::default());
        let cases: [(&str, Set); 12] = [
            ("tracker beside memory: each", |all, _| all.tracker = Some(ByteTrackerOptions::default())),
            ("camera_motion beside memory: it finds", |all, _| all.camera_motion = true),
            ("appearance beside memory: it knows", |all, _| all.appearance = true),
            ("low_memory beside memory: it needs", |_, detector| detector.low_memory = true),
            ("tile beside memory: it follows", |_, detector| detector.tiling = Some(Tiling::default())),
            ("class_budget beside tile: a frame", |all, detector| {
                (all.memory, all.class_budget, detector.tiling) = (None, Some(1), Some(Tiling::default()));
            }),
            ("appearance beside tile: a frame", |all, detector| {
                (all.memory, all.appearance, detector.tiling) = (None, true, Some(Tiling::default()));
                all.tracker = Some(ByteTrackerOptions::default());
            }),
            ("class_budget beside several devices: it chooses", |all, _| all.class_budget = Some(1)),
            ("sequential beside several devices: it runs", |all, _| all.sequential = true),
            ("latency low beside several devices: it works", |all, _| all.latency = Some(Latency::Low)),
            ("camera_motion moves tracks: set tracker", |all, _| {
                (all.memory, all.camera_motion) = (None, true);
            }),
            ("appearance finds tracks again: set tracker", |all, _| {
                (all.memory, all.appearance) = (None, true);
            }),
        ];
        for (message, set) in cases {
            let (mut options, mut detector) = (PipelineOptions::default(), DetectorOptions::default());
            memory(&mut options);
            assert!(options.check(&detector, 2, true).is_ok());
            set(&mut options, &mut detector);
            let error = options.check(&detector, 2, true).expect_err(message);
            assert!(error.to_string().starts_with(message), "{message}: {error}");
            assert!(error.parameter().is_some_and(|name| message.starts_with(name)), "{message}: {error:?}");
        }
        let mut options = PipelineOptions { camera_motion: true, appearance: true, ..Default::default() };
        tracker(&mut options);
        assert!(options.check(&DetectorOptions::default(), 1, true).is_ok());
    }

    #[test]
    fn what_is_left_out_has_its_default_and_mistakes_are_named() {
        assert_eq!(
            serde_json::from_str::<DetectorOptions>("{}").expect("all is left out"),
            DetectorOptions::default()
        );
        let tracker = serde_json::from_str::<PipelineOptions>(r#"{"tracker": {"match_iou": 0.25}}"#)
            .expect("valid")
            .tracker;
        assert_eq!(tracker, Some(ByteTrackerOptions { match_iou: 0.25, ..ByteTrackerOptions::default() }));
        for (text, named) in [
            (r#"{"confidnce": 0.5}"#, "`confidence`"),
            (r#"{"precision": "fp17"}"#, "expected auto, "),
            (r#"{"engine": {"kind": "cudo"}}"#, "no such engine"),
            (r#"{"engine": {"thread": 2}}"#, "`threads`"),
            (r#"{"tiling": {"size": "7"}}"#, "at least 32"),
            (r#"{"pruning": {"mask_blocks": ["25"]}}"#, "25:attn"),
        ] {
            let error = serde_json::from_str::<DetectorOptions>(text).expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
