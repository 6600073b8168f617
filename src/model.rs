//! Which model runs: the built-in one, an exported folder, or a checkpoint that is exported once.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ocelli_engines::Engine;
use ocelli_export::contract::{Manifest, Precision, Target, file};
use ocelli_export::{Checkpoint, ErrorKind as ExportErrorKind, ExportOptions, export};

use sha2::{Digest, Sha256};

use crate::Cancellation;
use crate::builtin;
use crate::cache::{Lock, cache_folder, create_folder, remembered_hash, remove_folder, short_hash};
use crate::engine::{EngineFactory, GraphSizes};
use crate::error::{Error, ErrorKind, Result};
use crate::tokenizer::{Tokenizer, TokenizerConfig};

/// Where a model comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ModelSource {
    /// The small model inside the program.
    #[default]
    Builtin,
    /// An exported folder (`model.json`), or a checkpoint folder (`config.json`), which is exported into the cache
    /// when it is first used.
    Folder(PathBuf),
}

/// What a model is wanted for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// Where it comes from.
    pub source: ModelSource,
    /// Pixels of the input's side; the model's own by default. An exported folder has one that cannot be changed.
    pub imgsz: Option<usize>,
    /// Number format in which a checkpoint or the built-in model is exported; 32-bit floating point by default. An exported folder has one that cannot be changed.
    pub precision: Option<Precision>,
    /// What attention is written as, in a checkpoint's export or the built-in model's. An exported folder has what it has.
    pub target: Target,
    /// Whether masks will be asked for. Without, a checkpoint is exported without what only masks need.
    pub masks: bool,
}

/// An exported model on disk.
#[derive(Clone, Debug)]
pub struct Model {
    folder: PathBuf,
    manifest: Manifest,
}

impl Model {
    /// Opens an exported folder and checks that its files are there and as large as the manifest says.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::InvalidData`], naming the file.
    pub fn open(folder: &Path) -> Result<Self> {
        let manifest = Manifest::read(folder)?;
        for (name, entry) in &manifest.files {
            let path = folder.join(name);
            match path.metadata() {
                Ok(found) if found.len() == entry.bytes => {}
                Ok(found) => {
                    return Err(damaged(
                        &path,
                        &format!("{} bytes, but model.json says {}", found.len(), entry.bytes),
                    ));
                }
                Err(e) => return Err(damaged(&path, &e.to_string()).with_source(e)),
            }
        }
        Ok(Self { folder: folder.to_owned(), manifest })
    }

    /// Finds the model, exporting a checkpoint or the built-in model into the cache where that has not been done.
    /// `report` is told what is being done meanwhile: it takes a minute for a full-size checkpoint, and ends between two
    /// graphs when `cancellation` asks for it.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] where it was,
    /// [`ErrorKind::InvalidArgument`] for a path that is no model, [`ErrorKind::Mismatch`] for an `imgsz` that an
    /// exported folder does not have, and whatever the export finds wrong with a checkpoint.
    pub fn resolve(
        request: &ModelRequest,
        report: &dyn Fn(&str),
        cancellation: &Cancellation,
    ) -> Result<Self> {
        match &request.source {
            ModelSource::Builtin => builtin_model(request),
            ModelSource::Folder(folder) if folder.join(file::MANIFEST).is_file() => {
                let model = Self::open(folder)?;
                model.check_request(request)?;
                Ok(model)
            }
            ModelSource::Folder(folder) if folder.join("config.json").is_file() => {
                let checkpoint = Checkpoint::open(folder)?;
                let identity = remembered_hash(&checkpoint.weight_files(), || checkpoint.weights_sha256())?;
                let name = folder
                    .file_name()
                    .map_or_else(|| "checkpoint".into(), |n| n.to_string_lossy().into_owned());
                cached_export(&checkpoint, (&name, &identity), request, report, cancellation)
            }
            ModelSource::Folder(folder) => {
                let why = if !folder.exists() {
                    "no such folder"
                } else if folder.is_file() {
                    "it is a file; name the folder it is in"
                } else {
                    "it holds neither model.json (an exported model) nor config.json (a Hugging Face checkpoint); name a \
                     folder that does"
                };
                let message = format!("no model, {}: {why}", folder.display());
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }

    fn check_request(&self, request: &ModelRequest) -> Result<()> {
        if let Some(precision) = request.precision.filter(|wanted| *wanted != self.manifest.precision) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "--precision {precision}, {}: this model was exported with --precision {}; leave --precision out, \
                     or export the checkpoint again with `ocelli export --precision {precision}`",
                    self.folder.display(),
                    self.manifest.precision
                ),
            ));
        }
        match request.imgsz {
            Some(imgsz) if imgsz != self.manifest.imgsz => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "--imgsz {imgsz}, {}: this model was exported for {} pixels; leave --imgsz out, or export the \
                     checkpoint again with `ocelli export --imgsz {imgsz}`",
                    self.folder.display(),
                    self.manifest.imgsz
                ),
            )),
            _ if request.masks && self.manifest.detection_only => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "masks, {}: this model was exported with --detection-only; export the checkpoint without it",
                    self.folder.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// What `model.json` says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// An engine for one of the folder's graphs, for a program that runs graphs itself.
    ///
    /// # Errors
    /// As [`EngineFactory::load`]; where the file is not what the exporter wrote, the message says so.
    pub fn load_graph(&self, factory: &EngineFactory, name: &str) -> Result<Box<dyn Engine>> {
        // Hashing all files each time would take as long as loading them; a graph that does not load is looked at.
        let sizes =
            GraphSizes { context_length: self.manifest.context_length, queries: self.manifest.num_queries };
        factory
            .load_sized(&self.file(name), Some(sizes))
            .map_err(|e| self.damage(name).unwrap_or_else(|| self.unsupported(e)))
    }

    /// Says it where an engine may lack the number format: its own words are of an operator.
    fn unsupported(&self, error: Error) -> Error {
        if self.manifest.precision != Precision::Bf16 || error.kind() != ErrorKind::InvalidData {
            return error;
        }
        let message = format!(
            "cannot run a model in bfloat16, {}: the engine does not take it (ONNX Runtime on the processor has no \
             operators for bfloat16); export with --precision fp32 or fp16, or choose an engine that runs on a GPU: \
             {error}",
            self.folder.display()
        );
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    }

    /// The first of a graph's files, its weights beside it included, that is not what the exporter wrote.
    fn damage(&self, graph: &str) -> Option<Error> {
        let files = self.manifest.files.iter().filter(|(name, _)| name.starts_with(graph));
        files.map(|(name, entry)| (self.file(name), entry)).find_map(|(path, entry)| match sha256(&path) {
            Ok(found) if found == entry.sha256 => None,
            Ok(_) => Some(damaged(&path, "its SHA-256 is not the one in model.json")),
            Err(e) => Some(damaged(&path, &e.to_string()).with_source(e)),
        })
    }

    /// The tokeniser, as the text encoder wants its tokens.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let mut config = TokenizerConfig::new(self.manifest.context_length);
        config.start_id = Some(self.manifest.special_tokens.bos);
        config.end_id = Some(self.manifest.special_tokens.eos);
        Tokenizer::from_file(self.file(file::TOKENIZER), config)
    }

    /// The same model, described in another way.
    #[doc(hidden)]
    #[must_use]
    pub fn with_manifest(mut self, change: impl FnOnce(&mut Manifest)) -> Self {
        change(&mut self.manifest);
        self
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The SHA-256 of a file, lower-case hex.
pub(crate) fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn damaged(path: &Path, why: &str) -> Error {
    let in_cache = cache_folder().is_ok_and(|cache| path.starts_with(cache));
    let remedy = if in_cache { "delete the folder, it is made again" } else { "export it again" };
    let message = format!("damaged exported model, {}: {why}; {remedy}", path.display());
    Error::new(ErrorKind::InvalidData, message)
}

fn builtin_model(request: &ModelRequest) -> Result<Model> {
    let options = export_options(request);
    let folder = cache_folder()?.join("models");
    let entry = folder.join(entry_name("builtin", &builtin::identity(), &format!("{options:?}")));
    with_entry(&folder, &entry, |work, target| {
        tracing::info!(folder = %entry.display(), "exporting the built-in model");
        let checkpoint = work.join("checkpoint");
        create_folder(&checkpoint)?;
        builtin::write_checkpoint(&checkpoint)?;
        export(&Checkpoint::open(&checkpoint)?, &options, target, |_| Ok(()))?;
        Ok(())
    })
}

fn cached_export(
    checkpoint: &Checkpoint,
    (name, identity): (&str, &str),
    request: &ModelRequest,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<Model> {
    let options = export_options(request);
    let folder = cache_folder()?.join("models");
    let entry = folder.join(entry_name(name, identity, &options.fingerprint(checkpoint)));
    with_entry(&folder, &entry, |_, target| {
        export(checkpoint, &options, target, |step| {
            if step.done == 0 {
                report(&format!("exporting {name} into the cache, {} (once)", entry.display()));
            }
            report(&format!("exporting {} ({} of {})", step.file, step.done + 1, step.total));
            if cancellation.is_cancelled() {
                let message = format!("exporting {name}: cancelled");
                return Err(ocelli_export::Error::new(ExportErrorKind::Cancelled, message));
            }
            Ok(())
        })?;
        Ok(())
    })
}

fn export_options(request: &ModelRequest) -> ExportOptions {
    let options = ExportOptions::default()
        .with_detection_only(!request.masks)
        .with_target(request.target)
        .with_precision(request.precision.unwrap_or_default());
    match request.imgsz {
        Some(imgsz) => options.with_imgsz(imgsz),
        None => options,
    }
}

fn entry_name(name: &str, identity: &str, options: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let short: String = safe.chars().take(40).collect();
    let key = short_hash(&format!("{}{options}", env!("CARGO_PKG_VERSION")));
    format!("{short}-{}-{key}", identity.get(..12).unwrap_or(identity))
}

/// Opens `entry` of the cache, and makes it first where it is missing or damaged. One process makes it, others wait.
///
/// `make` gets a folder to work in and the folder to write, which is in it.
fn with_entry(folder: &Path, entry: &Path, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<Model> {
    if let Ok(model) = Model::open(entry) {
        return Ok(model);
    }
    create_folder(folder)?;
    let _lock = Lock::acquire(&entry.with_extension("lock"))?;
    match Model::open(entry) {
        Ok(model) => return Ok(model),
        Err(_) if entry.exists() => tracing::warn!("damaged, and made again: {}", entry.display()),
        Err(_) => {}
    }
    // The lock makes this folder ours: what is in it was left by a process that died.
    let work = entry.with_extension("part");
    remove_folder(&work)?;
    create_folder(&work)?;
    let target = work.join("model");
    let made = make(&work, &target).and_then(|()| {
        remove_folder(entry)?;
        std::fs::rename(&target, entry).map_err(|e| Error::io("cannot put the model in place", entry, e))
    });
    let removed = remove_folder(&work);
    made.and(removed)?;
    Model::open(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_into_the_cache_ends_when_asked() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parity/plain");
        // A size that nobody else asks for, so that no cache holds it.
        let request = ModelRequest {
            source: ModelSource::Folder(golden),
            imgsz: Some(14 * 13),
            ..ModelRequest::default()
        };
        let cancellation = Cancellation::new();
        let report = |line: &str| {
            if line.contains("(2 of") {
                cancellation.cancel();
            }
        };
        let outcome = Model::resolve(&request, &report, &cancellation).map(|model| model.folder);
        assert_eq!(outcome.map_err(|e| e.kind()), Err(ErrorKind::Cancelled));
    }
}
