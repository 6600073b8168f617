//! ONNX Runtime, loaded while the program runs.
//!
//! Nothing links against it: the library is found by [`LibrarySearch`], loaded by [`OnnxRuntime::load`], and every
//! model becomes an [`OnnxRuntimeEngine`] with threads, optimisation and memory of its own.
//!
//! ```no_run
//! use ocelli_engines::onnxruntime::{LibrarySearch, OnnxRuntime, OnnxRuntimeEngine};
//! use ocelli_engines::{Engine, Tensor};
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let runtime = OnnxRuntime::load(&LibrarySearch::new())?;
//! let mut engine = OnnxRuntimeEngine::builder(&runtime).with_threads(4).build_from_file("backbone.onnx")?;
//!
//! let pixels = Tensor::zeros_f32(&[1, 3, 1008, 1008]); // [image, channel, y, x]
//! let mut features = Tensor::empty();
//! engine.run(&[("pixel_values", &pixels)], &mut [("fpn_2", &mut features)])?;
//! # Ok(())
//! # }
//! ```

#[allow(unsafe_code)]
mod call;
mod graph;
pub(crate) mod library;
mod logging;
mod optimized;
mod options;
mod placement;
#[allow(unsafe_code)]
pub(crate) mod probe;
mod provider;
mod registration;
#[allow(unsafe_code)]
mod residence;
mod session;

pub use library::{Candidate, Finding, LibrarySearch, Place};
pub use logging::LogLevel;
pub use options::{OnnxRuntimeBuilder, OptimizationLevel, default_threads};
pub use provider::{CoreMlOptions, CudaOptions, ExecutionProvider, OtherProvider, TensorRtOptions};
pub use session::OnnxRuntimeEngine;

use crate::error::{Error, ErrorKind, Result};
use ort::environment::Environment;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The one ONNX Runtime of this process.
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
    /// Libraries of providers that were loaded into the environment.
    plugins: Mutex<BTreeSet<PathBuf>>,
}

/// A network of one `Relu`, four f32 from `x` to `y`: an `onnx.proto` ModelProto of IR version 8, operator set 17.
const SMALLEST_MODEL: &[u8] = b"\x08\x08\x3a\x33\
    \x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\
    \x12\x01g\
    \x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x04\
    \x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x04\
    \x42\x02\x10\x11";

/// What `load` loaded. `ort` binds itself to one library and one environment for the life of the process, so this
/// keeps them for as long.
static LOADED: Mutex<Option<OnnxRuntime>> = Mutex::new(None);

impl OnnxRuntime {
    /// Loads the library that the search finds, or returns the one this process has if it is the same file.
    ///
    /// ONNX Runtime's telemetry is switched off, and its log goes to `tracing` (see [`LogLevel`]).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is none, if it is broken or too old (see [`LibrarySearch::locate`]), or if
    /// another file is loaded already: a process can have only one.
    pub fn load(search: &LibrarySearch) -> Result<Self> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, version) = search.locate()?;
        if let Some(runtime) = &*loaded {
            if same_file(&path, runtime.path()) {
                return Ok(runtime.clone());
            }
            let (asked, held) = (path.display(), runtime.path().display());
            let message = format!(
                "cannot load ONNX Runtime, {asked}: this process already runs {held}, and can run only one"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let environment = open(&path).map_err(|reason| {
            let message = format!("cannot start ONNX Runtime, {}: {reason}", path.display());
            Error::new(ErrorKind::Unavailable, message)
        })?;
        tracing::debug!(path = %path.display(), %version, "ONNX Runtime loaded");
        let plugins = Mutex::default();
        let runtime = Self { loaded: Arc::new(Loaded { path, version, environment, plugins }) };
        *loaded = Some(runtime.clone());
        Ok(runtime)
    }

    /// The version as the library states it: `1.31.1`.
    pub fn version(&self) -> &str {
        &self.loaded.version
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.loaded.path
    }

    /// The providers that the library was built with, by ONNX Runtime's names; whether one can start here is another
    /// question, which [`try_provider`](Self::try_provider) answers.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the library does not say.
    pub fn providers(&self) -> Result<Vec<String>> {
        call::built_in_providers().map_err(|error| {
            let message = format!("ONNX Runtime, {}: {}", self.path().display(), error.message());
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    /// Starts a provider with a network of one operator, and lets it go again.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] with the reason, and what to install, where it cannot start.
    pub fn try_provider(&self, provider: &ExecutionProvider) -> Result<()> {
        let mut provider = provider.clone();
        if let ExecutionProvider::TensorRt(options) = &mut provider {
            // Its libraries are loaded; compiling a kernel for the one operator would take seconds.
            options.least_nodes = Some(2);
        }
        let builder = OnnxRuntimeEngine::builder(self).with_provider(provider).with_threads(1);
        builder.build_from_memory(SMALLEST_MODEL).map(drop)
    }

    /// Loads a provider's own library, unless that was done.
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

    /// From which level on ONNX Runtime reports to `tracing`; engines that exist keep the level they were made with.
    ///
    /// [`LogLevel::Error`] to begin with.
    pub fn set_log_level(&self, level: LogLevel) {
        self.loaded.environment.set_log_level(level.into());
    }

    fn environment(&self) -> &Environment {
        &self.loaded.environment
    }
}

impl fmt::Debug for OnnxRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnnxRuntime {} ({})", self.version(), self.path().display())
    }
}

fn open(path: &Path) -> Result<Environment, String> {
    let builder = ort::init_from(path).map_err(|error| error.to_string())?;
    let builder = builder.with_name("ocelli").with_telemetry(false).with_logger(Arc::new(logging::forward));
    let environment = builder.build().map_err(|error| error.to_string())?;
    environment.set_log_level(LogLevel::Error.into());
    Ok(environment)
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
