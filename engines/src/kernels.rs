//! Small programs for a device, from source text: what is to happen to a tensor between two networks, where it lies.
//!
//! The source is C that is CUDA C++ as well, without headers. A kernel has one argument, a structure of pointers, `int`s
//! and `float`s, and reads `KERNEL(name, Structure) { … arguments.field … }`; beside it may stand `__device__` functions.
//! `threadIdx`, `blockIdx`, `blockDim`, `gridDim`, `__shared__`, `__syncthreads()`, `size_t` and C's mathematics are
//! there. So the same text is compiled for a GPU and, by [`HostKernels`](crate::fake::HostKernels), for the processor
//! that runs the tests.
//!
//! A source is trusted as a library is: what it does with the addresses it is given nobody checks.

use crate::device::{Device, DeviceKind};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;
use std::fmt;
use std::sync::Arc;

/// Makes programs for a device.
pub trait KernelCompiler: Send + Sync + fmt::Debug {
    /// The device that the programs run on.
    fn device(&self) -> &Arc<dyn Device>;

    /// Makes a program of the kernels in `source`; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) where there is no compiler, with the remedy;
    /// [`InvalidModel`](ErrorKind::InvalidModel) where the source does not compile or the device does not take what
    /// came of it.
    fn compile(&self, name: &str, source: &str) -> Result<Arc<dyn KernelProgram>>;
}

/// A program on a device.
pub trait KernelProgram: Send + Sync + fmt::Debug {
    /// Enqueues a kernel; it runs after what was enqueued to write what it reads and writes, and to read what it writes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where the program has no such kernel or a tensor lies elsewhere;
    /// [`Execution`](ErrorKind::Execution) where the device refuses. What fails later on the device is told by whoever
    /// waits for a tensor.
    fn launch(&self, launch: &Launch<'_>) -> Result<()>;
}

/// One run of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// The fields of the kernel's structure, in order.
    pub arguments: &'a [KernelArgument<'a>],
}

/// A field of a kernel's structure.
#[derive(Debug, Clone, Copy)]
pub enum KernelArgument<'a> {
    /// The address of a tensor that the kernel reads.
    Read(&'a Tensor),
    /// The address of a tensor that the kernel writes, and may read. Nobody else may hold its memory.
    Write(&'a Tensor),
    /// An address that leads nowhere.
    Nothing,
    /// An `int`.
    I32(i32),
    /// A `float`.
    F32(f32),
}

impl Launch<'_> {
    /// The bytes of the kernel's structure, laid out as C does.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where a tensor does not lie on the device of this kind.
    pub fn argument_bytes(&self, kind: DeviceKind) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut push = |field: &[u8]| {
            bytes.resize(bytes.len().next_multiple_of(field.len()), 0);
            bytes.extend_from_slice(field);
        };
        for (index, argument) in self.arguments.iter().enumerate() {
            match argument {
                KernelArgument::Read(tensor) | KernelArgument::Write(tensor) => {
                    if tensor.device().map(|device| device.kind()) != Some(kind) {
                        let lies = tensor.device().map_or("in the host's memory".to_owned(), |device| {
                            format!("on {}", device.name())
                        });
                        let kernel = self.kernel;
                        let message = format!(
                            "kernel `{kernel}`, argument {index}: the tensor lies {lies}, not on {kind}"
                        );
                        return Err(Error::new(ErrorKind::InvalidArgument, message));
                    }
                    let address = tensor.device_slice().map_or(0, |slice| slice.address());
                    push(&address.to_ne_bytes());
                }
                KernelArgument::Nothing => push(&0_u64.to_ne_bytes()),
                KernelArgument::I32(value) => push(&value.to_ne_bytes()),
                KernelArgument::F32(value) => push(&value.to_ne_bytes()),
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDevice;

    #[test]
    fn arguments_lie_as_in_c() {
        let device = FakeDevice::new();
        let mut tensor = Tensor::on(device);
        tensor.reset_to(crate::ElementType::F32, &[2, 3]).expect("24 bytes");
        let address = tensor.device_slice().expect("it has elements").address().to_ne_bytes();
        let half = 0.5_f32.to_ne_bytes();
        let three = 3_i32.to_ne_bytes();
        let cases: [(&[KernelArgument<'_>], Vec<u8>); 4] = [
            (&[], vec![]),
            (&[KernelArgument::I32(3), KernelArgument::F32(0.5)], [three, half].concat()),
            (
                &[KernelArgument::I32(3), KernelArgument::Read(&tensor)],
                [&three[..], &[0; 4], &address].concat(),
            ),
            (
                &[KernelArgument::Nothing, KernelArgument::Write(&tensor), KernelArgument::F32(0.5)],
                [&[0; 8][..], &address, &half].concat(),
            ),
        ];
        let mut failures = Vec::new();
        for (arguments, expected) in cases {
            let launch = Launch { kernel: "k", blocks: [1; 3], threads: [1; 3], arguments };
            let came = launch.argument_bytes(DeviceKind::Fake).expect("all lie there");
            if came != expected {
                failures.push(format!("{arguments:?}: expected {expected:?}, came {came:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn a_tensor_elsewhere_is_refused() {
        let (host, fake) = (Tensor::zeros_f32(&[1]), Tensor::on(FakeDevice::new()));
        let cases = [
            (
                &host,
                DeviceKind::Fake,
                "kernel `k`, argument 0: the tensor lies in the host's memory, not on the fake device",
            ),
            (
                &fake,
                DeviceKind::Cuda { ordinal: 1 },
                "kernel `k`, argument 0: the tensor lies on the fake device, not on CUDA device 1",
            ),
        ];
        for (tensor, kind, expected) in cases {
            let arguments = [KernelArgument::Read(tensor)];
            let launch = Launch { kernel: "k", blocks: [1; 3], threads: [1; 3], arguments: &arguments };
            let error = launch.argument_bytes(kind).expect_err("it lies elsewhere");
            assert_eq!((error.to_string().as_str(), error.kind()), (expected, ErrorKind::InvalidArgument));
        }
    }
}
