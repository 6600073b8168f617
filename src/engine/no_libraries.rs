//! WebAssembly loads no libraries: the embedded engine is the only one.

use std::path::Path;

use ocelli_engines::Engine;
use ocelli_export::contract::{Precision, Target};

use super::{EngineFactory, EngineKind, EngineOptions, GraphSizes, ModelFormat};
use ocelli_error::{Error, ErrorKind, Result};

/// An engine whose library was loaded: there is none.
#[derive(Clone)]
pub(super) enum LibraryMaker {}

/// Starts the embedded engine.
pub(super) fn start_automatic(options: &EngineOptions, _: ModelFormat) -> Result<EngineFactory> {
    EngineFactory::start(&EngineOptions { kind: EngineKind::Embedded, ..options.clone() })
}

impl LibraryMaker {
    pub(super) fn start(options: &EngineOptions) -> Result<Self> {
        let message = format!(
            "engine {}: WebAssembly loads no libraries; expected {} or {}",
            options.kind,
            EngineKind::Embedded,
            EngineKind::Auto
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    pub(super) fn set_class_chunk(&mut self, _: usize) {
        match *self {}
    }

    pub(super) fn set_precision(&mut self, _: Option<Precision>) -> Result<Option<Precision>> {
        match *self {}
    }

    pub(super) fn runs_calibrated(&self) -> bool {
        match *self {}
    }

    pub(super) fn fast_precision(&self) -> Option<Precision> {
        match *self {}
    }

    pub(super) fn check_patches(&self, _: usize) -> Result<()> {
        match *self {}
    }

    pub(super) fn target(&self) -> Target {
        match *self {}
    }

    pub(super) fn load(&self, _: &Path, _: Option<GraphSizes>) -> Result<Box<dyn Engine>> {
        match *self {}
    }

    pub(super) fn description(&self) -> String {
        match *self {}
    }
}
