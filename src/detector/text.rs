//! From text prompts to text features; each phrase is encoded once.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::Tensor;
use ocelli_export::contract::{Manifest, Precision, file, tensor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::engine_io::fixed_size;
use crate::cache::{cache_folder, create_folder, short_hex};
use crate::engine::EngineFactory;
use crate::model::Model;
use crate::process_memory::log_memory_after;
use crate::prompt::{Prompt, Prompts};
use crate::text_cache::{TextCache, TextCacheIdentity, TextFeatures};
use crate::tokenizer::{TokenIds, Tokenizer};
use ocelli_error::{Error, ErrorKind, Result};

/// Phrases that are encoded at once. The text encoder is fast, and a vocabulary may have thousands.
const PHRASES_AT_ONCE: usize = 16;

/// The file that keeps text features between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextCacheFile {
    /// A file for each model in the user's cache folder. If it cannot be read or written, a warning is logged and phrases
    /// are encoded again.
    #[default]
    Automatic,
    /// No file.
    None,
    /// This file, which is created if it does not exist. If it cannot be read or written, that is an error.
    #[serde(untagged)]
    File(PathBuf),
}

/// Prompts with encoded text and, after [`keep_exemplars`](super::PromptDecoder::keep_exemplars), encoded exemplars.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedPrompts {
    pub(super) classes: Vec<EmbeddedPrompt>,
}

#[derive(Clone, Debug)]
pub(super) struct EmbeddedPrompt {
    pub(super) prompt: Prompt,
    pub(super) text: Arc<TextFeatures>,
    /// The exemplars as encoded in another image, `[N + 1, D]`. `None` if they are boxes in the image that is searched.
    pub(super) kept_exemplars: Option<Arc<[f32]>>,
}

impl EmbeddedPrompts {
    /// The number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// `true` if there are no classes.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The labels in the order of the class ids.
    pub(crate) fn labels(&self) -> Arc<[Arc<str>]> {
        self.classes.iter().map(|class| class.prompt.label().clone()).collect()
    }

    /// The text features of each class, `[L, D]`.
    #[doc(hidden)]
    pub fn text_features(&self) -> impl Iterator<Item = &[f32]> {
        self.classes.iter().map(|class| &*class.text.features)
    }

    /// The [kept](super::PromptDecoder::keep_exemplars) exemplar features of a class, `[N + 1, D]`.
    #[doc(hidden)]
    pub fn exemplar_features(&self, class: usize) -> Option<&[f32]> {
        self.classes[class].kept_exemplars.as_deref()
    }

    /// Appends the classes of `others`; their ids follow those of these classes.
    pub fn extend(&mut self, others: &Self) {
        self.classes.extend(others.classes.iter().cloned());
    }
}

/// The tokeniser, the text encoder and the cache of its outputs.
pub struct TextEmbedder {
    model: Model,
    factory: EngineFactory,
    tokenizer: Tokenizer,
    cache: TextCache,
    /// The file in which the cache is saved.
    file: Option<PathBuf>,
    /// Makes a cache that cannot be saved an error, not a warning.
    must_save: bool,
    /// Set if new phrases stay in memory.
    transient: Option<Transient>,
    /// The phrases that were warned of as too long.
    long: HashSet<String>,
}

/// New phrases that are not saved, the oldest first.
struct Transient {
    most: usize,
    phrases: VecDeque<String>,
}

impl TextEmbedder {
    pub(super) fn new(model: &Model, factory: EngineFactory, cache_file: &TextCacheFile) -> Result<Self> {
        let manifest = model.manifest();
        let tokenizer = model.tokenizer()?;
        let identity = TextCacheIdentity {
            weights_sha256: manifest.weights_sha256.clone(),
            text_sha256: manifest.text_sha256.clone().unwrap_or_default(),
            number_format: number_format(manifest),
            context_length: manifest.context_length,
            width: manifest.model_width,
        };
        let (cache, file) = match cache_file {
            TextCacheFile::None => (TextCache::new(identity), None),
            TextCacheFile::File(path) => (open_file(path, identity)?, Some(path.clone())),
            TextCacheFile::Automatic => match open_automatic(identity.clone()) {
                Ok((cache, path)) => (cache, Some(path)),
                Err(error) => {
                    warn_not_cached(&error);
                    (TextCache::new(identity), None)
                }
            },
        };
        let must_save = matches!(cache_file, TextCacheFile::File(_));
        let model = model.clone();
        Ok(Self { model, factory, tokenizer, cache, file, must_save, transient: None, long: HashSet::new() })
    }

    /// From now on, new phrases are not saved to the cache file, and the newest `most` of them are kept in memory: for
    /// programs whose phrases come from strangers, who must not fill the disk or the memory.
    pub fn keep_in_memory(&mut self, most: usize) {
        self.transient = Some(Transient { most, phrases: VecDeque::new() });
    }

    /// Encodes text prompts. The text encoder is loaded if a phrase is not in the cache, and dropped afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a phrase without text, [`ErrorKind::Execution`] if the graph fails,
    /// [`ErrorKind::Io`] if a [cache file](TextCacheFile::File) cannot be written.
    pub fn embed(&mut self, prompts: &Prompts) -> Result<EmbeddedPrompts> {
        let mut new: Vec<(&str, TokenIds)> = Vec::new();
        for prompt in prompts.iter() {
            let phrase = prompt.phrase();
            if self.cache.get(phrase).is_some() || new.iter().any(|(known, _)| *known == phrase) {
                continue;
            }
            new.push((phrase, self.tokenizer.encode(phrase)?));
        }
        if !new.is_empty() {
            self.encode(&new)?;
            log_memory_after("encoding the text prompts");
            if let Some(transient) = &mut self.transient {
                transient.phrases.extend(new.iter().map(|(phrase, _)| (*phrase).to_owned()));
            } else {
                self.save()?;
            }
        }
        self.warn_of_long(prompts);
        let embedded = |prompt: &Prompt| {
            let text = self.cache.get(prompt.phrase()).expect("every phrase was cached or encoded above");
            EmbeddedPrompt { prompt: prompt.clone(), text: text.clone(), kept_exemplars: None }
        };
        let classes = prompts.iter().map(embedded).collect();
        while let Some(transient) = self.transient.as_mut().filter(|kept| kept.phrases.len() > kept.most) {
            if let Some(oldest) = transient.phrases.pop_front() {
                self.cache.remove(&oldest);
                self.long.remove(&oldest);
            }
        }
        Ok(EmbeddedPrompts { classes })
    }

    /// Warns once of each phrase that fills the model's context, of which the rest is not read.
    fn warn_of_long(&mut self, prompts: &Prompts) {
        for phrase in prompts.iter().map(Prompt::phrase) {
            let Some(text) = self.cache.get(phrase).filter(|text| !text.mask.contains(&0)) else { continue };
            let (start, tokens) = (phrase.chars().take(40).collect::<String>(), text.mask.len());
            if self.long.insert(phrase.to_owned()) {
                tracing::warn!(
                    "phrase \"{start}…\": the model reads at most {tokens} tokens; a short phrase works better"
                );
            }
        }
    }

    /// Encodes phrases into the cache.
    fn encode(&mut self, phrases: &[(&str, TokenIds)]) -> Result<()> {
        let mut engine = match self.model.load_graph(&self.factory, file::TEXT_ENCODER) {
            Err(_) if !self.model.has_file(file::TEXT_ENCODER) => {
                let phrase = phrases.first().map_or("", |(phrase, _)| phrase);
                return Err(Error::mismatch(format!(
                    "phrase {phrase:?}: it is not in the text cache, and {} has no {}; name a cache that holds every phrase",
                    self.model.folder().display(),
                    file::TEXT_ENCODER
                )).about("text_cache"));
            }
            loaded => loaded?,
        };
        log_memory_after("loading the text encoder");
        let length = self.model.manifest().context_length;
        let (mut ids, mut mask, mut features) = (Tensor::empty(), Tensor::empty(), Tensor::empty());
        // A fixed number of rows is reached by repeating the last one.
        let fixed_rows = fixed_size(&*engine, tensor::INPUT_IDS, 0);
        for chunk in phrases.chunks(fixed_rows.unwrap_or(PHRASES_AT_ONCE).max(1)) {
            let rows = fixed_rows.unwrap_or(chunk.len());
            let phrase = |row: usize| &chunk[row.min(chunk.len() - 1)].1;
            let shape = [rows, length]; // [class, token]
            for (row, ids) in ids.reset::<i64>(&shape).chunks_exact_mut(length).enumerate() {
                ids.copy_from_slice(&phrase(row).ids);
            }
            for (row, mask) in mask.reset::<i64>(&shape).chunks_exact_mut(length).enumerate() {
                mask.copy_from_slice(&phrase(row).mask);
            }
            engine.run(
                &[(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)],
                &mut [(tensor::TEXT_FEATURES, &mut features)],
            )?;
            let width = self.model.manifest().model_width; // [class, token, feature]
            if features.shape() != [rows, length, width] {
                return Err(Error::execution(format!(
                    "{}: expected text features {:?}, got {:?}; export the model again",
                    file::TEXT_ENCODER,
                    [rows, length, width],
                    features.shape()
                )));
            }
            for ((phrase, tokens), row) in chunk.iter().zip(features.as_f32()?.chunks_exact(length * width)) {
                self.cache.insert(phrase, row, &tokens.mask)?;
            }
        }
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        match self.cache.save(path) {
            Err(error) if !self.must_save => {
                warn_not_cached(&error);
                Ok(())
            }
            saved => saved,
        }
    }
}

/// The number format of the text encoder: it is rounded to half precision, but not to 8 bits.
fn number_format(manifest: &Manifest) -> String {
    let Manifest { precision, mixed_precision, keep_fp32, .. } = manifest;
    if !precision.is_half() {
        return Precision::Fp32.to_string();
    }
    let kept = keep_fp32.iter().map(|block| format!(",{block}")).collect::<String>();
    format!("{precision},{mixed_precision}{kept}")
}

fn warn_not_cached(error: &Error) {
    tracing::warn!("text prompts will be encoded again next time: {error}");
}

/// Opens the file that the caller has named.
fn open_file(path: &Path, identity: TextCacheIdentity) -> Result<TextCache> {
    // Reading a device might never end, and a pipe cannot be read twice.
    if path.exists() && !path.is_file() {
        let message =
            format!("cannot use the text cache, {}: it is not a file; name another", path.display());
        return Err(Error::new(ErrorKind::Io, message));
    }
    TextCache::open_or_new(path, identity)
}

/// Opens the model's file in the cache folder. A corrupt one is deleted; one of another model stays.
fn open_automatic(identity: TextCacheIdentity) -> Result<(TextCache, PathBuf)> {
    let folder = cache_folder()?.join("text");
    create_folder(&folder)?;
    // Each model has its own file, also one whose model.json was changed by hand.
    let name = short_hex(&Sha256::digest(format!("{identity:?}")));
    let path = folder.join(format!("{name}.safetensors"));
    let cache = match TextCache::open_or_new(&path, identity.clone()) {
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            tracing::warn!("the text cache is corrupt and is created again: {}", path.display());
            tracing::debug!("{error}");
            std::fs::remove_file(&path).map_err(|e| Error::io("cannot remove", &path, e))?;
            TextCache::new(identity)
        }
        cache => cache?,
    };
    Ok((cache, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_differ_in_a_size_keep_their_own_cache() {
        let of = |width| TextCacheIdentity {
            weights_sha256: "5e".repeat(32),
            text_sha256: "test".into(),
            number_format: "fp32".into(),
            context_length: 2,
            width,
        };
        let (mut first, path) = open_automatic(of(3)).expect("the cache folder is writable");
        first.insert("dog", &[1.0; 6], &[1, 1]).expect("the sizes are its own");
        first.save(&path).expect("the cache folder is writable");
        let (mut second, other) = open_automatic(of(4)).expect("the cache folder is writable");
        second.insert("dog", &[2.0; 8], &[1, 1]).expect("the sizes are its own");
        second.save(&other).expect("the cache folder is writable");
        let (again, _) = open_automatic(of(3)).expect("the cache folder is writable");
        assert_eq!(again.get("dog").map(|text| text.features.len()), Some(6));
        for path in [path, other] {
            std::fs::remove_file(path).expect("it was written above");
        }
    }
}
