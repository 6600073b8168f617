//! ONNX Runtime, loaded at run time.
//!
//! [`OnnxRuntime::load`] [searches for](crate::library) the shared library and loads it; every model becomes an
//! [`OnnxRuntimeEngine`] with its own provider, threads and memory.
//!
//! ```no_run
//! use ocelli_engines::onnxruntime::{OnnxRuntime, OnnxRuntimeEngine};
//! use ocelli_engines::{Engine, Tensor};
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let runtime = OnnxRuntime::load(None)?;
//! let mut engine = OnnxRuntimeEngine::builder(&runtime).with_threads(4).build_from_file("backbone.onnx")?;
//!
//! let pixels = Tensor::zeros::<f32>(&[1, 3, 1008, 1008]); // [image, channel, y, x]
//! let mut features = Tensor::empty();
//! engine.run(&[("pixel_values", &pixels)], &mut [("fpn_2", &mut features)])?;
//! # Ok(())
//! # }
//! ```

mod assignment;
mod builder;
#[allow(unsafe_code)]
mod call;
#[allow(unsafe_code)]
mod device_tensors;
mod provider;
mod registration;
mod session;
mod webgpu;
#[allow(unsafe_code)]
mod webgpu_memory;

pub use crate::cpu::default_threads;
pub use builder::OnnxRuntimeBuilder;
pub(crate) use provider::WEBGPU;
pub use provider::{CoreMlOptions, CudaOptions, ExecutionProvider, OtherProvider};
pub use session::OnnxRuntimeEngine;
pub(crate) use webgpu_memory::WebGpuBuffer;
pub use webgpu_memory::WebGpuDevice;

use crate::library::Library;
use ocelli_error::{Error, Result};
use ort::environment::Environment;
use ort::logging::LogLevel;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The ONNX Runtime of this process.
///
/// Cloning is cheap and gives the same one. It is never unloaded.
#[derive(Clone)]
pub struct OnnxRuntime {
    loaded: Arc<Loaded>,
}

struct Loaded {
    path: PathBuf,
    version: String,
    environment: Environment,
    /// The libraries of plugin providers that the environment has loaded.
    plugins: Mutex<BTreeSet<PathBuf>>,
}

/// The library, and where it is searched.
pub static LIBRARY: Library = Library {
    name: "ONNX Runtime",
    stems: &["onnxruntime"],
    stems_if_named: &[],
    variables: &["OCELLI_ONNXRUNTIME", "ORT_DYLIB_PATH"],
    setup_folder: "onnxruntime",
    python_packages: &["onnxruntime/capi"],
    python_extra: Some("cpu"),
    remedy: "run `make setup` in the source tree, or `pip install onnxruntime==1.31.1`, or set OCELLI_ONNXRUNTIME to the \
             path of the library",
    version: call::version,
};

/// A model of one `Relu`, four f32 from `x` to `y`: an `onnx.proto` ModelProto of IR version 8, operator set 17.
const SMALLEST_MODEL: &[u8] = b"\x08\x08\x3a\x33\
    \x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\
    \x12\x01g\
    \x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x04\
    \x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x04\
    \x42\x02\x10\x11";

/// The loaded library: `ort` binds itself to one library and one environment for the life of the process.
static LOADED: Mutex<Option<(PathBuf, OnnxRuntime)>> = Mutex::new(None);

impl OnnxRuntime {
    /// Loads the library at `path` or in the folder `path`, or without a path the one that the
    /// [search](crate::library) finds. Returns the loaded one if it is the same file.
    ///
    /// ONNX Runtime's telemetry is switched off, with the variable `ORT_DISABLE_TELEMETRY`, which is set unless it is set already:
    /// the library's own option leaves events in a file of the user's cache folder. Its errors go to `tracing`, target `onnxruntime`, at level `DEBUG`,
    /// because the call that fails returns them as well.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if no library is found, if it is corrupt or too old,
    /// or if the process has loaded another one.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        LIBRARY.load_once(path, &LOADED, |path, version| {
            let environment = start(path).map_err(|error| error.to_string())?;
            let plugins = Mutex::default();
            Ok(Self { loaded: Arc::new(Loaded { path: path.to_owned(), version, environment, plugins }) })
        })
    }

    /// The version that the library states: `1.31.1`.
    pub fn version(&self) -> &str {
        &self.loaded.version
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.loaded.path
    }

    /// The providers that the library was built with, by ONNX Runtime's names. Use [`try_provider`](Self::try_provider) to
    /// find out whether one starts on this machine.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if the library does not list them.
    pub fn providers(&self) -> Result<Vec<String>> {
        call::built_in_providers().map_err(|error| {
            Error::unavailable(format!("ONNX Runtime, {}: {}", self.path().display(), error.message()))
        })
    }

    /// Starts a provider with a model of one operator, and releases it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if it cannot start; the message gives the reason and
    /// what to install.
    pub fn try_provider(&self, provider: &ExecutionProvider) -> Result<()> {
        let builder = OnnxRuntimeEngine::builder(self).with_provider(provider.clone()).with_threads(1);
        builder.build_from_memory(SMALLEST_MODEL).map(drop)
    }

    /// Loads the library of a plugin provider, once.
    fn register_provider_library(&self, library: &Path) -> ort::Result<()> {
        let path = library.canonicalize().map_err(|error| {
            ort::Error::new(format!("cannot load the provider's library, {}: {error}", library.display()))
        })?;
        let mut plugins = self.loaded.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        if !plugins.contains(&path) {
            let name = format!("ocelli.{}", plugins.len());
            self.environment().register_ep_library(name, &path)?;
            plugins.insert(path);
        }
        Ok(())
    }

    fn environment(&self) -> &Environment {
        &self.loaded.environment
    }
}

debug_as!(OnnxRuntime, it => "OnnxRuntime {} ({})", it.version(), it.path().display());

/// A variable that keeps ONNX Runtime from collecting and storing events.
const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

/// Sets [`NO_TELEMETRY`], unless it is set already.
#[allow(unsafe_code)]
fn disable_telemetry() {
    if std::env::var_os(NO_TELEMETRY).is_none() {
        // SAFETY: the standard library locks the environment for Rust's threads. C code of other threads that reads the
        // environment at this very moment is not excluded; programs that have such threads can set the variable themselves
        // when they start, and then nothing is written here.
        unsafe { std::env::set_var(NO_TELEMETRY, "1") };
    }
}

fn start(path: &Path) -> ort::Result<Environment> {
    disable_telemetry();
    let builder = ort::init_from(path).map_err(|error| ort::Error::new(error.to_string()))?;
    let builder = builder.with_name("ocelli").with_telemetry(false).with_logger(Arc::new(forward_log));
    let environment = builder.build()?;
    environment.set_log_level(LogLevel::Error);
    Ok(environment)
}

/// Called by ONNX Runtime from any of its threads.
fn forward_log(level: LogLevel, _category: &str, _id: &str, code: &str, message: &str) {
    webgpu::note(message);
    match level {
        LogLevel::Fatal => tracing::error!(target: "onnxruntime", code, "{message}"),
        _ => tracing::debug!(target: "onnxruntime", code, "{message}"),
    }
}
