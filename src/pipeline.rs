//! Detection and tracking on streams of frames, at the speed of the slowest stage.
//!
//! A frame flows from the source through preprocessing, the backbone, the encoder-decoder with the tracker, and drawing
//! to the sinks. Each stage runs on its own thread behind a short queue, so while the backbone works on one frame, the
//! next is being preprocessed and the previous one drawn. Frames leave in the order in which they entered, and their
//! buffers are reused. The tracker runs on the encoder-decoder's thread: it takes microseconds, and which classes to
//! decode next ([class budget](crate::options::PipelineOptions::class_budget)) depends on its tracks. With several
//! [devices](PipelineBuilder::with_more_devices) each has a backbone and an encoder-decoder of its own, and the tracker has a
//! thread, as it has if it follows objects [by memory](crate::options::PipelineOptions::memory).
//!
//! There are two ways to use it:
//!
//! - [`PipelineBuilder::run`] pulls frames from a [`Source`](crate::Source), writes results to
//!   [`Sink`](crate::Sink)s, and returns at the end of the stream: for files, cameras and programs.
//! - [`PipelineBuilder::build`] returns a [`Pipeline`]: the caller [pushes](Pipeline::push) frames from borrowed memory
//!   and [receives](Pipeline::try_recv) results. Use it inside a program that has a main loop of its own.
//!
//! Both record statistics in a [`StatsRecorder`], which any thread can read at any time.
//!
//! ```
//! use std::time::Duration;
//! use ocelli::{Detector, FrameView, Image, Pipeline, PixelFormat, Prompts};
//! use ocelli::tracking::ByteTrackerOptions;
//!
//! # fn main() -> ocelli::Result<()> {
//! let prompts = Prompts::new(["dog", "tree"])?;
//! let pipeline = Pipeline::builder(Detector::builder().build()?, prompts)
//!     .with_tracker(ByteTrackerOptions::default())
//!     .build()?;
//! let image = Image::open("demos/scenes/park.png")?;
//! pipeline.push(FrameView { timestamp: Duration::from_millis(40), ..image.view() })?;
//! pipeline.close();
//! while let Some(outcome) = pipeline.recv()? {
//!     assert_eq!(outcome.time, Duration::from_millis(40));
//!     assert_eq!((outcome.detections.len(), outcome.tracks.len()), (4, 4));
//! }
//! # Ok(())
//! # }
//! ```

mod builder;
mod class_budget;
mod gate;
mod job;
mod memory;
mod motion;
pub(crate) mod options;
mod preprocess;
mod pulled;
mod pushed;
mod queue;
mod reader;
mod stage_loop;
mod stages;
mod stats;

pub use crate::camera_motion::CameraMotionEstimator;
pub use crate::outcome::FrameOutcome;
pub use crate::threads::Stage;
pub use builder::PipelineBuilder;
pub use motion::MotionGate;
pub use options::{FramePolicy, Latency};
pub use pulled::RunSummary;
pub use pushed::Pipeline;
pub use stats::{PipelineStats, Quantiles, QueueStats, StageStats, StatsRecorder};
