//! A server on this machine that speaks the protocol of the Hugging Face Hub.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha1::{Digest, Sha1};
use sha2::Sha256;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A fault in the answer to a request for the content of a file.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The status, and a line of its headers.
    Status(u16, &'static str),
    /// The connection ends after this many bytes.
    Cut(usize),
    /// Nothing more comes after this many bytes.
    Stall(usize),
    /// The whole file, whatever range was asked for.
    WithoutRange,
    /// Other bytes, as many.
    Wrong,
}

#[derive(Default)]
pub struct Repository {
    pub files: BTreeMap<String, Vec<u8>>,
    /// The token that opens it.
    pub token: Option<&'static str>,
}

#[derive(Default)]
struct Shared {
    repositories: Mutex<BTreeMap<String, Repository>>,
    faults: Mutex<VecDeque<Fault>>,
    /// Method, path, whether there is a token, and the first byte of the range of each request.
    requests: Mutex<Vec<String>>,
}

pub struct Server {
    pub address: String,
    shared: Arc<Shared>,
}

struct Request {
    method: String,
    path: String,
    start: usize,
    token: Option<String>,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                // A client that goes away is not the server's trouble.
                std::thread::spawn(move || drop(served.answer(stream)));
            }
        });
        Self { address, shared }
    }

    /// Serves the files of a folder as a repository.
    pub fn add(&self, name: &str, folder: &Path, token: Option<&'static str>) {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
            let content = std::fs::read(entry.path()).expect("the file can be read");
            files.insert(entry.file_name().to_string_lossy().into_owned(), content);
        }
        self.repositories(|all| all.insert(name.to_owned(), Repository { files, token }));
    }

    pub fn repositories<T>(&self, with: impl FnOnce(&mut BTreeMap<String, Repository>) -> T) -> T {
        with(&mut self.shared.repositories.lock().expect("nobody panicked"))
    }

    /// The next requests for the content of files go wrong.
    pub fn fail(&self, faults: &[Fault]) {
        *self.shared.faults.lock().expect("nobody panicked") = faults.iter().copied().collect();
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.requests.lock().expect("nobody panicked"))
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().ok_or(std::io::ErrorKind::UnexpectedEof)??;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut request = Request { method, path, start: 0, token: None };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match &*name.to_lowercase() {
            "range" => {
                request.start = value.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
            }
            "authorization" => request.token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    Ok(request)
}

/// SHA-256 of the content of a large file, that of git of a small one.
fn hash(content: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if is_large(content) {
        return hex(&<Sha256 as sha2::Digest>::digest(content));
    }
    let mut state = Sha1::new();
    state.update(format!("blob {}\0", content.len()));
    state.update(content);
    hex(&state.finalize())
}

fn is_large(content: &[u8]) -> bool {
    content.len() > 100_000
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut request = read_request(&stream)?;
        if request.method == "CONNECT" {
            // As a proxy, which is this server for every host.
            self.requests.lock().expect("nobody panicked").push(format!("CONNECT {}", request.path));
            stream.write_all(b"HTTP/1.1 200 x\r\n\r\n")?;
            request = read_request(&stream)?;
        }
        let Request { method, path, start, token } = &request;
        // Large files lie on another host.
        let port = stream.local_addr()?.port();
        let with_token = if token.is_some() { " with a token" } else { "" };
        self.requests.lock().expect("nobody panicked").push(format!("{method} {path}{with_token} {start}"));
        let mut send = |status: u16, headers: &str, body: &[u8]| -> std::io::Result<()> {
            let length = if headers.contains("Content-Length") {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", body.len())
            };
            write!(stream, "HTTP/1.1 {status} x\r\n{length}Connection: close\r\n{headers}\r\n")?;
            if method != "HEAD" {
                stream.write_all(body)?;
            }
            stream.flush()
        };
        let repositories = self.repositories.lock().expect("nobody panicked");
        let mut parts = path.trim_start_matches('/').trim_start_matches("api/models/").splitn(3, '/');
        let (owner, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if let Some(hash_there) = path.strip_prefix("/cdn/") {
            let contents = repositories.values().flat_map(|repository| repository.files.values());
            let content =
                contents.into_iter().find(|content| hash(content) == hash_there).cloned().unwrap_or_default();
            drop(repositories);
            return self.send_content(&mut stream, method, &content, *start, "");
        }
        let name = name.split('?').next().unwrap_or_default();
        let Some(repository) = repositories.get(&format!("{owner}/{name}")) else {
            return send(404, "X-Error-Code: RepoNotFound\r\n", b"");
        };
        let rest = parts.next().unwrap_or_default();
        if path.starts_with("/api/") {
            let revision = rest.trim_start_matches("revision/").split('?').next().unwrap_or_default();
            if !["", "main", COMMIT].contains(&revision) {
                return send(404, "X-Error-Code: RevisionNotFound\r\n", b"");
            }
            let siblings = repository.files.iter().map(|(name, content)| {
                let (hash, size) = (hash(content), content.len());
                let lfs = if is_large(content) {
                    format!(",\"lfs\":{{\"sha256\":\"{hash}\",\"size\":{size},\"pointerSize\":1}}")
                } else {
                    String::new()
                };
                format!("{{\"rfilename\":\"{name}\",\"size\":{size},\"blobId\":\"{hash}\"{lfs}}}")
            });
            let siblings = siblings.collect::<Vec<_>>().join(",");
            let body = format!(
                "{{\"id\":\"{owner}/{name}\",\"sha\":\"{COMMIT}\",\"cardData\":{{\"license\":\"cc-by-nc-4.0\"}},\"siblings\":[{siblings}]}}"
            );
            return send(200, "Content-Type: application/json\r\n", body.as_bytes());
        }
        if repository.token.is_some() && repository.token != token.as_deref() {
            return send(if token.is_some() { 403 } else { 401 }, "X-Error-Code: GatedRepo\r\n", b"");
        }
        let file = rest.split('/').skip(2).collect::<Vec<_>>().join("/");
        let Some(content) = repository.files.get(&file).cloned() else {
            return send(404, "X-Error-Code: EntryNotFound\r\n", b"");
        };
        drop(repositories);
        let hash = hash(&content);
        let about = format!("X-Repo-Commit: {COMMIT}\r\nETag: \"{hash}\"\r\n");
        if !is_large(&content) {
            return self.send_content(&mut stream, method, &content, *start, &about);
        }
        let linked = format!(
            "{about}X-Linked-Etag: \"{hash}\"\r\nX-Linked-Size: {}\r\nLocation: http://localhost:{port}/cdn/{hash}\r\n",
            content.len()
        );
        send(302, &linked, b"")
    }

    fn send_content(
        &self,
        stream: &mut TcpStream,
        method: &str,
        content: &[u8],
        start: usize,
        headers: &str,
    ) -> std::io::Result<()> {
        let fault =
            if method == "GET" { self.faults.lock().expect("nobody panicked").pop_front() } else { None };
        let (mut content, mut start) = (content.to_vec(), start);
        match fault {
            Some(Fault::Status(status, header)) => {
                return write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n{header}\r\n\r\n"
                );
            }
            Some(Fault::Wrong) => content.iter_mut().for_each(|byte| *byte ^= 1),
            Some(Fault::WithoutRange) => start = 0,
            _ => {}
        }
        let body = content.get(start..).unwrap_or_default();
        let range =
            format!("Content-Range: bytes {start}-{}/{}\r\n", content.len().max(1) - 1, content.len());
        let (status, range) = if start > 0 { (206, &*range) } else { (200, "") };
        write!(
            stream,
            "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n{range}{headers}\r\n",
            body.len()
        )?;
        let sent = match fault {
            Some(Fault::Cut(count) | Fault::Stall(count)) => body.get(..count).unwrap_or(body),
            _ => body,
        };
        if method != "HEAD" {
            stream.write_all(sent)?;
            stream.flush()?;
        }
        if let Some(Fault::Stall(_)) = fault {
            std::thread::sleep(Duration::from_secs(90));
        }
        Ok(())
    }
}
