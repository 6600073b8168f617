//! The loaded library.

use super::calls::{build, run};
use super::library::version;
use super::version::{Product, Version};
use crate::library::{LibrarySearch, is_same_file};
use ocelli_error::{Error, ErrorKind, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

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

/// The product that this program was built for.
const PRODUCT: Product =
    Product::COMPILED.expect("this file is compiled only with a feature that selects a product");

/// TensorRT keeps its first logger and state of its own for the life of the process, so there can be only one.
static LOADED: Mutex<Option<TensorRt>> = Mutex::new(None);

impl TensorRt {
    /// Loads the library at `path` or in the folder `path`, or without a path the one that the
    /// [search](crate::library) finds. Returns the loaded one if it is the same file.
    ///
    /// Building plans also needs the ONNX parser, which must be beside the library.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no library is found, if it is corrupt, the other product or an unsupported version, or
    /// if the process has loaded another one.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let library = PRODUCT.library();
        let (path, _) = LibrarySearch::new(library, path).locate()?;
        let failed = |reason: String| {
            let message = format!("cannot load {PRODUCT}, {}: {reason}", path.display());
            Error::new(ErrorKind::Unavailable, message)
        };
        if let Some(tensorrt) = &*loaded {
            if is_same_file(&path, tensorrt.path()) {
                return Ok(tensorrt.clone());
            }
            let other = tensorrt.path().display();
            return Err(failed(format!("this process has loaded {other}, and can load only one")));
        }
        let version = version(&path, PRODUCT).map_err(failed)?;
        let run = run::Functions::open(&path).map_err(failed)?;
        let build = build::Functions::open(&path, PRODUCT, version)
            .map_err(|reason| format!("{reason}; {}", library.remedy));
        tracing::debug!(path = %path.display(), %version, "{PRODUCT} loaded");
        let tensorrt = Self { loaded: Arc::new(Loaded { path, version, run, build }) };
        *loaded = Some(tensorrt.clone());
        Ok(tensorrt)
    }

    /// Whether it can build plans: a lean runtime cannot, nor can a library without its ONNX parser.
    pub fn can_build(&self) -> bool {
        self.loaded.build.is_ok()
    }

    /// The version that the library reports.
    pub fn version(&self) -> Version {
        self.loaded.version
    }

    /// Which of the two products it is: [`Product::COMPILED`].
    pub fn product(&self) -> Product {
        PRODUCT
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

impl fmt::Debug for TensorRt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PRODUCT} {} ({})", self.version(), self.path().display())
    }
}
