//! Open-vocabulary object detection in real time, without Python.
//!
//! A [`Detector`] finds in an [`Image`] everything that [`Prompts`] name. It owns a [`Model`] — graphs exported from a
//! SAM3 checkpoint, or the small one that is built in — and the engines that run them. The image backbone runs once for
//! an image, the encoder-decoder once for a chunk of classes; words are encoded once and remembered.
//!
//! A frame walks one way: image → [`preprocess`] → backbone → encoder-decoder → [`postprocess`] → [`Detections`] →
//! [`draw`] or [`report`]. [`export`] makes the graphs, [`engines`] runs them, [`tracking`] has the boxes.
//!
//! ```
//! use ocelli::{Detector, Image, Prompts};
//!
//! # fn main() -> ocelli::Result<()> {
//! let prompts = Prompts::new(["dog", "tree"])?;
//! let mut detector = Detector::builder().with_confidence(0.5).build()?;
//! let image = Image::open("demos/scenes/park.png")?;
//! let found = detector.detect(&image, &prompts)?;
//! for detection in &found.items {
//!     println!("{} {:.2} at {:?}", detection.label, detection.score, detection.bbox);
//! }
//! let dogs = found.items.iter().filter(|detection| &*detection.label == "dog").count();
//! assert_eq!((dogs, found.items.len()), (2, 4));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod builtin;
mod cache;
mod cancellation;
mod detection;
mod detector;
pub mod draw;
mod engine;
mod error;
mod frame;
mod frame_view;
pub mod image;
mod kernels;
mod mask;
mod model;
mod model_graph;
#[cfg(feature = "opencv")]
mod native_log;
mod outcome;
pub mod pipeline;
pub mod postprocess;
pub mod preprocess;
mod prompt;
pub mod report;
pub mod sink;
pub mod source;
pub mod tensorrt;
pub mod text_cache;
mod timing;
pub mod tokenizer;

pub use ocelli_engines as engines;
pub use ocelli_export as export;
pub use ocelli_tracking as tracking;
pub use ocelli_tracking::BoundingBox;

pub use cache::cache_folder;
pub use cancellation::Cancellation;
pub use detection::Detection;
pub use detector::{
    Backbone, Detections, Detector, DetectorBuilder, EmbeddedPrompts, ImageEncoder, ImageFeatures,
    ImagePreprocessor, PromptDecoder, TextCacheFile, TextEmbedder,
};
pub use engine::{EngineFactory, EngineKind, EngineOptions};
pub use error::{Error, ErrorKind, Result};
pub use frame::Frame;
pub use frame_view::{FrameView, PixelFormat};
pub use image::{Image, ImageView};
pub use mask::{Mask, MaskSpan, Outline, SemanticMap};
pub use model::{Model, ModelRequest, ModelSource, sha256_of_file};
pub use model_graph::ModelGraph;
pub use outcome::FrameOutcome;
pub use pipeline::{FramePolicy, Pipeline, PipelineBuilder, PipelineStats, RunSummary, StatsRecorder};
pub use prompt::{Exemplar, Prompt, Prompts, VISUAL};
pub use sink::Sink;
pub use source::{Source, SourceInfo};
pub use timing::StageTimes;
