//! Handlers name what they need of a request as their arguments: who sends it, what its path names, and its body.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::http::body::{FORM, body, fields, kind_of, off_the_workers, read};
use crate::http::connections::Ends;
use crate::http::places::Place;
use crate::http::problem::Problem;
use crate::request::Asks;
use crate::sessions::Session;
use crate::state::App;

/// A place among the requests that wait or run.
pub(crate) struct Slot(#[expect(dead_code, reason = "it is held")] Place);

impl FromRequestParts<Arc<App>> for Slot {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let client = Ends::from_request_parts(parts, app).await?.client;
        app.slots.take(client).map(Self)
    }
}

/// The session that the path names.
pub(crate) struct Of(pub Arc<Session>);

impl FromRequestParts<Arc<App>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(names) = Path::<Vec<(String, String)>>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::new(error.status(), error.body_text()))?;
        let id = names.iter().find(|(name, _)| name == "id").map_or("", |(_, id)| id);
        app.sessions.get(id).map(Self)
    }
}

/// Reads a request about an image. Returns it with the place to work in.
pub(crate) async fn asked<Q: Asks>(
    app: &App,
    client: IpAddr,
    request: Request,
) -> Result<(Bytes, Q, Place), Problem> {
    let limits = app.config.limits.clone();
    // It is held until the request has its slot, so that bodies that wait are counted.
    let place = app.bodies.take(client)?;
    let (image, question) = match kind_of(&request).as_str() {
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
    let image = image.filter(|image| !image.is_empty());
    let image = image.ok_or_else(|| Problem::bad("image is missing: expected an image file"))?;
    let slot = app.slots.take(client)?;
    drop(place);
    Ok((image, question, slot))
}

/// A body in JSON, with its place, which it has until the next one is taken.
pub(crate) struct Arrived<B> {
    pub asked: B,
    pub client: IpAddr,
    pub place: Place,
}

impl<B: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for Arrived<B> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body_of) = request.into_parts();
        let client = Ends::from_request_parts(&mut parts, app).await?.client;
        let place = app.bodies.take(client)?;
        let body = body(Request::from_parts(parts, body_of)).await?;
        off_the_workers(move |_| Ok(Self { asked: read(&body)?, client, place })).await
    }
}
