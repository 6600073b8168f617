//! A device that is the host's memory behind another door, for the tests of what keeps tensors on devices.

use crate::device::{Device, DeviceBuffer, DeviceKind, Transferred};
use crate::error::{Error, ErrorKind, Result};
use crate::fake::HostKernels;
use crate::kernels::KernelCompiler;
use crate::tensor::Tensor;
use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A device of the host's memory that counts what crosses.
#[derive(Default)]
pub struct FakeDevice {
    counts: Arc<Counts>,
    allocations: AtomicUsize,
    /// Where its kernels are compiled.
    kernels: Option<PathBuf>,
}

#[derive(Default)]
struct Counts {
    to_device: AtomicU64,
    to_host: AtomicU64,
}

impl FakeDevice {
    /// A device that nothing has crossed to yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A device that also runs kernels, which [are compiled](HostKernels) in a folder.
    pub fn with_kernels(folder: impl Into<PathBuf>) -> Arc<Self> {
        Arc::new(Self { kernels: Some(folder.into()), ..Self::default() })
    }

    /// How many times memory was asked for.
    pub fn allocations(&self) -> usize {
        self.allocations.load(Ordering::Relaxed)
    }
}

impl Device for FakeDevice {
    fn name(&self) -> &str {
        "the fake device"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Fake
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(FakeBuffer { bytes: Mutex::new(vec![0xA5; bytes]), counts: Arc::clone(&self.counts) }))
    }

    fn transferred(&self) -> Transferred {
        Transferred {
            to_device: self.counts.to_device.load(Ordering::Relaxed),
            to_host: self.counts.to_host.load(Ordering::Relaxed),
        }
    }

    fn kernel_compiler(self: Arc<Self>) -> Option<Arc<dyn KernelCompiler>> {
        let folder = self.kernels.clone()?;
        Some(Arc::new(HostKernels::new(self, folder)))
    }
}

impl fmt::Debug for FakeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeDevice({:?})", self.transferred())
    }
}

/// A piece of a [`FakeDevice`]'s memory.
pub struct FakeBuffer {
    bytes: Mutex<Vec<u8>>,
    counts: Arc<Counts>,
}

impl FakeBuffer {
    /// Looks at the bytes as the device's own programs do: nothing crosses.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        look(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DeviceBuffer for FakeBuffer {
    fn address(&self) -> u64 {
        self.with_bytes(|bytes| bytes.as_mut_ptr() as u64)
    }

    fn capacity(&self) -> usize {
        self.with_bytes(|bytes| bytes.len())
    }

    fn copy_to_host(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.with_bytes(|own| {
            bytes.copy_from_slice(range(own, offset, bytes.len())?);
            self.counts.to_host.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        })
    }

    fn copy_from_host(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.with_bytes(|own| {
            range(own, offset, bytes.len())?.copy_from_slice(bytes);
            self.counts.to_device.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        })
    }

    fn copy_from_device(
        &self,
        offset: usize,
        source: &dyn DeviceBuffer,
        source_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let Some(source) = source.as_any().downcast_ref::<Self>() else {
            let message = format!("the fake device: {source:?} is not its own, and cannot be copied from");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        // Taken out first: both may be one buffer, which is locked once.
        let copied = source.with_bytes(|own| range(own, source_offset, bytes).map(|bytes| bytes.to_vec()))?;
        self.with_bytes(|own| {
            range(own, offset, bytes)?.copy_from_slice(&copied);
            Ok(())
        })
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Has a closure of tensors of the host's compute what lies on the device; what the caller brings and wants in the host's
/// memory is counted as crossing.
pub(super) fn compute(
    device: &FakeDevice,
    compute: &mut super::Compute,
    inputs: &[(&str, &Tensor)],
    outputs: &mut [(&str, &mut Tensor)],
) -> Result<()> {
    let lift = |(name, tensor): &(&'_ str, &Tensor)| -> Result<(String, Tensor)> {
        let Some(slice) = tensor.device_slice() else {
            if tensor.device().is_none() {
                device.counts.to_device.fetch_add(tensor.bytes()?.len() as u64, Ordering::Relaxed);
            }
            return Ok(((*name).to_owned(), (*tensor).clone()));
        };
        let buffer = slice.buffer.as_any().downcast_ref::<FakeBuffer>();
        let buffer = buffer.expect("only this device's tensors get past the check of residence");
        let mut host = Tensor::empty();
        host.reset_to(tensor.element_type(), tensor.shape())?;
        buffer.with_bytes(|bytes| {
            host.fill_bytes(|own| {
                own.copy_from_slice(range(bytes, slice.offset, slice.bytes)?);
                Ok(())
            })
        })?;
        Ok(((*name).to_owned(), host))
    };
    let host_inputs = inputs.iter().map(lift).collect::<Result<Vec<_>>>()?;
    let host_inputs: Vec<_> = host_inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut host_outputs: Vec<_> =
        outputs.iter().map(|(name, _)| ((*name).to_owned(), Tensor::empty())).collect();
    let mut borrowed: Vec<_> =
        host_outputs.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    compute(&host_inputs, &mut borrowed)?;
    for ((_, target), (_, source)) in outputs.iter_mut().zip(&host_outputs) {
        target.reset_to(source.element_type(), source.shape())?;
        let Some(slice) = target.device_slice() else {
            if target.device().is_none() {
                device.counts.to_host.fetch_add(source.bytes()?.len() as u64, Ordering::Relaxed);
            }
            target.copy_from_host(source)?;
            continue;
        };
        let buffer = slice.buffer.as_any().downcast_ref::<FakeBuffer>();
        let buffer = buffer.expect("only this device's tensors get past the check of residence");
        buffer.with_bytes(|bytes| -> Result<()> {
            range(bytes, slice.offset, slice.bytes)?.copy_from_slice(source.bytes()?);
            Ok(())
        })?;
    }
    Ok(())
}

fn range(own: &mut [u8], offset: usize, len: usize) -> Result<&mut [u8]> {
    let capacity = own.len();
    own.get_mut(offset..).and_then(|own| own.get_mut(..len)).ok_or_else(|| {
        let message = format!("the fake device: {len} bytes from {offset} on, of a buffer of {capacity}");
        Error::new(ErrorKind::Execution, message)
    })
}

impl fmt::Debug for FakeBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeBuffer of {} bytes", self.capacity())
    }
}
