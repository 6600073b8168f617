//! TensorRT engines in files: built from an exported model, checked against it, and run in place of its graphs.
//!
//! - `ocelli build-engine` builds engines and puts each in place only after the numeric gate has accepted it;
//! - beside `x.engine` is `x.engine.json`, its [`Sidecar`]: what it was built from, for which GPU, by which TensorRT, and how
//!   it compared;
//! - [`EngineOptions::trt_backbone`](crate::engine::EngineOptions::trt_backbone) and
//!   [`trt_encoder_decoder`](crate::engine::EngineOptions::trt_encoder_decoder) name engines to run; an engine that does not
//!   belong to the model, the GPU or the TensorRT is an error before anything runs;
//! - engines made by DART's scripts have no sidecar and other tensors: they are [adapted](dart);
//! - [`NativeTensorRt`] is TensorRT itself.

#[doc(hidden)]
pub mod check;
pub mod dart;
mod engine_files;
#[doc(hidden)]
pub mod fit;
mod native;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod sample;
mod sidecar;
mod verified;

pub use native::{Gpu, NativeTensorRt, ReportStep, TensorRtLibrary};
pub use ocelli_engines::tensorrt::PlanRequest;
pub use sidecar::{BuildSettings, BuiltBy, EngineLayout, EngineShapes, Sidecar};
pub use verified::{Limits, VerificationSummary};

pub(crate) use engine_files::EngineFiles;
