//! Where TensorRT's shared library is looked for.

use super::version::Product;
use std::path::PathBuf;

/// The search for TensorRT's shared library.
#[derive(Debug, Clone)]
pub struct TensorRtSearch {
    product: Product,
    named: Vec<PathBuf>,
}

impl TensorRtSearch {
    /// The search as the process's environment describes it, for the product that this program was built for.
    pub fn new() -> Self {
        Self { product: Product::COMPILED.unwrap_or(Product::TensorRt), named: Vec::new() }
    }

    /// Puts a path before everything else: a library, or a folder that holds one.
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.named.insert(0, path.into());
        self
    }

    /// Which of the two TensorRTs is looked for.
    pub fn product(&self) -> Product {
        self.product
    }
}

impl Default for TensorRtSearch {
    fn default() -> Self {
        Self::new()
    }
}
