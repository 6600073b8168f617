//! TensorRT, loaded at run time.
//!
//! [`TensorRtSearch`] finds the library and asks for its version, [`TensorRt::load`] loads it, [`TensorRtBuilder`] turns an
//! ONNX file into a [`Plan`] for one or more generations of GPUs, and [`TensorRtEngine`] runs plans.
//!
//! The search, [`Product`], [`Version`], [`ComputeCapability`] and [`BuildProgress`] exist in every build; everything else
//! needs one of the features `tensorrt` (TensorRT proper) and `tensorrt-rtx` (TensorRT for RTX).
//!
#![cfg_attr(any(feature = "tensorrt", feature = "tensorrt-rtx"), doc = "```no_run")]
#![cfg_attr(not(any(feature = "tensorrt", feature = "tensorrt-rtx")), doc = "```ignore")]
//! use ocelli_engines::tensorrt::{ComputeCapability, DimensionRange, TensorRt, TensorRtBuilder, TensorRtSearch};
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let tensorrt = TensorRt::load(&TensorRtSearch::new())?;
//! let plan = TensorRtBuilder::new(&tensorrt)
//!     .with_target(ComputeCapability::new(8, 9))
//!     .with_dimension("classes", DimensionRange { min: 1, optimal: 4, max: 80 })
//!     .with_progress(|progress| {
//!         eprintln!("{}: {} of {}", progress.phase, progress.step, progress.steps);
//!         ControlFlow::Continue(())
//!     })
//!     .build(Path::new("encoder_decoder.onnx"))?;
//! assert!(!plan.bytes.is_empty());
//! # Ok(())
//! # }
//! ```

#[cfg(all(feature = "tensorrt", feature = "tensorrt-rtx"))]
compile_error!(
    "the features `tensorrt` (TensorRT proper) and `tensorrt-rtx` (TensorRT for RTX) exclude each other: \
     enable one of them"
);

#[allow(unsafe_code)]
mod probe;
#[cfg_attr(
    not(any(feature = "tensorrt", feature = "tensorrt-rtx")),
    allow(dead_code, reason = "nothing builds")
)]
mod progress;
#[cfg_attr(
    not(any(feature = "tensorrt", feature = "tensorrt-rtx")),
    allow(dead_code, reason = "nothing is loaded")
)]
mod search;
mod version;

pub use crate::spec::DimensionRange;
pub use progress::BuildProgress;
pub use search::TensorRtSearch;
pub use version::{ComputeCapability, Product, Version};

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod builder;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
#[allow(unsafe_code)]
mod calls;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod description;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod engine;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod graphs;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod loaded;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod loader;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod log;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod onnx_outputs;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod timing_cache;

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
pub use {
    builder::{Plan, TensorRtBuilder},
    engine::TensorRtEngine,
    loaded::TensorRt,
    loader::TensorRtLoader,
};
