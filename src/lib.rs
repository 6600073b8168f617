//! Open-vocabulary object detection in images and video, in real time and without Python.
//!
//! A [`Detector`] finds the instances of any classes that [`Prompts`] describe: by name (`"red apple"`), by exemplar
//! boxes, or both. It returns [`Detections`] with a label, a score, a box and optionally a [`Mask`].
//!
//! ```
//! use ocelli::{Detector, Image, Prompts};
//!
//! # fn main() -> ocelli::Result<()> {
//! let prompts = Prompts::new(["dog", "tree"])?;
//! let mut detector = Detector::builder().with_confidence(0.5).build()?;
//! let image = Image::open("demos/scenes/park.png")?;
//! let found = detector.detect(&image, &prompts)?;
//! for detection in &found {
//!     println!("{} {:.2} at {:?}", detection.label, detection.score, detection.bbox);
//! }
//! let dogs = found.iter().filter(|detection| &*detection.label == "dog").count();
//! assert_eq!((dogs, found.len()), (2, 4));
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Image`], [`FrameView`] | pixels: owned, borrowed in RGB or in the format of a camera |
//! | [`Prompts`], [`Prompt`] | the classes to detect |
//! | [`ObjectPrompt`], [`ObjectMask`] | one object of an image: clicks, a box or a mask in, its mask out |
//! | [`Model`] | graphs exported from a SAM3 checkpoint; the default is a small built-in model of drawn scenes ([`builtin`]) |
//! | [`EngineKind`], [`EngineFactory`](engine::EngineFactory) | what runs the graphs: the engine inside the program, OpenVINO, ONNX Runtime on the CPU, CUDA, TensorRT, WebGPU, Core ML, or your own engine |
//! | [`Detector`], [`DetectorBuilder`] | an image in, [`Detections`] out |
//! | [`masklets`] | objects with masks that keep their identity through a video, by SAM 3's memory tracker |
//! | [`Pipeline`] | frames of a [`Source`] or pushed by your program, detected and [tracked](tracking) on several threads, to [`Sink`]s |
//! | [`tiles`] | images that are larger than what the model sees |
//! | [`draw::Annotator`] | boxes, labels and masks drawn into an image |
//! | [`Error`], [`ErrorKind`] | what failed, on which input, and what to do |
//!
//! For each image the stages are [`preprocess`], the image backbone, the encoder-decoder (once for a few classes at a
//! time) and [`postprocess`]. Text is encoded once and cached. [`export`] turns checkpoints into graphs and [`engines`] has
//! the trait for what runs them; both are crates of their own, as is [`tracking`].
//!
//! ONNX Runtime, OpenVINO, the video library (files, cameras, windows), NVIDIA's driver and TensorRT are loaded at run time.

#![forbid(unsafe_code)]
#![cfg_attr(target_family = "wasm", allow(dead_code, unused_imports, reason = "no engine loads a library"))]

pub mod atomic_file;
pub mod builtin;
#[doc(hidden)]
pub mod cache;
pub mod calibration;
mod cancellation;
pub mod classes;
mod detection;
mod detector;
pub mod draw;
pub mod engine;
mod frame;
pub mod hub;
#[doc(hidden)]
pub mod json_lines;
pub mod masklets;
pub mod model;
pub mod options;
mod outcome;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod parsers;
pub mod pipeline;
pub mod postprocess;
pub mod process_memory;
pub mod prompt;
pub mod report;
pub mod sink;
pub mod source;
pub mod stages;
pub mod tensorrt;
mod text_cache;
mod threads;
pub mod tiles;
mod timing;
pub mod tokenizer;
#[cfg(not(target_family = "wasm"))]
pub mod videos;

use ocelli_images::{camera_motion, frame_view};

pub mod image {
    //! Images in 8-bit RGB, the input of the detector.

    pub use ocelli_images::image::{
        Image, MAX_FILE_BYTES, MAX_PIXELS, MAX_SIDE, has_animation_extension, has_image_extension,
        has_unsupported_extension, is_image_file,
    };
}

pub mod mask {
    //! Masks: the pixels of an instance.

    pub use ocelli_images::mask::{Mask, MaskResampler, MaskSpan, Outline, SemanticMap, read_mask_png};
    #[doc(hidden)]
    pub use ocelli_images::mask::{nearest, splice};
}

pub mod preprocess {
    //! From an image of any size to the input of the backbone.

    #[cfg(not(target_family = "wasm"))]
    pub use ocelli_images::preprocess::DevicePreprocessor;
    pub use ocelli_images::preprocess::{PreprocessConfig, Preprocessor};
    pub use ocelli_images::{DeviceFrame, Nv12Colours};
}

#[macro_use]
pub extern crate ocelli_engines as engines;
pub use ocelli_export as export;
pub use ocelli_tracking as tracking;
pub use ocelli_tracking::BoundingBox;

pub use cancellation::Cancellation;
pub use detection::{Detection, Detections};
pub use detector::{Detector, DetectorBuilder, ObjectMask};
pub use engine::EngineKind;
pub use frame::Frame;
pub use model::{Model, ModelSource};
pub use ocelli_error::{Error, ErrorKind, Result};
pub use ocelli_images::{FrameView, Image, Mask, PixelFormat};
pub use pipeline::{Pipeline, PipelineBuilder};
pub use prompt::{Exemplar, ObjectPrompt, Prompt, Prompts};
pub use sink::Sink;
pub use source::Source;
pub use timing::StageTimes;
#[doc(hidden)]
pub use {
    ocelli_error::refuse,
    threads::{cannot_start_thread, locked, panic_message},
};
