//! TensorRT, loaded at run time.
//!
//! [`TensorRt::load`] [searches for](crate::library) the shared library and loads it, [`TensorRtBuilder`] builds a [`Plan`]
//! from an ONNX file for one or more generations of GPUs, and [`TensorRtEngine`] runs plans.
//!
//! [`Product`], [`Version`], [`ComputeCapability`] and [`BuildProgress`] exist in every build; everything else needs one of
//! the features `tensorrt` (TensorRT proper) and `tensorrt-rtx` (TensorRT for RTX).
//!
#![cfg_attr(any(feature = "tensorrt", feature = "tensorrt-rtx"), doc = "```no_run")]
#![cfg_attr(not(any(feature = "tensorrt", feature = "tensorrt-rtx")), doc = "```ignore")]
//! use ocelli_engines::tensorrt::{ComputeCapability, DimensionRange, TensorRt, TensorRtBuilder};
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let tensorrt = TensorRt::load(None)?;
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
    "the features `tensorrt` (TensorRT proper) and `tensorrt-rtx` (TensorRT for RTX) are mutually exclusive: \
     enable one of them"
);

#[cfg_attr(
    not(any(feature = "tensorrt", feature = "tensorrt-rtx")),
    allow(dead_code, reason = "nothing is loaded")
)]
#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code)]
mod library;
#[cfg_attr(
    not(any(feature = "tensorrt", feature = "tensorrt-rtx")),
    allow(dead_code, reason = "nothing builds")
)]
mod progress;
mod version;

pub use crate::spec::DimensionRange;
pub use progress::BuildProgress;
pub use version::{ComputeCapability, Product, Version};

#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod builder;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
mod cache_file;
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
pub use {
    builder::{Plan, TensorRtBuilder},
    engine::TensorRtEngine,
    loaded::TensorRt,
    loader::TensorRtLoader,
};
