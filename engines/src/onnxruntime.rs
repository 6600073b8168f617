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
pub(crate) mod library;
mod logging;
mod optimized;
mod options;
#[allow(unsafe_code)]
pub(crate) mod probe;
mod session;

pub use library::{Candidate, Finding, LibrarySearch, Place};
pub use logging::LogLevel;
pub use options::{ExecutionProvider, OnnxRuntimeBuilder, OptimizationLevel, default_threads};
pub use session::OnnxRuntimeEngine;

use crate::error::{Error, ErrorKind, Result};
use ort::environment::Environment;
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
}

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
        let runtime = Self { loaded: Arc::new(Loaded { path, version, environment }) };
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
