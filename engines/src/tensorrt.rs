//! TensorRT, loaded while the program runs.
//!
//! [`TensorRtSearch`] finds the library and asks its version, [`TensorRt::load`] loads it, and [`TensorRtBuilder`]
//! makes a [`Plan`] of an ONNX file: what NVIDIA calls an engine, for one generation of GPUs.
//!
//! Everything here is there in every build, so that programs need no conditions; where neither of the features
//! `tensorrt` and `tensorrt-rtx` is on, [`TensorRt::load`] says so.
//!
//! ```no_run
//! use ocelli_engines::tensorrt::{ComputeCapability, DimensionRange, TensorRt, TensorRtBuilder, TensorRtSearch};
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! # fn main() -> ocelli_engines::Result<()> {
//! let tensorrt = TensorRt::load(&TensorRtSearch::new())?;
//! let plan = TensorRtBuilder::new(&tensorrt)
//!     .with_target(ComputeCapability::new(8, 9))
//!     .with_dimension("classes", DimensionRange { min: 1, optimal: 4, max: 80 })
//!     .with_progress(|progress| {
//!         eprintln!("{}: {} of {}", progress.phase, progress.step, progress.steps);
//!         ControlFlow::Continue(())
//!     })
//!     .build(Path::new("encoder_decoder.onnx"))?;
//! assert!(!plan.bytes().is_empty());
//! # Ok(())
//! # }
//! ```

#[cfg(all(feature = "tensorrt", feature = "tensorrt-rtx"))]
compile_error!(
    "the features `tensorrt` (TensorRT proper) and `tensorrt-rtx` (TensorRT for RTX) exclude each other: \
     turn on one of them"
);

#[cfg(not(any(feature = "tensorrt", feature = "tensorrt-rtx")))]
#[path = "tensorrt/absent.rs"]
mod native;

mod builder;
// Without a library nothing makes or says what these are of.
#[cfg_attr(not(any(feature = "tensorrt", feature = "tensorrt-rtx")), allow(dead_code))]
mod calls;
#[cfg(test)]
mod fake_calls;
#[cfg_attr(not(any(feature = "tensorrt", feature = "tensorrt-rtx")), allow(dead_code))]
mod log;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
#[allow(unsafe_code)]
mod native;
mod onnx_outputs;
mod plan;
#[allow(unsafe_code)]
mod probe;
mod progress;
#[cfg(feature = "cuda")]
mod run;
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
#[cfg_attr(not(any(feature = "tensorrt", feature = "tensorrt-rtx")), allow(dead_code))]
mod run_calls;
#[cfg(feature = "cuda")]
mod run_graphs;
#[cfg(feature = "cuda")]
mod run_loader;
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
#[allow(unsafe_code)]
mod run_native;
#[cfg(feature = "cuda")]
mod run_plan;
mod search;
mod session;
mod timing_cache;
mod version;

pub use crate::spec::DimensionRange;
pub use builder::TensorRtBuilder;
pub use plan::Plan;
pub use progress::BuildProgress;
#[cfg(feature = "cuda")]
pub use run::TensorRtEngine;
#[cfg(feature = "cuda")]
pub use run_loader::TensorRtLoader;
pub use search::TensorRtSearch;
pub use version::{ComputeCapability, Product, Version};

use crate::error::{Error, ErrorKind, Result};
use calls::BuildCalls;
use search::Found;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The one TensorRT of this process.
///
/// Cloning is cheap and gives the same one. It is never unloaded.
#[derive(Clone)]
pub struct TensorRt {
    loaded: Arc<Loaded>,
}

struct Loaded {
    path: PathBuf,
    product: Product,
    version: Version,
    /// The builder's side, or why nothing can be built.
    calls: Result<Box<dyn BuildCalls>, String>,
}

/// What `load` loaded. The bindings hold one library for the life of the process, so this keeps it for as long.
static LOADED: Mutex<Option<TensorRt>> = Mutex::new(None);

impl TensorRt {
    /// Loads the library that the search finds, or returns the one this process has if it is the same file.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is none, if it is broken, another product or of another major version, if
    /// another file is loaded already (a process can have only one), or if this program was built without TensorRT.
    pub fn load(search: &TensorRtSearch) -> Result<Self> {
        let product = search.product();
        if Product::COMPILED != Some(product) {
            let message = format!(
                "{product} cannot be used: this program was built without it; build it with the feature \
                 `tensorrt` (TensorRT proper) or `tensorrt-rtx` (TensorRT for RTX)"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let Found { library, version, parser } = search.locate()?;
        if let Some(tensorrt) = &*loaded {
            if same_file(&library, tensorrt.path()) {
                return Ok(tensorrt.clone());
            }
            let (asked, held) = (library.display(), tensorrt.path().display());
            let message = format!(
                "cannot load {product}, {asked}: this process already runs {held}, and can run only one"
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        native::bind(&library).map_err(|reason| {
            let message = format!("cannot load {product}, {}: {reason}", library.display());
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let calls = parser
            .and_then(|parser| native::open(product, &library, &parser))
            .map_err(|reason| format!("{reason}; {}", search::remedy(product)));
        tracing::debug!(path = %library.display(), %version, "{product} loaded");
        let tensorrt = Self { loaded: Arc::new(Loaded { path: library, product, version, calls }) };
        *loaded = Some(tensorrt.clone());
        Ok(tensorrt)
    }

    /// Whether it builds plans: a lean runtime does not, nor does a library without its ONNX parser.
    pub fn can_build(&self) -> bool {
        self.loaded.calls.is_ok()
    }

    /// The version as the library states it.
    pub fn version(&self) -> Version {
        self.loaded.version
    }

    /// Which of the two it is.
    pub fn product(&self) -> Product {
        self.loaded.product
    }

    /// The name as NVIDIA writes it: `TensorRT` or `TensorRT for RTX`.
    pub fn name(&self) -> &'static str {
        self.loaded.product.name()
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.loaded.path
    }

    /// The builder's side, or why there is none.
    fn calls(&self) -> Result<&dyn BuildCalls, &str> {
        self.loaded.calls.as_deref().map_err(String::as_str)
    }
}

impl fmt::Debug for TensorRt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name(), self.version(), self.path().display())
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// What runs the plans of a loaded library.
#[cfg(any(feature = "tensorrt", feature = "tensorrt-rtx"))]
fn calls_of(tensorrt: &TensorRt) -> Result<Arc<dyn run_calls::RunCalls>> {
    Ok(Arc::new(run_native::Native::new(tensorrt)?))
}

#[cfg(all(feature = "cuda", not(any(feature = "tensorrt", feature = "tensorrt-rtx"))))]
fn calls_of(tensorrt: &TensorRt) -> Result<Arc<dyn run_calls::RunCalls>> {
    let message = format!("{tensorrt:?} cannot be used: this program was built without it");
    Err(Error::new(ErrorKind::Unavailable, message))
}
