//! What a build gives.

use super::version::{ComputeCapability, Product, Version};
use crate::spec::{DimensionRange, EngineSpec};
use std::collections::BTreeMap;

/// A built plan: what [`TensorRtBuilder::build`](super::TensorRtBuilder::build) makes and an engine runs.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) bytes: Vec<u8>,
    pub(super) spec: EngineSpec,
    pub(super) dimensions: BTreeMap<String, DimensionRange>,
    pub(super) product: Product,
    pub(super) version: Version,
    pub(super) targets: Vec<ComputeCapability>,
}

impl Plan {
    /// What goes into the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Inputs and outputs, in the order of the ONNX file.
    pub fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// The dynamic dimensions that the graph has and the sizes it was built for.
    pub fn dimensions(&self) -> &BTreeMap<String, DimensionRange> {
        &self.dimensions
    }

    /// Which TensorRT built it.
    pub fn product(&self) -> Product {
        self.product
    }

    /// The version of TensorRT that built it.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The generations of GPUs that it was built for; empty if for the GPU that was present.
    pub fn targets(&self) -> &[ComputeCapability] {
        &self.targets
    }
}
