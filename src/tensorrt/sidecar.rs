//! What lies beside an engine and says what it is.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use ocelli_engines::tensorrt::DimensionRange;
use ocelli_export::contract::FileEntry;
use serde::{Deserialize, Serialize};

use crate::atomic_file::write_atomically;
use crate::error::{Error, ErrorKind, Result};
use crate::model_graph::ModelGraph;
use crate::tensorrt::VerificationSummary;

/// The format that this version writes and reads.
const FORMAT_VERSION: u32 = 1;

/// `x.engine.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Of this file.
    pub format_version: u32,
    /// What wrote it: `ocelli` and its version.
    pub writer: String,
    /// Which graph the engine is.
    pub graph: ModelGraph,
    /// Whose names and shapes its tensors have.
    #[serde(default)]
    pub layout: EngineLayout,
    /// The engine's own file.
    pub engine: FileEntry,
    /// SHA-256 of the ONNX file that it was built from, lower-case hex.
    pub onnx_sha256: String,
    /// The exported folder that it was built from.
    pub model: PathBuf,
    /// The model's identity, from its `model.json`.
    pub model_weights_sha256: String,
    /// The GPU that it was built or verified on; `None` where there was none.
    pub gpu: Option<String>,
    /// The generations of GPUs that it is for: `8.9`.
    pub compute_capability: Vec<String>,
    /// Which TensorRT built it.
    pub tensorrt: BuiltBy,
    /// Number format of the large matrix products.
    pub precision: String,
    /// What stays in 32 bits in half precision, as `model.json` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_precision: Option<serde_json::Value>,
    /// What it takes.
    pub shapes: EngineShapes,
    /// How it was built.
    pub options: BuildSettings,
    /// How it compared with its ONNX file; `None` where it was built for a GPU that was not there. Such an engine does not
    /// run before it has been verified.
    pub verified: Option<VerificationSummary>,
}

/// Whose names and shapes an engine's tensors have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineLayout {
    /// Those of an exported model.
    #[default]
    Ocelli,
    /// Those of DART's scripts.
    Dart,
}

/// A TensorRT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltBy {
    /// `TensorRT` or `TensorRT for RTX`.
    pub name: String,
    /// `1.7.1`
    pub version: String,
}

/// What an engine takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineShapes {
    /// Pixels of the image's side.
    pub imgsz: usize,
    /// D, the width of features.
    pub model_width: usize,
    /// P, patches of the image's side.
    pub grid: usize,
    /// Sizes of the dynamic dimensions, by name.
    pub dimensions: BTreeMap<String, DimensionSizes>,
}

/// Sizes that a dimension may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DimensionSizes {
    /// The least.
    pub min: usize,
    /// The one that it was built for.
    pub optimal: usize,
    /// The most.
    pub max: usize,
}

impl From<DimensionRange> for DimensionSizes {
    fn from(DimensionRange { min, optimal, max }: DimensionRange) -> Self {
        Self { min, optimal, max }
    }
}

/// How an engine was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildSettings {
    /// Memory of the GPU that one layer may use, in bytes; `None` for all of it.
    pub workspace_bytes: Option<u64>,
    /// Whether later versions of TensorRT can run it.
    pub version_compatible: bool,
    /// Whether later generations of GPUs can run it.
    pub hardware_compatible: bool,
}

impl Sidecar {
    /// The version of the format.
    pub const FORMAT_VERSION: u32 = FORMAT_VERSION;

    /// Where an engine's sidecar lies: `x.engine` has `x.engine.json`.
    pub fn path_of(engine: &Path) -> PathBuf {
        let mut path = engine.as_os_str().to_owned();
        path.push(".json");
        path.into()
    }

    /// Reads the sidecar of an engine; `None` where it has none.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where it cannot be read, [`ErrorKind::InvalidData`] where it is no sidecar or one of a later
    /// format.
    pub fn read(engine: &Path) -> Result<Option<Self>> {
        let path = Self::path_of(engine);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("cannot read the engine's sidecar", &path, e)),
        };
        let invalid = |why: String| {
            let message =
                format!("cannot use the engine's sidecar, {}: {why}; build the engine again", path.display());
            Error::new(ErrorKind::InvalidData, message)
        };
        // The version first: a later format need not have the fields of this one.
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| invalid(format!("it is no JSON ({e})")))?;
        match value.get("format_version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(FORMAT_VERSION) => {}
            Some(version) => {
                let why =
                    format!("its format is version {version}, this program reads version {FORMAT_VERSION}");
                return Err(invalid(why));
            }
            None => return Err(invalid("it is no sidecar: it has no format_version".into())),
        }
        serde_json::from_value(value).map(Some).map_err(|e| invalid(format!("it is no sidecar ({e})")))
    }

    /// Writes the sidecar of an engine, whole or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where that cannot be done.
    pub fn write(&self, engine: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("a sidecar is plain data");
        write_atomically(&Self::path_of(engine), |writer| writeln!(writer, "{text}"))
    }

    /// Classes that the engine decodes at once at most; `None` where it has no classes.
    pub fn max_classes(&self) -> Option<usize> {
        self.shapes.dimensions.get(ocelli_export::contract::dim::CLASSES).map(|sizes| sizes.max)
    }
}
