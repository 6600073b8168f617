//! TensorRT, loaded at run time.
//!
//! [`TensorRt::load`] [searches for](crate::library) the shared library and loads it, [`TensorRtBuilder`] builds a [`Plan`]
//! from an ONNX file for one or more generations of GPUs, and [`TensorRtEngine`] runs plans.
//!
//! NVIDIA's library has a C++ interface, which a C++ compiler has to call: Ocelli's [part](Product::part) for it,
//! `libocelli_tensorrt` or `libocelli_tensorrt_rtx`, which `tensorrt/build.sh` compiles in a second, is loaded at run time as
//! well.
//!
//! ```no_run
//! use ocelli_engines::tensorrt::{ComputeCapability, DimensionRange, PlanRequest, TensorRt, TensorRtBuilder};
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let tensorrt = TensorRt::load(None)?;
//! let request = PlanRequest {
//!     targets: vec![ComputeCapability::new(8, 9)],
//!     dimensions: [("classes".to_owned(), DimensionRange { min: 1, optimal: 4, max: 80 })].into(),
//!     ..PlanRequest::default()
//! };
//! let plan = TensorRtBuilder::new(&tensorrt, request)
//!     .with_progress(|progress| {
//!         eprintln!("{}: {} of {}", progress.phase, progress.step, progress.steps);
//!         ControlFlow::Continue(())
//!     })
//!     .build(Path::new("encoder_decoder.onnx"))?;
//! assert!(!plan.bytes.is_empty());
//! # Ok(())
//! # }
//! ```

mod progress;
mod request;
mod version;

pub use crate::spec::DimensionRange;
pub use progress::BuildProgress;
pub use request::PlanRequest;
pub use version::{ComputeCapability, Product, Version};

#[cfg(not(target_family = "wasm"))]
mod builder;
#[cfg(not(target_family = "wasm"))]
mod cache_file;
#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code)]
mod calls;
#[cfg(not(target_family = "wasm"))]
mod description;
#[cfg(not(target_family = "wasm"))]
mod engine;
#[cfg(not(target_family = "wasm"))]
mod graphs;
#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code)]
mod library;
#[cfg(not(target_family = "wasm"))]
mod loaded;
#[cfg(not(target_family = "wasm"))]
mod loader;
#[cfg(not(target_family = "wasm"))]
mod log;
#[cfg(not(target_family = "wasm"))]
mod onnx_outputs;

#[cfg(not(target_family = "wasm"))]
pub use {
    builder::{Plan, TensorRtBuilder},
    engine::TensorRtEngine,
    library::LIBRARY,
    loaded::TensorRt,
    loader::TensorRtLoader,
};
