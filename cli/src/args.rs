//! Argument groups.

use std::path::{Path, PathBuf};

use clap::Args;
use ocelli_export::contract::{Precision, Target};

use ocelli::tensorrt::NativeTensorRt;
use ocelli::{
    Cancellation, Detector, DetectorBuilder, EngineKind, Error, ErrorKind, ModelSource, PrepareEngines,
    Result, TextCacheFile, cache_folder,
};

use crate::tensorrt::{BuildOptions, cached_engines};

use super::check_output_file;

/// Which model, and what runs it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model and engine")]
pub struct ModelArgs {
    /// An exported model, or a Hugging Face checkpoint folder, which is exported once into the cache [default: the
    /// built-in model, which knows eighty drawn pictograms]
    #[arg(long, alias = "weights", value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// The engine: auto, cpu, cuda, tensorrt, onnxruntime-tensorrt or coreml; cuda:1 is the second GPU. An engine that cannot
    /// start is an error; auto is cuda if that starts, otherwise cpu. tensorrt builds its engines into the cache, which takes
    /// minutes, once
    #[arg(long, alias = "device", default_value = "auto", value_name = "NAME")]
    pub engine: String,
    /// Let the engine leave parts of the model to the processor, with a warning that lists them [default: an error does]
    #[arg(long)]
    pub allow_partial: bool,
    /// Let cuda compute 32-bit products in TF32: several times as fast, and less exact
    #[arg(long)]
    pub tf32: bool,
    /// Run the backbone as this TensorRT engine (`ocelli build-engine`); its sidecar says which model it is of
    #[arg(long, value_name = "FILE")]
    pub trt: Option<PathBuf>,
    /// Run the encoder-decoder as this TensorRT engine
    #[arg(long, value_name = "FILE")]
    pub trt_enc_dec: Option<PathBuf>,
    /// TensorRT's library, or the folder that it is in [default: searched for]
    #[arg(long, value_name = "PATH")]
    pub tensorrt: Option<PathBuf>,
    /// ONNX Runtime's library [default: searched for; `ocelli doctor` says where]
    #[arg(long, value_name = "FILE")]
    pub onnxruntime: Option<PathBuf>,
    /// Number format: fp32; int8, whose large matrix products are about twice as fast with a large model and a little
    /// less exact; or fp16, which is for GPUs: a processor runs it too, no faster than fp32 [default: fp32, or what an
    /// exported model has]
    #[arg(long, value_name = "FORMAT")]
    pub precision: Option<Precision>,
    /// Threads that compute [default: one for each physical core]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub threads: Option<usize>,
}

impl ModelArgs {
    /// A detector's options, from the arguments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an engine nobody knows, [`ErrorKind::Unavailable`] for one that is not in
    /// this build.
    pub fn detector(&self) -> Result<DetectorBuilder> {
        let kind: EngineKind = self.engine.parse()?;
        let cancellation = Cancellation::new();
        super::cancel_on_interrupt(&cancellation);
        let mut builder =
            prepare_tensorrt(Detector::builder().with_engine(kind), kind, self.tensorrt.as_deref())?
                .with_partial_placement(self.allow_partial)
                .with_tf32(self.tf32)
                .with_cancellation(cancellation);
        if let Some(folder) = &self.model {
            builder = builder.with_model(ModelSource::Folder(folder.clone()));
        }
        if let Some(precision) = self.precision {
            builder = builder.with_precision(precision);
        }
        if let Some(threads) = self.threads {
            builder = builder.with_threads(threads);
        }
        if let Some(path) = &self.onnxruntime {
            builder = builder.with_onnxruntime(path);
        }
        if let Some(engine) = &self.trt {
            builder = builder.with_trt_backbone(engine);
        }
        if let Some(engine) = &self.trt_enc_dec {
            builder = builder.with_trt_encoder_decoder(engine);
        }
        if let Some(path) = &self.tensorrt {
            builder = builder.with_tensorrt_library(path);
        }
        Ok(builder)
    }
}

/// What every program that detects takes.
#[derive(Args, Clone, Debug)]
pub struct DetectorArgs {
    /// Which model, and what runs it.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Side of the model's square input in pixels [default: the model's own]
    #[arg(
        long,
        alias = "img-size",
        allow_negative_numbers = true,
        value_name = "PIXELS",
        help_heading = "Model and engine"
    )]
    pub imgsz: Option<usize>,
    /// Where text features of phrases are kept; made where missing [default: a file in the cache for each model]
    #[arg(long, value_name = "FILE", help_heading = "Model and engine")]
    pub text_cache: Option<PathBuf>,
    /// Classes decoded at once: more are quicker and need more memory [default: 4]
    #[arg(long, allow_negative_numbers = true, value_name = "N", help_heading = "Model and engine")]
    pub class_chunk: Option<usize>,
    /// Keep detections that score above this, 0 to 1 [default: the model's, 0.3]
    #[arg(
        long,
        alias = "conf",
        value_name = "SCORE",
        help_heading = "Detection",
        allow_negative_numbers = true
    )]
    pub confidence: Option<f32>,
    /// Of boxes of one class that overlap more than this, keep the best; 1 keeps all [default: the model's, 0.7]
    #[arg(
        long,
        alias = "iou",
        value_name = "IOU",
        help_heading = "Detection",
        allow_negative_numbers = true
    )]
    pub nms: Option<f32>,
    /// The same among boxes of all classes [default: off]
    #[arg(long, value_name = "IOU", help_heading = "Detection", allow_negative_numbers = true)]
    pub class_agnostic_nms: Option<f32>,
}

impl DetectorArgs {
    /// A detector's options, from the arguments.
    ///
    /// # Errors
    /// As [`ModelArgs::detector`], and for numbers out of their range.
    pub fn detector(&self) -> Result<DetectorBuilder> {
        for (flag, value) in [
            ("--confidence", self.confidence),
            ("--nms", self.nms),
            ("--class-agnostic-nms", self.class_agnostic_nms),
        ] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                let message = format!("{flag} is {value}: expected a number from 0 to 1");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        if let Some(path) = &self.text_cache {
            check_output_file("--text-cache", path)?;
        }
        let mut builder = self.model.detector()?.with_class_agnostic_nms(self.class_agnostic_nms);
        if let Some(score) = self.confidence {
            builder = builder.with_confidence(score);
        }
        if let Some(iou) = self.nms {
            builder = builder.with_nms(iou);
        }
        if let Some(imgsz) = self.imgsz {
            builder = builder.with_imgsz(imgsz);
        }
        if let Some(path) = &self.text_cache {
            builder = builder.with_text_cache(TextCacheFile::File(path.clone()));
        }
        if let Some(classes) = self.class_chunk {
            builder = builder.with_class_chunk(classes);
        }
        Ok(builder)
    }
}

/// Has `tensorrt` build its engines into the cache once the model is known; engine files take precedence.
fn prepare_tensorrt(
    builder: DetectorBuilder,
    kind: EngineKind,
    library: Option<&Path>,
) -> Result<DetectorBuilder> {
    let EngineKind::TensorRt { ordinal } = kind else { return Ok(builder) };
    let tensorrt = NativeTensorRt::new(&format!("--engine {kind}"), library)?.with_ordinal(ordinal);
    Ok(builder.with_prepared_engines(Target::TensorRt, move |request| {
        let options = BuildOptions { max_classes: request.class_chunk, ..BuildOptions::default() };
        let folder = cache_folder()?.join("engines");
        let PrepareEngines { model, rest, cancellation, report, .. } = request;
        cached_engines(model, &tensorrt, rest, options, &folder, cancellation, report)
    }))
}
