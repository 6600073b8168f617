//! TensorRT engines in files: built from an exported model, checked against it, and run in place of its graphs.
//!
//! - [`EngineBuild`] builds engines from graphs of a [`Model`](crate::Model) and puts each in place only after the numeric
//!   gate ([`verify`](crate::verify)) has accepted it;
//! - beside `x.engine` is `x.engine.json`, its [`Sidecar`]: what it was built from, for which GPU, by which TensorRT, and how
//!   it compared;
//! - [`DetectorBuilder::with_trt_backbone`](crate::DetectorBuilder::with_trt_backbone) and
//!   [`with_trt_encoder_decoder`](crate::DetectorBuilder::with_trt_encoder_decoder) run engines; an engine that does not
//!   belong to the model, the GPU or the TensorRT is an error before anything runs;
//! - engines made by DART's scripts have no sidecar and other tensors: they are [adapted](dart);
//! - [`NativeTensorRt`] is TensorRT itself, in programs built with one of the features `tensorrt` and `tensorrt-rtx`.

mod build;
mod cached;
#[doc(hidden)]
pub mod check;
pub mod dart;
mod engine_files;
#[doc(hidden)]
pub mod fit;
mod native;
#[cfg(test)]
mod sample;
mod sidecar;

pub use build::{BuildEvent, BuildOptions, BuiltEngine, EngineBuild, ReportEvent, verify_engine};
pub use cached::cached_engines;
pub use native::{Gpu, NativeTensorRt, PlanRequest, ReportStep, TensorRtLibrary};
pub use sidecar::{BuildSettings, BuiltBy, DimensionSizes, EngineLayout, EngineShapes, Sidecar};

pub(crate) use engine_files::EngineFiles;
pub(crate) use native::missing;
