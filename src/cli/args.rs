//! Argument groups.

use std::path::PathBuf;

use clap::Args;

use crate::detector::{Detector, DetectorBuilder, TextCacheFile};
use crate::engine::EngineKind;
use crate::error::{Error, ErrorKind, Result};
use crate::model::ModelSource;
use crate::postprocess::PostProcessOptions;

/// How much a program says.
#[derive(Args, Clone, Debug, Default)]
pub struct LogArgs {
    /// Say nothing but results and errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say what happens inside; twice for every detail
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl LogArgs {
    pub(super) fn start(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => "error",
            (_, 0) => "warn",
            (_, 1) => "ocelli=debug,ocelli_engines=debug,info",
            _ => "trace",
        };
        let filter = tracing_subscriber::EnvFilter::try_from_env("OCELLI_LOG")
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).finish();
        // A second program in one process (a test) keeps the first one's logging.
        drop(tracing::subscriber::set_global_default(subscriber));
    }
}

/// What every program that detects takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model and engine")]
pub struct DetectorArgs {
    /// An exported model, or a Hugging Face checkpoint folder, which is exported once into the cache [default: the
    /// built-in model, which knows drawn pictograms]
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// What computes: auto, cpu (a named engine that cannot start is an error)
    #[arg(long, alias = "device", default_value = "auto", value_name = "NAME")]
    pub engine: String,
    /// The backbone as a TensorRT engine
    #[arg(long, value_name = "FILE")]
    pub trt: Option<PathBuf>,
    /// The encoder-decoder as a TensorRT engine
    #[arg(long, value_name = "FILE")]
    pub trt_enc_dec: Option<PathBuf>,
    /// ONNX Runtime's library [default: searched for; `ocelli doctor` says where]
    #[arg(long, value_name = "FILE")]
    pub onnxruntime: Option<PathBuf>,
    /// Threads that compute [default: one for each physical core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Side of the model's square input in pixels [default: the model's own]
    #[arg(long, value_name = "PIXELS")]
    pub imgsz: Option<usize>,
    /// Text features of phrases, made where missing [default: one in the cache for each model]
    #[arg(long, value_name = "FILE")]
    pub text_cache: Option<PathBuf>,
    /// Classes decoded at once: more are quicker and need more memory
    #[arg(long, value_name = "N")]
    pub class_chunk: Option<usize>,
    /// Keep detections that score above this [default: 0.3]
    #[arg(long, alias = "conf", value_name = "SCORE", help_heading = "Detection")]
    pub confidence: Option<f32>,
    /// Of boxes of one class that overlap more than this, keep the best; 1 keeps all [default: 0.7]
    #[arg(long, alias = "iou", value_name = "IOU", help_heading = "Detection")]
    pub nms: Option<f32>,
    /// The same among boxes of all classes [default: off]
    #[arg(long, value_name = "IOU", help_heading = "Detection")]
    pub class_agnostic_nms: Option<f32>,
}

impl DetectorArgs {
    /// A detector's options, from the arguments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an engine nobody knows, [`ErrorKind::Unavailable`] for one that is not in
    /// this build.
    pub fn detector(&self) -> Result<DetectorBuilder> {
        if let Some(engine) = self.trt.as_ref().or(self.trt_enc_dec.as_ref()) {
            let message = format!(
                "cannot run a TensorRT engine, {}: this build has no TensorRT; leave --trt out to run on the processor",
                engine.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let kind: EngineKind = self.engine.parse()?;
        let defaults = PostProcessOptions::default();
        let post = PostProcessOptions {
            score_threshold: self.confidence.unwrap_or(defaults.score_threshold),
            nms_iou: self.nms.or(defaults.nms_iou),
            class_agnostic_nms_iou: self.class_agnostic_nms,
            ..defaults
        };
        let mut builder = Detector::builder().with_engine(kind).with_post_processing(post);
        if let Some(folder) = &self.model {
            builder = builder.with_model(ModelSource::Folder(folder.clone()));
        }
        if let Some(imgsz) = self.imgsz {
            builder = builder.with_imgsz(imgsz);
        }
        if let Some(threads) = self.threads {
            builder = builder.with_threads(threads);
        }
        if let Some(path) = &self.onnxruntime {
            builder = builder.with_onnxruntime(path);
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
