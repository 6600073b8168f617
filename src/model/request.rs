//! Folders, checkpoints and names of the hub all name a model: one request has them, with the options of the export.

use std::path::{Path, PathBuf};

use crate::hub::HubName;
use ocelli_error::{Result, refuse};
use ocelli_export::Pruning;
use ocelli_export::contract::{Precision, Target};
use serde::{Deserialize, Serialize};

/// The source of a model. In a form it is a text, which is taken as [`named`](ModelSource::named) takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PathBuf")]
#[non_exhaustive]
pub enum ModelSource {
    /// The small built-in model.
    #[default]
    #[serde(rename = "built-in")]
    Builtin,
    /// An exported folder (`model.json`), or a checkpoint, which is exported into the cache on first use: a folder with
    /// `config.json`, or a file such as `sam3.pt`.
    #[serde(untagged)]
    Folder(PathBuf),
    /// A [name](crate::hub) of the Hugging Face Hub, from which it is downloaded on first use.
    #[serde(untagged)]
    Hub(String),
}

impl From<PathBuf> for ModelSource {
    fn from(name: PathBuf) -> Self {
        Self::named(name)
    }
}

impl ModelSource {
    /// The name of the built-in model where others are named by their folder.
    pub const BUILT_IN: &'static str = "built-in";

    /// The built-in model for [`BUILT_IN`](Self::BUILT_IN), the folder or file if there is one, else the model of this name on
    /// the hub if it can be one.
    pub fn named(name: impl Into<PathBuf>) -> Self {
        let path = name.into();
        if path == Path::new(Self::BUILT_IN) {
            return Self::Builtin;
        }
        match path.to_str().filter(|name| HubName::parse(name).is_some() && !path.exists()) {
            Some(name) => Self::Hub(name.to_owned()),
            None => Self::Folder(path),
        }
    }

    /// Checks that there is a file or a folder of this name.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument), with where to get a checkpoint.
    pub fn check_exists(&self) -> Result<()> {
        match self {
            Self::Folder(path) if !path.exists() => {
                let why = if path.to_string_lossy().contains("://") {
                    "it is an address; a model of the hub is named as owner/name"
                } else {
                    "no such folder or file"
                };
                refuse!("cannot open the model, {}: {why}; {WHERE}", path.display())
            }
            _ => Ok(()),
        }
    }
}

/// The end of messages, which says where checkpoints are.
const WHERE: &str = "`ocelli models` lists those that can be named, such as sam3, once its licence is accepted, or litetext-s0, \
                     which needs no permission";

/// A model source and the options of its export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// The source of the model.
    pub source: ModelSource,
    /// The tokeniser of a checkpoint that has none beside it: `tokenizer.json` of a SAM3 folder, or CLIP's merges.
    pub tokenizer: Option<PathBuf>,
    /// Side of the square input in pixels; the checkpoint's by default. It cannot differ from an exported folder's.
    pub imgsz: Option<usize>,
    /// Number format of the export; 32-bit floating point by default. It cannot differ from an exported folder's.
    pub precision: Option<Precision>,
    /// The operators of attention in the export; ignored for an exported folder.
    pub target: Target,
    /// Set if masks are needed; without them the export leaves out the mask head.
    pub masks: bool,
    /// Set if the [first pass](crate::stages::Screening) over every class is needed.
    pub screen: bool,
    /// Blocks and branches of the backbone that the export leaves out. An exported folder has to lack them.
    pub pruning: Pruning,
}
