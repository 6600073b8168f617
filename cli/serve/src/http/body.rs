//! Bodies, forms and parameters of requests, and work beside the threads that serve them.

use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, Uri, header};
use ocelli::Cancellation;
use serde::de::DeserializeOwned;

use super::limits::Limits;
use super::problem::Problem;

/// Withdraws a question when it is dropped, also while it is worked on.
#[derive(Default)]
pub(crate) struct Asking(Cancellation);

impl Asking {
    /// Cancelled when the question is withdrawn.
    pub fn token(&self) -> Cancellation {
        self.0.clone()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The type of a form.
pub(crate) const FORM: &str = "multipart/form-data";

/// The type of a body.
pub(crate) fn kind_of(request: &Request) -> String {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Runs what takes long on a thread that may wait, so that other requests are answered meanwhile. The token is cancelled
/// when nobody waits for the result any more.
pub(crate) async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce(&Cancellation) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let asking = Asking::default();
    let withdrawn = asking.token();
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; see the log");
    let done = tokio::task::spawn_blocking(move || {
        if withdrawn.is_cancelled() { Err(Problem::stopping()) } else { work(&withdrawn) }
    });
    done.await.map_err(failed)?
}

/// The fields of a form, name and content, that of the whole request first. Others than the known ones are refused, and what
/// would replace one that came before.
pub(crate) async fn fields(
    request: Request,
    Fields(once, several): Fields,
    limits: &Limits,
) -> Result<Vec<(String, Bytes)>, Problem> {
    let broken = |error: MultipartError| Problem::new(error.status(), error.body_text());
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let (mut fields, mut refused): (Vec<(String, Bytes)>, _) = (Vec::new(), None);
    while let Some(field) = form.next_field().await.map_err(broken)? {
        limits.check_fields(fields.len() + 1)?;
        let name = field.name().unwrap_or_default().to_owned();
        let is_one_of = |known: &str| known.split_whitespace().any(|known| known == name);
        if !is_one_of(several) && !is_one_of(once) {
            let file = if field.file_name().is_some() {
                " for a file; the file of an image goes into image"
            } else {
                ""
            };
            let all = format!("{once} {several}").trim().replace(' ', ", ");
            refused.get_or_insert(format!("{name}: no such field{file}; the fields are {all}"));
        } else if !is_one_of(several) && fields.iter().any(|(before, _)| *before == name) {
            refused.get_or_insert(format!("{name} is there twice: expected it once"));
        }
        fields.push((name, field.bytes().await.map_err(broken)?));
    }
    fields.sort_by_key(|(name, _)| name != "request");
    refused.map_or(Ok(fields), |why| Err(Problem::bad(why)))
}

/// The text of a field.
pub(crate) fn text<'v>(name: &str, value: &'v [u8]) -> Result<&'v str, Problem> {
    std::str::from_utf8(value).map_err(|_| Problem::bad(format!("{name}: expected text in UTF-8")))
}

/// The fields that a form may have, once and several times.
pub(crate) struct Fields(pub &'static str, pub &'static str);

/// A parameter of the address, as it is there.
pub(crate) fn parameter<'r>(address: &'r Uri, name: &str) -> Option<&'r str> {
    let pairs = address.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The whole body, within the limit. The caller holds a place for it.
pub(crate) async fn body(request: Request) -> Result<Bytes, Problem> {
    Bytes::from_request(request, &()).await.map_err(|error| Problem::new(error.status(), error.body_text()))
}

/// Reads JSON; an empty body is that of a request without options.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| Problem::bad(format!("request: {error}")))
}
