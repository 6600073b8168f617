//! The loaded library.

use super::calls::part::Part;
use super::calls::{build, run};
use super::library::{LIBRARY, version};
use super::version::{Product, Version};
use ocelli_error::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The TensorRT of this process.
///
/// Cloning is cheap and gives the same one. It is never unloaded.
#[derive(Clone)]
pub struct TensorRt {
    loaded: Arc<Loaded>,
}

struct Loaded {
    path: PathBuf,
    version: Version,
    run: run::Functions,
    /// The functions that build plans, or why this library cannot build.
    build: Result<build::Functions, String>,
}

/// TensorRT keeps its first logger and state of its own for the life of the process, so there can be only one.
static LOADED: Mutex<Option<(PathBuf, TensorRt)>> = Mutex::new(None);

impl TensorRt {
    /// Loads the library at `path` or in the folder `path`, or without a path the one that the
    /// [search](crate::library) finds. Returns the loaded one if it is the same file.
    ///
    /// Building plans also needs the ONNX parser, which must be beside the library.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](ocelli_error::ErrorKind::Unavailable) if no library is found, if it is corrupt or an unsupported version, if Ocelli's
    /// [part](Product::part) for it is missing, or if the process has loaded another one.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        LIBRARY.load_once(path, &LOADED, |path, _| {
            let version = version(path)?;
            let part = Part::load(Product::of(version)).map_err(|error| error.to_string())?;
            let run = run::Functions::open(part, path)?;
            let build = build::Functions::open(part, path, version)
                .map_err(|reason| format!("{reason}; {}", LIBRARY.remedy));
            Ok(Self { loaded: Arc::new(Loaded { path: path.to_owned(), version, run, build }) })
        })
    }

    /// The version that the library reports.
    pub fn version(&self) -> Version {
        self.loaded.version
    }

    /// The one of the two products that it is.
    pub fn product(&self) -> Product {
        Product::of(self.loaded.version)
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.loaded.path
    }

    pub(super) fn run_functions(&self) -> run::Functions {
        self.loaded.run
    }

    pub(super) fn build_functions(&self) -> Result<&build::Functions, &str> {
        self.loaded.build.as_ref().map_err(String::as_str)
    }
}

debug_as!(TensorRt, it => "{} {} ({})", it.product(), it.version(), it.path().display());
