//! NVIDIA's GPUs: memory, streams, events and page-locked memory, through the driver that is found at run time.
//!
//! - [`CudaDevice::open`] looks for the driver first, so that a machine without one gets an error that says so;
//! - a [`CudaBuffer`] is a piece of the device's memory that knows what was enqueued to write and to read it last: a
//!   [`CudaStream`] that reads it waits, on the device, for its last write, one that overwrites it for its readers;
//! - [`PinnedBuffer`] is page-locked memory of the host; copies go through pieces of it that are locked once and go
//!   round;
//! - a [`CudaGraph`] is enqueued work that was captured once and is launched as a whole;
//! - a [`CudaCompiler`] makes [kernels](crate::kernels) for it, with [`Nvrtc`].
//!
//! Three layers: the driver's functions, [`CudaCalls`] with a `Result` for each, and the owners above. Behind the trait
//! there can stand a [`FakeCudaCalls`](fake::FakeCudaCalls), which runs what is enqueued as late as the order allows and
//! reports what is not ordered: that is how the order is tested where there is no GPU.
//!
//! ```no_run
//! use ocelli_engines::cuda::CudaDevice;
//! use ocelli_engines::{Device, Tensor};
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let gpu = CudaDevice::open(0)?;
//! let mut there = Tensor::on(gpu.clone());
//! there.copy_from_host(&Tensor::zeros_f32(&[1, 256, 72, 72]))?;
//! println!("{}: {:?}", gpu.name(), gpu.transferred());
//! # Ok(())
//! # }
//! ```

#[allow(unsafe_code)]
mod buffer;
#[allow(unsafe_code)]
mod calls;
#[allow(unsafe_code)]
mod context;
mod device;
#[allow(unsafe_code)]
mod driver;
#[allow(unsafe_code)]
mod event;
#[allow(unsafe_code)]
pub mod fake;
#[allow(unsafe_code)]
mod graph;
mod kernel_cache;
#[allow(unsafe_code)]
mod nvrtc;
#[allow(unsafe_code)]
mod pinned;
#[allow(unsafe_code)]
mod program;
mod staging;
#[allow(unsafe_code)]
mod stream;
mod usage;

pub use buffer::CudaBuffer;
pub use calls::{
    CallError, CallResult, CudaCalls, HostAccess, Launch, RawContext, RawEvent, RawFunction, RawGraph,
    RawModule, RawStream,
};
pub use device::{CudaDevice, CudaMemory};
pub use graph::CudaGraph;
pub use nvrtc::{CompiledKernels, Nvrtc};
pub use pinned::PinnedBuffer;
pub use program::CudaCompiler;
pub use stream::{CudaStream, Download, StreamPriority};

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
