//! Tensors in memory-mapped safetensors files.

#![allow(unsafe_code, reason = "a file is mapped into memory")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::read_text;
use ocelli_error::{Error, ErrorKind, Result};

/// Prefix of the detector's tensors in the released checkpoint.
const DETECTOR: &str = "detector_model.";
/// Prefixes of the other tensors in the released checkpoint.
const FOREIGN: [&str; 2] = ["tracker_model.", "tracker_neck."];
/// Tables that some versions of `transformers` save although the configuration determines them.
const DERIVED: [&str; 2] = [".position_ids", ".rotary_emb.inv_freq"];

struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

struct Entry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Byte range in the mapped file.
    range: (usize, usize),
}

/// The detector's tensors by name, the released checkpoint's prefix removed.
pub(crate) struct Weights {
    files: Vec<MappedFile>,
    entries: BTreeMap<String, Entry>,
}

impl Weights {
    /// Maps `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let whole = folder.join("model.safetensors");
        let index = folder.join("model.safetensors.index.json");
        let paths = if whole.is_file() {
            vec![whole]
        } else if index.is_file() {
            shard_paths(folder, &index)?
        } else {
            return Err(Error::new(
                ErrorKind::InvalidData,
                format!(
                    "no weights, {}: expected model.safetensors, or its shards with model.safetensors.index.json",
                    folder.display()
                ),
            ));
        };
        let mut weights = Self { files: Vec::new(), entries: BTreeMap::new() };
        for path in paths {
            weights.add_file(path)?;
        }
        if weights.entries.keys().any(|name| name.starts_with(DETECTOR)) {
            let entries = std::mem::take(&mut weights.entries);
            weights.entries = entries
                .into_iter()
                .filter(|(name, _)| !FOREIGN.iter().any(|prefix| name.starts_with(prefix)))
                .map(|(name, entry)| (name.strip_prefix(DETECTOR).unwrap_or(&name).to_owned(), entry))
                .collect();
        }
        Ok(weights)
    }

    fn add_file(&mut self, path: PathBuf) -> Result<()> {
        let file = File::open(&path).map_err(|e| Error::io("cannot open the weights", &path, e))?;
        // SAFETY: the map is only read. If another program truncates the file meanwhile, this one ends with a bus error;
        // the crate's documentation says that a checkpoint must not change during an export.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io("cannot map the weights", &path, e))?;
        let tensors = SafeTensors::deserialize(&map).map_err(|e| {
            let message = format!("corrupt or truncated weights, {}: {e}", path.display());
            Error::new(ErrorKind::InvalidData, message)
        })?;
        let base = map.as_ptr() as usize;
        let index = self.files.len();
        let mut found = Vec::new();
        for (name, view) in tensors.tensors() {
            let start = view.data().as_ptr() as usize - base;
            let range = (start, start + view.data().len());
            found.push((
                name,
                Entry { file: index, dtype: view.dtype(), shape: view.shape().to_vec(), range },
            ));
        }
        for (name, entry) in found {
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(Error::new(
                    ErrorKind::InvalidData,
                    format!("tensor {name} is in two shards, the second is {}", path.display()),
                ));
            }
        }
        self.files.push(MappedFile { path, map });
        Ok(())
    }

    /// Compares names, shapes and types with the expected ones.
    pub(crate) fn check(&self, expected: &BTreeMap<String, Vec<usize>>) -> Result<()> {
        let invalid = |message| Err(Error::new(ErrorKind::InvalidData, message));
        for (name, shape) in expected {
            let Some(entry) = self.entries.get(name) else {
                return invalid(format!("tensor {name} is missing: expected it with shape {shape:?}"));
            };
            if &entry.shape != shape {
                let found = &entry.shape;
                return invalid(format!(
                    "tensor {name} has shape {found:?}: expected {shape:?} from the configuration"
                ));
            }
            if !matches!(entry.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                return invalid(format!(
                    "tensor {name} is of type {:?}: expected F32, F16 or BF16",
                    entry.dtype
                ));
            }
        }
        let derived = |name: &str| DERIVED.iter().any(|suffix| name.ends_with(suffix));
        match self.entries.keys().find(|name| !expected.contains_key(*name) && !derived(name)) {
            Some(name) => invalid(format!(
                "unknown tensor {name}: a SAM3 detector of this configuration has no such tensor"
            )),
            None => Ok(()),
        }
    }

    /// A tensor's values as f32.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is missing or a value is not finite.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>> {
        let Some(entry) = self.entries.get(name) else {
            return Err(Error::new(ErrorKind::InvalidData, format!("tensor {name} is missing")));
        };
        let file = &self.files[entry.file];
        let bytes = &file.map[entry.range.0..entry.range.1];
        let values: Vec<f32> = match entry.dtype {
            Dtype::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            Dtype::BF16 => {
                bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        };
        match values.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(Error::new(
                ErrorKind::InvalidData,
                format!("tensor {name} is not finite, {}: value {at} is {}", file.path.display(), values[at]),
            )),
            None => Ok(values),
        }
    }

    /// A tensor's shape; empty if there is no such tensor.
    pub(crate) fn shape(&self, name: &str) -> &[usize] {
        self.entries.get(name).map_or(&[], |entry| &entry.shape)
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    pub(crate) fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.files {
            hash.update(&file.map[..]);
        }
        hex(&hash.finalize())
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shard_paths(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let text = read_text(index, "the index of shards")?;
    let damaged = |why: String| {
        Error::new(ErrorKind::InvalidData, format!("corrupt index of shards, {}: {why}", index.display()))
    };
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
    let map = json
        .get("weight_map")
        .and_then(serde_json::Value::as_object)
        .ok_or_else(|| damaged("expected a `weight_map` object".into()))?;
    let mut names = std::collections::BTreeSet::new();
    for (tensor, shard) in map {
        let shard =
            shard.as_str().ok_or_else(|| damaged(format!("`weight_map.{tensor}` is not a file name")))?;
        if Path::new(shard).components().count() != 1 {
            return Err(damaged(format!(
                "`weight_map.{tensor}` is \"{shard}\": expected a name inside the folder"
            )));
        }
        names.insert(shard.to_owned());
    }
    if names.is_empty() {
        return Err(damaged("`weight_map` is empty".into()));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
