//! Arguments that several programs share.

mod classes;
mod dart;
mod exemplar;
mod files;
mod input;
mod objects;
mod privacy;
mod tiles;
mod tracker;
mod verification;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ocelli::builtin::{vocabulary, weights_sha256};
use ocelli::tensorrt::{NativeTensorRt, Sidecar};
use ocelli::{
    DetectorBuilder, EngineKind, Error, ErrorKind, ModelSource, Prompt, Prompts, Result,
    engine::EngineOptions,
    options::{DetectorOptions, PrecisionChoice},
    stages::{Screening, TextCacheFile},
};
use ocelli_datasets::closest;

use crate::{cancel_on_interrupt, check_output_file, status};

pub use classes::class_names;
pub(crate) use classes::{class_map_beside, coco_classes, thresholds};
pub(crate) use dart::DartArgs;
pub use exemplar::{ExemplarArg, prepared, prompts};
pub(crate) use files::label_files;
pub use files::{expand_images, frame_files, images_beside, is_video, videos_of};
pub use input::InputArgs;
pub use objects::ObjectArgs;
pub(crate) use ocelli::atomic_file::folder_of;
pub use privacy::PrivacyArgs;
pub use tiles::TileArgs;
pub use tracker::TrackerArgs;
pub use verification::VerificationArgs;

/// Heading of options that select the model and what runs it.
pub const MODEL: &str = "Model and engine";
/// Heading of options that say what to detect.
pub const DETECTION: &str = "Detection";
/// Heading of options that name inputs.
pub const INPUT: &str = "Input";
/// Heading of options that name outputs.
pub const OUTPUT: &str = "Output";
/// Heading of options that trade time, memory and completeness.
pub const PERFORMANCE: &str = "Performance";

/// Reads one of these names.
pub(crate) fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// Names that the built-in model does not know, each with a line.
const NAMED: usize = 5;
/// The note that programs print before they run the built-in model.
const BUILT_IN_MODEL_NOTE: &str = "model: built-in, which knows eighty drawn pictograms; for photographs name a model \
                                   that `ocelli models` lists, such as --model litetext-s0";

/// Which model, and what runs it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = MODEL)]
pub struct ModelArgs {
    /// Exported model, or a checkpoint: a Hugging Face folder, a file such as sam3.pt, or a name of `ocelli models`, which
    /// is downloaded and exported once into the cache. built-in is the built-in model [default: built-in; `ocelli label`
    /// has none]
    #[arg(long, aliases = ["weights", "checkpoint"], value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Tokeniser of a checkpoint that has none: tokenizer.json of a SAM3 folder or CLIP's bpe_simple_vocab_16e6.txt.gz
    /// [default: beside the checkpoint]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// auto, embedded, openvino, onnxruntime (cpu is the same), cuda, tensorrt, webgpu or coreml; cuda:1 is the second
    /// GPU, openvino:GPU Intel's. auto takes the first that is installed of cuda, openvino and onnxruntime, else embedded,
    /// which needs no library; webgpu if it is measured to be faster than these on the CPU. tensorrt builds its engines
    /// into the cache once, which takes minutes. `label`, `video` and `serve` take several devices: cuda:0,1
    #[arg(long, alias = "device", default_value = "auto", value_name = "NAME")]
    pub engine: String,
    /// Run operators that the engine lacks on the CPU, with a warning [default: fail]
    #[arg(long, id = "cpu_fallback")]
    pub allow_partial: bool,
    /// Use a WebGPU adapter that computes wrongly, with a warning [default: fail]
    #[arg(long)]
    pub allow_inexact: bool,
    /// Allow TF32 on cuda: faster, less exact
    #[arg(long)]
    pub tf32: bool,
    /// TensorRT engine for the backbone, from `ocelli build-engine`
    #[arg(long, id = "trt_backbone", value_name = "FILE")]
    pub trt: Option<PathBuf>,
    /// TensorRT engine for the encoder-decoder
    #[arg(long, id = "trt_encoder_decoder", value_name = "FILE")]
    pub trt_enc_dec: Option<PathBuf>,
    /// TensorRT library or its folder [default: searched]
    #[arg(long, value_name = "PATH")]
    pub tensorrt: Option<PathBuf>,
    /// ONNX Runtime library [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "FILE")]
    pub onnxruntime: Option<PathBuf>,
    /// OpenVINO library (libopenvino_c) or its folder [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "PATH")]
    pub openvino: Option<PathBuf>,
    /// Library of ONNX Runtime's WebGPU provider or its folder [default: searched; see `ocelli doctor`]
    #[arg(long, value_name = "PATH")]
    pub webgpu: Option<PathBuf>,
    /// Number format: auto (bf16 with openvino on CPUs that have it, else fp32), fp32, bf16 (openvino: half the time on
    /// recent CPUs, less exact), int8 (8-bit weights: the least memory) or fp16 (for GPUs) [default: fp32, or the
    /// exported model's]
    #[arg(long, value_name = "FORMAT")]
    pub precision: Option<PrecisionChoice>,
    /// CPU threads [default: one per physical core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl ModelArgs {
    /// The model: the built-in one if none is named.
    pub fn source(&self) -> ModelSource {
        self.model.clone().map_or(ModelSource::Builtin, ModelSource::named)
    }

    /// The engine files.
    fn engine_files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let files = [("--trt", &self.trt), ("--trt-enc-dec", &self.trt_enc_dec)];
        files.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?)))
    }

    /// `true` if the built-in model runs: it is the one that is named, or the one that an engine file was built from.
    fn is_built_in(&self) -> bool {
        let mut engines = self.engine_files().peekable();
        let built_from = |(_, file): (_, &PathBuf)| Sidecar::read(file).ok().flatten();
        self.source() == ModelSource::Builtin
            && (engines.peek().is_none()
                || engines
                    .find_map(built_from)
                    .is_some_and(|one| one.model_weights_sha256 == weights_sha256()))
    }

    /// Refuses files that do not exist, before a source is opened or a model exported.
    fn check_files(&self) -> Result<()> {
        self.source().check_exists()?;
        let Some((flag, file)) = self.engine_files().find(|(_, file)| !file.exists()) else { return Ok(()) };
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let model =
            self.model.as_deref().map_or(String::new(), |model| format!(" --model {}", model.display()));
        let here = match NativeTensorRt::new(self.tensorrt.as_deref()).gpu() {
            Ok(_) => String::new(),
            Err(error) => format!("; this machine does not run one: {error}"),
        };
        let message = format!(
            "{flag}, {}: no such file, expected a TensorRT engine; `ocelli build-engine{model} --output {}` builds it{here}",
            file.display(),
            folder.unwrap_or(Path::new("engines/")).display()
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    /// Refuses the built-in model, before it is loaded, for what needs a tracker.
    pub(crate) fn check_tracker(&self, what: &str) -> Result<()> {
        if self.source() != ModelSource::Builtin || self.engine_files().next().is_some() {
            return Ok(());
        }
        Err(Error::mismatch(format!(
            "{what}, the built-in model: it has no tracker; name a checkpoint that has one with --model, such as Meta's \
             sam3.pt or facebook/sam3"
        )))
    }

    /// Says on stderr that the built-in model runs, if nobody asked for it by name, and which of the classes it does not
    /// know.
    pub(crate) fn announce_built_in(&self, prompts: &Prompts) {
        let engine = self.engine_files().next();
        match engine.map(|(flag, file)| (flag, Sidecar::read(file).ok().flatten())) {
            _ if self.model.is_some() => {}
            None => status(BUILT_IN_MODEL_NOTE),
            Some((flag, Some(Sidecar { model, .. }))) => {
                status(format!("model: {}, from which the file of {flag} was built", model.display()));
            }
            // Without a sidecar the model has to be named, which the error says.
            Some((_, None)) => {}
        }
        self.announce_unknown(
            prompts.iter().filter(|prompt| prompt.exemplars().is_empty()).map(Prompt::phrase),
        );
    }

    /// Says on stderr which of these names the built-in model does not know, if it runs.
    pub(crate) fn announce_unknown<'a>(&self, names: impl Iterator<Item = &'a str>) {
        if !self.is_built_in() {
            return;
        }
        let known = vocabulary();
        let unknown: Vec<&str> = names.filter(|name| !known.contains(&&*name.to_lowercase())).collect();
        for name in unknown.iter().take(NAMED) {
            let hint = closest(name, known).map_or_else(
                || "`ocelli classes` lists its names".to_owned(),
                |close| format!("did you mean \"{close}\"?"),
            );
            status(format!("the built-in model does not know \"{name}\"; {hint}"));
        }
        if let Some(more) = unknown.len().checked_sub(NAMED).filter(|more| *more > 0) {
            status(format!("… and {more} more names"));
        }
    }

    /// The options of a detector on one device.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for an unknown engine and for files that do not exist.
    pub fn options(&self) -> Result<DetectorOptions> {
        self.check_files()?;
        self.options_on(self.engine.parse()?)
    }

    fn options_on(&self, kind: EngineKind) -> Result<DetectorOptions> {
        let args = self.clone();
        let engine = EngineOptions {
            kind,
            threads: args.threads,
            onnxruntime: args.onnxruntime,
            openvino: args.openvino,
            webgpu: args.webgpu,
            tensorrt: args.tensorrt,
            trt_backbone: args.trt,
            trt_encoder_decoder: args.trt_enc_dec,
            cpu_fallback: args.allow_partial,
            allow_inexact: args.allow_inexact,
            tf32: args.tf32,
        };
        let (model, tokenizer, precision) = (self.source(), args.tokenizer, args.precision);
        Ok(DetectorOptions { model, tokenizer, precision, engine, ..DetectorOptions::default() })
    }
}

/// Refuses a score threshold out of range.
pub(crate) fn check_confidence(confidence: Option<f32>) -> Result<()> {
    DetectorOptions { confidence, ..DetectorOptions::default() }.check()
}

/// Arguments of every program that detects.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = DETECTION)]
pub struct DetectorArgs {
    /// Keep detections with a higher score, 0 to 1 [default: 0.3]
    #[arg(long, alias = "conf", value_name = "SCORE")]
    pub confidence: Option<f32>,
    /// Suppress boxes of the same class that overlap a better one by more than this IoU; 1 keeps all [default: 0.7]
    #[arg(long, alias = "iou", value_name = "IOU")]
    pub nms: Option<f32>,
    /// Suppress overlapping boxes across classes as well [default: off]
    #[arg(long, value_name = "IOU")]
    pub class_agnostic_nms: Option<f32>,
    /// Keep at most the N best detections of an image [default: all]
    #[arg(long, id = "max_detections", alias = "max-detections", value_name = "N")]
    pub max_det: Option<usize>,
    /// Which model, and what runs it.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Side of the model's square input in pixels [default: the model's]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = MODEL)]
    pub imgsz: Option<usize>,
    /// Cache of encoded text prompts, created if missing [default: a file in the cache folder]
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub text_cache: Option<PathBuf>,
    /// Classes decoded at once: more is faster and takes more memory [default: 4]
    #[arg(long, value_name = "N", help_heading = MODEL)]
    pub class_chunk: Option<usize>,
}

/// `--screen`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = DETECTION)]
pub struct ScreenArgs {
    /// Rule out absent classes in a coarse first pass and decode only the others: for many names of which an image shows
    /// few. The threshold, 0 to 1, is the one of `ocelli eval --calibrate-screen` unless it is named
    #[arg(
        long,
        value_name = "THRESHOLD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "calibrated",
        value_parser = parse_screening
    )]
    pub screen: Option<Screening>,
}

fn parse_screening(text: &str) -> std::result::Result<Screening, String> {
    match (text, text.parse::<f32>()) {
        ("calibrated", _) => Ok(Screening::Calibrated),
        (_, Ok(threshold)) if (0.0..=1.0).contains(&threshold) => Ok(Screening::At(threshold)),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

impl DetectorArgs {
    /// The options on each device that `--engine` names.
    pub fn devices(&self) -> Result<Vec<DetectorOptions>> {
        let devices = self.options_on(EngineKind::Auto)?.for_devices(&self.model.engine)?;
        self.model.check_files()?;
        Ok(devices)
    }

    /// The options on one device.
    pub fn options(&self) -> Result<DetectorOptions> {
        let options = self.options_on(self.model.engine.parse()?)?;
        self.model.check_files()?;
        Ok(options)
    }

    fn options_on(&self, kind: EngineKind) -> Result<DetectorOptions> {
        if let Some(path) = &self.text_cache {
            check_output_file("--text-cache", path)?;
        }
        let text_cache = self.text_cache.clone().map_or(TextCacheFile::Automatic, TextCacheFile::File);
        let options = DetectorOptions {
            imgsz: self.imgsz,
            confidence: self.confidence,
            nms: self.nms,
            class_agnostic_nms: self.class_agnostic_nms,
            max_detections: self.max_det,
            class_chunk: self.class_chunk,
            text_cache,
            ..self.model.options_on(kind)?
        };
        options.check()?;
        Ok(options)
    }
}

/// Builds a detector with these options, unless Ctrl-C is pressed.
pub fn detector(options: DetectorOptions) -> Result<DetectorBuilder> {
    Ok(ocelli_verify::tensorrt::detector(options, "--engine")?.with_cancellation(cancel_on_interrupt()))
}
