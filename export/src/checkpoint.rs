//! A checkpoint on disk: configuration and memory-mapped weights, checked against each other.

mod container;
mod family;
mod inspect;
mod load;
mod nearest;
mod shapes;
mod sizes;
mod student;
mod tensors;
mod tokenizer;
mod weights;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{ModelConfig, TextEncoder};
use crate::contract::{TextPadding, hex};
use crate::errors::{invalid, refused};
use crate::prune::Pruning;
use ocelli_error::{Error, ErrorKind, Result, refuse};

use family::Family;
use load::Loaded;

pub use inspect::{Inspection, PartSummary};
pub(crate) use weights::Weights;

/// The epsilon of the image transformer's layer norms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormEps {
    /// As `config.json` says, which is what `transformers` computes; files without a configuration have the original.
    #[default]
    Configured,
    /// 1e-5, as in Meta's code, which trained the released weights.
    Original,
}

ocelli_error::read_by_name!(NormEps, "norm_eps", "configured or original");

/// Options of opening a [`Checkpoint`]; the [`Default`] needs nothing but the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The tokeniser: a `tokenizer.json`, or CLIP's merges (`bpe_simple_vocab_16e6.txt.gz`). By default the one beside
    /// the checkpoint.
    pub tokenizer: Option<PathBuf>,
    /// The checkpoint that has the rest of the model, for a file with an image backbone only.
    pub base: Option<PathBuf>,
    /// The epsilon of the image transformer's layer norms.
    pub norm_eps: NormEps,
    /// The padding after a phrase, for a text encoder of MobileCLIP; others ignore it.
    pub text_padding: TextPadding,
}

impl CheckpointOptions {
    /// Opens a checkpoint and checks every tensor's name, shape and type. Values are read during the export.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a file cannot be read, [`ErrorKind::InvalidArgument`] or [`ErrorKind::InvalidData`] if its content
    /// is wrong; the message names the key or the tensor.
    pub fn open(&self, path: &Path) -> Result<Checkpoint> {
        let mut opened = OpenedCheckpoint::new(path, self).map_err(|e| locate(e, path))?;
        let tokenizer = self.tokenizer_of(&opened)?;
        let lite = opened.config.text.encoder != TextEncoder::Clip;
        let tokenizer_hash =
            if lite || opened.loaded.has_metas_names { opened.take_ids(&tokenizer)? } else { String::new() };
        Ok(opened.into_checkpoint(tokenizer, tokenizer_hash))
    }

    fn tokenizer_of(&self, opened: &OpenedCheckpoint) -> Result<PathBuf> {
        let given = self.tokenizer.clone().or_else(|| tokenizer::beside(&opened.folder));
        given
            .or_else(|| tokenizer::beside(&folder_of(self.base.as_ref()?)))
            .ok_or_else(|| tokenizer::missing(&opened.folder))
    }

    /// Describes a checkpoint without exporting it: also one that cannot be exported, with the reason.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a file cannot be read, [`ErrorKind::InvalidData`] if it is no checkpoint at all.
    pub fn inspect(&self, path: &Path) -> Result<Inspection> {
        inspect::inspect(self, path)
    }
}

/// A SAM3 detector on disk, recognised by the names of its tensors:
///
/// - a Hugging Face folder with `config.json`, `model.safetensors` or its shards, and `tokenizer.json`. Both the released
///   layout (`sam3_video`: tensors with the prefix `detector_model.`, and those of the tracker) and a detector saved on
///   its own load;
/// - a `.pt` or `.safetensors` file in Meta's names: SAM 3, SAM 3.1, fine-tuned detectors;
/// - an EfficientSAM3 detector, whose image backbone is a convolutional network;
/// - a backbone that DART has pruned, or a convolutional one that it has trained, with a
///   [base](CheckpointOptions::base).
///
/// Of the detector and of SAM 3's memory tracker, every tensor must be known, present and of the shape that follows from the
/// configuration, or from the other tensors in files without one.
pub struct Checkpoint {
    tokenizer: PathBuf,
    /// Of a tokeniser that the weights did not come with.
    tokenizer_hash: String,
    config: ModelConfig,
    weights: Weights,
    pruning: Pruning,
    left_out: Option<&'static str>,
}

impl Checkpoint {
    /// Opens a checkpoint and checks every tensor's name, shape and type. Values are read during the export.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a file cannot be read, [`ErrorKind::InvalidArgument`] or [`ErrorKind::InvalidData`] if its
    /// content is wrong; the message names the key or the tensor.
    pub fn open(path: &Path) -> Result<Self> {
        CheckpointOptions::default().open(path)
    }

    /// The sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The path of the checkpoint's tokeniser: a `tokenizer.json`, or CLIP's merges.
    pub fn tokenizer_path(&self) -> PathBuf {
        self.tokenizer.clone()
    }

    /// The content of the checkpoint's `tokenizer.json`, written from CLIP's merges if it has none.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::InvalidData`] if it is neither.
    pub fn tokenizer_json(&self) -> Result<Vec<u8>> {
        tokenizer::read(&self.tokenizer)
    }

    /// The blocks and branches that the checkpoint lacks because it was pruned.
    pub fn pruning(&self) -> &Pruning {
        &self.pruning
    }

    /// The tracker of which the file has a part, which is left out.
    pub fn left_out(&self) -> Option<&'static str> {
        self.left_out
    }

    /// The weight files: sorted by name, then those of the base.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        self.weights.files()
    }

    /// SHA-256 of the weight files, one after the other, in lower-case hex: the identity of the model. Reads all of them.
    pub fn weights_sha256(&self) -> String {
        self.weights.sha256()
    }

    /// The facts that an export depends on beside the weights and its own options.
    pub(crate) fn fingerprint(&self) -> String {
        let padding = match self.config.text.encoder {
            TextEncoder::Clip => String::new(),
            TextEncoder::MobileClip(text) => format!(";padding={:?}", text.padding),
        };
        format!("eps={:e};tokenizer={}{padding}", self.config.vision.layer_norm_eps, self.tokenizer_hash)
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }
}

/// A checkpoint whose tensors were checked.
struct OpenedCheckpoint {
    /// The folder where a tokeniser may be.
    folder: PathBuf,
    config: ModelConfig,
    loaded: Loaded,
}

impl OpenedCheckpoint {
    fn into_checkpoint(self, tokenizer: PathBuf, tokenizer_hash: String) -> Checkpoint {
        let Self { config, loaded, .. } = self;
        let (left_out, weights, pruning) = (loaded.left_out(), loaded.weights, loaded.pruning);
        Checkpoint { tokenizer, tokenizer_hash, config, weights, pruning, left_out }
    }

    fn new(path: &Path, options: &CheckpointOptions) -> Result<Self> {
        let (folder, loaded) = read(path)?;
        loaded.check_known()?;
        if loaded.family.is_backbone() {
            return Self::backbone(folder, loaded, options);
        }
        if options.base.is_some() {
            refuse!("base: it is {}, a whole model that needs no base", loaded.family);
        }
        Self::whole(folder, loaded, options)
    }

    /// A whole detector.
    fn whole(folder: PathBuf, mut loaded: Loaded, options: &CheckpointOptions) -> Result<Self> {
        let mut config = match loaded.family {
            Family::HuggingFace => ModelConfig::read(&folder.join("config.json"))?,
            _ => sizes::sizes(&loaded)?,
        };
        if options.norm_eps == NormEps::Original {
            config.vision.layer_norm_eps = sizes::ORIGINAL_EPS;
        }
        let is_partial = loaded.has_buckets() && lacks_buckets(&config, &loaded);
        if !loaded.has_tracker || config.student.is_some() || is_partial {
            // A convolutional backbone was not trained with the tracker.
            config.tracker = None;
            loaded.leave_out_tracker(if is_partial { load::PARTIAL_TRACKER } else { load::TRACKER });
        }
        config.validate()?;
        if let TextEncoder::MobileClip(text) = &mut config.text.encoder {
            text.padding = options.text_padding;
            // A longer table is resized to the context that the encoders were distilled with.
            config.text.context_length = match options.text_padding {
                TextPadding::Training => text.positions.min(TRANSFORMERS_CONTEXT),
                TextPadding::Transformers => TRANSFORMERS_CONTEXT,
            };
        }
        loaded
            .weights
            .check(&tensors::expected_tensors(&config, &loaded.pruning), |name| loaded.spelled(name))?;
        Ok(Self { folder, config, loaded })
    }

    /// A backbone, with the rest of the model from the base.
    fn backbone(folder: PathBuf, backbone: Loaded, options: &CheckpointOptions) -> Result<Self> {
        let Some(base) = &options.base else {
            return Err(refused(format!(
                "base is missing: {} has the image backbone only; name the checkpoint that it was made from, such as \
                 sam3.pt",
                backbone.family
            )).about("base"));
        };
        let (base_folder, rest) = read(base).map_err(|e| locate(e, base))?;
        if !matches!(rest.family, Family::HuggingFace | Family::Meta { .. }) {
            return Err(refused(format!(
                "base, {}: it is {}; expected a whole model",
                base.display(),
                rest.family
            ))
            .about("base"));
        }
        rest.check_known().map_err(|e| locate(e, base))?;
        let Self { mut config, mut loaded, .. } =
            Self::whole(base_folder, rest, options).map_err(|e| locate(e, base))?;
        let lists = backbone.pruning.clone();
        match backbone.family {
            Family::DartStudent => {
                config.student = Some(student::student(&shapes::Shapes(&backbone.weights.views))?);
                config.tracker = None;
                loaded.leave_out_tracker(load::TRACKER);
                config.validate()?;
            }
            _ => {
                load::check_pruning(&backbone.weights, &lists, config.vision.stack.layers)?;
                lists.check(&config)?;
            }
        }
        backbone.weights.check(
            &tensors::expected_tensors(&config, &lists)
                .into_iter()
                .filter(|(name, _)| name.starts_with(BACKBONE))
                .collect(),
            |name| backbone.spelled(name),
        )?;
        loaded.weights.replace(BACKBONE, backbone.weights)?;
        loaded.ignored.extend(backbone.ignored);
        loaded.family = backbone.family;
        loaded.pruning = lists;
        Ok(Self { folder, config, loaded })
    }

    /// Takes the ids of start and end from the tokeniser, checks that it is one of this model, and returns its hash.
    fn take_ids(&mut self, path: &Path) -> Result<String> {
        let json = tokenizer::read(path)?;
        let text = &mut self.config.text;
        let Some((bos, eos, words)) = tokenizer::special_ids(&json) else {
            return Err(invalid(format!(
                "not a tokeniser of CLIP, {}: it has no start and end tokens",
                path.display()
            )));
        };
        if words != text.vocab_size {
            let message = format!(
                "the tokeniser does not belong to this model, {}: it has {words} tokens, and the model {}; name another \
                 (tokenizer)",
                path.display(),
                text.vocab_size
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        (text.bos, text.eos) = (bos, eos);
        Ok(hex(&Sha256::digest(&json)[..8]))
    }
}

/// Tokens to which the processor of `transformers` pads.
const TRANSFORMERS_CONTEXT: usize = 32;
/// The tensors of a file with a backbone only.
const BACKBONE: &str = "vision_encoder.";

/// `true` if SAM 3.1's tracker lacks parts. It is then left out: the detector alone is worth having.
fn lacks_buckets(config: &ModelConfig, loaded: &Loaded) -> bool {
    let expected = tensors::expected_tensors(config, &loaded.pruning);
    let is_missing =
        |(name, it): (&String, &tensors::Requirement)| it.needed && !loaded.weights.views.contains_key(name);
    config.tracker.is_none() || expected.iter().any(is_missing)
}

/// Loads a folder or a file; returns the folder that it is in, too.
fn read(path: &Path) -> Result<(PathBuf, Loaded)> {
    let folder = folder_of(path);
    if !path.is_dir() {
        let loaded = load::load(&[path.to_owned()])?;
        if loaded.family == Family::HuggingFace && !folder.join("config.json").is_file() {
            return Err(invalid(
                "config.json is missing: weights in the names of transformers need the folder they came with",
            ));
        }
        return Ok((folder, loaded));
    }
    let loaded = load::load(&load::folder_files(path)?)?;
    Ok((folder, loaded))
}

/// The folder itself, or the folder of a file.
fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.to_owned() } else { parent_of(path) }
}

/// The folder that a path is in; the current one for a mere name.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Puts the path in front of a message that does not name it.
fn locate(error: Error, path: &Path) -> Error {
    if error.to_string().contains(&path.display().to_string()) { error } else { error.at(path) }
}

#[cfg(test)]
mod tests;
