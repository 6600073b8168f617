//! Kernels of a device on the host's processor, compiled by the system's C compiler: the oracle where there is no GPU.

#![allow(unsafe_code)]

use crate::device::{Device, DeviceKind};
use crate::error::{Error, ErrorKind, Result};
use crate::fake::FakeDevice;
use crate::kernels::{KernelCompiler, KernelProgram, Launch};
use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a kernel finds around it.
const SURROUNDINGS: &str = include_str!("kernels.c");

/// Compiles kernels with `cc` and runs them, thread by thread, on the tensors of a [`FakeDevice`].
///
/// Threads of a block change places at barriers and nowhere else; a barrier that some of them do not reach is an error.
/// Every program of one source text is a library of its own in `folder`, which has to live as long as they do.
pub struct HostKernels {
    device: Arc<dyn Device>,
    folder: PathBuf,
    made: AtomicUsize,
}

impl HostKernels {
    /// A compiler that leaves what it makes in `folder`.
    pub fn new(device: Arc<FakeDevice>, folder: impl Into<PathBuf>) -> Self {
        Self { device, folder: folder.into(), made: AtomicUsize::new(0) }
    }
}

impl fmt::Debug for HostKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKernels in {}", self.folder.display())
    }
}

impl KernelCompiler for HostKernels {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn compile(&self, name: &str, source: &str) -> Result<Arc<dyn KernelProgram>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let text = self.folder.join(format!("{name}-{number}.c"));
        let library = self.folder.join(format!("{name}-{number}.so"));
        let unavailable = |what: &str, path: &Path, why: &dyn fmt::Display| {
            let message = format!("kernels on the host, {what} {}: {why}", path.display());
            Error::new(ErrorKind::Unavailable, message)
        };
        std::fs::write(&text, format!("{SURROUNDINGS}\n#line 1 \"{name}.cu\"\n{source}"))
            .map_err(|error| unavailable("write", &text, &error))?;
        // Fused operations would round once where the device is told to round twice.
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-ffp-contract=off", "-fPIC", "-shared"])
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-o"])
            .args([&library, &text])
            .arg("-lm")
            .output()
            .map_err(|error| unavailable("run", Path::new("cc"), &error))?;
        if !output.status.success() {
            let message = format!("kernels {name}: {}", String::from_utf8_lossy(&output.stderr));
            return Err(Error::new(ErrorKind::InvalidModel, message));
        }
        // SAFETY: loading runs no code of the library's own: it is C without constructors, made a moment ago.
        let library = unsafe { libloading::Library::new(&library) }
            .map_err(|error| unavailable("load", &library, &error))?;
        Ok(Arc::new(HostProgram { name: name.to_owned(), library: Mutex::new(library) }))
    }
}

/// A library of kernels. Its threads share its variables, so that one kernel runs at a time.
struct HostProgram {
    name: String,
    library: Mutex<libloading::Library>,
}

impl fmt::Debug for HostProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostProgram {}", self.name)
    }
}

type Run = unsafe extern "C" fn(*const u8, usize, *const u32, *const u32) -> c_int;

impl KernelProgram for HostProgram {
    fn launch(&self, launch: &Launch<'_>) -> Result<()> {
        let (kernel, program) = (launch.kernel, &self.name);
        let bytes = launch.argument_bytes(DeviceKind::Fake)?;
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the surroundings define `run_…` of this type for every kernel.
        let run = unsafe { library.get::<Run>(format!("run_{kernel}\0")) }.map_err(|_| {
            let message = format!("kernels {program}: there is no kernel `{kernel}`");
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        // SAFETY: the sizes are those of what is pointed to; the tensors behind the addresses are borrowed by `launch`
        // and lie in the host's memory. What the kernel does with them is its source's promise.
        let failure =
            unsafe { run(bytes.as_ptr(), bytes.len(), launch.blocks.as_ptr(), launch.threads.as_ptr()) };
        let (kind, why) = match failure {
            0 => return Ok(()),
            1 => (ErrorKind::Execution, "no memory for its threads".to_owned()),
            2 => (ErrorKind::Execution, "some threads wait at a barrier that others do not reach".to_owned()),
            _ => (
                ErrorKind::InvalidArgument,
                format!("its structure is not of the {} bytes that came", bytes.len()),
            ),
        };
        Err(Error::new(kind, format!("kernels {program}, `{kernel}`: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelArgument;
    use crate::tensor::{ElementType, Tensor};

    /// Every thread hands its number to the one before it, through shared memory.
    const TURN: &str = "
typedef struct { int *values; int barrier; } Turn;
KERNEL(turn, Turn)
{
    __shared__ int all[64];
    const int thread = threadIdx.x + threadIdx.y * blockDim.x;
    int *own = arguments.values + 8 * blockIdx.x;
    all[thread] = own[thread] + 1;
    if (arguments.barrier == 1 || (arguments.barrier == 2 && thread > 0))
        __syncthreads();
    own[thread] = all[(thread + 1) % (int)(blockDim.x * blockDim.y)];
}
";

    fn turn(compiler: &HostKernels, barrier: i32) -> Result<Vec<i32>> {
        let program = compiler.compile("turn", TURN)?;
        let mut values = Tensor::on(Arc::clone(compiler.device()));
        values.copy_from_host(&Tensor::new(&[2, 8], (0..16).collect::<Vec<i32>>())?)?;
        let arguments = [KernelArgument::Write(&values), KernelArgument::I32(barrier)];
        let launch = Launch { kernel: "turn", blocks: [2, 1, 1], threads: [4, 2, 1], arguments: &arguments };
        program.launch(&launch)?;
        let mut host = Tensor::empty();
        values.copy_to_host_into(&mut host)?;
        assert_eq!(host.element_type(), ElementType::I32);
        Ok(host.as_slice()?.to_vec())
    }

    #[test]
    fn threads_meet_at_barriers() {
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = HostKernels::new(FakeDevice::new(), folder.path());
        let expected = [2, 3, 4, 5, 6, 7, 8, 1, 10, 11, 12, 13, 14, 15, 16, 9];
        assert_eq!(turn(&compiler, 1).expect("all reach the barrier"), expected);
        assert_ne!(turn(&compiler, 0).expect("nobody waits"), expected, "a missing barrier has to show");
        let error = turn(&compiler, 2).expect_err("one does not reach it");
        let expected = "kernels turn, `turn`: some threads wait at a barrier that others do not reach";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn mistakes_have_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = HostKernels::new(FakeDevice::new(), folder.path());
        let error = compiler.compile("broken", "KERNEL(").expect_err("this is no C");
        assert!(error.to_string().starts_with("kernels broken: "), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidModel);
        let program = compiler.compile("turn", TURN).expect("this is C");
        let cases = [
            ("other", &[][..], "kernels turn: there is no kernel `other`"),
            (
                "turn",
                &[KernelArgument::Nothing],
                "kernels turn, `turn`: its structure is not of the 8 bytes that came",
            ),
        ];
        for (kernel, arguments, expected) in cases {
            let launch = Launch { kernel, blocks: [1; 3], threads: [1; 3], arguments };
            let error = program.launch(&launch).expect_err("it is wrong in one thing");
            assert_eq!((error.to_string().as_str(), error.kind()), (expected, ErrorKind::InvalidArgument));
        }
    }
}
