//! NVRTC, NVIDIA's run-time compiler, loaded at run time by `cudarc`.
//!
//! Kernels are compiled to machine code for one compute capability. PTX would not do: a driver refuses PTX of a CUDA
//! version newer than its own, and NVRTC is often newer than the driver.

use crate::library::{newest, open};
use cudarc::nvrtc::{result, sys};
use libloading::Library;
use ocelli_error::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const VARIABLE: &str = "OCELLI_NVRTC";

/// Products and sums are rounded separately, as on the CPU.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--generate-line-info"];

/// NVRTC, once it has been loaded.
#[derive(Debug, Clone, Copy)]
pub struct Nvrtc {
    version: (u32, u32),
}

/// The result of a compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledKernels {
    /// An image for the driver.
    pub cubin: Vec<u8>,
    /// The compiler's warnings.
    pub log: String,
}

impl Nvrtc {
    /// Loads the library, which then stays loaded: the file or folder that the environment variable `OCELLI_NVRTC` names,
    /// or without it the library that the operating system's loader finds.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if it is missing or cannot be used; the message says
    /// what to do.
    pub fn open() -> Result<Self> {
        static OPENED: Mutex<Option<Nvrtc>> = Mutex::new(None);
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nvrtc) = *opened {
            return Ok(nvrtc);
        }
        match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
            Some(path) => load_named(&path)?,
            None => find_installed()?,
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the function writes two `int`s.
        called("nvrtcVersion", unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) })?;
        let nvrtc = Self { version: (major.unsigned_abs(), minor.unsigned_abs()) };
        // Older versions lack functions, for which cudarc would panic.
        if nvrtc.version < (12, 0) {
            return Err(unusable(format_args!("version {major}.{minor}"), "expected 12.0 or newer"));
        }
        *opened = Some(nvrtc);
        Ok(nvrtc)
    }

    /// The CUDA version: the major and the minor number.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The compute capabilities that it compiles for, as `10 · major + minor`, in ascending order.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if the library fails.
    pub fn architectures(&self) -> Result<Vec<u32>> {
        let mut count = 0;
        // SAFETY: the function writes one `int`.
        called("nvrtcGetNumSupportedArchs", unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) })?;
        let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is space for as many numbers as the library has counted.
        called("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(numbers.as_mut_ptr()) })?;
        Ok(numbers.into_iter().map(c_int::unsigned_abs).collect())
    }

    /// Compiles CUDA C++ for GPUs of one compute capability. Errors call the source `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if this version does not support the GPU;
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) with the compiler's messages if the source is
    /// invalid.
    pub fn compile(&self, name: &str, source: &str, (major, minor): (u32, u32)) -> Result<CompiledKernels> {
        if !self.architectures()?.contains(&(10 * major + minor)) {
            let own = format!("NVRTC {}.{}", self.version.0, self.version.1);
            return Err(Error::unavailable(format!(
                "kernels {name}: {own} does not support GPUs of compute capability {major}.{minor}; set {VARIABLE} to an \
                 NVRTC that does"
            )));
        }
        let text = |text: &str| {
            CString::new(text).map_err(|_| {
                Error::invalid_data(format!("kernels {name}: the source contains a null character"))
            })
        };
        let (source, file) = (text(source)?, text(&format!("{name}.cu"))?);
        let program = result::create_program(&source, Some(&file));
        let program = Program(program.map_err(|error| unusable("nvrtcCreateProgram", error))?);

        let architecture = format!("--gpu-architecture=sm_{major}{minor}");
        let options: Vec<&str> = OPTIONS.iter().copied().chain([architecture.as_str()]).collect();
        // SAFETY: the program exists until the end of this function, as do its two texts.
        let (outcome, log) =
            unsafe { (result::compile_program(program.0, &options), result::get_program_log(program.0)) };
        let log = log.map_err(|error| unusable("nvrtcGetProgramLog", error))?;
        let log = CStr::from_bytes_until_nul(bytemuck::cast_slice::<c_char, u8>(&log))
            .map_or(String::new(), |log| log.to_string_lossy().trim().to_owned());
        match outcome {
            Ok(()) => Ok(CompiledKernels { cubin: program.cubin()?, log }),
            Err(error) if error.0 == sys::nvrtcResult::NVRTC_ERROR_COMPILATION => {
                Err(Error::invalid_data(format!("kernels {name}: {log}")))
            }
            Err(error) => Err(unusable("nvrtcCompileProgram", error)),
        }
    }
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn cubin(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program has been compiled, and the function writes one `size_t`.
        called("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut size) })?;
        let mut cubin = vec![0_u8; size];
        // SAFETY: there is space for as many bytes as the library has counted.
        called("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()) })?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created by `compile` and is destroyed once.
        if let Err(error) = unsafe { result::destroy_program(self.0) } {
            tracing::debug!(%error, "cannot destroy an NVRTC program");
        }
    }
}

/// Loads the library at a path. `cudarc` then gets this library when it asks the loader for its name.
fn load_named(path: &Path) -> Result<()> {
    let refused = |why: &str| unusable(path.display(), why);
    let file = if path.is_dir() {
        let file = ["nvrtc", "nvrtc64"].iter().find_map(|stem| newest(path, stem));
        file.ok_or_else(|| refused("the folder holds no libnvrtc"))?
    } else if path.exists() {
        path.to_path_buf()
    } else {
        return Err(refused("no such file"));
    };
    // The loader would search for a bare file name.
    let file = std::path::absolute(&file).map_err(|error| unusable(path.display(), error))?;
    let library = open(&file).map_err(|reason| refused(&reason))?;
    // SAFETY: the symbol's address is only compared.
    let address = |library: &Library| unsafe { library.get::<*const ()>(b"nvrtcVersion\0").ok().map(|f| *f) };
    let own = address(library).ok_or_else(|| refused("it does not export `nvrtcVersion`"))?;
    // SAFETY: loading a library runs its initialisers; these libraries are installed on the machine.
    if !unsafe { sys::is_culib_present() } {
        return Err(refused("its SONAME is not that of a supported version"));
    }
    // SAFETY: the library is present, so this does not panic.
    if address(unsafe { sys::culib() }) != Some(own) {
        return Err(refused("the operating system's loader finds another NVRTC first"));
    }
    Ok(())
}

/// Finds the library by its names in the folders of the operating system's loader.
fn find_installed() -> Result<()> {
    // SAFETY: loading a library runs its initialisers; this one is installed on the machine.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "NVRTC, the compiler for kernels on NVIDIA GPUs, not found in the system's library folders: install CUDA 12 or 13, \
         or unpack the Python package nvidia-cuda-nvrtc, and set {VARIABLE} to the folder of its library"
    )))
}

/// Fails if the function of this name did.
fn called(name: &str, outcome: sys::nvrtcResult) -> Result<()> {
    outcome.result().map_err(|error| unusable(name, error))
}

fn unusable(what: impl fmt::Display, why: impl fmt::Display) -> Error {
    Error::unavailable(format!("cannot use NVRTC, {what}: {why}; correct {VARIABLE} or unset it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    #[test]
    fn a_library_that_cannot_be_used_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let missing = folder.path().join("nothing.so");
        let text = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(text.path().join("libnvrtc.so.13"), "no library").expect("it can be written");
        let cases: [(&Path, &str); 3] = [
            (&missing, "no such file"),
            (folder.path(), "the folder holds no libnvrtc"),
            (text.path(), "libnvrtc.so.13"),
        ];
        let mut failures = Vec::new();
        for (path, expected) in cases {
            let start = format!("cannot use NVRTC, {}: ", path.display());
            match load_named(path) {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && error
                            .to_string()
                            .strip_prefix(&start)
                            .is_some_and(|why| why.contains(expected)) => {}
                other => failures.push(format!("{}: {other:?}", path.display())),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
