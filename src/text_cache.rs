//! Text features on disk, which make the text encoder unnecessary for known prompts.
//!
//! One safetensors file holds `text_features:<phrase>` f32 `[L, D]` and `token_mask:<phrase>` i64 `[L]` for each phrase;
//! its metadata identifies the model by the SHA-256 of its weights. Phrases are those of [`Prompt`](crate::Prompt)s, so
//! their white space is collapsed; "Red apple" and "red apple" are two entries. Any Unicode text can be a phrase.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::atomic_file::{folder_of, write_atomically};
use ocelli_error::{Error, Result};

/// The model that a cache belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextCacheIdentity {
    /// SHA-256 of the weights in lower-case hexadecimal.
    pub(crate) weights_sha256: String,
    /// [`Manifest::text_sha256`](ocelli_export::contract::Manifest::text_sha256); empty for exports that lack it.
    pub(crate) text_sha256: String,
    /// The number format of the text encoder.
    pub(crate) number_format: String,
    /// Tokens in a row, L.
    pub(crate) context_length: usize,
    /// Values of a token's feature, D.
    pub(crate) width: usize,
}

impl TextCacheIdentity {
    /// By the keys of the file's metadata.
    fn fields(&self) -> [(&'static str, String); 5] {
        [
            ("weights_sha256", self.weights_sha256.clone()),
            ("text_sha256", self.text_sha256.clone()),
            ("number_format", self.number_format.clone()),
            ("context_length", self.context_length.to_string()),
            ("width", self.width.to_string()),
        ]
    }
}

/// The output of the text encoder for one phrase.
#[derive(Debug, PartialEq)]
pub(crate) struct TextFeatures {
    /// `[L, D]`
    pub(crate) features: Vec<f32>,
    /// 1 = token, 0 = padding: `[L]`.
    pub(crate) mask: Vec<i64>,
}

/// The outputs of the text encoder for any number of phrases, in memory and, with [`save`](Self::save), in a file.
#[derive(Clone, Debug)]
pub(crate) struct TextCache {
    identity: TextCacheIdentity,
    entries: BTreeMap<String, Arc<TextFeatures>>,
}

const FORMAT: &str = "ocelli-text-cache";
const VERSION: &str = "1";
/// The number format of files that do not name theirs.
const FIRST_NUMBER_FORMAT: &str = "fp32";
const FEATURES: &str = "text_features:";
const MASK: &str = "token_mask:";

impl TextCache {
    /// An empty cache of a model.
    pub(crate) fn new(identity: TextCacheIdentity) -> Self {
        Self { identity, entries: BTreeMap::new() }
    }

    /// Reads a cache file and checks that it belongs to the model; without a file the cache is empty.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if the file cannot be read, [`InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is corrupt or not a text cache,
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if it belongs to another model; each names the file.
    pub(crate) fn open_or_new(path: &Path, identity: TextCacheIdentity) -> Result<Self> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self { entries: parse(&bytes, path, &identity)?, identity }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::new(identity)),
            Err(error) => Err(Error::io("cannot read the text cache", path, error)),
        }
    }

    /// The entry of a phrase.
    pub(crate) fn get(&self, phrase: &str) -> Option<&Arc<TextFeatures>> {
        self.entries.get(phrase)
    }

    /// Removes a phrase.
    pub(crate) fn remove(&mut self, phrase: &str) {
        self.entries.remove(phrase);
    }

    /// Adds a phrase or replaces its entry: `features` `[L, D]`, `mask` `[L]`.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if a length is not the model's.
    pub(crate) fn insert(&mut self, phrase: &str, features: &[f32], mask: &[i64]) -> Result<()> {
        let TextCacheIdentity { context_length, width, .. } = self.identity;
        if features.len() != context_length * width || mask.len() != context_length {
            return Err(Error::mismatch(format!(
                "text cache, phrase {phrase:?}: expected features [{context_length}, {width}] and mask \
                 [{context_length}], got {} and {} values",
                features.len(),
                mask.len()
            )));
        }
        let entry = TextFeatures { features: features.to_vec(), mask: mask.to_vec() };
        self.entries.insert(phrase.to_owned(), Arc::new(entry));
        Ok(())
    }

    /// Adds the entries of the file to this cache and replaces the file atomically.
    ///
    /// The folder is locked meanwhile (an advisory lock), so that programs that save at the same time lose no phrases.
    /// This cache's entry of a phrase takes precedence over the file's.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if the folder or the file cannot be written, and as [`open_or_new`](Self::open_or_new) if the
    /// file is corrupt or belongs to another model; it is not changed then.
    pub(crate) fn save(&mut self, path: &Path) -> Result<()> {
        // Held until the end of this function.
        let _lock =
            lock(folder_of(path)).map_err(|error| Error::io("cannot write the text cache", path, error))?;
        let saved = Self::open_or_new(path, self.identity.clone())?;
        for (phrase, entry) in saved.entries {
            self.entries.entry(phrase).or_insert(entry);
        }
        write_atomically(path, |file| {
            file.write_all(&self.to_bytes()?)?;
            file.flush()?;
            file.get_ref().sync_all()
        })
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let TextCacheIdentity { context_length, width, .. } = &self.identity;
        let own = [("format", FORMAT.to_owned()), ("version", VERSION.to_owned())];
        let metadata = own.into_iter().chain(self.identity.fields());
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value)).collect();
        let mut tensors = Vec::with_capacity(self.entries.len() * 2);
        for (phrase, text) in &self.entries {
            let features: Vec<u8> = text.features.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mask: Vec<u8> = text.mask.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((
                format!("{FEATURES}{phrase}"),
                Dtype::F32,
                vec![*context_length, *width],
                features,
            ));
            tensors.push((format!("{MASK}{phrase}"), Dtype::I64, vec![*context_length], mask));
        }
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            TensorView::new(*dtype, shape.clone(), data).map(|view| (name.as_str(), view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        safetensors::serialize(views, Some(metadata)).map_err(io::Error::other)
    }
}

/// Locks a folder against other programs that do the same, until the result is dropped.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    // Windows does not open folders; there the last of two simultaneous savers wins.
    if cfg!(not(unix)) {
        return Ok(None);
    }
    let file = File::open(folder)?;
    match file.lock() {
        Ok(()) => Ok(Some(file)),
        // Some network file systems cannot lock folders: at worst a phrase is encoded again.
        Err(error) => {
            tracing::warn!(
                "cannot lock {}, phrases of another program may be lost: {error}",
                folder.display()
            );
            Ok(None)
        }
    }
}

/// Parses a cache file and checks that it belongs to the model.
fn parse(
    bytes: &[u8],
    path: &Path,
    identity: &TextCacheIdentity,
) -> Result<BTreeMap<String, Arc<TextFeatures>>> {
    let name = path.display();
    let invalid = |why: String| Error::invalid_data(format!("cannot use the text cache, {name}: {why}"));
    let corrupt = |error: safetensors::SafeTensorError| {
        invalid(format!("truncated or not a safetensors file ({error}); delete it to create a new one"))
            .with_source(error)
    };
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"\x80\x02") {
        return Err(invalid(
            "it is a file of torch.save, as DART writes its cache, which says of no phrase which model it is of; name another \
             file, which is created"
                .into(),
        ));
    }
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(corrupt)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let field = |key: &str| metadata.get(key).map_or("", String::as_str);
    if field("format") != FORMAT || field("version") != VERSION {
        let (format, version) = (field("format"), field("version"));
        return Err(invalid(format!(
            "expected format {FORMAT:?} version {VERSION:?} in its metadata, found {format:?} version {version:?}"
        )));
    }
    let TextCacheIdentity { context_length, width, .. } = identity;
    for (key, expected) in identity.fields() {
        let found = match field(key) {
            "" if key == "number_format" => FIRST_NUMBER_FORMAT,
            found => found,
        };
        if found != expected {
            return Err(Error::mismatch(format!(
                "cannot use the text cache, {name}: it belongs to another model: its {key} is {found:?}, the model's is \
                 {expected:?}; use another file or delete it"
            )));
        }
    }

    let tensors = SafeTensors::deserialize(bytes).map_err(corrupt)?;
    let mut entries = BTreeMap::new();
    for name in tensors.names() {
        let Some(phrase) = name.strip_prefix(FEATURES) else {
            if name
                .strip_prefix(MASK)
                .is_some_and(|phrase| tensors.tensor(&format!("{FEATURES}{phrase}")).is_ok())
            {
                continue;
            }
            return Err(invalid(format!("unknown tensor {name:?}")));
        };
        let data = |name: &str, dtype: Dtype, shape: &[usize]| {
            let tensor = tensors.tensor(name).map_err(|_| invalid(format!("tensor {name:?} is missing")))?;
            if tensor.dtype() != dtype || tensor.shape() != shape {
                let (found, of) = (tensor.dtype(), tensor.shape());
                return Err(invalid(format!(
                    "tensor {name:?}: expected {dtype:?} {shape:?}, found {found:?} {of:?}"
                )));
            }
            Ok(tensor.data())
        };
        let features = data(name, Dtype::F32, &[*context_length, *width])?;
        let mask = data(&format!("{MASK}{phrase}"), Dtype::I64, &[*context_length])?;
        let entry = TextFeatures {
            features: features.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            mask: mask.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
        };
        entries.insert(phrase.to_owned(), Arc::new(entry));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
