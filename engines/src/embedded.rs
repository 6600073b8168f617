//! The engine inside the program: the crate `rten`, in Rust, on the CPU. It needs no library on the machine.
//!
//! It computes in f32 and i32, whatever the model's types are:
//!
//! | in the model | in a run |
//! |---|---|
//! | `f32` | read in place, computed as it is |
//! | `f16` | converted to f32 and back; weights are converted when the model is loaded |
//! | `i64` | converted to i32 and back; an input beyond 32 bits is an error, and sums and products inside the model must fit |
//! | `i32`, `u8` | read in place |
//! | `bool` | converted to i32 and back |
//!
//! A model with bfloat16, or with an operator that `rten` lacks, does not load; the error names it. Outputs are copied once
//! into the caller's tensors. A run ends when its last operator does: nothing interrupts it before.
//!
//! ```no_run
//! use ocelli_engines::embedded::EmbeddedEngine;
//! use ocelli_engines::{Engine, Tensor};
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let mut engine = EmbeddedEngine::builder().with_threads(4).build_from_file("backbone.onnx")?;
//!
//! let pixels = Tensor::zeros::<f32>(&[1, 3, 1008, 1008]); // [image, channel, y, x]
//! let mut features = Tensor::empty();
//! engine.run(&[("pixel_values", &pixels)], &mut [("fpn_2", &mut features)])?;
//! # Ok(())
//! # }
//! ```

mod builder;
#[allow(unsafe_code)]
mod map;
mod session;
mod values;

pub use builder::{EmbeddedBuilder, SharedThreads};
pub use session::EmbeddedEngine;

/// An engine with this number of threads, for display: `embedded (rten 0.27), CPU, 2 threads`.
pub fn description(threads: usize) -> String {
    format!("embedded (rten 0.27), {}", crate::cpu::description(threads))
}
