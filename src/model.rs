//! The model: the built-in one, an exported folder, or a checkpoint that is exported once into the cache.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli_engines::Engine;
use ocelli_export::contract::{Manifest, Precision, Target, Thresholds, TrackerSizes, file};
use ocelli_export::{Checkpoint, ExportOptions, Pruning, export};
use sha2::{Digest, Sha256};

use crate::Cancellation;
use crate::builtin;
use crate::cache::{Lock, cache_folder, create_folder, hex, remembered_hash, remove_folder, short_hex};
use crate::engine::{EngineFactory, GraphSizes};
pub use crate::model_graph::ModelGraph;
use crate::tokenizer::{Tokenizer, TokenizerConfig};
use ocelli_error::{Error, ErrorKind, Result};

/// Changes when the content of a cached export does although its options do not.
pub(crate) const CACHE_REVISION: u32 = 4;

/// Where a model comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelSource {
    /// The small built-in model.
    #[default]
    Builtin,
    /// An exported folder (`model.json`), or a checkpoint, which is exported into the cache on first use: a folder with
    /// `config.json`, or a file such as `sam3.pt`.
    Folder(PathBuf),
}

impl ModelSource {
    /// The name of the built-in model where others are named by their folder.
    pub const BUILT_IN: &'static str = "built-in";

    /// The built-in model for [`BUILT_IN`](Self::BUILT_IN), else the folder.
    pub fn named(name: impl Into<PathBuf>) -> Self {
        let folder = name.into();
        if folder == Path::new(Self::BUILT_IN) { Self::Builtin } else { Self::Folder(folder) }
    }
}

/// A model source and the options of its export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// Where it comes from.
    pub source: ModelSource,
    /// Side of the square input in pixels; the checkpoint's by default. It cannot differ from an exported folder's.
    pub imgsz: Option<usize>,
    /// Number format of the export; 32-bit floating point by default. It cannot differ from an exported folder's.
    pub precision: Option<Precision>,
    /// How the export writes attention; ignored for an exported folder.
    pub target: Target,
    /// Whether masks are needed; without them the export leaves out the mask head.
    pub masks: bool,
    /// Whether the [first pass](crate::stages::Screening) over every class is needed.
    pub screen: bool,
    /// Blocks and branches of the backbone that the export leaves out. An exported folder has to lack them.
    pub pruning: Pruning,
}

/// An exported model, on disk or in memory.
#[derive(Clone, Debug)]
pub struct Model {
    folder: PathBuf,
    manifest: Manifest,
    memory: Option<InMemory>,
}

/// The folder of models in memory, in messages.
const IN_MEMORY: &str = "(in memory)";

/// Reads a file of a model that is not on disk.
#[derive(Clone)]
struct InMemory(Arc<ReadFile>);

type ReadFile = dyn Fn(&str) -> std::io::Result<Vec<u8>> + Send + Sync;

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(IN_MEMORY)
    }
}

impl Model {
    /// Opens an exported folder and checks its manifest, and that its files exist with the sizes recorded there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::InvalidData`], naming the file.
    pub fn open(folder: &Path) -> Result<Self> {
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
                Err(e) => return Err(corrupt(&path, &e.to_string()).with_source(e)),
            }
        }
        Ok(Self { folder: folder.to_owned(), manifest, memory: None })
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
    /// [`ErrorKind::Io`] if `model.json` cannot be read, [`ErrorKind::InvalidData`] if it is not the manifest of a model.
    pub fn from_memory(
        read: impl Fn(&str) -> std::io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let path = Path::new(IN_MEMORY).join(file::MANIFEST);
        let bytes = read(file::MANIFEST).map_err(|e| Error::io("cannot read the model", &path, e))?;
        let manifest = Manifest::parse(&bytes, &path)?;
        check_manifest(&manifest).map_err(|why| corrupt(&path, &why))?;
        Ok(Self { folder: IN_MEMORY.into(), manifest, memory: Some(InMemory(Arc::new(read))) })
    }

    /// Opens the model, after exporting a checkpoint or the built-in model into the cache if the cache lacks it.
    ///
    /// Exporting a full-size checkpoint takes a minute: `report` is called with a line of progress for each graph, and
    /// `cancellation` is checked between graphs.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] on cancellation, [`ErrorKind::InvalidArgument`] for a path without a model,
    /// [`ErrorKind::Mismatch`] if an exported folder has another input size or precision than requested or lacks masks,
    /// and the errors of [`export`].
    pub fn resolve(
        request: &ModelRequest,
        report: &dyn Fn(&str),
        cancellation: &Cancellation,
    ) -> Result<Self> {
        if cfg!(target_family = "wasm") {
            let message = "WebAssembly has no files to open a model from; open one with Model::from_memory";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        match &request.source {
            ModelSource::Builtin => builtin_model(request),
            ModelSource::Folder(folder) if folder.join(file::MANIFEST).is_file() => {
                let model = Self::open(folder)?;
                model.check_request(request)?;
                Ok(model)
            }
            ModelSource::Folder(folder) if folder.join("config.json").is_file() || is_weight_file(folder) => {
                let checkpoint = Checkpoint::open(folder)?;
                let identity = remembered_hash(&checkpoint.weight_files(), || checkpoint.weights_sha256())?;
                let name = folder
                    .file_stem()
                    .map_or_else(|| "checkpoint".into(), |n| n.to_string_lossy().into_owned());
                // The weights are the model's identity, but not all that an export depends on.
                let config = folder.join("config.json");
                let files: Vec<PathBuf> =
                    [config, checkpoint.tokenizer_path()].into_iter().filter(|file| file.is_file()).collect();
                let settings = settings_hash(&files)?;
                cached_export(&checkpoint, (&name, &identity, &settings), request, report, cancellation)
            }
            ModelSource::Folder(folder) => {
                let why = if !folder.exists() {
                    "no such folder"
                } else if folder.is_file() {
                    "it is a file; name the folder that contains it"
                } else {
                    "expected a folder with model.json (an exported model) or config.json (a Hugging Face checkpoint), or \
                     a file such as sam3.pt"
                };
                let message = format!("cannot open the model, {}: {why}", folder.display());
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }

    fn check_request(&self, request: &ModelRequest) -> Result<()> {
        let (folder, Manifest { imgsz, precision, detection_only, .. }) =
            (self.folder.display(), &self.manifest);
        let mismatch =
            |parameter, message: String| Err(Error::new(ErrorKind::Mismatch, message).about(parameter));
        if let Some(wanted) = request.precision.filter(|wanted| wanted != precision) {
            return mismatch(
                "precision",
                format!(
                    "precision {wanted}, {folder}: this model was exported in {precision}; leave the precision unset, or \
                 export the checkpoint again in {wanted}"
                ),
            );
        }
        if let Some(wanted) = request.imgsz.filter(|wanted| wanted != imgsz) {
            return mismatch(
                "imgsz",
                format!(
                    "imgsz {wanted}, {folder}: this model was exported for {imgsz} pixels; leave imgsz unset, or export the \
                 checkpoint again for {wanted}"
                ),
            );
        }
        if request.screen && !self.manifest.files.contains_key(file::SCREEN) {
            return mismatch(
                "screen",
                format!(
                    "screen, {folder}: this model was exported without its graph; export the checkpoint again with screen"
                ),
            );
        }
        if request.masks && *detection_only {
            return mismatch(
                "masks",
                format!(
                    "masks, {folder}: this model was exported for detection only; export the checkpoint again with masks"
                ),
            );
        }
        let Manifest { skip_blocks, mask_blocks, .. } = &self.manifest;
        let Pruning { skip_blocks: skipped, mask_blocks: masked, .. } = &request.pruning;
        if let Some(block) = skipped.iter().find(|block| !skip_blocks.contains(block)) {
            return mismatch(
                "skip_blocks",
                format!(
                    "skip_blocks has {block}, {folder}: this model was exported with the block; export the checkpoint again \
                     without it"
                ),
            );
        }
        if let Some(branch) = masked.iter().find(|branch| !mask_blocks.contains(&branch.to_string())) {
            return mismatch(
                "mask_blocks",
                format!(
                    "mask_blocks has {branch}, {folder}: this model was exported with the branch; export the checkpoint \
                     again without it"
                ),
            );
        }
        Ok(())
    }

    /// The content of `model.json`.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The exported folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Loads one of the graphs, for programs that run graphs themselves.
    ///
    /// # Errors
    /// As [`EngineFactory::load`]; the message says so if the file is not the one that the exporter wrote.
    pub fn load_graph(&self, factory: &EngineFactory, name: &str) -> Result<Box<dyn Engine>> {
        // Hashing the files takes as long as loading them, so it waits until a graph fails to load.
        let sizes =
            GraphSizes { context_length: self.manifest.context_length, queries: self.manifest.num_queries };
        let grid = self.manifest.imgsz / self.manifest.patch_size.max(1);
        factory.check_patches(if name == file::SCREEN { grid / 2 } else { grid })?;
        let loaded = match &self.memory {
            Some(memory) => self.load_from_memory(memory, factory, name),
            None => factory.load_sized(&self.file(name), Some(sizes)),
        };
        loaded.map_err(|e| self.corruption(name).unwrap_or_else(|| self.unsupported(e)))
    }

    fn load_from_memory(
        &self,
        memory: &InMemory,
        factory: &EngineFactory,
        name: &str,
    ) -> Result<Box<dyn Engine>> {
        let read =
            |name: &str| memory.0(name).map_err(|e| Error::io("cannot read the model", &self.file(name), e));
        let of_weights = format!("{name}.");
        let weights = self.manifest.files.keys().filter(|file| file.starts_with(&of_weights));
        let weights = weights.map(|file| Ok((file.clone(), read(file)?))).collect::<Result<_>>()?;
        factory.load_from_memory(name, &read(name)?, weights)
    }

    /// Explains an engine's error about an operator if the engine may lack the number format.
    fn unsupported(&self, error: Error) -> Error {
        if self.manifest.precision != Precision::Bf16 || error.kind() != ErrorKind::InvalidData {
            return error;
        }
        let message = format!(
            "cannot run a bfloat16 model, {}: the engine does not support bfloat16 (ONNX Runtime on the CPU has no \
             operators for it); export the model in fp32 or fp16, or choose an engine that runs on a GPU: {error}",
            self.folder.display()
        );
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    }

    /// The error for the first file of a graph, its weights included, that is not the one the exporter wrote.
    fn corruption(&self, graph: &str) -> Option<Error> {
        let files = self.manifest.files.iter().filter(|(name, _)| name.starts_with(graph));
        files.map(|(name, entry)| (name, self.file(name), entry)).find_map(|(name, path, entry)| {
            let hash = match &self.memory {
                Some(memory) => memory.0(name).map(|bytes| hex(&Sha256::digest(bytes))),
                None => sha256_of_file(&path),
            };
            match hash {
                Ok(found) if found == entry.sha256 => None,
                Ok(_) => Some(corrupt(&path, "its SHA-256 differs from the one in model.json")),
                Err(e) => Some(corrupt(&path, &e.to_string()).with_source(e)),
            }
        })
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
        let Some(memory) = &self.memory else { return Tokenizer::from_file(path, config) };
        let bytes = memory.0(file::TOKENIZER)
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

    /// The sizes of the tracker, which `purpose` needs.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if the model has none.
    pub(crate) fn tracker(&self, purpose: &str) -> Result<TrackerSizes> {
        let Some(tracker) = self.manifest.tracker else {
            let why = match self.manifest.detection_only {
                true => {
                    "this model was exported for detection only, and a tracker follows masks; export the checkpoint again \
                         with masks"
                }
                false => {
                    "this model has no tracker; export a checkpoint that has one, such as Meta's sam3.pt or \
                          facebook/sam3, and do not leave it out"
                }
            };
            let message = format!("{purpose}, {}: {why}", self.folder.display());
            return Err(Error::new(ErrorKind::Mismatch, message));
        };
        Ok(tracker)
    }

    /// Whether the model has this file.
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

/// The SHA-256 of a file, lower-case hex.
pub fn sha256_of_file(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Ok(hex(&hash.finalize()))
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

fn corrupt(path: &Path, why: &str) -> Error {
    let in_cache = cache_folder().is_ok_and(|cache| path.starts_with(cache));
    let remedy = if in_cache { "delete the folder and it is exported again" } else { "export it again" };
    let message = format!("corrupt exported model, {}: {why}; {remedy}", path.display());
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
    (name, identity, settings): (&str, &str, &str),
    request: &ModelRequest,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<Model> {
    let options = export_options(request);
    let folder = cache_folder()?.join("models");
    let entry = folder.join(entry_name(name, identity, &(options.fingerprint(checkpoint) + settings)));
    with_entry(&folder, &entry, |_, target| {
        export(checkpoint, &options, target, |step| {
            if step.done == 0 {
                report(&format!("exporting {name} into the cache, {} (once)", entry.display()));
            }
            report(&format!("exporting {} ({} of {})", step.file, step.done + 1, step.total));
            if cancellation.is_cancelled() {
                let message = format!("exporting {name}: cancelled");
                return Err(Error::new(ErrorKind::Cancelled, message));
            }
            Ok(())
        })?;
        Ok(())
    })
}

/// Whether a path can be a file of weights: not one of an exported folder.
fn is_weight_file(path: &Path) -> bool {
    let of_exported = path.extension().is_some_and(|end| end == "json" || end == "onnx" || end == "data");
    path.is_file() && !of_exported
}

/// SHA-256 of small files, in lower-case hex.
fn settings_hash(files: &[PathBuf]) -> Result<String> {
    let mut hashes = String::new();
    for file in files {
        hashes += &sha256_of_file(file).map_err(|e| Error::io("cannot read", file, e))?;
    }
    Ok(hashes)
}

fn export_options(request: &ModelRequest) -> ExportOptions {
    let options = ExportOptions::default()
        .with_detection_only(!request.masks)
        .with_screen(request.screen)
        .with_target(request.target)
        .with_precision(request.precision.unwrap_or_default())
        .with_skip_blocks(request.pruning.skip_blocks.iter().copied())
        .with_mask_blocks(request.pruning.mask_blocks.iter().copied())
        .with_split_block(request.pruning.split_block);
    match request.imgsz {
        Some(imgsz) => options.with_imgsz(imgsz),
        None => options,
    }
}

fn entry_name(name: &str, identity: &str, options: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let short: String = safe.chars().take(40).collect();
    let key = short_hex(&Sha256::digest(format!("{}.{CACHE_REVISION}{options}", env!("CARGO_PKG_VERSION"))));
    format!("{short}-{}-{key}", identity.get(..12).unwrap_or(identity))
}

/// Opens `entry` of the cache, and makes it first if it is missing or corrupt. One process makes it, others wait.
///
/// `make` gets a temporary folder and the path in it at which to write the model.
fn with_entry(folder: &Path, entry: &Path, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<Model> {
    if let Ok(model) = Model::open(entry) {
        return Ok(model);
    }
    create_folder(folder)?;
    let _lock = Lock::acquire(&entry.with_extension("lock"))?;
    match Model::open(entry) {
        Ok(model) => return Ok(model),
        Err(_) if entry.exists() => {
            tracing::warn!("the cached model is corrupt and is created again: {}", entry.display());
        }
        Err(_) => {}
    }
    // The lock makes this folder ours: its content was left by a process that died.
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
    use crate::EngineKind;
    use crate::engine::EngineOptions;
    use crate::model_graph::ModelGraph;

    #[test]
    fn a_changed_configuration_or_tokeniser_is_another_export() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parity/plain");
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["config.json", "model.safetensors", "tokenizer.json"] {
            std::fs::copy(golden.join(name), folder.path().join(name)).expect("it can be copied");
        }
        let resolve = || {
            let source = ModelSource::Folder(folder.path().to_owned());
            let request = ModelRequest { source, ..ModelRequest::default() };
            let model = Model::resolve(&request, &|_| {}, &Cancellation::new()).expect("it is a checkpoint");
            (model.folder().to_owned(), model.manifest().text_sha256.clone())
        };
        let change = |name: &str, from: &str, to: &str| {
            let path = folder.path().join(name);
            let text = std::fs::read_to_string(&path).expect("it is text");
            assert!(text.contains(from), "{name} has no {from}");
            std::fs::write(&path, text.replacen(from, to, 1)).expect("it can be written");
        };
        let first = resolve();
        assert_eq!(resolve(), first, "nothing changed");
        // White space changes the file, and not what it says.
        change("tokenizer.json", "{", "{ ");
        let second = resolve();
        assert_ne!(second.0, first.0, "the tokeniser changed");
        assert_ne!(second.1, first.1, "the tokeniser changed");
        change("config.json", "\"relu\"", "\"gelu\"");
        assert_ne!(resolve().0, second.0, "an activation changed");
        for made in [first.0, second.0, resolve().0] {
            std::fs::remove_dir_all(&made).expect("it is in the cache");
        }
    }

    #[test]
    fn a_model_in_memory_is_read_when_it_is_needed() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parity/plain");
        let request =
            ModelRequest { source: ModelSource::Folder(golden), masks: true, ..ModelRequest::default() };
        let on_disk = Model::resolve(&request, &|_| {}, &Cancellation::new()).expect("it is a checkpoint");
        let folder = on_disk.folder().to_owned();
        let read = move |name: &str| std::fs::read(folder.join(name));
        let options = EngineOptions { kind: EngineKind::Embedded, ..EngineOptions::default() };
        let factory = EngineFactory::start(&options).expect("it needs no library");

        let model = Model::from_memory(read.clone()).expect("the same model");
        assert_eq!(model.manifest(), on_disk.manifest());
        assert!(model.tokenizer().is_ok() && model.has_file(file::MASK_HEAD));
        for graph in ModelGraph::all_of(model.manifest()) {
            let load = |model: &Model| model.load_graph(&factory, graph.file()).expect("it is fine");
            assert_eq!(load(&model).spec(), load(&on_disk).spec(), "{graph}");
        }

        let custom = EngineFactory::custom("files only", |_| panic!("there is no file"));
        let without = model.clone();
        let broken = read.clone();
        let broken = Model::from_memory(move |name| {
            let mut bytes = broken(name)?;
            if name == file::BACKBONE {
                bytes.truncate(100);
            }
            Ok(bytes)
        });
        let missing = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        let load = |model: &Model, factory| model.load_graph(factory, file::BACKBONE).map(|_| ());
        let cases = [
            (
                load(&without, &custom),
                ErrorKind::Unavailable,
                "only the engine embedded loads a model without files",
            ),
            (
                load(&broken.expect("its manifest is fine"), &factory),
                ErrorKind::InvalidData,
                "(in memory)/backbone.onnx: its SHA-256",
            ),
            (Model::from_memory(missing).map(|_| ()), ErrorKind::Io, "(in memory)/model.json"),
            (
                Model::from_memory(|_| Ok(b"{}".to_vec())).map(|_| ()),
                ErrorKind::InvalidData,
                "not an exported model",
            ),
        ];
        for (outcome, kind, text) in cases {
            let error = outcome.expect_err(text);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn an_export_into_the_cache_can_be_cancelled() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parity/plain");
        // A size that no other test uses, so that no cache holds it.
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
