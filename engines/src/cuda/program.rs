//! Kernels on a GPU.

use super::buffer::CudaBuffer;
use super::calls::{self, RawModule};
use super::device::CudaDevice;
use super::kernel_cache;
use super::nvrtc::Nvrtc;
use super::stream::{CudaStream, StreamPriority};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{KernelArgument, KernelCompiler, KernelProgram, Launch};
use std::ffi::{CString, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// More than a kernel's structure can have, in words of eight bytes.
const MOST_ARGUMENT_WORDS: usize = 4096 / 8;

/// Compiles [kernels](crate::kernels) for a GPU; they run on a stream of their own, in order with everything else on
/// the tensors that they read and write.
///
/// What has been compiled is kept in a [folder](Self::with_cache), so that [`Nvrtc`] is needed, and its second waited
/// for, when something is new.
pub struct CudaCompiler {
    device: Arc<CudaDevice>,
    as_device: Arc<dyn Device>,
    stream: Arc<CudaStream>,
    library: Option<PathBuf>,
    cache: Option<PathBuf>,
}

impl CudaCompiler {
    /// A compiler for a GPU.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device is lost or full.
    pub fn new(device: &Arc<CudaDevice>) -> Result<Self> {
        let stream = Arc::new(CudaStream::new(device, StreamPriority::Normal)?);
        let as_device: Arc<dyn Device> = Arc::clone(device) as _;
        Ok(Self { device: Arc::clone(device), as_device, stream, library: None, cache: None })
    }

    /// NVRTC's library, or the folder it lies in, where it is not to be searched for.
    #[must_use]
    pub fn with_nvrtc(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }

    /// Keeps what has been compiled in this folder, which is made where it does not exist.
    #[must_use]
    pub fn with_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    fn program_of(&self, name: &str, cubin: &[u8]) -> Result<Arc<dyn KernelProgram>> {
        // SAFETY: the context is bound; the image is the compiler's, whole, as the cache has checked.
        let module = unsafe { self.device.calls()?.load_module(cubin) };
        let module = module.map_err(|error| {
            let message = format!("kernels {name}, {}: {error}", self.device.name());
            Error::new(ErrorKind::InvalidModel, message).with_source(error)
        })?;
        Ok(Arc::new(CudaProgram {
            name: name.to_owned(),
            device: Arc::clone(&self.device),
            stream: Arc::clone(&self.stream),
            module,
        }))
    }
}

impl KernelCompiler for CudaCompiler {
    fn device(&self) -> &Arc<dyn Device> {
        &self.as_device
    }

    fn compile(&self, name: &str, source: &str) -> Result<Arc<dyn KernelProgram>> {
        let generation = self.device.compute_capability();
        let entry = self.cache.as_ref().map(|folder| kernel_cache::entry(folder, name, source, generation));
        if let Some(cubin) = entry.as_deref().and_then(kernel_cache::read) {
            match self.program_of(name, &cubin) {
                Ok(program) => return Ok(program),
                // Of another driver's time, perhaps.
                Err(error) => tracing::debug!(%error, "kernels are compiled again"),
            }
        }
        let nvrtc = Nvrtc::open(self.library.as_deref())?;
        let compiled = nvrtc.compile(name, source, generation)?;
        if !compiled.log.is_empty() {
            tracing::debug!(log = compiled.log, "the compiler of kernels {name} had something to say");
        }
        let program = self.program_of(name, &compiled.cubin).map_err(|error| {
            let ((major, minor), driver) = (nvrtc.version(), self.device.driver_version());
            let message = format!(
                "{error} (compiled by NVRTC {major}.{minor}; the driver speaks CUDA {driver}; they have to be of one \
                 major version, or the driver newer)"
            );
            Error::new(error.kind(), message).with_source(error)
        })?;
        if let Some(entry) = entry
            && let Err(error) = kernel_cache::write(&entry, &compiled.cubin)
        {
            tracing::warn!(
                "cannot keep compiled kernels, {}: {error}; next time they are compiled again",
                entry.display()
            );
        }
        Ok(program)
    }
}

impl fmt::Debug for CudaCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaCompiler for {}", self.device.name())
    }
}

/// Kernels that a GPU has loaded.
struct CudaProgram {
    name: String,
    device: Arc<CudaDevice>,
    stream: Arc<CudaStream>,
    module: RawModule,
}

impl KernelProgram for CudaProgram {
    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let (kernel, name) = (launch.kernel, &self.name);
        let invalid = |why: &dyn fmt::Display| {
            Error::new(ErrorKind::InvalidArgument, format!("kernels {name}, `{kernel}`: {why}"))
        };
        let symbol = CString::new(kernel).map_err(|error| invalid(&error))?;
        // SAFETY: the context is bound and the module is loaded.
        let function = unsafe { self.device.calls()?.function(self.module, &symbol) };
        let function = function.map_err(|error| invalid(&error))?;

        // The driver takes as many bytes as the kernel declares, and no kernel declares more than these.
        let mut words = [0_u64; MOST_ARGUMENT_WORDS];
        let bytes = launch.argument_bytes(self.device.kind())?;
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let room =
            room.get_mut(..bytes.len()).ok_or_else(|| invalid(&"more arguments than a kernel takes"))?;
        room.copy_from_slice(&bytes);

        let slices = launch.arguments.iter().filter_map(|argument| match argument {
            KernelArgument::Read(tensor) => Some((false, tensor.device_slice()?)),
            KernelArgument::Write(tensor) => Some((true, tensor.device_slice()?)),
            _ => None,
        });
        let slices: Vec<_> = slices.collect();
        let buffers = |writes: bool| {
            let of_kind = slices.iter().filter(move |(written, _)| *written == writes);
            of_kind.filter_map(|(_, slice)| CudaBuffer::of(slice))
        };
        let shape = calls::Launch { grid: launch.blocks, block: launch.threads, shared_bytes: 0 };
        self.stream.enqueue(buffers(false), buffers(true), |stream| {
            let mut parameters = [words.as_mut_ptr().cast::<c_void>()];
            // SAFETY: the context is bound, and the module is loaded; the kernel has one parameter, of at most as many
            // bytes as `words`; the memory behind its addresses is borrowed by `launch` and, until the kernel has run,
            // held by the order that its buffers keep. That it stays within it is the source's promise.
            let launched =
                unsafe { self.device.calls()?.launch_kernel(function, shape, &mut parameters, stream) };
            launched.map_err(|error| error.during(format_args!("kernels {name}, `{kernel}`")))
        })
    }
}

impl fmt::Debug for CudaProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaProgram {} on {}", self.name, self.device.name())
    }
}

impl Drop for CudaProgram {
    fn drop(&mut self) {
        let unloaded = self.stream.wait().and_then(|()| {
            // SAFETY: the stream that all its kernels were enqueued on has been waited for, and nobody else has the module.
            let unloaded = unsafe { self.device.calls()?.unload_module(self.module) };
            unloaded.map_err(|error| error.during(self.device.name()))
        });
        if let Err(error) = unloaded {
            tracing::debug!(%error, "kernels were not unloaded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::fake::FakeCudaCalls;
    use crate::tensor::{ElementType, Tensor};

    const SOURCE: &str =
        "typedef struct { int *x; int y; } A;\nKERNEL(k, A) { arguments.x[0] = arguments.y; }\n";

    /// What NVIDIA's GPUs would do is not the fake's to say; how the calls follow each other is.
    #[test]
    fn kept_kernels_need_no_compiler_and_are_given_back() {
        let calls = FakeCudaCalls::new();
        let device = CudaDevice::open_with(calls.clone(), 0).expect("there is one");
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = CudaCompiler::new(&device)
            .expect("streams can be made")
            .with_nvrtc(folder.path().join("nothing"))
            .with_cache(folder.path());
        let error = compiler.compile("k", SOURCE).map(drop).expect_err("there is no compiler");
        assert!(error.to_string().starts_with("cannot use NVRTC, "), "{error}");

        let entry = kernel_cache::entry(folder.path(), "k", SOURCE, device.compute_capability());
        kernel_cache::write(&entry, b"a cubin").expect("the folder is ours");
        let program = compiler.compile("k", SOURCE).expect("it was kept");
        let mut tensor = Tensor::on(compiler.device().clone());
        tensor.reset_to(ElementType::I32, &[1]).expect("there is memory");
        let arguments = [KernelArgument::Write(&tensor), KernelArgument::I32(1)];
        let launch = Launch { kernel: "k", blocks: [1; 3], threads: [1; 3], arguments: &arguments };
        let error = program.launch(&launch).expect_err("the fake runs no kernels");
        assert_eq!(error.kind(), ErrorKind::Execution);
        assert!(error.to_string().starts_with("kernels k, `k`: cuLaunchKernel: "), "{error}");
        assert_eq!((calls.calls("cuModuleLoadData"), calls.live().modules), (1, 1));
        drop(program);
        assert_eq!(calls.live().modules, 0);

        // What the driver does not take any more is compiled again, which here fails.
        calls.fail("cuModuleLoadData", 0, 1, 209);
        let error = compiler.compile("k", SOURCE).map(drop).expect_err("there is no compiler");
        assert!(error.to_string().starts_with("cannot use NVRTC, "), "{error}");
        assert_eq!(calls.races(), Vec::<String>::new());
    }
}
