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

mod builder;
mod search;
mod version;

pub use builder::{BuildProgress, DimensionRange, Plan, TensorRtBuilder};
pub use search::TensorRtSearch;
pub use version::{ComputeCapability, Product, Version};

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
}

impl TensorRt {
    /// Loads the library that the search finds, or returns the one this process has if it is the same file.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is none, if it is broken, another product or of another major version, if
    /// another file is loaded already (a process can have only one), or if this program was built without TensorRT.
    pub fn load(search: &TensorRtSearch) -> Result<Self> {
        let _ = search;
        let message = "TensorRT cannot be used: this program was built without it; build it with the feature \
                       `tensorrt` or `tensorrt-rtx`";
        Err(Error::new(ErrorKind::Unavailable, message))
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
}

impl fmt::Debug for TensorRt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name(), self.version(), self.path().display())
    }
}
