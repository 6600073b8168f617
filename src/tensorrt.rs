//! TensorRT engines in files: built from an exported model, checked against it, run in place of its graphs.
//!
//! - the `ocelli build-engine` program builds them and passes each through the numeric gate before it is put in place;
//! - beside `x.engine` lies `x.engine.json`, its [`Sidecar`]: what it was built from, for which GPU, by which TensorRT, and
//!   how it compared;
//! - [`DetectorBuilder::with_trt_backbone`](crate::DetectorBuilder::with_trt_backbone) and
//!   [`with_trt_encoder_decoder`](crate::DetectorBuilder::with_trt_encoder_decoder) run engines. What does not belong
//!   together is an error before anything runs;
//! - engines that DART's scripts made have no sidecar and other tensors: they are [adapted](dart);
//! - [`TensorRtBackend`] is what all of this asks of TensorRT. [`NativeTensorRt`] is TensorRT itself, in programs built with
//!   one of the features `tensorrt` and `tensorrt-rtx`; tests have fakes.

mod backend;
#[doc(hidden)]
pub mod check;
pub mod dart;
#[doc(hidden)]
pub mod fit;
mod native;
mod run;
mod sidecar;
mod verified;

pub use backend::{BuildStep, Gpu, PlanRequest, ReportStep, TensorRtBackend, TensorRtLibrary};
pub use native::NativeTensorRt;
pub use sidecar::{BuildSettings, BuiltBy, DimensionSizes, EngineLayout, EngineShapes, Sidecar};
pub use verified::{Limits, VerificationSummary};

pub(crate) use run::EngineFiles;
