//! A checkpoint on disk: configuration and memory-mapped weights, checked against each other.

mod layout;
mod weights;

use std::path::{Path, PathBuf};

use crate::config::ModelConfig;
use crate::contract::file;
use ocelli_error::{Error, ErrorKind, Result};

pub(crate) use weights::{Weights, hex};

/// A Hugging Face folder of a SAM3 detector: `config.json`, `model.safetensors` or its shards, `tokenizer.json`.
///
/// Both the released layout (`sam3_video`: tensors with the prefix `detector_model.`, and those of the tracker) and a
/// detector saved on its own load. The tracker's tensors are ignored; of the detector, every tensor must be known,
/// present and of the shape that follows from the configuration.
pub struct Checkpoint {
    folder: PathBuf,
    config: ModelConfig,
    weights: Weights,
}

impl Checkpoint {
    /// Opens a checkpoint folder and checks every tensor's name, shape and type. Values are read during the export.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a file cannot be read, [`ErrorKind::InvalidData`] or [`ErrorKind::InvalidData`] if
    /// its content is wrong; the message names the key or the tensor.
    pub fn open(folder: &Path) -> Result<Self> {
        if folder.is_file() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "cannot read a checkpoint, {}: it is a file; expected a Hugging Face folder with config.json, \
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
                ErrorKind::InvalidData,
                format!(
                    "tokenizer.json is missing, {}: expected it beside the checkpoint's weights",
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

    /// The path of the checkpoint's tokeniser.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.folder.join(file::TOKENIZER)
    }

    /// The weight files, sorted by name.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        self.weights.files()
    }

    /// SHA-256 of the weight files, one after the other, in lower-case hex: the identity of the model. Reads all of them.
    pub fn weights_sha256(&self) -> String {
        self.weights.sha256()
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }
}
