//! One trait for everything that runs a neural network, with an engine inside the program, OpenVINO, ONNX Runtime and
//! TensorRT behind it.
//!
//! - An [`Engine`] runs one network: named [`Tensor`]s in, named tensors out, into buffers that the caller reuses.
//! - Its [`EngineSpec`] has the names, [`ElementType`]s and shapes. A [`Dim`] is fixed or named; dimensions with the same
//!   name have the same size within a run. [`spec`] has the checks that all engines share.
//! - Tensors are in host memory or on a [`Device`]. What stays on a device goes from engine to engine without a copy.
//! - [`embedded`] runs ONNX files with no library at all.
//! - [`onnxruntime`] loads ONNX Runtime at run time and creates engines from ONNX files.
//! - [`openvino`] loads OpenVINO at run time, for CPUs and for Intel's GPUs and NPUs.
//! - [`webgpu`] has the GPUs that ONNX Runtime's WebGPU provider runs on.
//! - [`library`] is the search for such libraries.
//! - [`tensorrt`] loads TensorRT at run time, and builds and runs its plans.
//! - `cuda` has the memory and streams of NVIDIA GPUs, and kernels for them.
//!
//! WebAssembly has the embedded engine alone: what loads libraries is left out there.
//!
//! Nothing here knows what a detector is. Code that takes a `dyn Engine` works with all of them, and a new engine
//! implements three methods:
//!
//! ```
//! use ocelli_engines::spec::check_run;
//! use ocelli_engines::{Dim, ElementType, Engine, EngineSpec, Result, Tensor, TensorSpec};
//!
//! /// Doubles its input.
//! struct Doubling(EngineSpec);
//!
//! impl Engine for Doubling {
//!     fn spec(&self) -> &EngineSpec {
//!         &self.0
//!     }
//!
//!     fn description(&self) -> &str {
//!         "doubling, CPU"
//!     }
//!
//!     fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
//!         check_run(&self.0, inputs, outputs)?;
//!         let (x, y) = (inputs[0].1, &mut outputs[0].1);
//!         y.reset_f32(x.shape()).iter_mut().zip(x.as_f32()?).for_each(|(y, x)| *y = 2.0 * x);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let rows = || [Dim::named("rows"), Dim::Fixed(2)];
//! let mut engine: Box<dyn Engine> = Box::new(Doubling(EngineSpec {
//!     inputs: vec![TensorSpec::new("x", ElementType::F32, rows())],
//!     outputs: vec![TensorSpec::new("y", ElementType::F32, rows())],
//! }));
//!
//! let mut y = Tensor::empty();
//! engine.run(&[("x", &Tensor::f32(&[1, 2], vec![1.0, -3.0])?)], &mut [("y", &mut y)])?;
//! assert_eq!(y.as_f32()?, [2.0, -6.0]);
//!
//! let error = engine.run(&[("x", &Tensor::zeros::<f32>(&[1, 7]))], &mut [("y", &mut y)]).unwrap_err();
//! assert_eq!(error.to_string(), "input `x`: expected shape [rows, 2], got [1, 7]");
//! # Ok(())
//! # }
//! ```

// Not `forbid`: the files that call C allow it where they are declared.
#![deny(unsafe_code)]
#![cfg_attr(target_family = "wasm", allow(dead_code, reason = "what calls libraries is left out"))]

#[macro_use]
mod shorthand;

#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code)]
mod c_text;
#[cfg(any(test, feature = "test-support"))]
pub mod conformance;
mod cpu;
#[cfg(not(target_family = "wasm"))]
pub mod cuda;
mod device;
#[cfg(not(target_family = "wasm"))]
mod elf;
pub mod embedded;
mod engine;
#[cfg(any(test, feature = "test-support"))]
pub mod fake;
#[allow(unsafe_code)]
mod file_limits;
#[allow(unsafe_code)]
mod foreign;
#[cfg(not(target_family = "wasm"))]
pub mod library;
mod model_file;
#[cfg(not(target_family = "wasm"))]
pub mod onnxruntime;
pub mod openvino;
mod row_writer;
pub mod spec;
mod tensor;
pub mod tensorrt;
mod transferred;
#[cfg(not(target_family = "wasm"))]
pub mod webgpu;

pub use cpu::{cpu_has_vnni, default_threads, description as cpu_description};
pub use device::Device;
pub use engine::Engine;
pub use file_limits::report_file_limits;
pub use foreign::ForeignMemory;
pub use ocelli_error::{Error, ErrorKind, Result};
pub use row_writer::RowWriter;
pub use spec::{Dim, DimensionRange, EngineSpec, TensorSpec};
pub use tensor::{DeviceSlice, Element, ElementType, Tensor};
pub use transferred::Transferred;
