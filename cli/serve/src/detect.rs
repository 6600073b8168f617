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
use crate::engine::{Asking, Found};
use crate::limits::Limits;
use crate::places::Place;
use crate::problem::{Problem, json_response};
use crate::request::{Asked, Question};

/// What was found in a picture: an entry of `ocelli detect --json`, without the file.
#[derive(Serialize)]
pub(crate) struct Answer {
    width: u32,
    height: u32,
    detections: Vec<DetectionRecord>,
    timing_ms: Map<String, Value>,
}

impl From<Found<Vec<Detection>>> for Answer {
    fn from(found: Found<Vec<Detection>>) -> Self {
        Self {
            width: found.width,
            height: found.height,
            detections: found.items.iter().map(Into::into).collect(),
            timing_ms: timings(&found.times),
        }
    }
}

/// What is asked about a picture, from both forms of a request. The limits come first.
pub(crate) trait Asks: Sized + Send + 'static {
    /// The picture file and the question, from JSON.
    fn of_json(body: &[u8], limits: &Limits) -> Result<(Option<Bytes>, Self), Problem>;

    /// The same, from the names and contents of the fields of a form.
    fn of_form(fields: Vec<(String, Bytes)>, limits: &Limits) -> Result<(Option<Bytes>, Self), Problem>;
}

/// Detects in one picture.
pub(crate) async fn detect(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let client = ends_of(&request)?.client;
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
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let limits = app.config.limits.clone();
    // It is held until the request has its slot, so that bodies that wait are counted.
    let place = app.bodies.take(client)?;
    let (picture, question) = match kind.as_str() {
        "application/json" => {
            let body = body(request).await?;
            off_the_workers(move |_| Q::of_json(&body, &limits)).await?
        }
        "multipart/form-data" => {
            let fields = fields(request, &limits).await?;
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

/// Runs what takes long on a thread that may wait, so that other requests are answered meanwhile. The token is cancelled
/// when nobody waits for the result any more.
pub(crate) async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce(&Cancellation) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let asking = Asking::default();
    let withdrawn = asking.token();
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed; see the log");
    let done = tokio::task::spawn_blocking(move || match withdrawn.is_cancelled() {
        true => Err(Problem::stopping()),
        false => work(&withdrawn),
    });
    done.await.map_err(failed)?
}

/// The ends of the request's connection.
pub(crate) fn ends_of(request: &Request) -> Result<Ends, Problem> {
    let ends = request.extensions().get::<Ends>();
    ends.cloned()
        .ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection without an address"))
}

/// A parameter of the address, as it is there.
pub(crate) fn parameter<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The whole body, within the limit. The caller holds a place for it.
pub(crate) async fn body(request: Request) -> Result<Bytes, Problem> {
    Bytes::from_request(request, &()).await.map_err(|error| Problem::new(error.status(), error.body_text()))
}

/// The fields of a form: name and content.
pub(crate) async fn fields(request: Request, limits: &Limits) -> Result<Vec<(String, Bytes)>, Problem> {
    let broken = |error: MultipartError| Problem::new(error.status(), error.body_text());
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let mut fields = Vec::new();
    while let Some(field) = form.next_field().await.map_err(broken)? {
        limits.check_fields(fields.len() + 1)?;
        fields.push((field.name().unwrap_or_default().to_owned(), field.bytes().await.map_err(broken)?));
    }
    Ok(fields)
}

impl Asks for Question {
    fn of_json(body: &[u8], limits: &Limits) -> Result<(Option<Bytes>, Self), Problem> {
        Asked::from_json(body)?.into_parts(limits)
    }

    /// The picture is in `image`, and the question in `request` as JSON or in a field for each option.
    fn of_form(fields: Vec<(String, Bytes)>, limits: &Limits) -> Result<(Option<Bytes>, Self), Problem> {
        let (mut picture, mut asked) = (None, Asked::default());
        for (name, value) in fields {
            match name.as_str() {
                "image" => picture = Some(value),
                "request" => asked = Asked::from_json(&value)?,
                _ => {
                    let text = std::str::from_utf8(&value);
                    asked.set(
                        &name,
                        text.map_err(|_| Problem::bad(format!("{name}: expected text in UTF-8")))?,
                    )?;
                }
            }
            asked.check_counts(limits)?;
        }
        Ok((picture, asked.question(limits)?))
    }
}
