//! A checkpoint on disk: its configuration and its weights, memory-mapped and checked against each other.

mod layout;
mod weights;

use std::path::{Path, PathBuf};

use crate::config::ModelConfig;
use crate::contract::file;
use crate::error::{Error, ErrorKind, Result};

pub(crate) use weights::{Weights, hex};

/// A Hugging Face folder of a SAM3 detector: `config.json`, `model.safetensors` or its shards, `tokenizer.json`.
///
/// The released layout (`sam3_video`, tensors prefixed `detector_model.`, the tracker's beside them) and that of a
/// detector saved on its own both load. The tracker's tensors are ignored; inside the detector every tensor must be
/// known, present and of the shape that the configuration says.
pub struct Checkpoint {
    folder: PathBuf,
    config: ModelConfig,
    weights: Weights,
}

impl Checkpoint {
    /// Opens a checkpoint folder and checks every tensor's name, shape and type. Values are read later.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when a file cannot be read, [`ErrorKind::InvalidConfig`] and
    /// [`ErrorKind::InvalidCheckpoint`] when something in them is wrong; the message names the key or the tensor.
    pub fn open(folder: &Path) -> Result<Self> {
        if folder.is_file() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "cannot read a checkpoint, {}: it is a file; give the Hugging Face folder that holds config.json, \
                     model.safetensors and tokenizer.json",
                    folder.display()
                ),
            ));
        }
        let config = ModelConfig::read(&folder.join("config.json"))?;
        let weights = Weights::open(folder)?;
        weights.check(&layout::expected_tensors(&config)).map_err(|e| e.at(folder))?;
        let checkpoint = Self { folder: folder.to_owned(), config, weights };
        let tokenizer = checkpoint.tokenizer_path();
        if !tokenizer.is_file() {
            return Err(Error::new(
                ErrorKind::InvalidCheckpoint,
                format!(
                    "tokenizer.json is missing, {}: it lies beside the checkpoint's weights",
                    folder.display()
                ),
            ));
        }
        Ok(checkpoint)
    }

    /// The sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where the checkpoint's tokeniser lies.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.folder.join(file::TOKENIZER)
    }

    /// The files that hold the weights, in the order of their names.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        self.weights.files()
    }

    /// SHA-256 over the weight files, lower-case hex: the identity of the model. Reads all of them once.
    pub fn weights_sha256(&self) -> String {
        self.weights.sha256()
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }
}
