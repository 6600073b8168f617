//! WebAssembly loads no libraries: the embedded engine is the only one.

use std::sync::Arc;

use super::loader::Loader;
use super::{EngineFactory, EngineKind, EngineOptions, ModelFormat};
use ocelli_error::{Error, Result};

/// Starts the embedded engine.
pub(super) fn start_automatic(options: &EngineOptions, _: ModelFormat) -> Result<EngineFactory> {
    EngineFactory::start(&EngineOptions { kind: EngineKind::Embedded, ..options.clone() })
}

/// Refuses engines of libraries.
pub(super) fn start(options: &EngineOptions) -> Result<Arc<dyn Loader>> {
    Err(Error::unavailable(format!(
        "engine {}: WebAssembly loads no libraries; expected {} or {}",
        options.kind,
        EngineKind::Embedded,
        EngineKind::Auto
    )))
}
