//! OpenVINO, loaded at run time: Intel's and other x86 CPUs, ARM CPUs, and Intel's GPUs and NPUs.
//!
//! [`OpenVino::load`] [searches for](crate::library) the shared library and loads it; every model becomes an
//! [`OpenVinoEngine`] with its own threads and memory.
//!
//! ```no_run
//! use ocelli_engines::openvino::{InferencePrecision, OpenVino, OpenVinoEngine};
//! use ocelli_engines::{Engine, Tensor};
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let runtime = OpenVino::load(None)?;
//! let builder = OpenVinoEngine::builder(&runtime).with_threads(4).with_precision(InferencePrecision::Bf16);
//! let mut engine = builder.build_from_file("backbone.onnx")?;
//!
//! let pixels = Tensor::zeros::<f32>(&[1, 3, 1008, 1008]); // [image, channel, y, x]
//! let mut features = Tensor::empty();
//! engine.run(&[("pixel_values", &pixels)], &mut [("fpn_2", &mut features)])?;
//! # Ok(())
//! # }
//! ```

#[cfg(not(target_family = "wasm"))]
mod builder;
#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code)]
mod call;
mod device;
#[cfg(not(target_family = "wasm"))]
mod loaded;
#[cfg(not(target_family = "wasm"))]
mod session;
#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code)]
mod sys;

#[cfg(not(target_family = "wasm"))]
pub use builder::OpenVinoBuilder;
pub use device::{DeviceReport, InferencePrecision, OpenVinoDevice};
#[cfg(not(target_family = "wasm"))]
pub use loaded::{LIBRARY, OpenVino};
#[cfg(not(target_family = "wasm"))]
pub use session::OpenVinoEngine;
