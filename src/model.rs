//! The model: the built-in one, an exported folder, or a checkpoint that is exported once into the cache.

mod graph;
mod request;
mod resolve;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_export::contract::{Manifest, Thresholds, TrackerSizes, file};

use crate::cache::{Lock, cache_folder};
use crate::tokenizer::{Tokenizer, TokenizerConfig};
use ocelli_error::{Error, Result};

pub use graph::ModelGraph;
pub use request::{ModelRequest, ModelSource};
pub(crate) use resolve::CACHE_REVISION;

/// An exported model, on disk or in memory.
#[derive(Clone, Debug)]
pub struct Model {
    folder: PathBuf,
    manifest: Manifest,
    memory: Option<InMemory>,
    /// Keeps it in the cache.
    _lock: Option<Arc<Lock>>,
}

/// The folder of models in memory, in messages.
const IN_MEMORY: &str = "(in memory)";

/// Reads a file of a model that is not on disk.
#[derive(Clone)]
struct InMemory(Arc<ReadFile>);

type ReadFile = dyn Fn(&str) -> std::io::Result<Vec<u8>> + Send + Sync;

debug_as!(InMemory, _it => "{IN_MEMORY}");

impl Model {
    /// Opens an exported folder and checks its manifest, and that its files exist with the sizes recorded there. The text
    /// encoder may be missing: a text cache then has to hold every phrase.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) or [`InvalidData`](ocelli_error::ErrorKind::InvalidData), naming the file.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_with(folder, |name| name.starts_with(file::TEXT_ENCODER))
    }

    /// Opens a folder that may lack some files.
    fn open_with(folder: &Path, may_lack: impl Fn(&str) -> bool) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        check_manifest(&manifest).map_err(|why| corrupt(&folder.join(file::MANIFEST), &why))?;
        for (name, entry) in &manifest.files {
            let path = folder.join(name);
            match path.metadata() {
                Ok(found) if found.len() == entry.bytes => {}
                Ok(found) => {
                    let why =
                        format!("expected {} bytes as in model.json, found {}", entry.bytes, found.len());
                    return Err(corrupt(&path, &why));
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && may_lack(name) => {}
                Err(e) => return Err(corrupt(&path, &e.to_string()).with_source(e)),
            }
        }
        Ok(Self { folder: folder.to_owned(), manifest, memory: None, _lock: None })
    }

    /// Opens an exported model whose files are not on disk: `read` returns the content of the file with a name, first that
    /// of `model.json`. Each graph and its weights are read when they are needed, and the engine keeps the bytes. Only the
    /// [embedded engine](crate::EngineKind::Embedded) runs such a model, so name it.
    ///
    /// ```
    /// use ocelli::{Detector, EngineKind, Model, Prompts, model::ModelRequest, stages::TextCacheFile};
    ///
    /// # fn main() -> ocelli::Result<()> {
    /// # let folder = Model::resolve(&ModelRequest::default(), &|_| (), &ocelli::Cancellation::new())?.folder().to_owned();
    /// let model = Model::from_memory(move |name| std::fs::read(folder.join(name)))?;
    /// let mut detector = Detector::builder()
    ///     .with_open_model(model)
    ///     .with_engine(EngineKind::Embedded)
    ///     .with_text_cache(TextCacheFile::None)
    ///     .build()?;
    /// let image = ocelli::Image::open("demos/scenes/park.png")?;
    /// assert_eq!(detector.detect(&image, &Prompts::new(["dog"])?)?.items.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if `model.json` cannot be read, [`InvalidData`](ocelli_error::ErrorKind::InvalidData) if it is not the manifest of a model.
    pub fn from_memory(
        read: impl Fn(&str) -> std::io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let path = Path::new(IN_MEMORY).join(file::MANIFEST);
        let bytes = read(file::MANIFEST).map_err(|e| Error::io("cannot read the model", &path, e))?;
        let manifest = Manifest::parse(&bytes, &path)?;
        check_manifest(&manifest).map_err(|why| corrupt(&path, &why))?;
        Ok(Self { folder: IN_MEMORY.into(), manifest, memory: Some(InMemory(Arc::new(read))), _lock: None })
    }

    /// The content of `model.json`.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The exported folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The tokeniser of the text encoder.
    ///
    /// # Errors
    /// If `tokenizer.json` is missing or corrupt.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let mut config = TokenizerConfig::new(self.manifest.context_length);
        config.start_id = Some(self.manifest.special_tokens.bos);
        config.end_id = Some(self.manifest.special_tokens.eos);
        if self.manifest.text_padding.is_some() {
            config.padding_id = Some(self.manifest.special_tokens.pad);
        }
        let path = self.file(file::TOKENIZER);
        let bytes = self
            .read(file::TOKENIZER)
            .map_err(|error| Error::io("cannot read the tokeniser", &path, error))?;
        Tokenizer::from_bytes(&bytes, &path.display().to_string(), config)
    }

    /// The same files with another manifest.
    #[doc(hidden)]
    #[must_use]
    pub fn with_manifest(mut self, change: impl FnOnce(&mut Manifest)) -> Self {
        change(&mut self.manifest);
        self
    }

    /// `true` if its files are read from memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Reads one of its files.
    pub(crate) fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        match &self.memory {
            Some(memory) => memory.0(name),
            None => std::fs::read(self.file(name)),
        }
    }

    /// The sizes of the tracker, which `purpose` needs.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if the model has none.
    pub(crate) fn tracker(&self, purpose: &str) -> Result<TrackerSizes> {
        let Some(tracker) = self.manifest.tracker.or(self.manifest.multiplex) else {
            let why = if self.manifest.detection_only {
                "this model was exported for detection only, and a tracker follows masks; export the checkpoint again \
                 with masks"
            } else {
                "this model has no tracker; export a checkpoint that has one, such as Meta's sam3.pt or facebook/sam3, and \
                 do not leave it out"
            };
            return Err(Error::mismatch(format!("{purpose}, {}: {why}", self.folder.display())));
        };
        Ok(tracker)
    }

    /// `true` if the model has this file.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        match self.memory {
            Some(_) => self.manifest.files.contains_key(name),
            None => self.file(name).is_file(),
        }
    }

    /// The path of a file in the folder; a model in memory has none there.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Checks the values that the detector obeys.
fn check_manifest(manifest: &Manifest) -> Result<(), String> {
    let Thresholds { confidence, nms } = manifest.thresholds;
    for (name, value) in [("confidence", confidence), ("nms", nms)] {
        if !(0.0..=1.0).contains(&value) {
            return Err(format!("thresholds.{name} is {value}: expected 0 to 1"));
        }
    }
    let resize = &manifest.preprocessing.resize;
    if resize != "bilinear-antialias" {
        return Err(format!("preprocessing.resize is {resize:?}: expected \"bilinear-antialias\""));
    }
    Ok(())
}

pub(crate) fn corrupt(path: &Path, why: &str) -> Error {
    let in_cache = cache_folder().is_ok_and(|cache| path.starts_with(cache));
    let remedy = if in_cache { "delete the folder and it is exported again" } else { "export it again" };
    Error::invalid_data(format!("corrupt exported model, {}: {why}; {remedy}", path.display()))
}
