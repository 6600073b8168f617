//! Which model is wanted.

use std::path::{Path, PathBuf};

use ocelli_export::Pruning;
use ocelli_export::contract::{Precision, Target};

/// Where a model comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelSource {
    /// The small built-in model.
    #[default]
    Builtin,
    /// An exported folder (`model.json`), or a checkpoint, which is exported into the cache on first use: a folder with
    /// `config.json`, or a file such as `sam3.pt`.
    Folder(PathBuf),
}

impl ModelSource {
    /// The name of the built-in model where others are named by their folder.
    pub const BUILT_IN: &'static str = "built-in";

    /// The built-in model for [`BUILT_IN`](Self::BUILT_IN), else the folder.
    pub fn named(name: impl Into<PathBuf>) -> Self {
        let folder = name.into();
        if folder == Path::new(Self::BUILT_IN) { Self::Builtin } else { Self::Folder(folder) }
    }
}

/// A model source and the options of its export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// Where it comes from.
    pub source: ModelSource,
    /// Side of the square input in pixels; the checkpoint's by default. It cannot differ from an exported folder's.
    pub imgsz: Option<usize>,
    /// Number format of the export; 32-bit floating point by default. It cannot differ from an exported folder's.
    pub precision: Option<Precision>,
    /// The operators of attention in the export; ignored for an exported folder.
    pub target: Target,
    /// Whether masks are needed; without them the export leaves out the mask head.
    pub masks: bool,
    /// Whether the [first pass](crate::stages::Screening) over every class is needed.
    pub screen: bool,
    /// Blocks and branches of the backbone that the export leaves out. An exported folder has to lack them.
    pub pruning: Pruning,
}
