//! Refusals and failures as answers: a status and `{"error": "…"}`.

use std::fmt;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ocelli::{Error, ErrorKind};
use serde_json::json;

/// Characters of a message.
const MOST_CHARACTERS: usize = 500;

/// Why a request is not answered.
#[derive(Debug)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub message: String,
    /// Seconds after which the client may try again.
    retry_after: Option<u32>,
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

    /// 503: the server stops.
    pub fn stopping() -> Self {
        Self { retry_after: Some(5), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping") }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::InvalidData | ErrorKind::Mismatch => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!("{error}");
        }
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &json!({"error": self.message}));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// An answer in JSON, in one line.
pub(crate) fn json_response(status: StatusCode, body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
