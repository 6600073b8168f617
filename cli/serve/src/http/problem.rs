//! Refusals and failures as answers: a status and `{"error": "…"}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ocelli::{Error, ErrorKind};
use serde_json::{Value, json};

/// Characters of a message.
const MOST_CHARACTERS: usize = 500;

/// The result of a handler.
pub(crate) type Answer = Result<Response, Problem>;

/// Why a request is not answered.
#[derive(Debug)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub message: String,
    /// Seconds after which the client may try again.
    pub retry_after: Option<u32>,
}

impl Problem {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        // It can quote the request.
        if let Some((end, _)) = message.char_indices().nth(MOST_CHARACTERS) {
            message.truncate(end);
            message.push('…');
        }
        Self { status, message, retry_after: None }
    }

    /// 400.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404.
    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 503: try again in a second.
    pub fn busy() -> Self {
        Self::full("too many requests at the same time; try again after the seconds in Retry-After")
    }

    /// 503 for another reason, which may pass in a second.
    pub fn full(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// The body of the answer.
    pub fn json(&self) -> Value {
        json!({"error": self.message})
    }

    /// 503: the server stops.
    pub fn stopping() -> Self {
        Self { retry_after: Some(5), ..Self::full("the server is stopping") }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let message = without_folders(&error.to_string());
        if let ErrorKind::InvalidArgument | ErrorKind::InvalidData | ErrorKind::Mismatch = error.kind() {
            return Self::bad(message);
        }
        tracing::warn!("{error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

/// A message with the names of files instead of absolute paths: where files lie is nobody's business. A path ends where the reason
/// begins.
fn without_folders(message: &str) -> String {
    let (mut shown, mut rest) = (String::new(), message);
    let begins = |text: &str, at: usize| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|letter| letter.is_whitespace() || "\"'(=".contains(letter))
            && text[at + 1..].starts_with(|letter: char| !letter.is_whitespace())
    };
    while let Some(start) = rest.match_indices('/').map(|(at, _)| at).find(|at| begins(rest, *at)) {
        let (before, path) = rest.split_at(start);
        let ends = [": ", ", ", "; ", "\"", "'", ")", "\n"].iter().filter_map(|end| path.find(end));
        let (path, after) = path.split_at(ends.min().unwrap_or(path.len()));
        shown += before;
        shown += path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        rest = after;
    }
    shown + rest
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, json_response(&self.json())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let ask = HeaderValue::from_static("Basic realm=\"ocelli\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
        }
        response
    }
}

/// An answer in JSON, in one line.
pub(crate) fn json_response(body: &impl serde::Serialize) -> Response {
    let mut bytes = serde_json::to_vec(body).expect("the keys of answers are texts and numbers");
    bytes.push(b'\n');
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_see_where_files_lie() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let path = std::path::Path::new("/home/me/my sets/labels/a.txt");
        let io = Error::io("cannot write", path, denied);
        for (error, expected) in [
            (io, "cannot write, a.txt: permission denied"),
            (Error::mismatch("gallery, /srv/a set/: stopped"), "gallery, a set: stopped"),
            (Error::execution("x").at(path), "a.txt: x"),
            (Error::invalid_data("\"/a/b.png\" (/c/d), 1 / 2, n/a"), "\"b.png\" (d), 1 / 2, n/a"),
            (Error::invalid_data("labels, labels/train/a.txt, line 1"), "labels, labels/train/a.txt, line 1"),
        ] {
            let problem = Problem::from(error);
            assert_eq!(problem.message, expected);
        }
    }
}
