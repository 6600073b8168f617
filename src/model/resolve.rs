//! Finds a model: the built-in one, an exported folder, or a checkpoint that is exported once into the cache.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ocelli_export::contract::{Manifest, file};
use ocelli_export::{Checkpoint, CheckpointOptions, ExportOptions, Pruning, export};
use sha2::{Digest, Sha256};

use super::{Model, ModelRequest, ModelSource};
use crate::Cancellation;
use crate::builtin;
use crate::cache::{
    Lock, cache_folder, create_folder, export_limit, remembered_hash, remove_beyond, remove_folder,
    safe_name, sha256_of_file, short_hex,
};
use crate::hub::{self, LocalModel};
use ocelli_error::{Error, Result};

/// Changes when the content of a cached export does although its options do not.
pub(crate) const CACHE_REVISION: u32 = 4;

impl Model {
    /// Opens the model, after exporting a checkpoint or the built-in model into the cache if the cache lacks it.
    ///
    /// Exporting a full-size checkpoint takes a minute: `report` is called with a line of progress for each graph, and
    /// `cancellation` is checked between graphs.
    ///
    /// # Errors
    /// [`Cancelled`](ocelli_error::ErrorKind::Cancelled) on cancellation,
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for a path without a model,
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if an exported folder has another input size or precision than
    /// requested or lacks masks,
    /// the errors of [`export`], and those of [`hub::fetch`].
    pub fn resolve(
        request: &ModelRequest,
        report: &dyn Fn(&str),
        cancellation: &Cancellation,
    ) -> Result<Self> {
        if cfg!(target_family = "wasm") {
            let message = "WebAssembly has no files to open a model from; open one with Model::from_memory";
            return Err(Error::unavailable(message));
        }
        request.source.check()?;
        match &request.source {
            ModelSource::Builtin => {
                refuse_tokenizer(request, ModelSource::BUILT_IN)?;
                builtin_model(request)
            }
            ModelSource::Folder(folder) if folder.join(file::MANIFEST).is_file() => {
                let model = Self::open(folder)?;
                refuse_tokenizer(request, &folder.display().to_string())?;
                model.check_request(request)?;
                Ok(model)
            }
            ModelSource::Folder(path) => {
                let name = path.file_stem().unwrap_or("checkpoint".as_ref()).to_string_lossy();
                let local = LocalModel { path: path.clone(), ..LocalModel::default() };
                export_checkpoint(&name, &local, request, report, cancellation)
            }
            ModelSource::Hub(name) => {
                let local = hub::fetch(name, false, report, cancellation)?;
                export_checkpoint(name, &local, request, report, cancellation)
            }
        }
    }

    fn check_request(&self, request: &ModelRequest) -> Result<()> {
        let (folder, Manifest { imgsz, precision, detection_only, .. }) =
            (self.folder.display(), &self.manifest);
        let mismatch = |parameter, given: &str, exported: String| {
            let message = format!("{given}, {folder}: this model was exported {exported}");
            Err(Error::mismatch(message).about(parameter))
        };
        if let Some(wanted) = request.precision.filter(|wanted| wanted != precision) {
            let remedy = format!("leave the precision unset, or export the checkpoint again in {wanted}");
            return mismatch(
                "precision",
                &format!("precision {wanted}"),
                format!("in {precision}; {remedy}"),
            );
        }
        if let Some(wanted) = request.imgsz.filter(|wanted| wanted != imgsz) {
            let remedy = format!("leave imgsz unset, or export the checkpoint again for {wanted}");
            return mismatch("imgsz", &format!("imgsz {wanted}"), format!("for {imgsz} pixels; {remedy}"));
        }
        if request.screen && !self.manifest.files.contains_key(file::SCREEN) {
            let exported = "without its graph; export the checkpoint again with screen";
            return mismatch("screen", "screen", exported.into());
        }
        if request.masks && *detection_only {
            let exported = "for detection only; export the checkpoint again with masks";
            return mismatch("masks", "masks", exported.into());
        }
        let Manifest { skip_blocks, mask_blocks, .. } = &self.manifest;
        let Pruning { skip_blocks: skipped, mask_blocks: masked, .. } = &request.pruning;
        if let Some(block) = skipped.iter().find(|block| !skip_blocks.contains(block)) {
            let exported = "with the block; export the checkpoint again without it";
            return mismatch("skip_blocks", &format!("skip_blocks has {block}"), exported.into());
        }
        if let Some(branch) = masked.iter().find(|branch| !mask_blocks.contains(&branch.to_string())) {
            let exported = "with the branch; export the checkpoint again without it";
            return mismatch("mask_blocks", &format!("mask_blocks has {branch}"), exported.into());
        }
        Ok(())
    }
}

/// A model that has a tokeniser takes no other.
fn refuse_tokenizer(request: &ModelRequest, model: &str) -> Result<()> {
    let Some(tokenizer) = &request.tokenizer else { return Ok(()) };
    let tokenizer = tokenizer.display();
    let message = format!("tokenizer {tokenizer}, {model}: this model has its own; leave the tokeniser out");
    Err(Error::invalid_argument(message).about("tokenizer"))
}

impl ModelSource {
    /// Checks that it is a model, by the names of its files.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_exists()?;
        let Self::Folder(folder) = self else { return Ok(()) };
        let is_model = |name| folder.join(name).is_file();
        let why = if is_model(file::MANIFEST) || is_model("config.json") || is_weight_file(folder) {
            return Ok(());
        } else if folder.is_file() {
            "it is a file; name the folder that contains it"
        } else {
            "expected a folder with model.json (an exported model) or config.json (a Hugging Face checkpoint), or a file such \
             as sam3.pt"
        };
        Err(Error::invalid_argument(format!("cannot open the model, {}: {why}", folder.display())))
    }
}

impl LocalModel {
    /// The options of opening its checkpoint.
    pub fn opening(&self) -> CheckpointOptions {
        let (tokenizer, base) = (self.tokenizer.clone(), self.base.clone());
        CheckpointOptions { tokenizer, base, ..CheckpointOptions::default() }
    }
}

fn export_options(request: &ModelRequest) -> ExportOptions {
    ExportOptions {
        imgsz: request.imgsz,
        target: request.target,
        precision: request.precision.unwrap_or_default(),
        detection_only: !request.masks,
        screen: request.screen,
        pruning: request.pruning.clone(),
        ..ExportOptions::default()
    }
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
        export(&Checkpoint::open(&checkpoint)?, &options, target, |_| Ok(())).map(drop)
    })
}

/// Exports a checkpoint into the cache under a name, unless it is there.
fn export_checkpoint(
    name: &str,
    local: &LocalModel,
    request: &ModelRequest,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<Model> {
    let mut opening = local.opening();
    opening.tokenizer = request.tokenizer.clone().or(opening.tokenizer);
    let checkpoint = opening.open(&local.path)?;
    let identity = remembered_hash(&checkpoint.weight_files(), || checkpoint.weights_sha256())?;
    let license = local.license.map(str::to_owned);
    let options = ExportOptions { license, ..export_options(request) };
    // The weights are the model's identity, but not all that an export depends on.
    let mut settings = options.fingerprint(&checkpoint);
    for file in [local.path.join("config.json"), checkpoint.tokenizer_path()] {
        if file.is_file() {
            settings += &sha256_of_file(&file).map_err(|error| Error::io("cannot read", &file, error))?;
        }
    }
    let folder = cache_folder()?.join("models");
    let entry = folder.join(entry_name(name, &identity, &settings));
    with_entry(&folder, &entry, |_, target| {
        export(&checkpoint, &options, target, |step| {
            if step.done == 0 {
                report(&format!("exporting {name} into the cache, {} (once)", entry.display()));
            }
            report(&format!("exporting {} ({} of {})", step.file, step.done + 1, step.total));
            cancellation.check_for(format_args!("exporting {name}"))
        })
        .map(drop)
    })
}

/// `true` if a path can be a file of weights: not one of an exported folder.
fn is_weight_file(path: &Path) -> bool {
    let of_exported = path.extension().is_some_and(|end| end == "json" || end == "onnx" || end == "data");
    path.is_file() && !of_exported
}

fn entry_name(name: &str, identity: &str, options: &str) -> String {
    let key = short_hex(&Sha256::digest(format!("{}.{CACHE_REVISION}{options}", env!("CARGO_PKG_VERSION"))));
    format!("{}-{}-{key}", safe_name(name), identity.get(..12).unwrap_or(identity))
}

/// Opens `entry` of the cache, and makes it first if it is missing or corrupt. One process makes it, others wait.
///
/// `make` gets a temporary folder and the path in it at which to write the model.
fn with_entry(folder: &Path, entry: &Path, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<Model> {
    let whole = |entry: &Path| -> Result<Model> {
        let lock = Lock::keep(entry).map(Arc::new);
        let model = Model::open_with(entry, |_| false)?;
        // What was opened last stays longest; a cache that cannot be written does not know.
        let manifest = File::options().append(true).open(entry.join(file::MANIFEST));
        drop(manifest.and_then(|manifest| manifest.set_modified(SystemTime::now())));
        Ok(Model { _lock: lock, ..model })
    };
    if let Ok(model) = whole(entry) {
        return Ok(model);
    }
    let limit = export_limit()?;
    create_folder(folder)?;
    let making = Lock::acquire(&entry.with_extension("lock"))?;
    match whole(entry) {
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
    let model = whole(entry)?;
    drop(making);
    limit.map_or(Ok(()), remove_beyond)?;
    Ok(model)
}

#[cfg(test)]
mod tests {
    use ocelli_error::ErrorKind;

    use super::*;

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
