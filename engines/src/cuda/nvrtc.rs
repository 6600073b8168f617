//! NVRTC, NVIDIA's compiler as a library, found while the program runs.
//!
//! It compiles for one generation of GPUs, to what they run and not to PTX: a driver takes PTX of its own version or
//! older ones only, and NVRTC is often newer than the driver.

use crate::error::{Error, ErrorKind, Result};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// The variable that names the library, or the folder that holds it.
const VARIABLE: &str = "OCELLI_NVRTC";

/// By these names the system's loader knows it; the newest first.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
};

/// Where CUDA's own installer puts it, for those whose loader is not told.
const FOLDERS: &[&str] = &["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

const SUCCESS: c_int = 0;
const ERROR_COMPILATION: c_int = 6;

/// Put before every source; see [`kernels`](crate::kernels).
const SURROUNDINGS: &str = "#define KERNEL(name, Arguments) extern \"C\" __global__ void name(const __grid_constant__ \
                            Arguments arguments)\n#line 1\n";

/// Rounding as the source says it, one operation after the other; lines for those who debug.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--generate-line-info"];

macro_rules! table {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        struct Table {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)+
        }

        impl Table {
            /// Looks every function up; an error is the name of one that is not there.
            fn of(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the symbol is NVRTC's function of this name, whose C declaration has these arguments
                        // and answers an `nvrtcResult`, an `int`.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(concat!($symbol, "\0").as_bytes())
                        };
                        *symbol.map_err(|_| $symbol)?
                    },)+
                })
            }
        }
    };
}

type Program = *mut c_void;

table! {
    version = "nvrtcVersion": fn(*mut c_int, *mut c_int);
    count_architectures = "nvrtcGetNumSupportedArchs": fn(*mut c_int);
    architectures = "nvrtcGetSupportedArchs": fn(*mut c_int);
    create = "nvrtcCreateProgram": fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    destroy = "nvrtcDestroyProgram": fn(*mut Program);
    compile = "nvrtcCompileProgram": fn(Program, c_int, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize": fn(Program, *mut usize);
    log = "nvrtcGetProgramLog": fn(Program, *mut c_char);
    cubin_size = "nvrtcGetCUBINSize": fn(Program, *mut usize);
    cubin = "nvrtcGetCUBIN": fn(Program, *mut c_char);
}

/// The compiler of this machine.
pub struct Nvrtc {
    table: Table,
    path: PathBuf,
    version: (u32, u32),
    /// The table points into it.
    _library: Library,
}

/// What became of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledKernels {
    /// For the driver to load.
    pub cubin: Vec<u8>,
    /// What the compiler had to say; empty where it is content.
    pub log: String,
}

/// The libraries that this process has opened: they are never closed.
static OPENED: Mutex<Vec<(Option<PathBuf>, Arc<Nvrtc>)>> = Mutex::new(Vec::new());

impl Nvrtc {
    /// Opens the compiler: the library or folder named here, else the one that `OCELLI_NVRTC` names, else the one that
    /// the system's loader finds, else the one of a CUDA installation in `/usr/local/cuda`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where there is none, or what is there cannot be used; the message says what to do.
    pub fn open(named: Option<&Path>) -> Result<Arc<Self>> {
        let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = named.map(Path::to_path_buf).or_else(variable);
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, nvrtc)) = opened.iter().find(|(by, _)| *by == named) {
            return Ok(Arc::clone(nvrtc));
        }
        let nvrtc = Arc::new(match &named {
            Some(path) => Self::load(&file_at(path)?)?,
            None => Self::search()?,
        });
        opened.push((named, Arc::clone(&nvrtc)));
        Ok(nvrtc)
    }

    fn search() -> Result<Self> {
        let installed =
            FOLDERS.iter().flat_map(|folder| NAMES.iter().map(|name| Path::new(folder).join(name)));
        let installed = installed.filter(|path| path.exists());
        for name in NAMES.iter().map(PathBuf::from).chain(installed) {
            // SAFETY: what a library runs when it is loaded is the operating system's trust in what is installed.
            if let Ok(library) = unsafe { Library::new(&name) } {
                return Self::of(library, &name);
            }
        }
        let message = format!(
            "NVRTC, which compiles kernels for NVIDIA's GPUs, was not found among the system's libraries ({}): install \
             CUDA 12 or 13, or unpack the wheel that `pip download --no-deps nvidia-cuda-nvrtc` brings and name the \
             folder of its library with {VARIABLE}",
            NAMES.join(", ")
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn load(path: &Path) -> Result<Self> {
        // SAFETY: as in `search`; here it is the trust of whoever named the file.
        let library = unsafe { Library::new(path) }.map_err(|error| unusable(path, &error))?;
        Self::of(library, path)
    }

    fn of(library: Library, path: &Path) -> Result<Self> {
        let table = Table::of(&library).map_err(|symbol| {
            unusable(path, &format_args!("it lacks {symbol}; a NVRTC of CUDA 11.2 or newer is needed"))
        })?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to an `int`.
        let code = unsafe { (table.version)(&raw mut major, &raw mut minor) };
        if code != SUCCESS {
            return Err(unusable(path, &format_args!("nvrtcVersion failed with code {code}")));
        }
        let version = (major.unsigned_abs(), minor.unsigned_abs());
        Ok(Self { table, path: path.to_path_buf(), version, _library: library })
    }

    /// The version of CUDA that it belongs to, major and minor number.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The file, or the name by which the system's loader found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The generations of GPUs that it compiles for, as `10 · major + minor`, rising.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where the library does not say.
    pub fn architectures(&self) -> Result<Vec<u32>> {
        let mut count = 0;
        // SAFETY: it points to an `int`.
        let code = unsafe { (self.table.count_architectures)(&raw mut count) };
        self.check("nvrtcGetNumSupportedArchs", code)?;
        let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as the library counted.
        let code = unsafe { (self.table.architectures)(numbers.as_mut_ptr()) };
        self.check("nvrtcGetSupportedArchs", code)?;
        Ok(numbers.into_iter().map(c_int::unsigned_abs).collect())
    }

    /// Compiles [kernels](crate::kernels) for GPUs of one compute capability; `name` is what errors call the source.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where this compiler does not know the GPU; [`ErrorKind::InvalidModel`] with the
    /// compiler's words where the source is wrong.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        compute_capability: (u32, u32),
    ) -> Result<CompiledKernels> {
        let (major, minor) = compute_capability;
        let known = self.architectures()?;
        if !known.contains(&(10 * major + minor)) {
            let own = format!("NVRTC {}.{} ({})", self.version.0, self.version.1, self.path.display());
            let message = format!(
                "kernels {name}: {own} does not know GPUs of compute capability {major}.{minor}; use the one of a CUDA \
                 that does, and name it with {VARIABLE}"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let holds_null = |_| {
            Error::new(ErrorKind::InvalidModel, format!("kernels {name}: the source holds a null character"))
        };
        let text = CString::new(format!("{SURROUNDINGS}{source}")).map_err(holds_null)?;
        let file = CString::new(format!("{name}.cu")).map_err(holds_null)?;
        let mut program = ptr::null_mut();
        // SAFETY: both texts end in a null byte and outlive the program; there are no headers.
        let code = unsafe {
            (self.table.create)(&raw mut program, text.as_ptr(), file.as_ptr(), 0, ptr::null(), ptr::null())
        };
        self.check("nvrtcCreateProgram", code)?;
        let program = OwnedProgram { raw: program, destroy: self.table.destroy };

        let architecture = format!("--gpu-architecture=sm_{major}{minor}");
        let options: Vec<CString> = OPTIONS
            .iter()
            .copied()
            .chain([architecture.as_str()])
            .map(|option| CString::new(option).expect("options hold no null"))
            .collect();
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is there, and so are the options, each ending in a null byte.
        let code = unsafe { (self.table.compile)(program.raw, options.len() as c_int, options.as_ptr()) };
        let log = self.text("nvrtcGetProgramLog", &program, self.table.log_size, self.table.log)?;
        let log =
            CStr::from_bytes_until_nul(&log).map_or(String::new(), |log| log.to_string_lossy().into_owned());
        if code == ERROR_COMPILATION {
            return Err(Error::new(ErrorKind::InvalidModel, format!("kernels {name}: {log}")));
        }
        self.check("nvrtcCompileProgram", code)?;
        let cubin = self.text("nvrtcGetCUBIN", &program, self.table.cubin_size, self.table.cubin)?;
        Ok(CompiledKernels { cubin, log: log.trim().to_owned() })
    }

    /// Bytes that one function counts and another fills in.
    fn text(
        &self,
        call: &str,
        program: &OwnedProgram,
        count: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        fill: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is there, and `size` is a `size_t`.
        self.check(call, unsafe { count(program.raw, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: there is room for as many bytes as the library counted.
        self.check(call, unsafe { fill(program.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn check(&self, call: &str, code: c_int) -> Result<()> {
        match code {
            SUCCESS => Ok(()),
            code => Err(unusable(&self.path, &format_args!("{call} failed with code {code}"))),
        }
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvrtc {}.{}, {}", self.version.0, self.version.1, self.path.display())
    }
}

struct OwnedProgram {
    raw: Program,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
}

impl Drop for OwnedProgram {
    fn drop(&mut self) {
        // SAFETY: the program was made by the library that the function is of, and nobody else has it.
        let code = unsafe { (self.destroy)(&raw mut self.raw) };
        if code != SUCCESS {
            tracing::debug!(code, "a program of NVRTC was not destroyed");
        }
    }
}

/// The library that a path names, or that lies in the folder it names.
fn file_at(path: &Path) -> Result<PathBuf> {
    let file = if path.is_dir() {
        let found = NAMES.iter().map(|name| path.join(name)).find(|file| file.exists());
        found.ok_or_else(|| unusable(path, &format_args!("the folder holds none of {}", NAMES.join(", "))))?
    } else {
        path.to_path_buf()
    };
    if !file.exists() {
        return Err(unusable(path, &"no such file"));
    }
    // The loader takes a bare file name for a name to search for.
    std::path::absolute(&file).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> Error {
    let message = format!("cannot use NVRTC, {}: {why}; correct {VARIABLE} or unset it", path.display());
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("libnvrtc.so");
        let cases: [(PathBuf, &str); 3] = [
            (folder.path().join("nothing.so"), "no such file"),
            (folder.path().to_path_buf(), "the folder holds none of"),
            (PathBuf::from("/proc/self/exe"), ""),
        ];
        let mut wrong = Vec::new();
        for (path, told) in cases {
            let outcome = Nvrtc::open(Some(&path)).map(drop);
            let start = format!("cannot use NVRTC, {}: ", path.display());
            let fits = outcome.as_ref().is_err_and(|error| {
                let line = error.to_string();
                error.kind() == ErrorKind::Unavailable && line.starts_with(&start) && line.contains(told)
            });
            if !fits {
                wrong.push(format!("{}: {outcome:?}", path.display()));
            }
        }
        std::fs::write(&text, "no library").expect("the folder is ours");
        let error = Nvrtc::open(Some(folder.path())).map(drop).expect_err("this is text");
        if !error.to_string().contains("libnvrtc.so: ") {
            wrong.push(format!("{error}"));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
