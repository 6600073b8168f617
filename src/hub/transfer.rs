//! Downloads the files of a model: each goes on where an earlier download ended, and counts once its hash is the hub's.

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::http::{HeaderMap, StatusCode};

use super::{Cache, HubName, KnownModel, LocalModel, TERMS_TARGET, folder_name, home, is_commit, variable};
use crate::Cancellation;
use crate::atomic_file::write_atomically;
use crate::cache::hex;
use ocelli_error::{Error, ErrorKind, Result};

/// How long a connection, an answer or the next bytes may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often in a row a request may bring nothing.
const TRIES: u32 = 5;
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Time between two looks at a lock of another process.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Time between two reports of progress: on a terminal, where the next replaces the last, and elsewhere.
const REPORTS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// What the hub says of a repository at a revision.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<HubFile>,
}

#[derive(Deserialize)]
struct HubFile {
    rfilename: String,
    #[serde(default)]
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

    /// Whether a file has this content.
    fn check(&self, path: &Path) -> Result<bool> {
        let cannot = |e| Error::io("cannot read", path, e);
        let mut file = File::open(path).map_err(cannot)?;
        let hash = self.hash()?;
        let found = if hash.len() == 64 {
            hash_of(Sha256::new(), |state, bytes| state.update(bytes), &mut file)
                .map(|state| hex(&state.finalize()))
        } else {
            let mut state = Sha1::default();
            sha1::Digest::update(&mut state, format!("blob {}\0", self.size));
            hash_of(state, |state, bytes| sha1::Digest::update(state, bytes), &mut file)
                .map(|state| hex(&sha1::Digest::finalize(state)))
        };
        Ok(found.map_err(cannot)? == hash)
    }
}

fn hash_of<S>(mut state: S, mut update: impl FnMut(&mut S, &[u8]), file: &mut File) -> std::io::Result<S> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(state),
            count => update(&mut state, &buffer[..count]),
        }
    }
}

fn answer(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("an answer of the hub is not understood: {why}"))
}

/// Downloads what the cache lacks of a model.
pub(super) fn download(
    name: &HubName,
    known: Option<&KnownModel>,
    cache: &Cache,
    report: &dyn Fn(&str),
    cancellation: &Cancellation,
) -> Result<LocalModel> {
    let hub = Hub::new(name, report, cancellation)?;
    report(&format!("asking the hub for {}", name.repository));
    let listing = hub.listing()?;
    let names: Vec<&str> = listing.siblings.iter().map(|file| &*file.rfilename).collect();
    let chosen = name.choose(&names)?;
    let files: Vec<&HubFile> =
        listing.siblings.iter().filter(|file| chosen.contains(&&*file.rfilename)).collect();
    let folder = cache.of(&name.repository);
    let blobs = folder.join("blobs");
    create(&blobs)?;
    let mut missing = Vec::new();
    for file in &files {
        if blobs.join(file.hash()?).metadata().map_or(true, |there| there.len() != file.size) {
            missing.push(*file);
        }
    }
    if let Some(license) = known.map(|known| known.license).filter(|_| !missing.is_empty()) {
        tracing::warn!(target: TERMS_TARGET, "terms of {}: {}, {}", name.repository, license.name, license.url);
    }
    check_room(&blobs, &missing)?;
    let mut progress = Progress::new(&missing, report);
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
        reference.parent().map_or(Ok(()), create)?;
        write_atomically(&reference, |out| out.write_all(listing.sha.as_bytes()))?;
    }
    cache
        .open(name, &snapshot, listing.sha)
        .ok_or_else(|| answer(&format!("{} lacks files that its index names", name.repository)))
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("cannot create the folder", folder, e))
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
    path.parent().map_or(Ok(()), create)?;
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

/// One revision of a repository on a server.
struct Hub<'a> {
    agent: ureq::Agent,
    endpoint: String,
    token: Option<String>,
    name: &'a HubName,
    report: &'a dyn Fn(&str),
    cancellation: &'a Cancellation,
    /// Bytes that all requests brought.
    received: Cell<u64>,
}

/// What a request brings, from the thread that waits for it.
enum Event {
    Started(StatusCode, HeaderMap),
    Bytes(Vec<u8>),
    Ended,
    Failed(String),
    Cancelled,
}

/// Why a request brought no more.
enum Trouble {
    /// Worth another try, after a pause that the server may have asked for.
    Again(String, Option<Duration>),
    Final(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl<'a> Hub<'a> {
    fn new(name: &'a HubName, report: &'a dyn Fn(&str), cancellation: &'a Cancellation) -> Result<Self> {
        if ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().filter_map(variable).any(|on| is_on(&on)) {
            let message = format!(
                "cannot open the model, {}: it is not in the cache, and HF_HUB_OFFLINE is set; unset it, or download the \
                 model first: ocelli pull {0}",
                name.repository
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let agent = ureq::Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .http_status_as_error(false)
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .user_agent(concat!("ocelli/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self { agent, endpoint, token: token(), name, report, cancellation, received: Cell::new(0) })
    }

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
        let is_below =
            |path: &str| path.split('/').all(|part| !["", ".", ".."].contains(&part)) && !path.contains('\\');
        if !is_commit(&listing.sha) || !listing.siblings.iter().all(|file| is_below(&file.rfilename)) {
            return Err(answer("a commit or a file has no valid name"));
        }
        Ok(listing)
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
        create(&locks)?;
        let _lock = self.lock(&locks.join(format!("{hash}.lock")))?;
        progress.begin(&file.rfilename);
        if blob.metadata().is_ok_and(|there| there.len() == file.size) {
            progress.done += file.size;
            return Ok(());
        }
        let path = file.rfilename.split('/').map(escape).collect::<Vec<_>>().join("/");
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
            let message = format!(
                "{}, {}: what was downloaded does not have the hash {hash} of the hub, and was removed; try again",
                self.name.repository, file.rfilename
            );
            return Err(Error::new(ErrorKind::InvalidData, message));
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

    /// Repeats a request until it ends, or [`TRIES`] in a row have brought nothing.
    fn persist(&self, mut attempt: impl FnMut() -> Result<(), Trouble>) -> Result<()> {
        let mut failures = 0;
        loop {
            let before = self.received.get();
            let (why, pause) = match attempt() {
                Ok(()) => return Ok(()),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Again(why, pause)) => (why, pause),
            };
            failures = if self.received.get() > before { 1 } else { failures + 1 };
            if failures >= TRIES {
                let message = format!(
                    "cannot download {} from {}: {why}; try again, what is there is kept",
                    self.name.repository, self.endpoint
                );
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            let pause = pause.unwrap_or(Duration::from_millis(250 << failures)).min(LONGEST_PAUSE);
            (self.report)(&format!("{why}; trying again in {:.0} s", pause.as_secs_f64().max(1.0)));
            if self.cancellation.wait(pause) {
                return Err(cancelled());
            }
        }
    }

    /// Asks for an address from a byte on. The bytes come from a thread, so that Ctrl-C and a stall end the wait.
    fn request(&self, url: &str, from: u64) -> Result<Body, Trouble> {
        let (sender, events) = sync_channel(4);
        let mut request = self.agent.get(url).header("Accept-Encoding", "identity");
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let wakes = sender.clone();
        let hook = self.cancellation.on_cancel(move || drop(wakes.try_send(Event::Cancelled)));
        std::thread::spawn(move || receive(request, &sender));
        let body = Body { events, start: 0, _hook: hook };
        match body.next(self)? {
            Event::Started(status, headers) => {
                let start = self.check(status, &headers, from)?;
                Ok(Body { start, ..body })
            }
            _ => Err(Trouble::Again("the server sent nothing".into(), None)),
        }
    }

    /// The byte that an answer starts with.
    fn check(&self, status: StatusCode, headers: &HeaderMap, from: u64) -> Result<u64, Trouble> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let HubName { repository, revision, .. } = self.name;
        let page = format!("{}/{repository}", self.endpoint);
        let refused = |why: String| {
            let message = format!("cannot download {repository}: {why}");
            Trouble::Final(Error::new(ErrorKind::InvalidArgument, message))
        };
        match (status.as_u16(), header("X-Error-Code")) {
            (206, _) => {
                let start =
                    header("Content-Range").strip_prefix("bytes ").and_then(|range| range.split('-').next());
                match start.and_then(|start| start.parse::<u64>().ok()) {
                    Some(start) if start == from => Ok(start),
                    _ => Err(answer("it starts at another byte").into()),
                }
            }
            (200, _) => Ok(0),
            // What is there is longer than the file.
            (416, _) => Err(answer("the file is shorter than what is there").into()),
            (_, "RevisionNotFound") => Err(refused(format!("it has no revision {revision}"))),
            (_, "EntryNotFound") => Err(refused("a file that it lists is not there".into())),
            (401 | 403, "GatedRepo") => {
                let login = match self.token {
                    Some(_) => "with the account of your token",
                    None => "then set HF_TOKEN to a token of your account, or log in with `hf auth login`",
                };
                let message = format!(
                    "cannot download {repository}: its owner grants access: accept the terms at {page}, {login}; litetext-s0 \
                     and efficientsam3-repvit-m need no permission"
                );
                Err(Error::unavailable(message).into())
            }
            (401 | 403 | 404, _) => Err(refused(format!(
                "there is no such repository, or it is private: {page}; no file or folder of this machine has the name, \
                     either, and `ocelli models` lists known ones"
            ))),
            (429 | 500..600, _) => {
                let pause = header("Retry-After").parse().ok().map(Duration::from_secs);
                Err(Trouble::Again(format!("the server answers {status}"), pause))
            }
            _ => Err(refused(format!("the server answers {status}"))),
        }
    }
}

/// The answer of a server.
struct Body {
    events: Receiver<Event>,
    start: u64,
    _hook: crate::cancellation::CancelHook,
}

impl Body {
    fn next(&self, hub: &Hub<'_>) -> Result<Event, Trouble> {
        if hub.cancellation.is_cancelled() {
            return Err(cancelled().into());
        }
        // An answer may take as long as a connection and its first byte.
        match self.events.recv_timeout(2 * PATIENCE) {
            Ok(Event::Cancelled) => Err(cancelled().into()),
            Ok(Event::Failed(why)) => Err(Trouble::Again(format!("the connection failed: {why}"), None)),
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Trouble::Again("nothing came for a minute".into(), None))
            }
        }
    }

    fn for_each(&self, hub: &Hub<'_>, mut with: impl FnMut(&[u8]) -> Result<()>) -> Result<(), Trouble> {
        loop {
            match self.next(hub)? {
                Event::Bytes(bytes) => {
                    with(&bytes)?;
                    hub.received.set(hub.received.get() + bytes.len() as u64);
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Sends what a request brings until nobody listens.
fn receive(request: ureq::RequestBuilder<ureq::typestate::WithoutBody>, events: &SyncSender<Event>) {
    let receive = || -> std::io::Result<()> {
        let gone = |_| std::io::ErrorKind::BrokenPipe;
        let response = request.call().map_err(|e| std::io::Error::other(e.to_string()))?;
        events.send(Event::Started(response.status(), response.headers().clone())).map_err(gone)?;
        let mut body = response.into_body().into_reader();
        loop {
            let mut bytes = vec![0; CHUNK];
            let count = body.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            bytes.truncate(count);
            events.send(Event::Bytes(bytes)).map_err(gone)?;
        }
    };
    let last = receive().map_or_else(|e| Event::Failed(e.to_string()), |()| Event::Ended);
    drop(events.send(last));
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the download was cancelled; what is there is kept")
}

fn is_on(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&&*value.to_lowercase())
}

/// The token of the user, if there is one.
fn token() -> Option<String> {
    let of_file = || {
        if variable("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some_and(|on| is_on(&on)) {
            return None;
        }
        let path = variable("HF_TOKEN_PATH").map(Into::into).or_else(|| Some(home().ok()?.join("token")))?;
        std::fs::read_to_string(path).ok()
    };
    let token = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN")).or_else(of_file)?;
    let token = token.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

/// A part of a path in an address.
fn escape(part: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    part.bytes().map(letter).collect()
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Reports how far the download of several files is.
struct Progress<'a> {
    report: &'a dyn Fn(&str),
    interval: Duration,
    file: String,
    done: u64,
    total: u64,
    /// Bytes that this run received, and since when.
    received: (u64, Instant),
    reported: Instant,
}

impl<'a> Progress<'a> {
    fn new(missing: &[&HubFile], report: &'a dyn Fn(&str)) -> Self {
        let total = missing.iter().map(|file| file.size).sum();
        let interval = REPORTS[usize::from(!std::io::stderr().is_terminal())];
        let now = Instant::now();
        Self { report, interval, file: String::new(), done: 0, total, received: (0, now), reported: now }
    }

    fn begin(&mut self, file: &str) {
        self.file = file.to_owned();
        (self.report)(&format!("downloading {file}, {} of {}", size(self.done), size(self.total)));
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        self.received.0 += bytes;
        let now = Instant::now();
        if now - self.reported < self.interval {
            return;
        }
        self.reported = now;
        let rate = self.received.0 as f64 / (now - self.received.1).as_secs_f64().max(1e-3);
        let left = (self.total.saturating_sub(self.done) as f64 / rate.max(1.0)) as u64;
        (self.report)(&format!(
            "downloading {}, {} of {}, {}/s, {}:{:02} left",
            self.file,
            size(self.done),
            size(self.total),
            size(rate as u64),
            left / 60,
            left % 60
        ));
    }
}
