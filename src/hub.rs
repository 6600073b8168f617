//! Models by name, from the Hugging Face Hub.
//!
//! Files lie in the cache of Python's `huggingface_hub`, in its layout, under its locks: what one of the two downloaded the
//! other finds. The environment is the same, too: `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_ENDPOINT`,
//! `HF_HUB_OFFLINE`. What is there is used without a question to the hub; [`fetch`] with `update` looks for a newer revision.
//! Nothing but the files of the named model is asked for.

mod names;
#[cfg(feature = "hub")]
mod progress;
#[cfg(feature = "hub")]
mod request;
#[cfg(feature = "hub")]
mod transfer;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Cancellation;
use ocelli_error::{Error, Result};

pub use names::{HubName, KnownModel, License};

/// The `tracing` target of a model's terms, which are written before it is downloaded; programs show it even if they are quiet.
pub const TERMS_TARGET: &str = "ocelli::terms";

/// A model on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalModel {
    /// The folder or the file of the checkpoint.
    pub path: PathBuf,
    /// The checkpoint that has the rest of the model.
    pub base: Option<PathBuf>,
    /// The tokeniser, if it is not beside the checkpoint.
    pub tokenizer: Option<PathBuf>,
    /// The commit of the repository.
    pub revision: String,
    /// Its terms, if they are known.
    pub license: Option<&'static str>,
}

/// The model of a name: the one in the cache, else it is downloaded.
///
/// `report` is called with lines of progress, and `cancellation` ends a download at once; the next one goes on where it
/// ended. `update` asks the hub for a newer revision although there is one in the cache.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such repository, revision or file; [`Unavailable`](crate::ErrorKind::Unavailable) if access to it
/// was not granted, without a network, with `HF_HUB_OFFLINE`, or in a build without the feature `hub`;
/// [`InvalidData`](crate::ErrorKind::InvalidData) if the content is not what the hub says; [`Io`](crate::ErrorKind::Io) for a full disk;
/// [`Cancelled`](crate::ErrorKind::Cancelled).
pub fn fetch(
    name: &str,
    update: bool,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<LocalModel> {
    let known = KnownModel::find(name);
    let mut local = fetch_files(name, update, report, cancellation)?;
    let companion = |name: Option<&str>| {
        let path = name.map(|name| fetch_files(name, false, report, cancellation)).transpose()?;
        Ok::<_, Error>(path.map(|local| local.path))
    };
    local.base = companion(known.and_then(|known| known.base))?;
    let license = KnownModel::license_of(&name.parse::<HubName>()?.repository);
    local.license = license.map(|license| license.name);
    local.tokenizer = companion(known.and_then(|known| known.tokenizer))?;
    Ok(local)
}

/// The model of a name if all of its files are in the cache.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if it is no name, [`Unavailable`](crate::ErrorKind::Unavailable) without a home folder.
pub fn cached(name: &str) -> Result<Option<LocalModel>> {
    Ok(Cache::from_env()?.find(&name.parse()?))
}

/// Removes a model from the cache: the named file, or the whole repository. Returns how many bytes that freed.
///
/// # Errors
/// As [`cached`], and [`Io`](crate::ErrorKind::Io).
pub fn remove(name: &str) -> Result<u64> {
    let (name, cache): (HubName, _) = (name.parse()?, Cache::from_env()?);
    let folder = cache.of(&name.repository);
    let (snapshots, blobs) = (folder.join("snapshots"), folder.join("blobs"));
    let size = |path: &Path| path.metadata().map_or(0, |there| there.len());
    let Some(file) = &name.file else {
        let bytes = entries(&blobs).map(|blob| size(&blob)).sum();
        return remove_if_there(&folder, |folder| std::fs::remove_dir_all(folder)).map(|()| bytes);
    };
    let mut bytes = 0;
    for link in entries(&snapshots).map(|snapshot| snapshot.join(file)) {
        let Ok(content) = link.canonicalize() else { continue };
        bytes += size(&content);
        remove_if_there(&content, |path| std::fs::remove_file(path))?;
        remove_if_there(&link, |path| std::fs::remove_file(path))?;
    }
    Ok(bytes)
}

fn remove_if_there(path: &Path, remove: impl Fn(&Path) -> std::io::Result<()>) -> Result<()> {
    match remove(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("cannot remove", path, e)),
        _ => Ok(()),
    }
}

/// The paths in a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn fetch_files(
    name: &str,
    update: bool,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<LocalModel> {
    let (name, cache): (HubName, _) = (name.parse()?, Cache::from_env()?);
    match cache.find(&name) {
        // A commit has no newer revision.
        Some(there) if !update || is_commit(&name.revision) => Ok(there),
        _ => download(&name, &cache, report, cancellation),
    }
}

#[cfg(feature = "hub")]
use transfer::download;

#[cfg(not(feature = "hub"))]
fn download(name: &HubName, _: &Cache, _: &dyn Fn(&str), _: &Cancellation) -> Result<LocalModel> {
    Err(Error::unavailable(format!(
        "cannot open the model, {}: it is not in the cache, and this build downloads nothing; build with the feature hub, \
         or download it by other means",
        name.repository
    )))
}

/// The value of a variable of the environment that is not empty.
#[doc(hidden)]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The cache of `huggingface_hub`.
struct Cache(PathBuf);

impl Cache {
    fn from_env() -> Result<Self> {
        let folder = variable("HF_HUB_CACHE").or_else(|| variable("HUGGINGFACE_HUB_CACHE"));
        Ok(Self(folder.map_or_else(|| Ok(home()?.join("hub")), |folder| Ok(folder.into()))?))
    }

    /// The folder of a repository.
    fn of(&self, repository: &str) -> PathBuf {
        self.0.join(folder_name(repository))
    }

    /// The model at the last commit that was seen of its revision.
    fn find(&self, name: &HubName) -> Option<LocalModel> {
        let folder = self.of(&name.repository);
        let mut commit = name.revision.clone();
        if !is_commit(&commit) {
            commit = std::fs::read_to_string(folder.join("refs").join(commit)).ok()?.trim().to_owned();
        }
        let snapshot = Some(folder.join("snapshots").join(&commit)).filter(|_| is_commit(&commit))?;
        self.open(name, &snapshot, commit)
    }

    /// The model in a snapshot, if all of its files are there.
    fn open(&self, name: &HubName, snapshot: &Path, revision: String) -> Option<LocalModel> {
        let mut files = Vec::new();
        list(snapshot, "", &mut files);
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let chosen = name.choose(&files).ok()?;
        let has_shards = !chosen.contains(&names::INDEX) || has_all_shards(snapshot, &files);
        let needs_index =
            chosen.iter().any(|file| file.starts_with("model-")) && !chosen.contains(&names::INDEX);
        (has_shards && !needs_index).then(|| LocalModel {
            path: name.path_of(snapshot, &chosen),
            revision,
            ..LocalModel::default()
        })
    }
}

fn folder_name(repository: &str) -> String {
    format!("models--{}", repository.replace('/', "--"))
}

fn has_all_shards(snapshot: &Path, files: &[&str]) -> bool {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index = std::fs::read(snapshot.join(names::INDEX)).ok();
    let index = index.and_then(|bytes| serde_json::from_slice::<Index>(&bytes).ok());
    index.is_some_and(|index| index.weight_map.values().all(|shard| files.contains(&&**shard)))
}

/// The names of the files below a folder, which may be links.
fn list(folder: &Path, above: &str, files: &mut Vec<String>) {
    for path in entries(folder) {
        let name = format!("{above}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            list(&path, &format!("{name}/"), files);
        } else if path.is_file() {
            files.push(name);
        }
    }
    files.sort();
}

/// The folder of `huggingface_hub`: the token, and by default the cache.
fn home() -> Result<PathBuf> {
    let of_user = || {
        let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || variable("HOME").or_else(|| variable("USERPROFILE"));
        cache.or_else(|| home().map(|home| Path::new(&home).join(".cache")))
    };
    variable("HF_HOME")
        .map(PathBuf::from)
        .or_else(|| of_user().map(|cache| cache.join("huggingface")))
        .ok_or_else(|| {
            Error::unavailable("no cache of models: there is no home folder; set HF_HOME to a folder")
        })
}
