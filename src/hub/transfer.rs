//! Downloads the files of a model: each goes on where an earlier download ended, and counts once its hash is the hub's.

use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use ocelli_export::contract::hex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::names::is_below;
use super::progress::{Progress, size};
use super::request::{Hub, Trouble, answer, cancelled};
use super::{Cache, HubName, KnownModel, LocalModel, TERMS_TARGET, folder_name, is_commit};
use crate::Cancellation;
use crate::atomic_file::{create_folder, write_atomically};
use crate::cache::sha256_of_file;
use ocelli_error::{Error, ErrorKind, Result};

/// What is encoded in a path of an address.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Time between two looks at a lock of another process.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// The hub's answer about a repository at a revision.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<HubFile>,
    /// The metadata of the model's card.
    #[serde(rename = "cardData", default)]
    card: serde_json::Value,
}

#[derive(Deserialize)]
struct HubFile {
    rfilename: String,
    size: u64,
    /// SHA-1 of git: of a header with the length, and the content.
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
}

impl HubFile {
    /// The name of its content in the cache: a hash of it, SHA-256 for large files.
    fn hash(&self) -> Result<&str> {
        let hash =
            self.lfs.as_ref().map(|large| &*large.sha256).or(self.blob_id.as_deref()).unwrap_or_default();
        let is_hash = matches!(hash.len(), 40 | 64) && hash.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then_some(hash).ok_or_else(|| answer(&format!("{} has no hash", self.rfilename)))
    }

    /// `true` if a file has this content.
    fn check(&self, path: &Path) -> Result<bool> {
        let hash = self.hash()?;
        let found = match hash.len() {
            64 => sha256_of_file(path),
            _ => std::fs::read(path).map(|content| {
                let header = format!("blob {}\0", content.len());
                hex(&Sha1::new().chain_update(header).chain_update(content).finalize())
            }),
        };
        Ok(found.map_err(|e| Error::io("cannot read", path, e))? == hash)
    }
}

/// Downloads what the cache lacks of a model.
pub(super) fn download(
    name: &HubName,
    cache: &Cache,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<LocalModel> {
    let hub = Hub::new(name, report, cancellation)?;
    report(&format!("asking the hub for {}", name.repository));
    let listing = hub.listing()?;
    let names: Vec<&str> = listing.siblings.iter().map(|file| &*file.rfilename).collect();
    let chosen = name.choose(&names)?;
    if let Some(file) = chosen.iter().find(|file| !is_below(file)) {
        return Err(answer(&format!("{file:?} is no name of a file below a folder")));
    }
    let files: Vec<&HubFile> =
        listing.siblings.iter().filter(|file| chosen.contains(&&*file.rfilename)).collect();
    let folder = cache.of(&name.repository);
    let blobs = folder.join("blobs");
    create_folder(&blobs)?;
    let mut missing = Vec::new();
    for file in &files {
        if blobs.join(file.hash()?).metadata().map_or(true, |there| there.len() != file.size) {
            missing.push(*file);
        }
    }
    if !missing.is_empty() {
        let of_card = |key: &str| listing.card[key].as_str();
        let stated = of_card("license_name").or(of_card("license")).unwrap_or("not stated");
        let page = format!("{}/{}", hub.endpoint, name.repository);
        let (terms, url) = KnownModel::license_of(&name.repository)
            .map_or((stated, &*page), |license| (license.name, license.url));
        tracing::warn!(target: TERMS_TARGET, "terms of {}: {terms}, {url}", name.repository);
    }
    check_room(&blobs, &missing)?;
    let mut progress = Progress::new(missing.iter().map(|file| file.size).sum(), report);
    for file in &missing {
        hub.fetch(file, &listing.sha, &folder, &cache.0.join(".locks"), &mut progress)?;
    }
    let snapshot = folder.join("snapshots").join(&listing.sha);
    for file in &files {
        place(
            &blobs.join(file.hash()?),
            &snapshot.join(&file.rfilename),
            file.rfilename.matches('/').count(),
        )?;
    }
    if !is_commit(&name.revision) {
        let reference = folder.join("refs").join(&name.revision);
        reference.parent().map_or(Ok(()), create_folder)?;
        write_atomically(&reference, |out| out.write_all(listing.sha.as_bytes()))?;
    }
    cache
        .open(name, &snapshot, listing.sha)
        .ok_or_else(|| answer(&format!("{} lacks files that its index names", name.repository)))
}

/// Refuses a download for which the disk has no room.
fn check_room(folder: &Path, missing: &[&HubFile]) -> Result<()> {
    let mut needed = 0;
    for file in missing {
        let there =
            folder.join(format!("{}.incomplete", file.hash()?)).metadata().map_or(0, |there| there.len());
        needed += file.size.saturating_sub(there);
    }
    #[cfg(unix)]
    if let Ok(disk) = rustix::fs::statvfs(folder)
        && disk.f_bavail.saturating_mul(disk.f_frsize) < needed
    {
        let message = format!(
            "cannot download the model into {}: it needs {}, and the disk has {} left; set HF_HUB_CACHE to a folder on \
             another one",
            folder.display(),
            size(needed),
            size(disk.f_bavail * disk.f_frsize)
        );
        return Err(Error::new(ErrorKind::Io, message));
    }
    Ok(())
}

/// Puts a file into a snapshot: a link to its content, or the content itself where there are no links.
fn place(blob: &Path, path: &Path, depth: usize) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), create_folder)?;
    #[cfg(unix)]
    let placed = {
        drop(std::fs::remove_file(path));
        let hash = blob.file_name().unwrap_or_default();
        let target = Path::new(&"../".repeat(depth + 2)).join("blobs").join(hash);
        match std::os::unix::fs::symlink(&target, path) {
            // Another process was faster.
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => std::fs::copy(blob, path).map(drop),
            _ => Ok(()),
        }
    };
    #[cfg(not(unix))]
    let placed = {
        _ = depth;
        std::fs::rename(blob, path)
    };
    placed.map_err(|e| Error::io("cannot write", path, e))
}

impl Hub<'_> {
    fn listing(&self) -> Result<Listing> {
        let HubName { repository, revision, .. } = self.name;
        let revision = revision.replace('/', "%2F");
        let url = format!("{}/api/models/{repository}/revision/{revision}?blobs=true", self.endpoint);
        let mut bytes = Vec::new();
        self.persist(|| {
            bytes.clear();
            let body = self.request(&url, 0)?;
            body.for_each(self, |chunk| {
                bytes.extend(chunk);
                Ok(())
            })
        })?;
        let listing: Listing = serde_json::from_slice(&bytes).map_err(|e| answer(&e.to_string()))?;
        is_commit(&listing.sha).then_some(listing).ok_or_else(|| answer("a commit has no valid name"))
    }

    /// Downloads the content of a file, unless another process does so at the moment: then that is waited for.
    fn fetch(
        &self,
        file: &HubFile,
        commit: &str,
        folder: &Path,
        locks: &Path,
        progress: &mut Progress<'_>,
    ) -> Result<()> {
        let hash = file.hash()?;
        let blob = folder.join("blobs").join(hash);
        let part = blob.with_extension("incomplete");
        let locks = locks.join(folder_name(&self.name.repository));
        create_folder(&locks)?;
        let _lock = self.lock(&locks.join(format!("{hash}.lock")))?;
        progress.begin(&file.rfilename);
        if blob.metadata().is_ok_and(|there| there.len() == file.size) {
            progress.done += file.size;
            return Ok(());
        }
        let path = utf8_percent_encode(&file.rfilename, &ENCODED);
        let url = format!("{}/{}/resolve/{commit}/{path}", self.endpoint, self.name.repository);
        let cannot = |e| Error::io("cannot write", &part, e);
        let mut out = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&part)
            .map_err(cannot)?;
        let mut there = out.seek(SeekFrom::End(0)).map_err(cannot)?;
        progress.done += there;
        self.persist(|| {
            if there >= file.size && there > 0 {
                return Ok(());
            }
            let body = self.request(&url, there)?;
            if body.start != there {
                // The server sends everything from the beginning.
                progress.done -= there;
                there = 0;
                out.set_len(0).and_then(|()| out.seek(SeekFrom::Start(0))).map_err(cannot)?;
            }
            body.for_each(self, |chunk| {
                out.write_all(chunk).map_err(cannot)?;
                there += chunk.len() as u64;
                progress.add(chunk.len() as u64);
                Ok(())
            })?;
            match there.cmp(&file.size) {
                std::cmp::Ordering::Less => Err(Trouble::Again("the connection ended early".into(), None)),
                _ => Ok(()),
            }
        })?;
        out.sync_all().map_err(cannot)?;
        (self.report)(&format!("checking {}", file.rfilename));
        if !file.check(&part)? {
            std::fs::remove_file(&part).map_err(cannot)?;
            return Err(Error::invalid_data(format!(
                "{}, {}: what was downloaded does not have the hash {hash} of the hub, and was removed; try again",
                self.name.repository, file.rfilename
            )));
        }
        std::fs::rename(&part, &blob).map_err(cannot)
    }

    /// Waits until no other process, in Rust or Python, downloads a file.
    fn lock(&self, path: &Path) -> Result<File> {
        let cannot = |e| Error::io("cannot lock", path, e);
        let file = File::options().create(true).truncate(false).write(true).open(path).map_err(cannot)?;
        let mut is_said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(e)) => return Err(cannot(e)),
                Err(TryLockError::WouldBlock) if self.cancellation.wait(LOCK_INTERVAL) => {
                    return Err(cancelled());
                }
                Err(TryLockError::WouldBlock) => {}
            }
            if !std::mem::replace(&mut is_said, true) {
                (self.report)(&format!("another process downloads {}; waiting for it", self.name.repository));
            }
        }
    }
}
