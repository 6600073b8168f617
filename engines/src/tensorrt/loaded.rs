//! The library, once it is loaded.

use super::calls::{build, run};
use super::search::{self, Found, TensorRtSearch};
use super::version::{Product, Version};
use ocelli_error::{Error, ErrorKind, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The one TensorRT of this process.
///
/// Clones refer to the same library, which is never unloaded.
#[derive(Clone)]
pub struct TensorRt {
    loaded: Arc<Loaded>,
}

struct Loaded {
    path: PathBuf,
    product: Product,
    version: Version,
    run: run::Functions,
    /// What builds, or why this library cannot.
    build: Result<build::Functions, String>,
}

/// TensorRT keeps its first logger and state of its own for the life of the process, so there can be only one.
static LOADED: Mutex<Option<TensorRt>> = Mutex::new(None);

impl TensorRt {
    /// Loads the library that the search finds, or returns the one that this process has loaded if it is the same file.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the library is missing, broken, another product or an unsupported version, if this
    /// process has loaded another file, or if this program was built for the other product.
    pub fn load(search: &TensorRtSearch) -> Result<Self> {
        let product = search.product();
        let unavailable = |why: String| Error::new(ErrorKind::Unavailable, why);
        if let Some(compiled) = Product::COMPILED.filter(|compiled| *compiled != product) {
            return Err(unavailable(format!("cannot load {product}: this program was built for {compiled}")));
        }
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let Found { library: path, version, parser } = search.locate()?;
        if let Some(tensorrt) = &*loaded {
            if is_same_file(&path, tensorrt.path()) {
                return Ok(tensorrt.clone());
            }
            let other = tensorrt.path().display();
            return Err(unavailable(format!(
                "cannot load {product} from {}: this process has loaded {other}, and can load only one",
                path.display()
            )));
        }
        let run = run::Functions::open(&path).map_err(|reason| {
            unavailable(format!("cannot load {product} from {}: {reason}", path.display()))
        })?;
        let build = parser
            .and_then(|parser| build::Functions::open(product, &path, &parser))
            .map_err(|reason| format!("{reason}; {}", search::remedy(product)));
        tracing::debug!(path = %path.display(), %version, "{product} loaded");
        let tensorrt = Self { loaded: Arc::new(Loaded { path, product, version, run, build }) };
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

    /// Which of the two products it is.
    pub fn product(&self) -> Product {
        self.loaded.product
    }

    /// The product's name: `TensorRT` or `TensorRT for RTX`.
    pub fn name(&self) -> &'static str {
        self.loaded.product.name()
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
        write!(f, "{} {} ({})", self.name(), self.version(), self.path().display())
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
