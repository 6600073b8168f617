//! Text features on disk: what makes the text encoder unnecessary for phrases seen before.
//!
//! One safetensors file holds, for each phrase, `text_features:<phrase>` f32 `[L, D]` and `token_mask:<phrase>`
//! i64 `[L]`; its metadata names the model by the SHA-256 of its weights. The phrase is kept exactly, but for white
//! space, which is trimmed and collapsed as the tokeniser does: "Red  apple " and "Red apple" share an entry, "red
//! apple" has its own. Any Unicode text can be a phrase.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::{Error, ErrorKind, Result};

/// Which model a cache belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextCacheIdentity {
    /// SHA-256 of the model's weights in lower-case hexadecimal.
    pub weights_sha256: String,
    /// Tokens in a row, L.
    pub context_length: usize,
    /// Values in a token's feature, D.
    pub width: usize,
}

/// The text encoder's output for one phrase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedText<'a> {
    /// `[L, D]`
    pub features: &'a [f32],
    /// 1 = token, 0 = padding: `[L]`.
    pub mask: &'a [i64],
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    features: Vec<f32>,
    mask: Vec<i64>,
}

/// The text encoder's output for any number of phrases, in memory and, with [`save`](Self::save), in a file.
#[derive(Clone, Debug)]
pub struct TextCache {
    identity: TextCacheIdentity,
    entries: BTreeMap<String, Entry>,
}

const FORMAT: &str = "ocelli-text-cache";
const VERSION: &str = "1";
const FEATURES: &str = "text_features:";
const MASK: &str = "token_mask:";

impl TextCache {
    /// An empty cache of a model.
    pub fn new(identity: TextCacheIdentity) -> Self {
        Self { identity, entries: BTreeMap::new() }
    }

    /// Reads a cache file and checks that it belongs to the model.
    ///
    /// # Errors
    /// `Io` when the file cannot be read, `InvalidData` when it is damaged or no text cache, `Mismatch` when it is
    /// of another model; each names the file.
    pub fn open(path: impl AsRef<Path>, identity: TextCacheIdentity) -> Result<Self> {
        let path = path.as_ref();
        let bytes =
            std::fs::read(path).map_err(|error| Error::io("cannot read the text cache", path, error))?;
        let entries = parse(&bytes, path, &identity)?;
        Ok(Self { identity, entries })
    }

    /// [`open`](Self::open), or an empty cache where there is no file yet.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for a missing file.
    pub fn open_or_new(path: impl AsRef<Path>, identity: TextCacheIdentity) -> Result<Self> {
        let path = path.as_ref();
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self { entries: parse(&bytes, path, &identity)?, identity }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::new(identity)),
            Err(error) => Err(Error::io("cannot read the text cache", path, error)),
        }
    }

    /// The model this cache belongs to.
    pub fn identity(&self) -> &TextCacheIdentity {
        &self.identity
    }

    /// How many phrases it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when it holds no phrase.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The phrases in the order of their bytes.
    pub fn phrases(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The entry of a phrase, whatever was asked for before it or with it.
    pub fn get(&self, phrase: &str) -> Option<CachedText<'_>> {
        let entry = self.entries.get(phrase)?;
        Some(CachedText { features: &entry.features, mask: &entry.mask })
    }

    /// Adds a phrase or replaces its entry: `features` `[L, D]`, `mask` `[L]`.
    ///
    /// # Errors
    /// `InvalidArgument` for a blank phrase, `Mismatch` when a length is not the model's.
    pub fn insert(&mut self, phrase: &str, features: &[f32], mask: &[i64]) -> Result<()> {
        if phrase.trim().is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "text cache: the phrase is empty"));
        }
        let TextCacheIdentity { context_length, width, .. } = self.identity;
        if features.len() != context_length * width || mask.len() != context_length {
            let message = format!(
                "text cache, phrase {phrase:?}: expected features [{context_length}, {width}] and mask \
                 [{context_length}], {} and {} values came",
                features.len(),
                mask.len()
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let entry = Entry { features: features.to_vec(), mask: mask.to_vec() };
        self.entries.insert(phrase.to_owned(), entry);
        Ok(())
    }

    /// Writes the cache so that it appears whole or not at all, joined with what the file holds by then.
    ///
    /// While it is read again, joined and renamed into place, the folder is locked against other savers (an
    /// advisory lock): programs that save at the same time each add their phrases and none is lost. Where both hold
    /// a phrase, this one's entry stays. Afterwards this cache holds the others' phrases too.
    ///
    /// # Errors
    /// `Io` when the folder or file cannot be written; as [`open`](Self::open) when the file that is there is
    /// damaged or of another model: it is then left as it is.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |error| Error::io("cannot write the text cache", path, error);
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Held until the end of this function.
        let _lock = lock(folder).map_err(failed)?;
        let there = Self::open_or_new(path, self.identity.clone())?;
        for (phrase, entry) in there.entries {
            self.entries.entry(phrase).or_insert(entry);
        }
        let bytes = self.to_bytes().map_err(failed)?;
        // Removed when it is dropped without having been persisted.
        let mut file = temporary(folder).map_err(failed)?;
        file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let TextCacheIdentity { weights_sha256, context_length, width } = &self.identity;
        let metadata = HashMap::from([
            ("format".into(), FORMAT.into()),
            ("version".into(), VERSION.into()),
            ("weights_sha256".into(), weights_sha256.clone()),
            ("context_length".into(), context_length.to_string()),
            ("width".into(), width.to_string()),
        ]);
        let mut tensors = Vec::with_capacity(self.entries.len() * 2);
        for (phrase, Entry { features, mask }) in &self.entries {
            let features: Vec<u8> = features.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mask: Vec<u8> = mask.iter().flat_map(|value| value.to_le_bytes()).collect();
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

/// Locks a folder against others that do the same, until the result is dropped.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    // Windows opens no folders; there the last of two simultaneous savers wins.
    if cfg!(not(unix)) {
        return Ok(None);
    }
    let file = File::open(folder)?;
    match file.lock() {
        Ok(()) => Ok(Some(file)),
        // Some network file systems lock no folders: a phrase may have to be computed again, nothing worse.
        Err(error) => {
            tracing::warn!(
                "{} cannot be locked, another program's phrases may be lost: {error}",
                folder.display()
            );
            Ok(None)
        }
    }
}

/// A new file in `folder` with the permissions that any new file has.
fn temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".text-cache-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Lessened by the umask.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// The entries of a cache file, once it is known to be of the model.
fn parse(bytes: &[u8], path: &Path, identity: &TextCacheIdentity) -> Result<BTreeMap<String, Entry>> {
    let name = path.display();
    let invalid =
        |why: String| Error::new(ErrorKind::InvalidData, format!("cannot use the text cache, {name}: {why}"));
    let damaged = |error: safetensors::SafeTensorError| {
        invalid(format!("it is cut short or no safetensors file ({error}); delete it to have it made again"))
            .with_source(error)
    };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let field = |key: &str| metadata.get(key).map_or("", String::as_str);
    if field("format") != FORMAT || field("version") != VERSION {
        let (format, version) = (field("format"), field("version"));
        return Err(invalid(format!(
            "expected format {FORMAT:?} version {VERSION:?} in its metadata, found {format:?} version {version:?}"
        )));
    }
    let TextCacheIdentity { weights_sha256, context_length, width } = identity;
    for (key, expected) in [
        ("weights_sha256", weights_sha256.clone()),
        ("context_length", context_length.to_string()),
        ("width", width.to_string()),
    ] {
        let found = field(key);
        if found != expected {
            let message = format!(
                "cannot use the text cache, {name}: it is of another model: its {key} is {found:?}, the model's is \
                 {expected:?}; name another file or delete it"
            );
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
    }

    let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let mut entries = BTreeMap::new();
    for name in tensors.names() {
        let Some(phrase) = name.strip_prefix(FEATURES) else {
            if name
                .strip_prefix(MASK)
                .is_some_and(|phrase| tensors.tensor(&format!("{FEATURES}{phrase}")).is_ok())
            {
                continue;
            }
            return Err(invalid(format!("it holds an unknown tensor, {name:?}")));
        };
        let data = |name: &str, dtype: Dtype, shape: &[usize]| {
            let tensor = tensors.tensor(name).map_err(|_| invalid(format!("tensor {name:?} is missing")))?;
            if tensor.dtype() != dtype || tensor.shape() != shape {
                let (came, of) = (tensor.dtype(), tensor.shape());
                return Err(invalid(format!(
                    "tensor {name:?}: expected {dtype:?} {shape:?}, found {came:?} {of:?}"
                )));
            }
            Ok(tensor.data())
        };
        let features = data(name, Dtype::F32, &[*context_length, *width])?;
        let mask = data(&format!("{MASK}{phrase}"), Dtype::I64, &[*context_length])?;
        let entry = Entry {
            features: features.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            mask: mask.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
        };
        entries.insert(phrase.to_owned(), entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
