//! One trait for everything that runs a neural network, and ONNX Runtime behind it.
//!
//! The nouns, and how they meet:
//!
//! - an [`Engine`] runs one network: named [`Tensor`]s in, named tensors out, into buffers that the caller keeps;
//! - its [`EngineSpec`] says which: names, [`ElementType`]s and shapes, in which a [`Dim`] is fixed or has a name, and
//!   the same name means the same size within a run;
//! - tensors lie in the host's memory or on a [`Device`]; what stays on one goes from engine to engine without a copy;
//! - [`kernels`] are small programs that change tensors where they lie;
//! - [`cuda`] has the memory, streams and events of NVIDIA's GPUs;
//! - [`onnxruntime`] loads ONNX Runtime at run time and makes engines of ONNX files;
//! - [`library`] describes where such libraries are searched for;
//! - [`tensorrt`] does the same with TensorRT, and builds its plans of ONNX files;
//! - [`fake`] makes engines of closures, for tests;
//! - [`conformance`] is the suite that every engine passes; [`spec`] has the checks that every engine shares.
//!
//! Nothing here knows what a detector is. Whoever takes a `dyn Engine` works with all of them:
//!
//! ```
//! use ocelli_engines::fake::FakeEngine;
//! use ocelli_engines::{Dim, ElementType, Engine, EngineSpec, Tensor, TensorSpec};
//!
//! /// Embeds phrases of token numbers, whatever it is that runs the text encoder.
//! fn embed(encoder: &mut dyn Engine, ids: &Tensor, features: &mut Tensor) -> ocelli_engines::Result<()> {
//!     encoder.run(&[("input_ids", ids)], &mut [("text_features", features)])
//! }
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let spec = EngineSpec {
//!     inputs: vec![TensorSpec::new("input_ids", ElementType::I64, [Dim::named("classes"), Dim::Fixed(32)])],
//!     outputs: vec![TensorSpec::new("text_features", ElementType::F32, [Dim::named("classes"), Dim::Fixed(256)])],
//! };
//! let mut encoder = FakeEngine::zeros(spec);
//!
//! let mut features = Tensor::empty();
//! embed(&mut encoder, &Tensor::zeros::<i64>(&[3, 32]), &mut features)?;
//! assert_eq!(features.shape(), [3, 256]); // [class, channel]
//!
//! let error = embed(&mut encoder, &Tensor::zeros::<i64>(&[3, 77]), &mut features).unwrap_err();
//! assert_eq!(error.to_string(), "input `input_ids`: expected shape [classes, 32], got [3, 77]");
//! # Ok(())
//! # }
//! ```

// Not `forbid`: the files that call C say so where they are named.
#![deny(unsafe_code)]

pub mod conformance;
pub mod cuda;
pub mod device;
mod elf;
mod engine;
mod error;
pub mod fake;
pub mod kernels;
pub mod library;
pub mod onnxruntime;
pub mod spec;
mod tensor;
pub mod tensorrt;

pub use device::{Device, DeviceBuffer, DeviceKind, Transferred};
pub use engine::Engine;
pub use error::{Error, ErrorKind, Result};
pub use spec::{Dim, DimensionRange, EngineSpec, TensorSpec};
pub use tensor::{DeviceSlice, Element, ElementType, Tensor};
