//! The images of tasks: data URIs, and files of the one Label Studio that the server was started with.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use ocelli::{Error, Result, locked};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::LabelStudio;
use crate::http::problem::Problem;
use crate::request::from_base64;

const CONNECT: Duration = Duration::from_secs(5);
const FETCH: Duration = Duration::from_secs(30);
/// Label Studio's access tokens live for five minutes.
const TOKEN_LIFE: Duration = Duration::from_secs(240);
/// What is encoded in an address if Label Studio did not.
const ENCODED: AsciiSet =
    CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'#');
/// Paths under which Label Studio has images.
const FOLDERS: [&str; 3] = ["/data/", "/storage-data/", "/tasks/"];

/// The source of images: without a Label Studio, data URIs alone.
pub(crate) struct Images(Option<Origin>);

/// A Label Studio.
struct Origin {
    /// Without a slash at the end.
    url: String,
    host: String,
    port: u16,
    /// The path of its own, without a slash at the end.
    base: String,
    token: Option<String>,
    /// The most bytes of an answer.
    most: usize,
    /// The token that a personal access token was exchanged for, and when.
    access: Mutex<Option<(String, Instant)>>,
}

impl Images {
    /// Images of this Label Studio, of at most `most` bytes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli::ErrorKind::InvalidArgument) if the address is not `http://HOST`.
    pub fn new(studio: Option<&LabelStudio>, most: usize) -> Result<Self> {
        Ok(Self(studio.map(|studio| Origin::new(studio, most)).transpose()?))
    }

    /// The image at an address of a task.
    pub async fn get(&self, address: &str) -> Result<Bytes, Problem> {
        if address.starts_with("data:") {
            return from_base64(address);
        }
        let Some(origin) = &self.0 else {
            return Err(Problem::bad(
                "the image lies in Label Studio: start the server with its address (`label_studio`) and a token",
            ));
        };
        let path = origin.path_of(address)?;
        let failed = |why: String| {
            Problem::new(StatusCode::BAD_GATEWAY, format!("cannot fetch {path} from {}: {why}", origin.url))
        };
        let token = origin.authorization().await.map_err(&failed)?;
        origin.request(Method::GET, &path, token, Bytes::new()).await.map_err(failed)
    }
}

impl Origin {
    fn new(studio: &LabelStudio, most: usize) -> Result<Self> {
        let wrong = |why: &str| Error::invalid_argument(format!("label_studio, {}: {why}", studio.url));
        let no_address = || wrong("expected an address such as http://127.0.0.1:8080");
        let uri: Uri = studio.url.parse().map_err(|_| no_address())?;
        if uri.scheme_str() == Some("https") {
            let why =
                "https is not supported; name the address behind the proxy, or a tunnel on this machine";
            return Err(wrong(why));
        }
        let host = uri.host().filter(|host| !host.is_empty() && uri.scheme_str() == Some("http"));
        let host = host.ok_or_else(no_address)?.to_owned();
        Ok(Self {
            url: studio.url.trim_end_matches('/').to_owned(),
            port: uri.port_u16().unwrap_or(80),
            base: uri.path().trim_end_matches('/').to_owned(),
            host,
            token: studio.token.clone(),
            most,
            access: Mutex::default(),
        })
    }

    /// The path of an image, if it is one of this Label Studio.
    fn path_of(&self, address: &str) -> Result<String, Problem> {
        let refuse = |why: &str| {
            let start: String = address.chars().take(80).collect();
            Err(Problem::bad(format!("image {start}: {why}")))
        };
        let path = match address.strip_prefix(&self.url) {
            Some(path) => path,
            None if address.starts_with('/') && !address.starts_with("//") => {
                address.strip_prefix(&*self.base).filter(|path| path.starts_with('/')).unwrap_or(address)
            }
            None => return refuse("it is not in the Label Studio that the server was started with"),
        };
        let encoded = utf8_percent_encode(path, &ENCODED).to_string();
        let folders = encoded.split('?').next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
        let has_steps = folders.split(['/', '\\']).any(|part| part == "..") || folders.contains("%2f");
        if has_steps || !FOLDERS.iter().any(|folder| folders.starts_with(folder)) {
            return refuse("expected a path of Label Studio's files, such as /data/upload/1/image.jpg");
        }
        Ok(format!("{}{encoded}", self.base))
    }

    /// The value of the header: a legacy token as it is, a personal access token exchanged for one that is valid for a short time.
    async fn authorization(&self) -> Result<Option<String>, String> {
        let Some(token) = &self.token else { return Ok(None) };
        if token.split('.').count() != 3 {
            return Ok(Some(format!("Token {token}")));
        }
        let known = locked(&self.access).clone();
        if let Some((access, _)) = known.filter(|(_, since)| since.elapsed() < TOKEN_LIFE) {
            return Ok(Some(format!("Bearer {access}")));
        }
        let body = json!({"refresh": token}).to_string().into();
        let path = format!("{}/api/token/refresh", self.base);
        let answer = self.request(Method::POST, &path, None, body).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let access = answer["access"].as_str().ok_or("it refused the token")?.to_owned();
        *locked(&self.access) = Some((access.clone(), Instant::now()));
        Ok(Some(format!("Bearer {access}")))
    }

    /// One request on a connection of its own; redirections are not followed.
    async fn request(
        &self,
        method: Method,
        path: &str,
        authorization: Option<String>,
        body: Bytes,
    ) -> Result<Bytes, String> {
        let work = async {
            let place = (self.host.trim_matches(['[', ']']), self.port);
            let stream =
                timeout(CONNECT, TcpStream::connect(place)).await.map_err(|_| "it does not answer")??;
            let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            let mut request = hyper::Request::builder()
                .method(method)
                .uri(path)
                .header(header::HOST, format!("{}:{}", self.host, self.port))
                .header(header::CONTENT_TYPE, "application/json");
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let request = request.body(Full::new(body))?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            if !status.is_success() {
                return Err(match status.as_u16() {
                    401 | 403 => format!("{status}: a valid token of Label Studio is needed").into(),
                    _ => status.to_string().into(),
                });
            }
            let body = Limited::new(answer.into_body(), self.most).collect().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(body.to_bytes())
        };
        timeout(FETCH, work).await.map_err(|_| "it took too long")?.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_label_studio_are_fetched() {
        let origin = |url: &str| {
            Origin::new(&LabelStudio { url: url.into(), token: None }, 0).expect("it is an address")
        };
        let plain = origin("http://ls:8080/");
        let below = origin("http://ls/studio");
        let cases = [
            (&plain, "/data/upload/1/a b.png", Some("/data/upload/1/a%20b.png")),
            (&plain, "/data/local-files/?d=x/../y.png", Some("/data/local-files/?d=x/../y.png")),
            (&plain, "http://ls:8080/data/upload/ä.png", Some("/data/upload/%C3%A4.png")),
            (&below, "/data/a.png", Some("/studio/data/a.png")),
            (&below, "/studio/data/a.png", Some("/studio/data/a.png")),
            (&plain, "http://ls:80801/data/a.png", None),
            (&plain, "http://ls:8080.evil/data/a.png", None),
            (&plain, "http://evil/data/a.png", None),
            (&plain, "//evil/data/a.png", None),
            (&plain, "/api/users", None),
            (&plain, "/data/../api/users", None),
            (&plain, "/data/%2e%2E/api/users", None),
            (&plain, "/data/..%2Fapi", None),
            (&plain, "file:///etc/passwd", None),
            (&plain, "s3://bucket/a.png", None),
            (&plain, "", None),
        ];
        for (origin, address, expected) in cases {
            assert_eq!(origin.path_of(address).ok().as_deref(), expected, "{address}");
        }
        for wrong in ["ls:8080", "https://ls", "ftp://ls", "", "/data"] {
            assert!(Origin::new(&LabelStudio { url: wrong.into(), token: None }, 0).is_err(), "{wrong}");
        }
    }
}
