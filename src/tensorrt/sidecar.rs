//! The file beside an engine that says what it is.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use ocelli_engines::tensorrt::DimensionRange;
use ocelli_export::contract::FileEntry;
use serde::{Deserialize, Serialize};

use crate::atomic_file::write_atomically;
use crate::model::ModelGraph;
use crate::tensorrt::VerificationSummary;
use ocelli_error::{Error, Result};

/// `x.engine.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Of this file.
    pub format_version: u32,
    /// The program that wrote it: `ocelli` and its version.
    pub writer: String,
    /// The graph that the engine is.
    pub graph: ModelGraph,
    /// The names and shapes that its tensors have.
    #[serde(default)]
    pub layout: EngineLayout,
    /// The engine's own file.
    pub engine: FileEntry,
    /// SHA-256 of the ONNX file that it was built from, lower-case hex.
    pub onnx_sha256: String,
    /// The exported model that it was built from.
    pub model: PathBuf,
    /// The model's identity, from its `model.json`.
    pub model_weights_sha256: String,
    /// The GPU that it was built or verified on; `None` where there was none.
    pub gpu: Option<String>,
    /// The compute capabilities that it is for: `8.9`.
    pub compute_capability: Vec<String>,
    /// The TensorRT that built it.
    pub tensorrt: BuiltBy,
    /// Number format of the large matrix products.
    pub precision: String,
    /// The kinds of computation that stay in 32 bits in half precision, as in `model.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_precision: Option<serde_json::Value>,
    /// The sizes of its inputs.
    pub shapes: EngineShapes,
    /// The options that it was built with.
    pub options: BuildSettings,
    /// The comparison with its ONNX file; `None` if its GPU was not present when it was built. Such an engine must be verified
    /// before it runs.
    pub verified: Option<VerificationSummary>,
}

/// The names and shapes of an engine's tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineLayout {
    /// Those of an exported model.
    #[default]
    Ocelli,
    /// Those of DART's scripts.
    Dart,
}

/// The TensorRT that built an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltBy {
    /// `TensorRT` or `TensorRT for RTX`.
    pub name: String,
    /// `1.7.1`
    pub version: String,
}

/// The sizes of an engine's inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineShapes {
    /// Pixels of the image's side.
    pub imgsz: usize,
    /// D, the width of features.
    pub model_width: usize,
    /// P, patches of the image's side.
    pub grid: usize,
    /// Sizes of the dynamic dimensions, by name.
    pub dimensions: BTreeMap<String, DimensionRange>,
}

/// The options that an engine was built with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildSettings {
    /// The most GPU memory that one layer may use, in bytes; `None` for all of it.
    pub workspace_bytes: Option<u64>,
    /// `true` if later versions of TensorRT can run it.
    pub version_compatible: bool,
    /// `true` if later generations of GPUs can run it.
    pub hardware_compatible: bool,
    /// TensorRT's optimization level; `None` for its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimization_level: Option<u8>,
}

impl Sidecar {
    /// The version of the format that is written and read.
    pub const FORMAT_VERSION: u32 = 1;

    /// The path of an engine's sidecar: `x.engine.json` for `x.engine`.
    pub fn path_of(engine: &Path) -> PathBuf {
        let mut path = engine.as_os_str().to_owned();
        path.push(".json");
        path.into()
    }

    /// Reads the sidecar of an engine; `None` if it has none.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be read, [`InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is not a sidecar or has a later format.
    pub fn read(engine: &Path) -> Result<Option<Self>> {
        let path = Self::path_of(engine);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("cannot read the engine's sidecar", &path, e)),
        };
        let invalid = |why: String| {
            Error::invalid_data(format!("engine sidecar {}: {why}; build the engine again", path.display()))
        };
        // The version first: a later format need not have the fields of this one.
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| invalid(format!("it is not JSON ({e})")))?;
        match value.get("format_version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(Self::FORMAT_VERSION) => {}
            Some(version) => {
                let own = Self::FORMAT_VERSION;
                return Err(invalid(format!(
                    "its format is version {version}, this program reads version {own}"
                )));
            }
            None => return Err(invalid("it is not a sidecar: it has no format_version".into())),
        }
        serde_json::from_value(value).map(Some).map_err(|e| invalid(format!("it is not a sidecar ({e})")))
    }

    /// Writes the sidecar of an engine, atomically.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be written.
    pub fn write(&self, engine: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("a sidecar is plain data");
        write_atomically(&Self::path_of(engine), |writer| writeln!(writer, "{text}"))
    }

    /// Size and hash of a file, as sidecars state them.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be read.
    pub fn entry_of(path: &Path) -> Result<FileEntry> {
        let unreadable = |e| Error::io("cannot read", path, e);
        let bytes = path.metadata().map_err(unreadable)?.len();
        Ok(FileEntry { sha256: crate::cache::sha256_of_file(path).map_err(unreadable)?, bytes })
    }

    /// The most classes that the engine decodes at once; `None` if it has no such dimension.
    pub fn max_classes(&self) -> Option<usize> {
        self.shapes.dimensions.get(ocelli_export::contract::dim::CLASSES).map(|sizes| sizes.max)
    }
}
