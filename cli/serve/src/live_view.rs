//! Annotated frames for browsers and players: a page, and the frames as a multipart answer ("MJPEG").

use std::convert::Infallible;
use std::future::pending;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use http_body_util::channel::Channel;
use image::ImageFormat;
use ocelli::sink::{Images, Sink};
use ocelli::{Error, ErrorKind, Image, Result, pipeline::FrameOutcome};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::guard::{ISOLATING, add_headers, check_origin, host_of, is_this_machine};
use crate::http::connections::{self, Gauge};
use crate::http::problem::{Answer, Problem};

/// Characters of a path that nobody guesses.
const MIN_SECRET: usize = 8;
/// The most viewers at once.
const VIEWERS: usize = 16;
const QUALITY: u8 = 80;
/// Time that the end of a run waits for viewers to get the last frame.
const END_TIME: Duration = Duration::from_secs(1);
const PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ocelli</title>\
                    <style>body{margin:0;background:#111}img{width:100vw;height:100vh;object-fit:contain}</style>\
                    <img src=\"stream.mjpg\" alt=\"Live video with detections\">";

/// A sink that shows each frame to those who look: a page at [`url`](Self::url), and `stream.mjpg` beside it, which browsers,
/// VLC, OpenCV and home automation play. A frame is encoded once, and only if somebody looks; a slow viewer misses frames.
pub struct LiveView {
    url: String,
    frames: watch::Sender<Option<Bytes>>,
    places: Arc<Semaphore>,
    runtime: Option<Runtime>,
}

impl LiveView {
    /// Listens on an address. On one that other machines reach, the `path` has to be one that they cannot guess: whoever
    /// knows it can look, and other pages can embed the stream. Without such a path they cannot.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for such an address with a path of fewer than eight characters, or a path with others than
    /// letters, digits, `-`, `_` and `/`; [`ErrorKind::Io`] if the port is taken.
    pub fn bind(address: SocketAddr, path: &str) -> Result<Self> {
        let invalid = |message: String| Err(Error::invalid_argument(message));
        let path = path.trim_matches('/');
        if path.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_/".contains(c)) || path.contains("//") {
            return invalid(format!("path {path:?}: expected letters, digits, -, _ and /"));
        }
        let is_local = address.ip().is_loopback();
        let is_secret = path.len() >= MIN_SECRET;
        if !is_local && !is_secret {
            return invalid(format!(
                "{address} is reached by other machines: add a path of at least eight characters that nobody guesses, \
                 such as {address}/Qx7-front-door"
            ));
        }
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot listen on {address}: {error}")).with_source(error)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed)?;
        let prefix = if path.is_empty() { "/".to_owned() } else { format!("/{path}/") };
        let url = format!("http://{}{prefix}", listener.local_addr().map_err(failed)?);
        let (frames, receiver) = watch::channel(None);
        let places = Arc::new(Semaphore::new(VIEWERS));
        let of_viewers = places.clone();
        let routes = Router::new()
            .route(&prefix, get(async || Html(PAGE)))
            .route(&format!("{prefix}stream.mjpg"), get(async move || stream(receiver, of_viewers)))
            .layer(from_fn(move |request, next| checked(is_local, is_secret, request, next)));
        runtime.spawn(async move {
            let open = Gauge::default();
            let settings = connections::Settings::default();
            if let Err(error) = connections::serve(listener, routes, &settings, &open, pending()).await {
                tracing::warn!("cannot listen on {address}: {error}");
            }
        });
        Ok(Self { url, frames, places, runtime: Some(runtime) })
    }

    /// The address of the page.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Sink for LiveView {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        // One receiver is the server's own.
        if let Some(image) = outcome.annotated.as_ref().filter(|_| self.frames.receiver_count() > 1) {
            self.frames.send_replace(Some(encoded(image)?));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // Closes the streams, which ends their answers.
        let (closed, _) = watch::channel(None);
        drop(std::mem::replace(&mut self.frames, closed));
        if let Some(runtime) = self.runtime.take() {
            // A stream that has ended gives its place back.
            let ended = self.places.acquire_many(VIEWERS as u32);
            drop(runtime.block_on(async { tokio::time::timeout(END_TIME, ended).await }));
            runtime.shutdown_background();
        }
        Ok(())
    }
}

/// A frame as a part of the answer, with its boundary.
fn encoded(image: &Image) -> Result<Bytes> {
    let jpeg = image.view().encoded(ImageFormat::Jpeg, QUALITY)?;
    let head = format!("--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", jpeg.len());
    let mut part = head.into_bytes();
    part.extend_from_slice(&jpeg);
    part.extend_from_slice(b"\r\n");
    Ok(part.into())
}

fn stream(mut frames: watch::Receiver<Option<Bytes>>, places: Arc<Semaphore>) -> Answer {
    let full = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{VIEWERS} viewers look already"));
    let place = places.try_acquire_owned().map_err(full)?;
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        let _place = place;
        frames.mark_unchanged();
        while frames.changed().await.is_ok() {
            let frame = frames.borrow_and_update().clone();
            let Some(frame) = frame else { continue };
            if sender.send_data(frame).await.is_err() {
                return;
            }
        }
    });
    let kind = (header::CONTENT_TYPE, "multipart/x-mixed-replace; boundary=frame");
    Ok(([kind, (header::CACHE_CONTROL, "no-store")], Body::new(body)).into_response())
}

/// Answers a request that may look. If the address is local, a page of another name that resolves to this machine must not
/// show the video (DNS rebinding); without a secret path no other page may show the stream, or take the places of viewers.
async fn checked(is_local: bool, is_secret: bool, request: Request, next: Next) -> Response {
    let host = host_of(&request);
    let is_foreign = check_origin(request.headers(), host).is_err();
    let refused = if !is_secret && is_foreign && request.uri().path().ends_with("/stream.mjpg") {
        Some("requests of other pages are refused")
    } else if is_local && !is_this_machine(host, None) {
        Some("the host is not a name of this machine")
    } else {
        None
    };
    let mut response = match refused {
        Some(why) => Problem::new(StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    if !is_secret {
        add_headers(response.headers_mut(), &ISOLATING);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: &str, path: &str, more: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
        let asked = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}Connection: close\r\n\r\n");
        stream.write_all(asked.as_bytes()).expect("the system holds it");
        let mut answer = Vec::new();
        // A stream does not end: its head is enough.
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => answer.push(byte[0]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&answer).to_lowercase()
    }

    fn address_of(view: &LiveView) -> String {
        let address = view.url().trim_start_matches("http://");
        address.split('/').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn idle_connections_are_limited() {
        let view = LiveView::bind("127.0.0.1:0".parse().expect("an address"), "").expect("a free port");
        let address = address_of(&view);
        let half = connections::Settings::default().most / 2;
        let idle: Vec<TcpStream> =
            (0..half).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
        assert!(ask(&address, "/", "").starts_with("http/1.1 503"), "one client has half of the places");
        drop(idle);
        let start = std::time::Instant::now();
        while !ask(&address, "/", "").starts_with("http/1.1 200") {
            assert!(start.elapsed() < Duration::from_secs(10), "the places are free again");
        }
    }

    #[test]
    fn other_pages_embed_the_stream_only_if_they_know_a_path_that_nobody_guesses() {
        let other = "Origin: http://evil.example\r\n";
        let mut wrong = Vec::new();
        for (path, more, status, is_isolated) in [
            ("", "", 200, true),
            ("", "Sec-Fetch-Site: same-origin\r\n", 200, true),
            ("", "Sec-Fetch-Site: cross-site\r\n", 403, true),
            ("", other, 403, true),
            ("short", other, 403, true),
            ("Qx7-front-door", other, 200, false),
        ] {
            let view = LiveView::bind("127.0.0.1:0".parse().expect("an address"), path).expect("a free port");
            let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
            let answer = ask(&address_of(&view), &format!("{prefix}/stream.mjpg"), more);
            let has_headers = ["x-frame-options: deny", "cross-origin-resource-policy: same-origin"]
                .iter()
                .all(|header| answer.contains(header));
            if !answer.starts_with(&format!("http/1.1 {status}")) || has_headers != is_isolated {
                wrong.push(format!("{path:?} {more:?}: expected {status} {is_isolated}, came {answer}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
