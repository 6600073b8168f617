//! Words → text features, each phrase encoded once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::Tensor;
use ocelli_export::contract::{Precision, file, tensor};

use super::builder::TextCacheFile;
use super::prompt_chunk::fixed;
use crate::cache::{cache_folder, create_folder};
use crate::engine::EngineFactory;
use crate::model::Model;
use crate::prompt::{Prompt, Prompts};
use crate::text_cache::{TextCache, TextCacheIdentity};
use crate::tokenizer::{TokenIds, Tokenizer};
use ocelli_error::{Error, ErrorKind, Result};

/// Phrases encoded at once; the text encoder is quick and a vocabulary may have thousands.
const PHRASES_AT_ONCE: usize = 16;

/// The text encoder's output for one phrase.
#[derive(Debug)]
pub(super) struct TextFeatures {
    /// `[L, D]`.
    pub(super) features: Vec<f32>,
    /// `[L]`, 1 = token.
    pub(super) mask: Vec<i64>,
}

/// Prompts whose words are encoded, and their examples too where those were
/// [kept](super::PromptDecoder::keep_exemplars).
#[derive(Clone, Debug)]
pub struct EmbeddedPrompts {
    pub(super) classes: Vec<EmbeddedPrompt>,
}

#[derive(Clone, Debug)]
pub(super) struct EmbeddedPrompt {
    pub(super) prompt: Prompt,
    pub(super) text: Arc<TextFeatures>,
    /// What the exemplar encoder said of the examples in the image that they are in, `[N + 1, D]`: from then on they
    /// are looked for in other images. `None` while the examples are boxes in the very image that is searched.
    pub(super) kept_examples: Option<Arc<[f32]>>,
}

impl EmbeddedPrompts {
    /// Number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Labels in the order of the class ids.
    pub(crate) fn labels(&self) -> Arc<[Arc<str>]> {
        self.classes.iter().map(|class| class.prompt.label().clone()).collect()
    }

    /// The text features of each class, `[L, D]`.
    #[doc(hidden)]
    pub fn text_features(&self) -> impl Iterator<Item = &[f32]> {
        self.classes.iter().map(|class| &*class.text.features)
    }

    /// The exemplar features of a class, `[N + 1, D]`, where they were [kept](super::PromptDecoder::keep_exemplars).
    #[doc(hidden)]
    pub fn exemplar_features(&self, class: usize) -> Option<&[f32]> {
        self.classes[class].kept_examples.as_deref()
    }

    /// Adds the classes of others behind these; their ids go on where these end.
    pub fn extend(&mut self, others: &Self) {
        self.classes.extend(others.classes.iter().cloned());
    }
}

/// Tokeniser, text encoder, and what they said before.
pub struct TextEmbedder {
    model: Model,
    factory: EngineFactory,
    tokenizer: Tokenizer,
    known: HashMap<String, Arc<TextFeatures>>,
    disk: Option<Disk>,
}

/// The text cache in a file.
struct Disk {
    path: PathBuf,
    cache: TextCache,
    /// Whether nobody named it: then it is a convenience, and what is wrong with it spoils nothing.
    automatic: bool,
}

impl Disk {
    /// The file that somebody named; it has to be right.
    fn named(path: &Path, identity: TextCacheIdentity) -> Result<Self> {
        // A device can have no end, and a pipe is not read twice.
        if path.exists() && !path.is_file() {
            let message =
                format!("cannot use the text cache, {}: it is no file; name another", path.display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        Ok(Self { path: path.to_owned(), cache: TextCache::open_or_new(path, identity)?, automatic: false })
    }

    /// The model's own file in the cache folder: where it is damaged it is begun anew, where it cannot be read or
    /// written there is none.
    fn automatic(identity: TextCacheIdentity, precision: Precision) -> Result<Self> {
        let folder = cache_folder()?.join("text");
        create_folder(&folder)?;
        let weights = identity.weights_sha256.get(..24).unwrap_or(&identity.weights_sha256);
        // Half precision rounds the words' encoder too; in 8 bits it is the one of 32.
        let half = if precision.is_half() { format!("-{precision}") } else { String::new() };
        let path = folder.join(format!("{weights}{half}.safetensors"));
        let cache = match TextCache::open_or_new(&path, identity.clone()) {
            Err(e) if e.kind() != ErrorKind::Io => {
                tracing::warn!("damaged, and made again: {}", path.display());
                tracing::debug!("{e}");
                std::fs::remove_file(&path).map_err(|e| Error::io("cannot remove", &path, e))?;
                TextCache::new(identity)
            }
            cache => cache?,
        };
        Ok(Self { path, cache, automatic: true })
    }

    fn save(&mut self) -> Result<()> {
        match self.cache.save(&self.path) {
            Err(e) if self.automatic => {
                tracing::warn!("words will have to be encoded again next time: {e}");
                Ok(())
            }
            saved => saved,
        }
    }
}

impl TextEmbedder {
    pub(super) fn new(model: &Model, factory: EngineFactory, cache: &TextCacheFile) -> Result<Self> {
        let manifest = model.manifest();
        let tokenizer = model.tokenizer()?;
        let identity = TextCacheIdentity {
            weights_sha256: manifest.weights_sha256.clone(),
            context_length: manifest.context_length,
            width: manifest.model_width,
        };
        let disk = match cache {
            TextCacheFile::None => None,
            TextCacheFile::File(path) => Some(Disk::named(path, identity)?),
            TextCacheFile::Automatic => Disk::automatic(identity, manifest.precision)
                .inspect_err(|e| tracing::warn!("words will have to be encoded again next time: {e}"))
                .ok(),
        };
        Ok(Self { model: model.clone(), factory, tokenizer, known: HashMap::new(), disk })
    }

    /// Encodes the words of prompts. The text encoder is loaded only where a phrase is new, and let go afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a phrase without words, [`ErrorKind::Execution`] when the graph fails,
    /// [`ErrorKind::Io`] where a cache that was named cannot be written.
    pub fn embed(&mut self, prompts: &Prompts) -> Result<EmbeddedPrompts> {
        let mut new: Vec<(String, TokenIds)> = Vec::new();
        for prompt in prompts.iter() {
            let phrase = prompt.phrase();
            if self.known.contains_key(phrase) || new.iter().any(|(known, _)| known == phrase) {
                continue;
            }
            if let Some(cached) = self.disk.as_ref().and_then(|disk| disk.cache.get(phrase)) {
                let text = TextFeatures { features: cached.features.to_vec(), mask: cached.mask.to_vec() };
                self.known.insert(phrase.to_owned(), Arc::new(text));
                continue;
            }
            let ids = self.tokenizer.encode(phrase)?;
            if !ids.mask.contains(&0) {
                let (start, tokens): (String, _) = (phrase.chars().take(40).collect(), ids.mask.len());
                tracing::warn!(
                    "phrase \"{start}…\": the model reads no more than {tokens} tokens; a short phrase is better"
                );
            }
            new.push((phrase.to_owned(), ids));
        }
        if !new.is_empty() {
            self.encode(&new)?;
        }
        let classes = prompts
            .iter()
            .map(|prompt| {
                let text =
                    self.known.get(prompt.phrase()).expect("every phrase was found or encoded above").clone();
                EmbeddedPrompt { prompt: prompt.clone(), text, kept_examples: None }
            })
            .collect();
        Ok(EmbeddedPrompts { classes })
    }

    fn encode(&mut self, phrases: &[(String, TokenIds)]) -> Result<()> {
        let mut engine = self.model.load_graph(&self.factory, file::TEXT_ENCODER)?;
        let length = self.model.manifest().context_length;
        let (mut ids, mut mask, mut features) = (Tensor::empty(), Tensor::empty(), Tensor::empty());
        // An engine that always takes as many is given as many; the last is repeated where there are fewer.
        let fixed_rows = fixed(&*engine, tensor::INPUT_IDS, 0);
        for chunk in phrases.chunks(fixed_rows.unwrap_or(PHRASES_AT_ONCE).max(1)) {
            let rows = fixed_rows.unwrap_or(chunk.len());
            let phrase = |row: usize| &chunk[row.min(chunk.len() - 1)].1;
            let shape = [rows, length]; // [class, token]
            for (row, ids) in ids.reset_i64(&shape).chunks_exact_mut(length).enumerate() {
                ids.copy_from_slice(&phrase(row).ids);
            }
            for (row, mask) in mask.reset_i64(&shape).chunks_exact_mut(length).enumerate() {
                mask.copy_from_slice(&phrase(row).mask);
            }
            engine.run(
                &[(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)],
                &mut [(tensor::TEXT_FEATURES, &mut features)],
            )?;
            let rows = features.as_f32()?.chunks_exact(length * self.model.manifest().model_width);
            for ((phrase, tokens), row) in chunk.iter().zip(rows) {
                let text = TextFeatures { features: row.to_vec(), mask: tokens.mask.clone() };
                if let Some(disk) = &mut self.disk {
                    disk.cache.insert(phrase, &text.features, &text.mask)?;
                }
                self.known.insert(phrase.clone(), Arc::new(text));
            }
        }
        match &mut self.disk {
            Some(disk) => disk.save(),
            None => Ok(()),
        }
    }
}
