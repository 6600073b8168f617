//! Kernels on a GPU.

use super::device::CudaDevice;
use super::driver::{failed, reason};
use super::nvrtc::Nvrtc;
use super::stream::{CudaStream, StreamPriority};
use crate::foreign::ForeignMemory;
use crate::tensor::Tensor;
use cudarc::driver::{CudaModule, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use ocelli_error::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// Kernels that were compiled for a GPU and loaded by it. They run on a stream of their own, in order with everything
/// else that uses their tensors.
///
/// The source is CUDA C++. It is trusted like a library: nothing checks what it does with the addresses it gets.
pub struct CudaKernels {
    name: String,
    device: Arc<CudaDevice>,
    stream: CudaStream,
    module: Arc<CudaModule>,
}

/// A field of the structure that is a kernel's only parameter.
#[derive(Debug, Clone, Copy)]
pub enum KernelArgument<'a> {
    /// The address of a tensor that the kernel reads.
    Read(&'a Tensor),
    /// The address of a tensor that the kernel writes, and may read.
    Write(&'a Tensor),
    /// The address of another library's memory, which the kernel reads.
    Foreign(&'a ForeignMemory),
    /// An `int`.
    I32(i32),
    /// A `float`.
    F32(f32),
}

/// A kernel's parameter: at most 4 KiB, CUDA's limit.
#[repr(C)]
struct Parameter([u64; 512]);

// SAFETY: it consists of integers, which the device reads as the fields of the kernel's structure.
unsafe impl DeviceRepr for Parameter {}

impl CudaKernels {
    /// Compiles a source with [`Nvrtc`], which takes about a second, and loads it. Errors call the source `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if there is no NVRTC for this GPU, with the remedy;
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the source does not compile, or the driver refuses
    /// the result.
    pub fn compile(device: &Arc<CudaDevice>, name: &str, source: &str) -> Result<Self> {
        let nvrtc = Nvrtc::open()?;
        let compiled = nvrtc.compile(name, source, device.compute_capability())?;
        if !compiled.log.is_empty() {
            tracing::debug!(log = compiled.log, "the compiler warns about kernels {name}");
        }
        let stream = CudaStream::new(device, StreamPriority::Normal)?;
        let module = stream.stream.context().load_module(Ptx::from_binary(compiled.cubin)).map_err(|error| {
            let ((major, minor), driver) = (nvrtc.version(), device.driver_version());
            Error::invalid_data(format!(
                "kernels {name}, {}: {} (compiled by NVRTC {major}.{minor}; the driver supports CUDA {driver} and must be \
                 of the same major version, or newer)",
                device.name(),
                reason(error)
            )).with_source(error)
        })?;
        Ok(Self { name: name.to_owned(), device: Arc::clone(device), stream, module })
    }

    /// Enqueues a kernel with this grid of blocks of threads; `arguments` are the fields of its structure, in order.
    ///
    /// With another library's memory among them, the kernel runs after what that library has enqueued on the default stream, and
    /// this waits until it has run: the library may overwrite the memory as soon as it has it back.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no such kernel, or a tensor is
    /// empty or not on this GPU; [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the driver fails. An error
    /// on the device is reported when a tensor is waited for.
    pub fn launch(
        &self,
        kernel: &str,
        blocks: [u32; 3],
        threads: [u32; 3],
        arguments: &[KernelArgument<'_>],
    ) -> Result<()> {
        let name = &self.name;
        let invalid =
            |why: &dyn fmt::Display| Error::invalid_argument(format!("kernels {name}, `{kernel}`: {why}"));
        let function = self.module.load_function(kernel).map_err(|error| invalid(&reason(error)))?;
        let (mut reads, mut writes, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_foreign = false;
        for (index, argument) in arguments.iter().enumerate() {
            let (tensor, buffers) = match argument {
                KernelArgument::Read(tensor) => (tensor, &mut reads),
                KernelArgument::Write(tensor) => (tensor, &mut writes),
                KernelArgument::I32(value) => {
                    fields.push(value.to_ne_bytes().to_vec());
                    continue;
                }
                KernelArgument::F32(value) => {
                    fields.push(value.to_ne_bytes().to_vec());
                    continue;
                }
                KernelArgument::Foreign(memory) => {
                    let device = self.device.name();
                    if memory.ordinal() != self.device.ordinal() {
                        return Err(invalid(&format_args!(
                            "argument {index}: {memory:?} is not on {device}"
                        )));
                    }
                    has_foreign = true;
                    fields.push(memory.address().to_ne_bytes().to_vec());
                    continue;
                }
            };
            let slice = tensor.device_slice();
            let Some((slice, buffer)) = slice.and_then(|slice| Some((slice, slice.buffer.as_cuda()?))) else {
                let device = self.device.name();
                return Err(invalid(&format_args!("argument {index}: {tensor:?} has no memory on {device}")));
            };
            fields.push(slice.address().to_ne_bytes().to_vec());
            buffers.push(buffer);
        }
        let mut parameter = Parameter([0; 512]);
        let structure = layout(&fields);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut parameter.0);
        let Some(bytes) = bytes.get_mut(..structure.len()) else {
            return Err(invalid(&"the arguments have more than 4096 bytes"));
        };
        bytes.copy_from_slice(&structure);

        let [grid_dim, block_dim] = [blocks, threads].map(|[x, y, z]| (x, y, z));
        let config = LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 };
        if has_foreign {
            self.stream.wait_for_default_stream()?;
        }
        let launched = self.stream.enqueue(reads.into_iter(), writes.into_iter(), |_| {
            let mut launch = self.stream.stream.launch_builder(&function);
            // SAFETY: the kernel has one parameter, of at most as many bytes as `Parameter`. `enqueue` checks that the
            // buffers are on this device and orders their uses. That the kernel stays within them is up to its source.
            let launched = unsafe { launch.arg(&parameter).launch(config) };
            launched.map_err(|error| failed(format_args!("kernels {name}, `{kernel}`"), error))?;
            Ok(())
        });
        if has_foreign {
            self.stream.wait()?;
        }
        launched
    }
}

/// Lays fields of 4 and 8 bytes out as C does, each aligned to its size.
fn layout(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut structure: Vec<u8> = Vec::new();
    for field in fields {
        structure.resize(structure.len().next_multiple_of(field.len()), 0);
        structure.extend_from_slice(field);
    }
    structure
}

impl Drop for CudaKernels {
    fn drop(&mut self) {
        // A kernel must not be unloaded while it runs.
        if let Err(error) = self.stream.wait() {
            tracing::debug!(%error, "the last kernel of {} failed", self.name);
        }
    }
}

debug_as!(CudaKernels, it => "CudaKernels {} on {}", it.name, it.device.name());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_aligned_as_in_c() {
        let (a, b) = (vec![1; 4], vec![2; 8]);
        let cases: [(&[&Vec<u8>], &[u8]); 4] = [
            (&[], &[]),
            (&[&a, &a], &[1; 8]),
            (&[&a, &b], &[1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2]),
            (&[&b, &a], &[2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1]),
        ];
        for (fields, expected) in cases {
            let fields: Vec<Vec<u8>> = fields.iter().map(|&field| field.clone()).collect();
            assert_eq!(layout(&fields), expected, "{fields:?}");
        }
    }
}
