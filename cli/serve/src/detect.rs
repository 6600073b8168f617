//! `POST /v1/detect`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use ocelli::report::{DetectionRecord, timings};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::connections::Ends;
use crate::engine::Found;
use crate::problem::{Problem, json_response};
use crate::request::Asked;

/// What was found in a picture: an entry of `ocelli detect --json`, without the file.
#[derive(Serialize)]
pub(crate) struct Answer {
    width: u32,
    height: u32,
    detections: Vec<DetectionRecord>,
    timing_ms: Map<String, Value>,
}

impl From<Found> for Answer {
    fn from(found: Found) -> Self {
        Self {
            width: found.width,
            height: found.height,
            detections: found.detections.iter().map(Into::into).collect(),
            timing_ms: timings(&found.times),
        }
    }
}

/// Detects in one picture.
pub(crate) async fn detect(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let client = ends_of(&request)?.client;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let limits = app.config.limits.clone();
    let (picture, question) = match kind.as_str() {
        "application/json" => {
            let body = body(&app, request).await?;
            off_the_workers(move || {
                let mut asked = Asked::from_json(&body)?;
                Ok((asked.take_picture()?, asked.question(&limits)?))
            })
            .await?
        }
        "multipart/form-data" => {
            let (picture, asked) = form(&app, request).await?;
            (picture, off_the_workers(move || Ok(asked.question(&limits)?)).await?)
        }
        _ => {
            let message = "expected application/json or multipart/form-data as the content type";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let picture = picture.filter(|picture| !picture.is_empty());
    let picture = picture.ok_or_else(|| Problem::bad("image is missing: expected a picture file"))?;
    let _slot = app.slots.take(client)?;
    let found = app.engine.ask(client, picture, question).await?;
    Ok(json_response(StatusCode::OK, &Answer::from(found)))
}

/// Runs what takes long for a large body on a thread that may wait, so that other requests are answered meanwhile.
pub(crate) async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be read");
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// The ends of the request's connection.
pub(crate) fn ends_of(request: &Request) -> Result<Ends, Problem> {
    let ends = request.extensions().get::<Ends>();
    ends.cloned()
        .ok_or_else(|| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a connection without an address"))
}

/// The whole body, within the limit.
pub(crate) async fn body(app: &App, request: Request) -> Result<Bytes, Problem> {
    let _place = app.bodies.take(ends_of(&request)?.client)?;
    Bytes::from_request(request, &()).await.map_err(|error| Problem::new(error.status(), error.body_text()))
}

/// A form with the picture in `image`, and the question in `request` as JSON or in a field for each option.
async fn form(app: &App, request: Request) -> Result<(Option<Bytes>, Asked), Problem> {
    let _place = app.bodies.take(ends_of(&request)?.client)?;
    let broken = |error: MultipartError| Problem::new(error.status(), error.body_text());
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let (mut picture, mut asked) = (None, Asked::default());
    while let Some(field) = form.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        match name.as_str() {
            "image" => picture = Some(field.bytes().await.map_err(broken)?),
            "request" => asked = Asked::from_json(&field.bytes().await.map_err(broken)?)?,
            _ => asked.set(&name, &field.text().await.map_err(broken)?)?,
        }
    }
    Ok((picture, asked))
}
