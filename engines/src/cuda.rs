//! NVIDIA GPUs: buffers, streams, graphs and kernels.
//!
//! - [`CudaDevice::open`] loads NVIDIA's driver at run time; without one it returns an error that says what to install;
//! - a [`CudaBuffer`] is device memory that knows its enqueued reads and writes;
//! - a [`CudaStream`] is a queue of work. Work that reads a buffer waits for its last write, and work that writes one
//!   waits for its readers, on the device and without blocking the caller;
//! - a [`CudaGraph`] is work that was captured once and is launched as a whole;
//! - [`CudaKernels`] are compiled from source by [`Nvrtc`].
//!
//! The calls to the driver are `cudarc`'s. The order between streams is this module's own: `cudarc` remembers one read of
//! a buffer, and so waits for one where two streams read it.
//!
//! ```no_run
//! use ocelli_engines::Tensor;
//! use ocelli_engines::cuda::CudaDevice;
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let gpu = CudaDevice::open(0)?;
//! let mut features = Tensor::on(gpu.clone());
//! features.copy_from_host(&Tensor::zeros::<f32>(&[1, 256, 72, 72]))?;
//! println!("{}: {:?}", gpu.name(), gpu.transferred());
//! # Ok(())
//! # }
//! ```

#[allow(unsafe_code)]
mod buffer;
#[allow(unsafe_code)]
mod context;
mod device;
#[allow(unsafe_code)]
mod driver;
#[allow(unsafe_code)]
mod kernels;
#[allow(unsafe_code)]
mod nvrtc;
mod staging;
#[allow(unsafe_code)]
mod stream;
mod usage;

pub use buffer::CudaBuffer;
pub use device::{CudaDevice, CudaMemory};
pub use kernels::{CudaKernels, KernelArgument};
pub use nvrtc::{CompiledKernels, Nvrtc};
pub(crate) use stream::Download;
pub use stream::{CudaGraph, CudaStream, StreamPriority};
