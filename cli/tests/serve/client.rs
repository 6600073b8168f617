//! A server, and a client that writes HTTP by hand, wrong HTTP included.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket as Socket2, Type};

use crate::run::Place;

pub const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

/// `ocelli serve` on a free port; it is ended when this is dropped.
pub struct Running {
    child: Child,
    /// Host and port.
    pub address: String,
    /// The query of the page's address.
    pub query: String,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Lines, in lower case.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.headers.iter().find_map(|line| line.strip_prefix(&*start))
    }
}

impl Running {
    pub fn start(place: &Place, more: &[&str]) -> Self {
        let mut arguments = vec!["serve"];
        if !more.contains(&"--engine") {
            arguments.extend(["--engine", "embedded"]);
        }
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(more);
        let mut child = place.start(OCELLI, &arguments);
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        out.read_line(&mut line).expect("the program writes its address");
        let rest = line.trim().strip_prefix("http://").unwrap_or_else(|| {
            let mut error = String::new();
            drop(child.kill());
            drop(child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut error)));
            panic!("no address: {line:?}, {error}")
        });
        let (address, query) = rest.split_once('/').expect("it ends with a slash");
        Self { address: address.to_owned(), query: query.to_owned(), child }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        stream
    }

    /// A connection of another client: each number is an address of its own.
    pub fn connect_as(&self, client: u8) -> TcpStream {
        let socket = Socket2::new(Domain::IPV4, Type::STREAM, None).expect("the system has sockets");
        socket.bind(&SocketAddr::from(([127, 0, 0, client], 0)).into()).expect("127.0.0.0/8 is this machine");
        let server: SocketAddr = self.address.parse().expect("it is an address");
        socket.connect(&server.into()).expect("the server listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        stream
    }

    pub fn send(&self, head: &str, body: &[u8]) -> Reply {
        self.send_on(self.connect(), head, body)
    }

    /// Sends a request without waiting for the answer. Of a body that is declared `length` bytes long, `body` is sent.
    pub fn begin(&self, head: &str, body: &[u8], length: usize) -> TcpStream {
        let mut stream = self.connect();
        let head = format!(
            "{head}\r\nHost: {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("the server reads");
        stream
    }

    /// A request on a connection, which ends with it.
    pub fn send_on(&self, mut stream: TcpStream, head: &str, body: &[u8]) -> Reply {
        let host = if head.to_lowercase().contains("\nhost:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let length = body.len();
        let head = format!("{head}\r\n{host}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        // A server that refuses may close before it has read everything.
        drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
        read_reply(&mut stream)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1"), b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(
            &format!("POST {path} HTTP/1.1\r\nContent-Type: application/json"),
            body.to_string().as_bytes(),
        )
    }

    /// The value of a metric without labels that a client sees; `None` if it has too many connections.
    fn seen(&self, client: u8, name: &str) -> Option<f64> {
        let reply = self.send_on(self.connect_as(client), "GET /metrics HTTP/1.1", b"");
        let text = (reply.status != 503).then(|| reply.text())?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}")))
    }

    /// The value of a metric without labels.
    pub fn metric(&self, name: &str) -> f64 {
        self.seen(1, name).expect("it has a place")
    }

    /// Waits until a metric has a value.
    pub fn wait_for(&self, name: &str, value: f64) {
        self.wait_as(1, name, value);
    }

    /// Waits until a client sees a value.
    pub fn wait_as(&self, client: u8, name: &str, value: f64) {
        let mut last = None;
        for _ in 0..600 {
            last = self.seen(client, name);
            if last.is_some_and(|last| (last - value).abs() < 1e-9) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{name} is {last:?}, expected {value}");
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal can be sent");
    }

    /// Waits for the end. Returns the status and stderr.
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it was started").code();
        let mut error = String::new();
        drop(self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut error)));
        (status, error)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {read:?}, {}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("it is HTTP");
    Reply { status, headers: lines.map(str::to_owned).collect(), body: bytes[end + 4..].to_vec() }
}

/// A form with fields; the field `image` is a file.
pub fn form(fields: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, value) in fields {
        let file = if *name == "image" { "; filename=\"a.png\"\r\nContent-Type: image/png" } else { "" };
        body.extend(
            format!("--border\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes(),
        );
        body.extend(*value);
        body.extend(b"\r\n");
    }
    body.extend(b"--border--\r\n");
    ("Content-Type: multipart/form-data; boundary=border".into(), body)
}

/// Base64, as clients write it.
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// A WebSocket.
pub struct Socket(pub TcpStream);

impl Socket {
    /// Opens `/v1/video`; with another status than 101, the status.
    pub fn open(server: &Running, more: &str) -> Result<Self, u16> {
        let mut stream = server.connect();
        let head = format!(
            "GET /v1/video HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
            server.address
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the server answers");
            answer.push(byte[0]);
        }
        let status =
            String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|status| status.parse().ok());
        match status.expect("it is HTTP") {
            101 => Ok(Self(stream)),
            other => Err(other),
        }
    }

    /// Sends text (kind 1) or bytes (kind 2), masked with zeros.
    pub fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind, 0x80 | 127];
        frame.extend((payload.len() as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(payload);
        self.0.write_all(&frame).expect("the server reads");
    }

    /// The next message; `None` if the server closes.
    pub fn receive(&mut self) -> Option<Value> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.0.read_exact(&mut bytes).ok()?;
                u64::from(u16::from_be_bytes(bytes))
            }
            127 => {
                let mut bytes = [0; 8];
                self.0.read_exact(&mut bytes).ok()?;
                u64::from_be_bytes(bytes)
            }
            short => u64::from(short),
        };
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).ok()?;
        (head[0] == 0x81).then(|| serde_json::from_slice(&payload).expect("it is JSON"))
    }
}
