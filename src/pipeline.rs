//! The loop: frames in, detections and tracks out, at the speed of the slowest stage.
//!
//! A frame walks source → preprocess → backbone → encoder-decoder, post-processing and tracker → drawing → sinks. Each
//! stage has a thread of its own and a short queue before it, so that while the backbone sees one frame, the next is
//! preprocessed and the last one drawn. Frames leave in the order they came in; buffers go round. Tracking takes
//! microseconds and lives with the encoder-decoder, because which classes are worth decoding
//! ([class budget](PipelineBuilder::with_class_budget)) depends on the tracks of the frame before.
//!
//! There are two ways to use it:
//!
//! - [`PipelineBuilder::run`] takes a [`Source`](crate::Source) and [`Sink`](crate::Sink)s and comes back when the
//!   stream has ended: for files, cameras and programs;
//! - [`PipelineBuilder::build`] gives a [`Pipeline`] that frames are [pushed](Pipeline::push) into from borrowed memory
//!   and results are [taken](Pipeline::try_recv) out of: for embedding in a program that has a loop of its own.
//!
//! Both measure themselves into a [`StatsRecorder`], at any moment readable from any thread.
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
//! pipeline.push(FrameView { timestamp: Duration::from_millis(40), ..image.view().into() })?;
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
mod control;
mod embedded;
mod queue;
mod run;
mod stages;
mod stats;

pub use builder::{PipelineBuilder, RunSummary};
pub use embedded::Pipeline;
pub use stats::{PipelineStats, Quantiles, QueueStats, Stage, StageStats, StatsRecorder};

/// What becomes of a frame for which there is no room yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FramePolicy {
    /// It waits, and whoever brings it: every frame is looked at. Right for files.
    #[default]
    All,
    /// It takes the place of the one that is waiting, which is dropped and counted: what is looked at is always the
    /// newest. Right for cameras and streams.
    Latest,
}
