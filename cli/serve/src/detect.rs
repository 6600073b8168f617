//! `POST /v1/detect`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use ocelli::report::{DetectionRecord, timings};
use ocelli::{Cancellation, Detection};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::connections::Ends;
use crate::engine::{Asking, EngineAnswer};
use crate::extract::body;
use crate::limits::Limits;
use crate::places::Place;
use crate::problem::{Problem, json_response};
use crate::request::Question;

/// What was found in a picture: an entry of `ocelli detect --json`, without the file.
#[derive(Serialize)]
pub(crate) struct Answer {
    width: u32,
    height: u32,
    detections: Vec<DetectionRecord>,
    timing_ms: Map<String, Value>,
}

impl From<EngineAnswer<Vec<Detection>>> for Answer {
    fn from(found: EngineAnswer<Vec<Detection>>) -> Self {
        Self {
            width: found.width,
            height: found.height,
            detections: found.items.iter().map(Into::into).collect(),
            timing_ms: timings(&found.times),
        }
    }
}

/// The fields that a form may have, once and several times.
pub(crate) struct Fields(pub &'static str, pub &'static str);

/// What is asked about a picture, from both forms of a request. The limits come first.
pub(crate) trait Asks: Sized + Send + 'static {
    const FIELDS: Fields;

    /// The picture file and the question, from JSON.
    fn of_json(body: &[u8], limits: &Limits) -> Result<(Option<Bytes>, Self), Problem>;

    /// The same, from the fields of a form.
    fn of_form(fields: Vec<(String, Bytes)>, limits: &Limits) -> Result<(Option<Bytes>, Self), Problem>;
}

/// Detects in one picture.
pub(crate) async fn detect(
    State(app): State<Arc<App>>,
    Ends { client, .. }: Ends,
    request: Request,
) -> Result<Response, Problem> {
    let (picture, question, _slot) = asked::<Question>(&app, client, request).await?;
    let found = app.engine.ask(client, picture, question).await?;
    off_the_workers(move |_| Ok(json_response(StatusCode::OK, &Answer::from(found)))).await
}

/// Reads a request about a picture. Returns it with the place to work in.
pub(crate) async fn asked<Q: Asks>(
    app: &App,
    client: IpAddr,
    request: Request,
) -> Result<(Bytes, Q, Place), Problem> {
    let limits = app.config.limits.clone();
    // It is held until the request has its slot, so that bodies that wait are counted.
    let place = app.bodies.take(client)?;
    let (picture, question) = match kind_of(&request).as_str() {
        "application/json" => {
            let body = body(request).await?;
            off_the_workers(move |_| Q::of_json(&body, &limits)).await?
        }
        FORM => {
            let fields = fields(request, Q::FIELDS, &limits).await?;
            off_the_workers(move |_| Q::of_form(fields, &limits)).await?
        }
        _ => {
            let message = "expected application/json or multipart/form-data as the content type";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let picture = picture.filter(|picture| !picture.is_empty());
    let picture = picture.ok_or_else(|| Problem::bad("image is missing: expected a picture file"))?;
    let slot = app.slots.take(client)?;
    drop(place);
    Ok((picture, question, slot))
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
            let file =
                if field.file_name().is_some() { " for a file; a picture goes into image" } else { "" };
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
